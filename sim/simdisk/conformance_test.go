package simdisk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// conform runs a claim on a real directory and on the simulated disk.
func conform(t *testing.T, claim func(t *testing.T, fsys vfs.FS)) {
	t.Run("os", func(t *testing.T) { claim(t, vfs.OS(t.TempDir())) })
	t.Run("simdisk", func(t *testing.T) { claim(t, simdisk.New()) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, fsys vfs.FS, name, content string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	if content != "" {
		_, err = f.WriteAt([]byte(content), 0)
		must(t, err)
	}
	return f
}

func content(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name)
	must(t, err)
	defer f.Close()
	size, err := f.Size()
	must(t, err)
	buf := make([]byte, size)
	n, err := f.ReadAt(buf, 0)
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestNamesThatAreNotThereMatchErrNotExist(t *testing.T) {
	conform(t, func(t *testing.T, fsys vfs.FS) {
		_, openErr := fsys.Open("a")
		_, createErr := fsys.Create("no/a")
		for what, err := range map[string]error{
			"open":    openErr,
			"create":  createErr,
			"remove":  fsys.Remove("a"),
			"rename":  fsys.Rename("a", "b"),
			"mkdir":   fsys.Mkdir("no/dir"),
			"syncdir": fsys.SyncDir("no"),
		} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if names, err := fsys.List("no"); len(names) != 0 || err != nil {
			t.Errorf("list: %v %v", names, err)
		}
	})
}

func TestCreateFailsIfTheNameIsTaken(t *testing.T) {
	conform(t, func(t *testing.T, fsys vfs.FS) {
		create(t, fsys, "a", "x").Close()
		if _, err := fsys.Create("a"); !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
		if got := content(t, fsys, "a"); got != "x" {
			t.Fatalf("%q", got)
		}
	})
}

func TestReadsEndAtTheEndOfTheFile(t *testing.T) {
	conform(t, func(t *testing.T, fsys vfs.FS) {
		f := create(t, fsys, "a", "hello")
		defer f.Close()
		for _, c := range []struct {
			at   int64
			size int
			want string
			err  error
		}{
			{0, 5, "hello", nil}, {1, 2, "el", nil}, {3, 4, "lo", io.EOF}, {5, 1, "", io.EOF}, {9, 1, "", io.EOF}, {0, 0, "", nil},
		} {
			buf := make([]byte, c.size)
			n, err := f.ReadAt(buf, c.at)
			if string(buf[:n]) != c.want || err != c.err {
				t.Errorf("read %d at %d: %q %v", c.size, c.at, buf[:n], err)
			}
		}
	})
}

func TestWritesOverwriteAndExtend(t *testing.T) {
	conform(t, func(t *testing.T, fsys vfs.FS) {
		f := create(t, fsys, "a", "hello")
		defer f.Close()
		_, err := f.WriteAt([]byte("J"), 0)
		must(t, err)
		_, err = f.WriteAt([]byte("ified"), 4)
		must(t, err)
		if got := content(t, fsys, "a"); got != "Jellified" {
			t.Fatalf("%q", got)
		}
	})
}

func TestTruncateCutsAndNeverGrows(t *testing.T) {
	conform(t, func(t *testing.T, fsys vfs.FS) {
		f := create(t, fsys, "a", "hello")
		defer f.Close()
		must(t, f.Truncate(2))
		if err := f.Truncate(3); err == nil {
			t.Fatal("grew")
		}
		_, err := f.WriteAt([]byte("!"), 2)
		must(t, err)
		if got := content(t, fsys, "a"); got != "he!" {
			t.Fatalf("%q", got)
		}
	})
}

func TestListIsSortedAndOfOneDirectory(t *testing.T) {
	conform(t, func(t *testing.T, fsys vfs.FS) {
		must(t, fsys.Mkdir("d"))
		must(t, fsys.Mkdir("d"))
		for _, name := range []string{"b", "d/z", "a", "d/y"} {
			create(t, fsys, name, "").Close()
		}
		root, err := fsys.List(".")
		must(t, err)
		sub, err := fsys.List("d")
		must(t, err)
		if !slices.Equal(root, []string{"a", "b", "d"}) || !slices.Equal(sub, []string{"y", "z"}) {
			t.Fatal(root, sub)
		}
	})
}

func TestRenameReplacesFilesAndMovesDirectories(t *testing.T) {
	conform(t, func(t *testing.T, fsys vfs.FS) {
		create(t, fsys, "new", "new").Close()
		create(t, fsys, "old", "old").Close()
		must(t, fsys.Rename("new", "old"))
		must(t, fsys.Mkdir("d"))
		must(t, fsys.Rename("old", "d/file"))
		must(t, fsys.Rename("d", "e"))
		if got := content(t, fsys, "e/file"); got != "new" {
			t.Fatalf("%q", got)
		}
		if names, _ := fsys.List("."); !slices.Equal(names, []string{"e"}) {
			t.Fatal(names)
		}
	})
}

func TestADirectoryWithFilesIsNotRemoved(t *testing.T) {
	conform(t, func(t *testing.T, fsys vfs.FS) {
		must(t, fsys.Mkdir("d"))
		create(t, fsys, "d/a", "").Close()
		if err := fsys.Remove("d"); err == nil {
			t.Fatal("removed")
		}
		must(t, fsys.Remove("d/a"))
		must(t, fsys.Remove("d"))
	})
}

func TestARemovedFileCanBeReadWhileItIsOpen(t *testing.T) {
	conform(t, func(t *testing.T, fsys vfs.FS) {
		f := create(t, fsys, "a", "hello")
		must(t, fsys.Remove("a"))
		buf := make([]byte, 5)
		if _, err := f.ReadAt(buf, 0); err != nil || string(buf) != "hello" {
			t.Fatalf("%q %v", buf, err)
		}
		must(t, f.Close())
		if err := f.Sync(); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("sync after close: %v", err)
		}
	})
}

// The same random calls give the same answers on both.
func TestSimdiskAnswersAsTheRealDiskDoes(t *testing.T) {
	for seed := range uint64(20) {
		disks := []vfs.FS{vfs.OS(t.TempDir()), simdisk.New()}
		var said [2][]string
		for i, fsys := range disks {
			said[i] = chatter(fsys, rand.New(rand.NewPCG(seed, 0)))
		}
		for i := range said[0] {
			if said[0][i] != said[1][i] {
				t.Fatalf("seed %d step %d:\nos      %s\nsimdisk %s", seed, i, said[0][i], said[1][i])
			}
		}
	}
}

func chatter(fsys vfs.FS, rng *rand.Rand) (said []string) {
	names := []string{"a", "b", "c", "d", "d/a", "d/b", "e", "e/a"}
	pick := func() string { return names[rng.IntN(len(names))] }
	say := func(what string, err error) {
		ok := "ok"
		if err != nil {
			ok = "error"
		}
		said = append(said, what+": "+ok)
	}
	for range 300 {
		name := pick()
		switch rng.IntN(9) {
		case 0, 1:
			f, err := fsys.Create(name)
			say("create "+name, err)
			if err == nil {
				f.Close()
			}
		case 2, 3, 4:
			f, err := fsys.Open(name)
			at, p := rng.Int64N(2000), bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(1500))
			if err != nil {
				continue // a directory can be opened for real
			}
			if size, err := f.Size(); err == nil {
				_, err = f.WriteAt(p, min(at, size))
				say("write "+name, err)
				err = f.Truncate(at)
				say(fmt.Sprint("truncate ", name, at), err)
				buf := make([]byte, 4096)
				n, err := f.ReadAt(buf, at/2)
				say(fmt.Sprintf("read %s %x", name, buf[:n]), err)
			}
			f.Close()
		case 5:
			say("remove "+name, fsys.Remove(name))
		case 6:
			to := pick()
			if to == name || len(to) == 3 && to[:1] == name || len(name) == 3 && name[:1] == to {
				continue // into itself
			}
			say("rename "+name+" "+to, fsys.Rename(name, to))
		case 7:
			say("mkdir "+name, fsys.Mkdir(name))
		case 8:
			if name = names[3]; rng.IntN(2) == 0 {
				name = "."
			}
			list, err := fsys.List(name)
			if err == nil {
				say(fmt.Sprint("list ", name, list), err)
			}
		}
	}
	return said
}
