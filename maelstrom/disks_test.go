package maelstrom

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/pawlbroker/pawl/maelstrom/checker"
	"github.com/pawlbroker/pawl/maelstrom/harness"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// written is one message on a disk. Its record has its key, so that nobody need
// know which topic the log is of.
type written struct {
	key    string
	offset int64
	value  string
}

// onDisk is what a node that has ended left behind.
func onDisk(t *testing.T, dir string) map[written]bool {
	t.Helper()
	store, rec, err := storage.Open(vfs.OS(dir), storage.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close(nil)
	found := map[written]bool{}
	for _, l := range rec.Logs {
		for next := l.View.Start(); next < l.View.End(); {
			region, err := l.View.Read(next, math.MaxInt64, 1<<20)
			if err != nil {
				t.Fatalf("%s: %s: %v", dir, l.ID, err)
			}
			bytes := make([]byte, region.Len)
			if _, err := region.File.ReadAt(bytes, region.Pos); err != nil {
				t.Fatalf("%s: %s: %v", dir, l.ID, err)
			}
			for len(bytes) > 0 {
				var b record.Batch
				if b, bytes, err = record.Cut(bytes); err != nil {
					t.Fatalf("%s: %s: %v", dir, l.ID, err)
				}
				next = b.NextOffset()
				if err := record.Walk(b.Payload(), b.Count(), func(r record.Record) error {
					found[written{string(r.Key), int64(b.BaseOffset()) + int64(r.OffsetDelta), string(r.Value)}] = true
					return nil
				}); err != nil {
					t.Fatalf("%s: %s: %v", dir, l.ID, err)
				}
			}
		}
	}
	return found
}

// checkDisks finds every acknowledged send on the disks of so many nodes at
// least.
func checkDisks(t *testing.T, dir string, result harness.Result, least int) {
	t.Helper()
	var disks []map[written]bool
	for i := range result.Config.NodeCount {
		at := filepath.Join(dir, "n"+strconv.Itoa(i))
		if _, err := os.Stat(at); err != nil {
			t.Fatal(err)
		}
		disks = append(disks, onDisk(t, at))
	}
	copies := map[int]int{}
	for _, op := range result.History.Ops {
		if op.Kind != checker.Send || op.Outcome != checker.OK {
			continue
		}
		n := 0
		for _, d := range disks {
			if d[written{op.Key, op.Offset, strconv.FormatInt(op.Value, 10)}] {
				n++
			}
		}
		if copies[n]++; n < least {
			t.Errorf("key %s: %d was acknowledged at offset %d, and is on %d disks, want %d", op.Key, op.Value, op.Offset, n, least)
		}
	}
	if len(copies) == 0 {
		t.Error("nothing was acknowledged")
	}
	t.Logf("sends by the number of disks that have them: %v", copies)
}
