package vfs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/storage/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSyncFilesTakesAnyNumberOfFiles(t *testing.T) {
	for _, count := range []int{0, 1, 5, 16, 40} {
		fsys := vfs.OS(t.TempDir())
		var files []vfs.File
		for i := range count {
			f, err := fsys.Create(fmt.Sprintf("f%d", i))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte("x"), 0); err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		if err := fsys.SyncFiles(files); err != nil {
			t.Fatalf("%d files: %v", count, err)
		}
	}
}

func TestSyncFilesReportsTheFileThatFails(t *testing.T) {
	fsys := vfs.OS(t.TempDir())
	a, err := fsys.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := fsys.Create("b")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b.Close()
	if err := fsys.SyncFiles([]vfs.File{a, b}); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

func TestFilesGiveOutTheKernelsFile(t *testing.T) {
	fsys := vfs.OS(t.TempDir())
	f, err := fsys.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.(vfs.OSFile).OSFile() == nil {
		t.Fatal("no file")
	}
}

func TestLockKeepsAnotherProcessOutAndNamesIt(t *testing.T) {
	if root := os.Getenv("VFS_TEST_LOCK"); root != "" { // the other process
		_, err := vfs.Lock(root)
		fmt.Println(err)
		return
	}
	root := t.TempDir() + "/data"
	lock, err := vfs.Lock(root)
	if err != nil {
		t.Fatal(err)
	}
	other := func() string {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLockKeepsAnotherProcessOutAndNamesIt$")
		cmd.Env = append(os.Environ(), "VFS_TEST_LOCK="+root)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.SplitN(string(out), "\n", 2)[0]
	}
	if got := other(); !strings.HasSuffix(got, "held by process "+strconv.Itoa(os.Getpid())) {
		t.Fatalf("got %q", got)
	}
	if names, err := vfs.OS(root).List("."); err != nil || len(names) != 0 {
		t.Fatalf("the lock shows: %v %v", names, err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if got := other(); got != "<nil>" {
		t.Fatalf("after closing: %q", got)
	}
}

// TestErrorNamesTheFile, which the open file itself does not keep.
func TestErrorNamesTheFile(t *testing.T) {
	root := t.TempDir()
	f, err := vfs.OS(root).Create("a.log")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := filepath.Join(root, "a.log")
	for what, err := range map[string]error{
		"read":     second(f.ReadAt(make([]byte, 1), -1)),
		"write":    second(f.WriteAt([]byte("x"), -1)),
		"truncate": f.Truncate(1),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := vfs.OS(root).Open("b.log"); err == nil || !strings.Contains(err.Error(), filepath.Join(root, "b.log")) {
		t.Errorf("open: %v", err)
	}
}

func second(_ int, err error) error { return err }
