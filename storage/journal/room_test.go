package journal

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/pawlbroker/pawl/sim/simdisk"
)

// TestAGroupTakesNoMoreRoomThanItsDraftSays appends groups of records that look like
// groups in every sector, and so have to be escaped in each.
func TestAGroupTakesNoMoreRoomThanItsDraftSays(t *testing.T) {
	disk := newDisk(t)
	cfg := Config{FileBytes: 4 << 20, GrowBytes: 1 << 20}
	j, _ := open(t, disk, cfg, From{})
	rng := rand.New(rand.NewPCG(1, 2))
	magic := binary.BigEndian.AppendUint32(nil, groupMagic)
	for i := range 100 {
		n := 1 + rng.IntN(400<<10)
		shift := (sectorSize - groupHeader - 4 + i%4) % 4 // the magic is found at four bytes' distances only
		record := append(make([]byte, shift), bytes.Repeat(magic, n/4)...)
		var d Draft
		d.Begin(len(record))
		copy(d.Add(len(record)), record)
		says, seq, pos, fits := d.Room(), j.Seq(), j.Pos(), d.Room() <= j.Room()
		before := disk.Stats()
		if err := j.Append(&d); err != nil {
			t.Fatal(err)
		}
		if took := j.Pos() - pos; j.Seq() == seq && took > says {
			t.Fatalf("a group of %d bytes takes %d, its draft says %d", n, took, says)
		}
		if fits && (j.Seq() != seq || disk.Stats().Syncs != before.Syncs) {
			t.Fatal("a group that the journal has room for goes to another file")
		}
		checkRoom(t, disk, j)
	}
}

// checkRoom holds what a journal says against its file.
func checkRoom(t *testing.T, disk *simdisk.Disk, j *Journal) {
	t.Helper()
	size, err := j.file.Size()
	if err != nil {
		t.Fatal(err)
	}
	if want := max(0, min(size, j.cfg.FileBytes)-j.Pos()); j.Room() != want {
		t.Fatalf("room for %d bytes, there are %d", j.Room(), want)
	}
}

// TestRoomIsWhatIsThere follows it over all that changes it.
func TestRoomIsWhatIsThere(t *testing.T) {
	disk := newDisk(t)
	j, _ := open(t, disk, small, From{})
	checkRoom(t, disk, j)
	if j.Room() != 0 {
		t.Error("a file that was just made has room")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		checkRoom(t, disk, j)
	}
	must(j.put("a"))
	if j.Room() == 0 {
		t.Error("no room was made")
	}
	must(j.Sync())
	disk = disk.Kill()
	j, _ = open(t, disk, small, From{})
	if checkRoom(t, disk, j); j.Room() == 0 {
		t.Error("a journal that was opened has none of the room that is there")
	}
	must(j.Rotate())
	if j.Room() != 0 {
		t.Error("the next file has room")
	}
	must(j.put("b"))
	must(j.Rotate())
	must(j.Recycle(j.Seq()))
	must(j.Rotate())
	if j.Room() == 0 {
		t.Error("a file that is used again has no room")
	}
	disk.SetCapacity(disk.Used())
	if err := j.put(string(make([]byte, small.FileBytes-2*sectorSize))); err == nil {
		t.Fatal("no error")
	}
	checkRoom(t, disk, j)
	disk.SetCapacity(-1)
	must(j.put(string(make([]byte, 2*small.FileBytes))))
	if j.Room() != 0 {
		t.Errorf("room for %d bytes in a file that is longer than files are", j.Room())
	}
	for j.file != nil { // until that one is used again, in which a group does not go beyond what is a file's
		must(j.Rotate())
		must(j.Recycle(j.Seq()))
		if size, err := j.file.Size(); err != nil || size > small.FileBytes {
			break
		}
	}
	checkRoom(t, disk, j)
}
