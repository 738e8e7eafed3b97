// Package simdisk is a disk in memory that forgets what was not synced, and
// that breaks in the ways disks break, when told to.
//
// # What a crash leaves
//
// A running system sees every write at once: that is the page cache. What a
// power cut leaves of it is chosen by Crash, from everything the rules below
// allow.
//
// Bytes live in sectors of 512. A sector that was written and not synced since
// is kept or lost on its own, whatever became of its neighbours and of earlier
// and later writes: the drive and the kernel reorder freely. Lost means that it
// has what it had at the last sync, or zeros if it was never part of the synced
// file. A sector is never half old and half new, except that what several
// writes appended to it may be kept up to the end of any of them, with zeros
// after. The size of the file is one it had since the last sync, or a sector
// boundary it grew past; it is kept or lost apart from the bytes. So a file can
// come back longer than the bytes in it, with zeros, and shorter, but never
// with bytes that nobody wrote.
//
// A name is an entry in a directory, and becomes durable only when that
// directory is synced: syncing a new file does not keep its name. Of the
// changes to one name since, a crash keeps the first few, or none, or all, and
// each name goes its own way. A rename changes two names, both or neither.
// Syncing a directory also makes durable the earlier changes that those in it
// build on.
//
// # What can be made to fail
//
// Every call can be the one at which the power goes (SetFuse). A write that is
// struck leaves a prefix of itself in the page cache.
//
// A sync that fails (FailSync) has written some of the sectors and marks the
// others clean, as Linux does: what the running system reads is unchanged (or
// old, if the fault says that the pages are dropped), the next sync has nothing
// to do and succeeds, and the crash after it shows the old sectors. That stays
// so until a sector is written again.
//
// Reads and writes can fail with EIO, once (FailRead, FailWrite), or for a
// sector until it is rewritten (BreakSector). The disk can be full
// (SetCapacity): the write that does not fit leaves what fits. Durable bits can
// flip (FlipBit).
//
// # What is not here
//
// Writes and reads that land in another place than asked, writes that the drive
// acknowledges and never does, and versions of a sector between the last synced
// and the newest, other than by appending. No metadata is corrupted: the file
// system underneath is assumed to have a working journal.
//
// A Disk is for one goroutine.
package simdisk

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"syscall"

	"github.com/pawlbroker/pawl/sim/digest"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// SectorSize is what the disk writes whole or not at all, in bytes.
const SectorSize = 512

var (
	// ErrCrashed is what every call returns once the power is off.
	ErrCrashed = errors.New("the simulated machine has crashed")
	// ErrIO is what an injected read, write or sync error matches.
	ErrIO error = syscall.EIO
)

// Disk implements vfs.FS.
type Disk struct {
	root    *inode
	pending []dirOp // unsynced changes of names, oldest first

	capacity int64 // bytes; -1 means no limit
	used     int64 // bytes of files that have a name or are open

	crashed bool
	fuse    int64 // calls until the power goes, or -1
	tear    uint64
	faults  [faultKinds]countdown

	hits  [faultKinds]int64
	drops int64 // failed syncs that made the page cache forget
	stats Stats
	sum   digest.Digest
}

// What the digest of a disk is told, beside dirOps.
const (
	sumWrite = 16 + iota
	sumTruncate
	sumSync
	sumSyncDir
)

// countdown is a fault that waits for the n-th call of its kind.
type countdown struct {
	left int64 // 0 if none is set
	tear uint64
	drop bool // of a sync: drop the pages too
}

// Stats counts what was asked of a disk over all its lives.
type Stats struct {
	Calls                   int64
	Reads, Writes, Syncs    int64
	BytesRead, BytesWritten int64 // as asked for
	BytesSynced             int64 // in whole sectors
}

// New returns an empty disk.
func New() *Disk {
	return &Disk{root: newDir(), capacity: -1, fuse: -1}
}

// Sum is a digest of everything that was written, cut, synced and named over all
// lives of the disk.
func (d *Disk) Sum() digest.Digest { return d.sum }

// Stats returns the counts so far.
func (d *Disk) Stats() Stats { return d.stats }

// Crashed says whether the fuse has struck.
func (d *Disk) Crashed() bool { return d.crashed }

// call counts one call and lets the fuse strike. The power goes before the call
// has any effect, other than what its doc says.
func (d *Disk) call() error {
	if d.crashed {
		return ErrCrashed
	}
	d.stats.Calls++
	if d.fuse >= 0 {
		if d.fuse == 0 {
			d.crashed = true
			d.fuse = -1
			d.hits[PowerCut]++
			return ErrCrashed
		}
		d.fuse--
	}
	return nil
}

func notExist(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Create implements vfs.FS.
func (d *Disk) Create(name string) (vfs.File, error) {
	if err := d.call(); err != nil {
		return nil, err
	}
	dir, base := d.locate(name)
	if dir == nil {
		return nil, notExist("create", name)
	}
	if dir.entries[base] != nil {
		return nil, pathError("create", name, fs.ErrExist)
	}
	if err := d.roomForName("create", name); err != nil {
		return nil, err
	}
	n := &inode{links: 1}
	d.change(dirOp{kind: opLink, dir: dir, name: base, node: n})
	return d.handle(n, name), nil
}

// Open implements vfs.FS.
func (d *Disk) Open(name string) (vfs.File, error) {
	if err := d.call(); err != nil {
		return nil, err
	}
	n := d.find(name)
	switch {
	case n == nil:
		return nil, notExist("open", name)
	case n.dir:
		return nil, pathError("open", name, syscall.EISDIR)
	}
	return d.handle(n, name), nil
}

// Remove implements vfs.FS.
func (d *Disk) Remove(name string) error {
	if err := d.call(); err != nil {
		return err
	}
	dir, base := d.locate(name)
	if dir == nil || dir.entries[base] == nil {
		return notExist("remove", name)
	}
	n := dir.entries[base]
	if n.dir && len(n.entries) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	d.change(dirOp{kind: opUnlink, dir: dir, name: base, node: n})
	d.unlink(n)
	return nil
}

// Rename implements vfs.FS.
func (d *Disk) Rename(from, to string) error {
	if err := d.call(); err != nil {
		return err
	}
	fromDir, fromBase := d.locate(from)
	toDir, toBase := d.locate(to)
	if fromDir == nil || toDir == nil || fromDir.entries[fromBase] == nil {
		return notExist("rename", from)
	}
	n, replaced := fromDir.entries[fromBase], toDir.entries[toBase]
	if n == replaced {
		return nil
	}
	if replaced != nil {
		switch {
		case replaced.dir:
			return pathError("rename", to, fs.ErrExist)
		case n.dir:
			return pathError("rename", to, syscall.ENOTDIR)
		}
	}
	d.change(dirOp{kind: opRename, dir: toDir, name: toBase, node: n, from: fromDir, fromName: fromBase})
	if replaced != nil {
		d.unlink(replaced)
	}
	return nil
}

// Mkdir implements vfs.FS.
func (d *Disk) Mkdir(name string) error {
	if err := d.call(); err != nil {
		return err
	}
	dir, base := d.locate(name)
	switch {
	case isRoot(name):
		return nil
	case dir == nil:
		return notExist("mkdir", name)
	case dir.entries[base] != nil && dir.entries[base].dir:
		return nil
	case dir.entries[base] != nil:
		return pathError("mkdir", name, fs.ErrExist)
	}
	if err := d.roomForName("mkdir", name); err != nil {
		return err
	}
	d.change(dirOp{kind: opLink, dir: dir, name: base, node: newDir()})
	return nil
}

// List implements vfs.FS.
func (d *Disk) List(dir string) ([]string, error) {
	if err := d.call(); err != nil {
		return nil, err
	}
	n := d.find(dir)
	switch {
	case n == nil:
		return nil, nil
	case !n.dir:
		return nil, pathError("list", dir, syscall.ENOTDIR)
	}
	return n.sorted(), nil
}

// SyncDir implements vfs.FS.
func (d *Disk) SyncDir(dir string) error {
	if err := d.call(); err != nil {
		return err
	}
	n := d.find(dir)
	if n == nil {
		return notExist("sync", dir)
	}
	if d.strike(SyncError) {
		return pathError("sync", dir, ErrIO) // the changes stay pending, and so may be lost
	}
	d.stats.Syncs++
	d.sum.Word(sumSyncDir)
	d.syncNames(n)
	return nil
}

// SyncFiles implements vfs.FS. Each file counts as a call, so the power can go
// between two of them; they are synced in an order the fuse's tear chooses.
func (d *Disk) SyncFiles(files []vfs.File) error {
	start := 0
	if len(files) > 0 {
		start = int(d.tear % uint64(len(files)))
	}
	var first error
	for i := range files {
		err := files[(start+i)%len(files)].Sync()
		if errors.Is(err, ErrCrashed) {
			return err
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Crash turns the power off and returns the disk that the machine finds when it
// is back. What was not synced is kept or lost by rng, within the rules. d and
// its files only return ErrCrashed from then on.
func (d *Disk) Crash(rng *rand.Rand) *Disk {
	after := d.next()
	d.crashNames(rng)
	after.root = d.root.afterCrash(rng)
	after.used = after.root.bytes()
	return after
}

// Kill ends the process but not the machine: the page cache stays. It returns
// the disk that the next process finds. d and its files only return ErrCrashed
// from then on.
func (d *Disk) Kill() *Disk {
	after := d.next()
	after.root, after.pending = d.root, d.pending
	after.root.closeAll()
	after.used = after.root.bytes()
	return after
}

// Wipe puts an empty disk in the place of this one. d and its files only return
// ErrCrashed from then on.
func (d *Disk) Wipe() *Disk { return d.next() }

// next returns the disk of the machine's next life, with nothing on it yet.
// Faults that were set and did not strike are forgotten.
func (d *Disk) next() *Disk {
	d.crashed = true
	after := New()
	after.capacity, after.stats, after.hits, after.drops, after.sum = d.capacity, d.stats, d.hits, d.drops, d.sum
	return after
}
