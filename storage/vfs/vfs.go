// Package vfs is the small part of a file system that storage needs, so that
// the same storage code runs on a disk and on the simulator's disk.
package vfs

import (
	"errors"
	"io"
)

// ErrNoSpace says the file system is full. It is the only error of a write
// after which the file may be used further: the caller cuts it back to the
// length it had. It matches errors.Is on every FS.
var ErrNoSpace = errors.New("no space left on device")

// File is a file that is written by one goroutine at a time. Any number may
// ReadAt bytes that were there before they started, and Sync may run beside
// them.
type File interface {
	io.ReaderAt
	// WriteAt writes all of p at off, which is at most the size: files have no
	// holes. After an error any part of p may be in the file.
	io.WriterAt
	io.Closer

	// Truncate cuts the file to size bytes. It never grows it.
	Truncate(size int64) error
	// Sync makes every byte written before the call, and the size, survive a
	// crash. The name of a new file survives only after SyncDir. After an error
	// the bytes' fate is unknown for good: a second Sync that succeeds proves
	// nothing.
	Sync() error
	Size() (int64, error)
}

// FS names files. Names are slash-separated and relative to the data directory.
// A name that is not there gives an error that matches fs.ErrNotExist.
type FS interface {
	Create(name string) (File, error) // fails with fs.ErrExist if name exists
	Open(name string) (File, error)
	Remove(name string) error
	Rename(from, to string) error      // replaces to, atomically
	Mkdir(name string) error           // no error if it is there already
	List(dir string) ([]string, error) // base names, sorted; none if dir is not there
	// SyncDir makes every creation, removal and rename in dir survive a crash.
	SyncDir(dir string) error
	// SyncFiles is Sync for many files, in any order, perhaps at once.
	SyncFiles(files []File) error
}
