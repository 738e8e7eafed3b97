//go:build !linux

package vfs

import "os"

// syncData uses the strongest sync there is: on Darwin that is F_FULLFSYNC.
func syncData(f *os.File) error { return f.Sync() }

// syncWhole has no portable form.
func syncWhole(*os.File) (done bool, err error) { return false, nil }

// startWriteBack has no portable form.
func startWriteBack(f *os.File, off, n int64) {}
