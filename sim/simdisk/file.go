package simdisk

import (
	"fmt"
	"io"
	"io/fs"

	"github.com/pawlbroker/pawl/storage/vfs"
)

// file is a handle.
type file struct {
	d      *Disk
	n      *inode
	name   string // it was opened under
	closed bool
}

func (d *Disk) handle(n *inode, name string) vfs.File {
	n.handles++
	return &file{d: d, n: n, name: name}
}

// call is Disk.call for this file.
func (f *file) call(op string) error {
	if err := f.d.call(); err != nil {
		return err
	}
	if f.closed {
		return pathError(op, f.name, fs.ErrClosed)
	}
	return nil
}

// Name is what the file was opened as.
func (f *file) Name() string { return f.name }

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if err := f.call("read"); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, fs.ErrInvalid)
	}
	f.d.stats.Reads++
	f.d.stats.BytesRead += int64(len(p))
	if f.d.strike(ReadError) {
		return 0, pathError("read", f.name, ErrIO)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if len(f.n.broken) > 0 {
		for s := sectorOf(off); s < sectors(off+int64(n)); s++ {
			if f.n.broken[s] {
				f.d.hits[BrokenSector]++
				return int(max(s*SectorSize-off, 0)), pathError("read", f.name, ErrIO)
			}
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	before := f.d.crashed
	if err := f.call("write"); err != nil {
		if f.d.crashed && !before && off >= 0 && off <= int64(len(f.n.data)) {
			f.d.put(f.n, p[:f.d.tear%uint64(len(p)+1)], off)
		}
		return 0, err
	}
	if off < 0 || off > int64(len(f.n.data)) {
		return 0, pathError("write", f.name, fmt.Errorf("at %d of %d bytes: %w", off, len(f.n.data), fs.ErrInvalid))
	}
	f.d.stats.Writes++
	f.d.stats.BytesWritten += int64(len(p))
	if f.d.strike(WriteError) {
		n := f.d.put(f.n, p[:f.d.faults[WriteError].tear%uint64(len(p)+1)], off)
		return n, pathError("write", f.name, ErrIO)
	}
	if n := f.d.put(f.n, p, off); n < len(p) {
		f.d.hits[NoSpace]++
		return n, pathError("write", f.name, vfs.ErrNoSpace)
	}
	return len(p), nil
}

// put writes as much of p as there is room for.
func (d *Disk) put(n *inode, p []byte, off int64) int {
	grow := off + int64(len(p)) - int64(len(n.data))
	if grow > 0 {
		if d.capacity >= 0 && d.used+grow > d.capacity {
			over := d.used + grow - d.capacity
			p = p[:max(int64(len(p))-over, min(int64(len(p)), int64(len(n.data))-off))]
			grow = max(off+int64(len(p))-int64(len(n.data)), 0)
		}
		d.used += grow
	}
	n.write(p, off)
	d.sum.Word(sumWrite)
	d.sum.Word(uint64(off))
	d.sum.Bytes(p)
	return len(p)
}

func (f *file) Truncate(size int64) error {
	if err := f.call("truncate"); err != nil {
		return err
	}
	if size < 0 || size > int64(len(f.n.data)) {
		return pathError("truncate", f.name, fmt.Errorf("to %d of %d bytes: %w", size, len(f.n.data), fs.ErrInvalid))
	}
	d := f.d
	d.used -= int64(len(f.n.data)) - size
	f.n.truncate(size)
	d.sum.Word(sumTruncate)
	d.sum.Word(uint64(size))
	return nil
}

func (f *file) Sync() error {
	if err := f.call("sync"); err != nil {
		return err
	}
	f.d.stats.Syncs++
	if f.d.strike(SyncError) {
		c := f.d.faults[SyncError]
		f.n.failSync(newTear(c.tear), c.drop)
		if c.drop {
			f.d.drops++
		}
		return pathError("sync", f.name, ErrIO)
	}
	f.d.sum.Word(sumSync)
	f.d.stats.BytesSynced += f.n.sync()
	return nil
}

func (f *file) Size() (int64, error) {
	if err := f.call("size"); err != nil {
		return 0, err
	}
	return int64(len(f.n.data)), nil
}

func (f *file) Close() error {
	if err := f.call("close"); err != nil {
		return err
	}
	f.closed = true
	f.n.handles--
	f.d.release(f.n)
	return nil
}
