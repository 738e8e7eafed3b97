package storage_test

import (
	"testing"

	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// writeAt is a write of one batch of about so many bytes.
func writeAt(id storage.LogID, at record.Offset, bytes int) storage.Write {
	b := benchBatch(bytes)
	b.Assign(at, 0)
	return storage.Write{Log: id, Batches: []record.Batch{b}, SegmentBytes: 1 << 20, AppendTime: record.NoTimestamp}
}

// TestGroupsThatAreReadyShareASync begins four groups, one of them large and not
// synced yet: those before it are durable with the first, those behind wait.
func TestGroupsThatAreReadyShareASync(t *testing.T) {
	disk, cfg := simdisk.New(), storage.DefaultConfig()
	cfg.LargeAppend, cfg.JournalGrowBytes = 4000, 0
	st, _, err := storage.Open(disk, cfg)
	must(t, err)
	var groups []*storage.Group
	for i, bytes := range []int{10, 10, 5000, 10} {
		groups = append(groups, st.Begin([]storage.Write{writeAt(ids()[0], record.Offset(i), bytes)}))
	}
	syncs := func(f func()) int64 {
		before := disk.Stats().Syncs
		f()
		return disk.Stats().Syncs - before
	}
	finish := func(i int) func() {
		return func() {
			if c := groups[i].Finish()[0]; c.Err != nil || c.View.End() != record.Offset(i+1) {
				t.Fatalf("group %d ends at %d, %v", i, c.View.End(), c.Err)
			}
		}
	}
	if a, b := syncs(finish(0)), syncs(finish(1)); a != 1 || b != 0 {
		t.Fatalf("%d and %d syncs, want 1 and 0", a, b)
	}
	groups[2].SyncSegments()
	if a, b := syncs(finish(2)), syncs(finish(3)); a != 1 || b != 0 {
		t.Fatalf("%d and %d syncs, want 1 and 0", a, b)
	}
	_, rec, err := storage.Open(disk.Kill(), cfg)
	must(t, err)
	if rec.Groups != 4 || rec.Logs[0].View.End() != 4 {
		t.Fatalf("%d groups, log ends at %d", rec.Groups, rec.Logs[0].View.End())
	}
}

// TestWhatAPageCacheWriteWaitsFor begins a durable group behind one that is not:
// the first does not wait for the second's sync.
func TestWhatAPageCacheWriteWaitsFor(t *testing.T) {
	disk := simdisk.New()
	st, _, err := storage.Open(disk, storage.DefaultConfig())
	must(t, err)
	first := writeAt(ids()[0], 0, 10)
	first.PageCache = true
	a, b := st.Begin([]storage.Write{first}), st.Begin([]storage.Write{writeAt(ids()[0], 1, 10)})
	before := disk.Stats().Syncs
	must(t, a.Finish()[0].Err)
	if n := disk.Stats().Syncs - before; n != 0 {
		t.Fatalf("%d syncs", n)
	}
	must(t, b.Finish()[0].Err)
	if n := disk.Stats().Syncs - before; n != 1 {
		t.Fatalf("%d syncs", n)
	}
}
