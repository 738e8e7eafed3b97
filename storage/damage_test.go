package storage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// A scenario is a store with a checkpoint, and small and large appends before
// and after it, over three logs.
type scenario struct {
	disk  *simdisk.Disk
	store *storage.Store
	cfg   storage.Config
	want  map[storage.LogID][]byte
	ends  map[storage.LogID]record.Offset
	last  storage.Write // the newest append: nothing proves that it was durable
}

func newScenario(t *testing.T) *scenario {
	t.Helper()
	s := &scenario{disk: simdisk.New(), cfg: storage.DefaultConfig(), want: map[storage.LogID][]byte{}, ends: map[storage.LogID]record.Offset{}}
	s.cfg.LargeAppend, s.cfg.JournalFileBytes, s.cfg.JournalGrowBytes, s.cfg.IndexIntervalBytes = 700, 4096, 1024, 200
	s.reopen(t)
	for i := range 6 {
		s.append(t, ids()[i%3], 40, 3)
		s.append(t, ids()[(i+1)%3], 300, 3)
	}
	must(t, s.store.SaveQuorum([][]byte{[]byte("a"), []byte("b")}, false))
	must(t, s.store.BeginCheckpoint(nil))
	must(t, s.store.FinishCheckpoint())
	for i := range 6 {
		s.append(t, ids()[i%3], 300, 3)
		s.append(t, ids()[(i+1)%3], 40, 3)
	}
	must(t, s.store.SaveQuorum([][]byte{[]byte("c")}, false))
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *scenario) reopen(t *testing.T) storage.Recovered {
	t.Helper()
	st, rec, err := storage.Open(s.disk, s.cfg)
	must(t, err)
	s.store = st
	return rec
}

func (s *scenario) append(t *testing.T, id storage.LogID, bytes, batches int) {
	t.Helper()
	w := storage.Write{Log: id, SegmentBytes: 2000, AppendTime: record.NoTimestamp}
	for range batches {
		value := fmt.Appendf(nil, "%*d", bytes, s.ends[id])
		b := record.NewBuilder().Append(7, nil, value).Append(8, nil, value).Build(record.Options{})
		b.Assign(s.ends[id], 3)
		s.ends[id] = b.NextOffset()
		s.want[id] = append(s.want[id], b...)
		w.Batches = append(w.Batches, b)
	}
	s.last = w
	must(t, s.store.Commit([]storage.Write{w})[0].Err)
}

// readAll reads a log from start to end, skipping what is refused. It reports
// what was read and the damage that was met.
func readAll(t *testing.T, v storage.View, want []byte) (damage []*storage.DamageError) {
	t.Helper()
	pos := 0
	for len(want[pos:]) > 0 {
		b, _, err := record.Peek(want[pos:])
		must(t, err)
		reg, err := v.Read(b.BaseOffset(), v.End(), 1)
		var d *storage.DamageError
		switch {
		case errors.As(err, &d):
			damage = append(damage, d)
		case err != nil:
			t.Fatalf("read at %d: %v", b.BaseOffset(), err)
		default:
			got := make([]byte, reg.Len)
			if _, err := reg.File.ReadAt(got, reg.Pos); err != nil || !slices.Equal(got, b) {
				t.Fatalf("read at %d gives other bytes, %v", b.BaseOffset(), err)
			}
		}
		pos += len(b)
	}
	return damage
}

// verdict opens a disk on which one bit was flipped in file, and checks that
// what is served is what was written, and that what is not served is named. It
// reports whether the flip was noticed. lossy says that the flip may pass for a
// write that was cut short by the power.
func (s *scenario) verdict(t *testing.T, file string, lossy bool) (noticed bool) {
	t.Helper()
	st, rec, err := storage.Open(s.disk, s.cfg)
	var d *storage.DamageError
	if errors.As(err, &d) {
		if d.File != file && !(strings.HasPrefix(file, "journal/") && strings.HasPrefix(d.File, "journal/")) {
			t.Fatalf("flip in %s: open says %v", file, err)
		}
		return true
	}
	must(t, err)
	_ = st
	if got := fmt.Sprintf("%s", rec.Quorum); got != "[a b c]" {
		if !strings.HasPrefix(file, "quorum/") || !lossy || got != "[a b]" {
			t.Fatalf("flip in %s: quorum is %s", file, got)
		}
		return true
	}
	for _, r := range rec.Logs {
		if r.Damage != nil {
			if r.Damage.File != file {
				t.Fatalf("flip in %s: log %s has %v", file, r.ID, r.Damage)
			}
			noticed = true
			continue
		}
		want := s.want[r.ID]
		if r.View.End() != s.ends[r.ID] {
			if !strings.HasPrefix(file, "journal/") || !lossy || r.ID != s.last.Log || r.View.End() != s.last.Batches[0].BaseOffset() {
				t.Fatalf("flip in %s: log %s ends at %d, want %d", file, r.ID, r.View.End(), s.ends[r.ID])
			}
			noticed = true
			want = upTo(t, want, r.View.End())
		}
		for _, d := range readAll(t, r.View, want) {
			if d.File != file {
				t.Fatalf("flip in %s: read says %v", file, d)
			}
			noticed = true
		}
	}
	return noticed
}

func upTo(t *testing.T, want []byte, end record.Offset) []byte {
	t.Helper()
	for rest := want; len(rest) > 0; {
		b, r, err := record.Peek(rest)
		must(t, err)
		if b.BaseOffset() == end {
			return want[:len(want)-len(rest)]
		}
		rest = r
	}
	return want
}

// TestFlippedBitIsNeverServed flips a bit at many places of every file, after a
// kill and after a clean shutdown.
func TestFlippedBitIsNeverServed(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%t", clean), func(t *testing.T) {
			var files []simdisk.FileInfo
			build := func() *scenario {
				s := newScenario(t)
				if clean {
					must(t, s.store.Close(nil))
				}
				s.disk = s.disk.Crash(rand.New(rand.NewPCG(1, 1)))
				return s
			}
			files = build().disk.Files()
			if clean {
				dumpAll(t, build().disk)
			}
			rng := rand.New(rand.NewPCG(2, 2))
			for _, f := range files {
				noticed, flips := 0, 0
				if found, err := storage.Check(build().disk); err != nil || len(found) > 0 {
					t.Fatalf("check of an intact directory: %v, %v", found, err)
				}
				for pos := int64(rng.IntN(60)); pos < f.Size; pos += 60 + int64(rng.IntN(300)) {
					s := build()
					if !s.disk.FlipBit(f.Name, pos, uint(rng.IntN(8))) {
						continue
					}
					flips++
					found, err := storage.Check(s.disk)
					must(t, err)
					saw := s.verdict(t, f.Name, !clean)
					if saw {
						noticed++
					}
					mustFind := saw && !strings.HasSuffix(f.Name, ".journal") || clean && strings.HasSuffix(f.Name, ".index")
					if mustFind && len(found) == 0 {
						t.Errorf("%s: check finds nothing wrong with bit at %d", f.Name, pos)
					}
					for _, d := range found {
						if d.File != f.Name && !strings.HasPrefix(d.File, "journal/") {
							t.Errorf("%s: check says %v", f.Name, &d)
						}
					}
				}
				if strings.HasSuffix(f.Name, ".log") && clean && noticed != flips {
					t.Errorf("%s: %d of %d flips noticed", f.Name, noticed, flips)
				}
			}
		})
	}
}

// dumpAll decodes every file there is.
func dumpAll(t *testing.T, disk *simdisk.Disk) {
	t.Helper()
	for _, f := range disk.Files() {
		var out strings.Builder
		if err := storage.Dump(disk, f.Name, &out, func(b []byte) string { return string(b) }); err != nil {
			t.Fatalf("dump %s: %v", f.Name, err)
		}
	}
}
