package journal

import (
	"slices"
	"testing"
)

// A write that fails within a group's padding leaves all of the group but zeros.
// Such a group was never synced. To take it for whole would put the next group
// behind the end of the file.
func TestAGroupWithoutItsPaddingIsTorn(t *testing.T) {
	noAhead := Config{FileBytes: 8192}
	for cut := int64(1); cut < sectorSize; cut += 13 {
		d := newDisk(t)
		j, _ := open(t, d, noAhead, From{})
		must(t, j.put("one"))
		must(t, j.Sync())
		must(t, j.put("two"))
		whole := j.Pos()
		file, err := d.Open(file1)
		must(t, err)
		must(t, file.Truncate(whole-cut))
		d = d.Kill()

		j, got := open(t, d, noAhead, From{})
		if !slices.Equal(got, []string{"one"}) || j.Pos() > j.size {
			t.Fatalf("%d bytes missing: %q, next group at %d of %d", cut, got, j.Pos(), j.size)
		}
		must(t, j.put("TWO"))
		must(t, j.Sync())
		if _, again := open(t, d.Kill(), noAhead, From{}); !slices.Equal(again, []string{"one", "TWO"}) {
			t.Fatalf("%d bytes missing: then %q", cut, again)
		}
	}
}

// The same of a file's header, which is nearly all zeros.
func TestAFileHeaderWithoutItsPaddingIsAFileInTheMaking(t *testing.T) {
	for cut := int64(1); cut < sectorSize; cut += 13 {
		d := newDisk(t)
		j, _ := open(t, d, small, From{})
		must(t, j.put("one"))
		must(t, j.Rotate())
		file, err := d.Open(name("j", 2))
		must(t, err)
		must(t, file.Truncate(sectorSize-cut))
		d = d.Kill()

		j, got := open(t, d, small, From{})
		if !slices.Equal(got, []string{"one"}) || j.Seq() != 1 {
			t.Fatalf("%d bytes missing: %q, in file %d", cut, got, j.Seq())
		}
		must(t, j.put("two"))
		must(t, j.Sync())
		if _, again := open(t, d.Kill(), small, From{}); !slices.Equal(again, []string{"one", "two"}) {
			t.Fatalf("%d bytes missing: then %q", cut, again)
		}
	}
}
