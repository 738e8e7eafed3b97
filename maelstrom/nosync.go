package maelstrom

import "github.com/pawlbroker/pawl/storage/vfs"

// unsynced is a file system that does not make anything survive a power cut.
// What Maelstrom does to a process, kill -9 included, leaves the page cache, so
// that nothing is lost by it.
type unsynced struct{ vfs.FS }

type unsyncedFile struct{ vfs.File }

func (unsyncedFile) Sync() error { return nil }

func (u unsynced) Create(name string) (vfs.File, error) { return withoutSync(u.FS.Create(name)) }

func (u unsynced) Open(name string) (vfs.File, error) { return withoutSync(u.FS.Open(name)) }

func (unsynced) SyncDir(string) error { return nil }

func (unsynced) SyncFiles([]vfs.File) error { return nil }

func withoutSync(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}
