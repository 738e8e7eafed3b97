//go:build !linux

package vfs

import "os"

// openFile opens a file; dir is for systems that can tell a file's name.
func openFile(path string, flag int, _ string) (*os.File, error) {
	return os.OpenFile(path, flag, 0o644)
}

func nameOf(f *os.File) string { return f.Name() }

// syncData uses the strongest sync there is: on Darwin that is F_FULLFSYNC.
func syncData(f *os.File) error { return f.Sync() }

// syncWhole has no portable form.
func syncWhole(*os.File) (done bool, err error) { return false, nil }

// startWriteBack has no portable form.
func startWriteBack(f *os.File, off, n int64) {}

// waitWriteBack has nothing to wait for.
func waitWriteBack(*os.File) error { return nil }
