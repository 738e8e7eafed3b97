package storage_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// TestAGroupIsShownIfTheJournalHasRoomForItAndThoseBefore fills the disk with groups
// in flight: who was shown becomes durable all the same, who was not is refused.
func TestAGroupIsShownIfTheJournalHasRoomForItAndThoseBefore(t *testing.T) {
	disk, cfg := simdisk.New(), storage.DefaultConfig()
	cfg.JournalGrowBytes, cfg.JournalFileBytes = 32<<10, 1<<20
	st, _, err := storage.Open(disk, cfg)
	must(t, err)
	if g := st.Begin([]storage.Write{writeAt(ids()[0], 0, 10)}); g.Early() != nil {
		t.Fatal("the first group of a file is shown: it has no room yet")
	} else {
		must(t, g.Finish()[0].Err)
	}
	next := writeAt(ids()[0], 1, 10)
	before := disk.Stats().Syncs
	g := st.Begin([]storage.Write{next, writeAt(ids()[0], 7, 10)})
	early := g.Early()
	if len(early) != 2 || early[0].Err != nil || !errors.Is(early[1].Err, storage.ErrNotNext) {
		t.Fatalf("%v", early)
	}
	r, ok := early[0].View.Find(1, 2, 1<<20)
	got := make([]byte, r.Len)
	if ok && r.Len > 0 {
		_, err = r.File.ReadAt(got, r.Pos)
		must(t, err)
	}
	if !bytes.Equal(got, next.Batches[0]) || disk.Stats().Syncs != before {
		t.Fatalf("%d bytes are shown, after %d syncs", len(got), disk.Stats().Syncs-before)
	}
	must(t, g.Finish()[0].Err)

	// About 30 KiB are ahead: room for two groups of 10 KiB, whatever comes in between.
	var groups []*storage.Group
	shown := 0
	for i := range 4 {
		g := st.Begin([]storage.Write{writeAt(ids()[0], record.Offset(2+i), 10<<10)})
		if g.Early() != nil {
			if shown++; shown != i+1 {
				t.Errorf("group %d is shown, and one before it is not", i)
			}
		}
		groups = append(groups, g)
	}
	if shown != 2 {
		t.Fatalf("%d groups are shown, want 2", shown)
	}
	disk.SetCapacity(disk.Used())
	for i, g := range groups {
		if err := g.Finish()[0].Err; (err != nil) != (i >= shown) || err != nil && !errors.Is(err, storage.ErrNoSpace) {
			t.Errorf("group %d of %d that are shown: %v", i, shown, err)
		}
	}
	disk.SetCapacity(-1)
	if g := st.Begin([]storage.Write{writeAt(ids()[0], 4, 10)}); g.Finish()[0].Err != nil {
		t.Error("what was taken back is not continued")
	}
	_, rec, err := storage.Open(disk.Kill(), cfg)
	must(t, err)
	if v := rec.Logs[0].View; v.End() != 5 {
		t.Errorf("the log ends at %d", v.End())
	}
}

// liar is a file system that has no space for what overwrites the journal, as one
// that copies on write may.
type liar struct {
	vfs.FS
	lies bool
}

type liarFile struct {
	vfs.File
	fs *liar
}

func (l *liar) Create(name string) (vfs.File, error) {
	f, err := l.FS.Create(name)
	if strings.HasPrefix(name, "journal/") && err == nil {
		f = &liarFile{f, l}
	}
	return f, err
}

func (f *liarFile) WriteAt(p []byte, off int64) (int, error) {
	if f.fs.lies {
		return 0, vfs.ErrNoSpace
	}
	return f.File.WriteAt(p, off)
}

// TestWhatWasShownIsNotTakenBack: if there is no space for it after all, it is as if a
// sync had failed. The process ends, and who has it follows another leader epoch.
func TestWhatWasShownIsNotTakenBack(t *testing.T) {
	disk := &liar{FS: simdisk.New()}
	st, _, err := storage.Open(disk, storage.DefaultConfig())
	must(t, err)
	must(t, st.Commit([]storage.Write{writeAt(ids()[0], 0, 10)})[0].Err)
	g := st.Begin([]storage.Write{writeAt(ids()[0], 1, 10)})
	if g.Early() == nil {
		t.Fatal("not shown")
	}
	disk.lies = true
	if err := g.Finish()[0].Err; err == nil || errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("%v", err)
	}
	disk.lies = false
	if err := st.Commit([]storage.Write{writeAt(ids()[0], 1, 10)})[0].Err; err == nil || errors.Is(err, storage.ErrNotNext) {
		t.Errorf("the store goes on: %v", err)
	}
}
