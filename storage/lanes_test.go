package storage_test

import (
	"errors"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// TestLanesRunSideBySide is for the race detector: appends and truncations,
// checkpoints, the quorum and two readers at once on real files.
func TestLanesRunSideBySide(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	cfg := storage.DefaultConfig()
	cfg.LargeAppend, cfg.JournalFileBytes, cfg.IndexIntervalBytes = 2000, 64<<10, 500
	st, _, err := storage.Open(vfs.OS(dir), cfg)
	must(t, err)
	id := storage.LogID{Topic: [16]byte{1}}
	var lanes sync.WaitGroup
	lane := func(f func()) { lanes.Add(1); go func() { defer lanes.Done(); f() }() }
	views, begun := make(chan storage.View, 64), make(chan bool, 64)
	lane(func() {
		end := record.Offset(0)
		for i := range 300 {
			w := storage.Write{Log: id, SegmentBytes: 20000, AppendTime: record.NoTimestamp, PageCache: i%2 == 0}
			for range 1 + i%5 {
				b := record.NewBuilder().Append(record.Timestamp(i), nil, make([]byte, 200+i)).Build(record.Options{})
				b.Assign(end, 0)
				end = b.NextOffset()
				w.Batches = append(w.Batches, b)
			}
			c := st.Commit([]storage.Write{w})[0]
			if c.Err != nil {
				t.Error(c.Err)
				break
			}
			views <- c.View
			if i%40 == 39 {
				v, err := st.Truncate(id, end-2)
				if err != nil {
					t.Error(err)
				}
				end = v.End()
			}
			if i%25 == 24 {
				if err := st.BeginCheckpoint(nil); err != nil {
					t.Error(err)
				}
				begun <- true
			}
		}
		close(views)
		close(begun)
	})
	lane(func() {
		for range begun {
			if err := st.FinishCheckpoint(); err != nil {
				t.Error(err)
			}
		}
	})
	lane(func() {
		for i := range 50 {
			if err := st.SaveQuorum([][]byte{{byte(i)}}, i%10 == 9); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2 {
		lane(func() {
			for v := range views {
				readSome(t, v)
			}
		})
	}
	lanes.Wait()
	must(t, st.Close(nil))
	found, err := storage.Check(vfs.OS(dir))
	if err != nil || len(found) > 0 {
		t.Fatal(found, err)
	}
}

// readSome reads here and there in a view. What a truncation took may be gone.
func readSome(t *testing.T, v storage.View) {
	for from := v.Start(); from < v.End(); from += 37 {
		reg, err := v.Read(from, v.End(), 3000)
		if err != nil {
			if !errors.Is(err, storage.ErrGone) {
				t.Error(err)
			}
			return
		}
		p := make([]byte, reg.Len)
		n, _ := reg.File.ReadAt(p, reg.Pos)
		if b, _, err := record.Cut(p[:n]); n == len(p) && (err != nil || b.BaseOffset() != from) {
			t.Error(err)
		}
		_, _ = v.Find(from, v.End(), 3000)
		if _, err := v.OffsetForTimestamp(record.Timestamp(from), v.End()); err != nil && !errors.Is(err, storage.ErrGone) {
			t.Error(err)
		}
	}
}
