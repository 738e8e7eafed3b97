package storage_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// TestFirstStartCanCrashAnywhere, again and again, and what comes of it is a
// store that keeps what it acknowledges.
func TestFirstStartCanCrashAnywhere(t *testing.T) {
	cfg := storage.DefaultConfig()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		for fuse := int64(0); ; fuse++ {
			disk := simdisk.New()
			disk.SetFuse(fuse, rng.Uint64())
			_, _, err := storage.Open(disk, cfg)
			if err == nil {
				break // it was done before the fuse burnt down
			}
			if !errors.Is(err, simdisk.ErrCrashed) {
				t.Fatalf("seed %d, fuse %d: %v", seed, fuse, err)
			}
			disk = disk.Crash(rng)
			disk.SetFuse(rng.Int64N(60), rng.Uint64())
			if _, _, err := storage.Open(disk, cfg); err != nil && !errors.Is(err, simdisk.ErrCrashed) {
				t.Fatalf("seed %d, fuse %d, second start: %v", seed, fuse, err)
			}
			disk = disk.Crash(rng)
			st, rec, err := storage.Open(disk, cfg)
			if err != nil {
				t.Fatalf("seed %d, fuse %d, third start: %v", seed, fuse, err)
			}
			if len(rec.Logs) > 0 || len(rec.Quorum) > 0 {
				t.Fatalf("seed %d, fuse %d: recovered %+v", seed, fuse, rec)
			}
			keepsOneRecord(t, disk, st, rng)
		}
	}
}

func keepsOneRecord(t *testing.T, disk *simdisk.Disk, st *storage.Store, rng *rand.Rand) {
	t.Helper()
	b := record.NewBuilder().Append(1, nil, []byte("v")).Build(record.Options{})
	id := storage.LogID{Topic: [16]byte{1}}
	if c := st.Commit([]storage.Write{{Log: id, Batches: []record.Batch{b}, SegmentBytes: 1 << 20, AppendTime: record.NoTimestamp}}); c[0].Err != nil {
		t.Fatal(c[0].Err)
	}
	if err := st.SaveQuorum([][]byte{[]byte("q")}, false); err != nil {
		t.Fatal(err)
	}
	_, rec, err := storage.Open(disk.Crash(rng), storage.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Quorum) != 1 || len(rec.Logs) != 1 || rec.Logs[0].View.End() != 1 {
		t.Fatalf("recovered %+v", rec)
	}
}

// TestFirstStartSyncsLittle: what a start costs on a slow disk is its syncs.
// The data directory, and a file and a directory for each journal, after the
// checkpoint itself.
func TestFirstStartSyncsLittle(t *testing.T) {
	disk := simdisk.New()
	if _, _, err := storage.Open(disk, storage.DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	if got := disk.Stats().Syncs; got > 6 {
		t.Errorf("%d syncs, want at most 6", got)
	}
}

// TestLostDirectoryIsNotMadeAgain once the store was used.
func TestLostDirectoryIsNotMadeAgain(t *testing.T) {
	disk := simdisk.New()
	st, _, err := storage.Open(disk, storage.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.SaveQuorum([][]byte{[]byte("q")}, false); err != nil {
		t.Fatal(err)
	}
	removeAll(t, disk, "quorum")
	if err := disk.SyncDir(""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := storage.Open(disk, storage.DefaultConfig()); err == nil {
		t.Error("opened without the quorum's journal")
	}
}

func removeAll(t *testing.T, disk *simdisk.Disk, dir string) {
	t.Helper()
	names, err := disk.List(dir)
	for _, name := range names {
		err = errors.Join(err, disk.Remove(dir+"/"+name))
	}
	if err := errors.Join(err, disk.Remove(dir)); err != nil {
		t.Fatal(err)
	}
}
