package vfs

import (
	"errors"
	"os"
	"testing"
)

// TestFailedSyncIsToldToAll is about the kernel's way of telling of a failed
// write once: two syncs of one file must not share an error between them.
func TestFailedSyncIsToldToAll(t *testing.T) {
	f, err := OS(t.TempDir()).Create("f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := f.(*osFile)
	broken := errors.New("input/output error")
	once := func(*os.File) error {
		err := broken
		broken = nil
		return err
	}
	want := broken
	for range 3 {
		if err := o.sync(once); !errors.Is(err, want) {
			t.Fatalf("got %v", err)
		}
	}
	if err := o.Sync(); !errors.Is(err, want) {
		t.Fatalf("got %v", err)
	}
}
