package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// lockName is the file that Lock locks. List does not show it.
const lockName = ".lock"

// maxParallelSyncs is up to how many files SyncFiles syncs one by one; for more
// it asks the kernel to write the whole file system at once.
const maxParallelSyncs = 16

// writtenAtOnce is of how many files SyncFiles lets the kernel write at a time,
// when it has many: what others want to have synced meanwhile waits for few.
const writtenAtOnce = 16

// earlyWriteBack is how large a write must be, in bytes, for the kernel to be
// told to start on it at once. The sync that follows has less left to do: 64
// MiB in 1 MiB writes, synced every 8, took 148 ms instead of 169.
const earlyWriteBack = 1 << 20

// OS is the FS of the directory root, which must exist. Files it opens
// implement OSFile.
func OS(root string) FS { return &osFS{root: root} }

// OSFile is implemented by files that the kernel can send by itself.
type OSFile interface {
	File
	// OSFile is the file underneath. It must not be closed, and its shared
	// position must not be used.
	OSFile() *os.File
}

// Counts is what an FS was asked to do since it was made.
type Counts struct {
	Syncs        int64 // of files, directories and whole file systems
	BytesWritten int64
}

// Counted is implemented by what OS returns.
type Counted interface{ Counts() Counts }

type osFS struct {
	root string

	syncs   atomic.Int64
	written atomic.Int64

	// failed is the error of the first sync that failed, if one has. The kernel
	// tells each open file of a failed write once, whichever sync asks first; so
	// all later ones are told here. Nothing is known of the disk any more.
	failed atomic.Pointer[error]

	// whole is a handle on root, opened before the first write through this FS,
	// so that syncfs reports every error since.
	once  sync.Once
	whole *os.File
}

// Counts implements Counted.
func (s *osFS) Counts() Counts { return Counts{s.syncs.Load(), s.written.Load()} }

func (s *osFS) path(name string) string { return filepath.Join(s.root, filepath.FromSlash(name)) }

func (s *osFS) open(name string, flag int) (File, error) {
	s.once.Do(func() { s.whole, _ = os.Open(s.root) })
	f, err := openFile(s.path(name), flag|os.O_RDWR, s.root)
	if err != nil {
		return nil, spaceError(err)
	}
	return &osFile{fs: s, f: f}, nil
}

func (s *osFS) Create(name string) (File, error) { return s.open(name, os.O_CREATE|os.O_EXCL) }
func (s *osFS) Open(name string) (File, error)   { return s.open(name, 0) }
func (s *osFS) Remove(name string) error         { return os.Remove(s.path(name)) }

func (s *osFS) Rename(from, to string) error {
	return spaceError(os.Rename(s.path(from), s.path(to)))
}

func (s *osFS) Mkdir(name string) error {
	err := os.Mkdir(s.path(name), 0o755)
	if errors.Is(err, fs.ErrExist) {
		st, statErr := os.Stat(s.path(name))
		if statErr == nil && st.IsDir() {
			return nil
		}
	}
	return spaceError(err)
}

func (s *osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(s.path(dir)) // sorted
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.Name() != lockName {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// sync does one sync, unless one has failed before.
func (s *osFS) sync(do func() error) error {
	if failed := s.failed.Load(); failed != nil {
		return *failed
	}
	s.syncs.Add(1)
	err := spaceError(do())
	if err != nil {
		s.failed.CompareAndSwap(nil, &err)
	}
	return err
}

func (s *osFS) SyncDir(dir string) error {
	f, err := os.Open(s.path(dir))
	if err != nil {
		return err
	}
	if err := s.sync(f.Sync); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func (s *osFS) SyncFiles(files []File) error {
	if len(files) > maxParallelSyncs && s.whole != nil {
		done := false
		err := s.sync(func() (err error) {
			for some := range slices.Chunk(files, writtenAtOnce) {
				if err := writeBack(some); err != nil {
					return err
				}
			}
			done, err = syncWhole(s.whole)
			return err
		})
		if done || err != nil {
			return err
		}
	}
	if len(files) == 1 {
		return files[0].Sync()
	}
	errs := make([]error, len(files))
	slots := make(chan struct{}, maxParallelSyncs)
	var wg sync.WaitGroup
	for i, f := range files {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = f.Sync()
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// writeBack writes the files' bytes and waits for it. It makes nothing durable,
// but an error is like one of a sync: it may have been told for the last time.
func writeBack(files []File) error {
	for _, f := range files {
		if f, ok := f.(*osFile); ok {
			startWriteBack(f.f, 0, 0)
		}
	}
	for _, f := range files {
		if f, ok := f.(*osFile); ok {
			if err := waitWriteBack(f.f); err != nil {
				return f.named(err)
			}
		}
	}
	return nil
}

type osFile struct {
	fs *osFS
	f  *os.File

	syncing sync.Mutex // one sync runs at a time; see osFS.failed
}

func (o *osFile) OSFile() *os.File { return o.f }
func (o *osFile) Close() error     { return o.f.Close() }

func (o *osFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.f.ReadAt(p, off)
	return n, o.named(err)
}

func (o *osFile) Sync() error { return o.sync(syncData) }

func (o *osFile) sync(data func(*os.File) error) error {
	o.syncing.Lock()
	defer o.syncing.Unlock()
	return o.fs.sync(func() error { return o.named(data(o.f)) })
}

// named puts a file's name into an error, in the place of its directory's.
func (o *osFile) named(err error) error {
	if e, ok := err.(*os.PathError); ok {
		e.Path = nameOf(o.f)
	}
	return err
}

func (o *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := o.f.WriteAt(p, off)
	o.fs.written.Add(int64(n))
	if err == nil && n >= earlyWriteBack {
		startWriteBack(o.f, off, int64(n))
	}
	return n, spaceError(o.named(err))
}

func (o *osFile) Truncate(size int64) error {
	now, err := o.Size()
	if err != nil {
		return err
	}
	if size > now {
		return fmt.Errorf("truncate %s to %d: it has only %d bytes: %w", nameOf(o.f), size, now, fs.ErrInvalid)
	}
	return o.named(o.f.Truncate(size))
}

func (o *osFile) Size() (int64, error) {
	st, err := o.f.Stat()
	if err != nil {
		return 0, o.named(err)
	}
	return st.Size(), nil
}

// spaceError makes err match ErrNoSpace if the disk or a quota is full.
func spaceError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, errQuota) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
