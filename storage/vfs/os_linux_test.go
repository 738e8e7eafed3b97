package vfs_test

import (
	"errors"
	"testing"

	"github.com/pawlbroker/pawl/storage/vfs"
)

func TestFullDiskMatchesErrNoSpace(t *testing.T) {
	f, err := vfs.OS("/dev").Open("full")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("got %v, want ErrNoSpace", err)
	}
}
