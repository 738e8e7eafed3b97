// Package journal is a checksummed, rotated, append-only file of groups. A
// group is some records that become durable together.
//
// A file is written ahead with zeros, and recycled when nothing needs it, so
// that the sync of a small group overwrites blocks that are there already: it
// costs the disk one write and no change of the file's size or map.
//
// Torn or damaged? A group that cannot be read was being written when the power
// went, unless something says that it had been synced: a later group, the next
// file, or the caller. Then it is damage, which is reported and never cut off.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// Config of a journal.
type Config struct {
	// FileBytes is when a file is full. A larger group has a file to itself.
	FileBytes int64
	// GrowBytes is how much a file grows at a time; a quarter of it is always
	// there, zeroed, ahead of the next group. Zero writes nothing ahead.
	GrowBytes int64
	// Spares is how many files that are not needed are kept for reuse.
	Spares int
}

// Journal appends groups. All methods but Recycle and Room belong to one goroutine
// at a time; those may run beside them.
//
// Invariant: durable < next; pos is a multiple of the sector size, at most size;
// between calls room is what is there between pos and both size and FileBytes.
type Journal struct {
	fs  vfs.FS
	dir string
	cfg Config

	file    vfs.File
	seq     Seq
	pos     int64  // where the next group goes
	size    int64  // of the file
	next    uint64 // number of the next group
	durable uint64 // every group up to this one is synced
	full    bool   // writing ahead found no space; not tried again in this file
	room    atomic.Int64
	err     error // not nil once the journal cannot be trusted

	mu     sync.Mutex
	old    []Seq // finished files, ascending
	spares []Seq // files that nothing needs
}

// A Draft is a group that is being built. It may be used again once the group
// was appended. The zero Draft is usable.
type Draft struct {
	buf   []byte
	count int // records in it
}

// Begin empties the draft. sizeBytes is a guess at what it will hold.
func (d *Draft) Begin(sizeBytes int) {
	const keep = 8 << 20 // do not hold on to the buffer of one huge group
	if need := groupHeader + sizeBytes; cap(d.buf) < need || cap(d.buf) > keep && sizeBytes < keep/4 {
		d.buf = make([]byte, groupHeader, need*5/4+2*sectorSize)
	}
	d.buf, d.count = d.buf[:groupHeader], 0
}

// Add gives room for a record of n bytes in the group. The slice is good until
// the group is appended, if Begin's guess was enough for the whole group;
// else until the next Add.
func (d *Draft) Add(n int) []byte {
	d.buf = binary.BigEndian.AppendUint32(d.buf, uint32(n))
	at := len(d.buf)
	d.buf = slices.Grow(d.buf, n)[:at+n]
	d.count++
	return d.buf[at : at+n : at+n]
}

// Room is how many bytes of a journal's file the group takes at most.
func (d *Draft) Room() int64 {
	n := int64(len(d.buf))
	return n + n/sectorSize*4 + slack // every sector may have to be escaped
}

// slack is what a group takes beside its records and header: padding, and a few
// escapes.
const slack = 2 * sectorSize

// RecordOverhead is how many bytes a record costs beside its own.
const RecordOverhead = recordOverhead

// Append writes a group. It is durable after Sync. On ErrNoSpace nothing of
// the group is left, the journal can be used further, and the draft is what it
// was: it may be appended again.
func (j *Journal) Append(d *Draft) error { return j.append(d, 0) }

func (j *Journal) append(d *Draft, flags uint32) error {
	if j.err != nil {
		return j.err
	}
	if j.pos > sectorSize && j.pos+int64(len(d.buf))+slack > j.cfg.FileBytes {
		if err := j.Rotate(); err != nil {
			return err
		}
	}
	d.buf = seal(d.buf, d.count, flags, j.seq, j.next, j.durable)
	if _, err := j.file.WriteAt(d.buf, j.pos); err != nil {
		if errors.Is(err, vfs.ErrNoSpace) {
			d.buf = unseal(d.buf)
			return j.cutBack(err)
		}
		return j.fail(err)
	}
	j.next++
	j.pos += int64(len(d.buf))
	j.size = max(j.size, j.pos)
	err := j.writeAhead()
	j.measure()
	return err
}

// Room is how many bytes of groups the journal takes without asking the file
// system for space. Appending takes away from it what Draft.Room says at most. It
// is never negative.
func (j *Journal) Room() int64 { return j.room.Load() }

// measure brings room up to date.
func (j *Journal) measure() { j.room.Store(max(0, min(j.size, j.cfg.FileBytes)-j.pos)) }

// cutBack drops what a group that found no space left behind. The caller is
// going to promise that nothing of it exists, so the cut must survive a crash.
func (j *Journal) cutBack(cause error) error {
	assert.Reached("journal: group cut back for want of space")
	if err := j.file.Truncate(j.pos); err != nil {
		return j.fail(err)
	}
	j.size = j.pos
	j.measure()
	if err := j.Sync(); err != nil {
		return err
	}
	return fmt.Errorf("append to %s: %w", name(j.dir, j.seq), cause)
}

func (j *Journal) writeAhead() error {
	if j.full || j.size-j.pos >= j.cfg.GrowBytes/4 || j.size >= j.cfg.FileBytes || j.cfg.GrowBytes == 0 {
		return nil
	}
	to := min((j.size/j.cfg.GrowBytes+1)*j.cfg.GrowBytes, j.cfg.FileBytes)
	_, err := j.file.WriteAt(make([]byte, to-j.size), j.size)
	switch {
	case err == nil:
		j.size = to
		return nil
	case !errors.Is(err, vfs.ErrNoSpace):
		return j.fail(err)
	}
	assert.Reached("journal: no space to write ahead")
	j.full = true
	if j.size, err = j.file.Size(); err != nil {
		return j.fail(err)
	}
	return nil
}

// Sync makes every group appended so far durable. If it fails the journal
// refuses everything after: nothing is known about the file.
func (j *Journal) Sync() error {
	if j.err != nil {
		return j.err
	}
	through := j.next - 1
	if err := j.file.Sync(); err != nil {
		return j.fail(err)
	}
	j.durable = through
	return nil
}

// Rotate makes every group durable and starts the next file. On ErrNoSpace the
// journal goes on in the file it has.
func (j *Journal) Rotate() error {
	if j.err != nil {
		return j.err
	}
	if j.durable < j.next-1 {
		if err := j.Sync(); err != nil {
			return err
		}
	}
	file, size, err := j.nextFile(j.seq+1, j.next)
	if err != nil {
		if errors.Is(err, vfs.ErrNoSpace) {
			return err
		}
		return j.fail(err)
	}
	if err := j.file.Close(); err != nil {
		return j.fail(err)
	}
	j.mu.Lock()
	j.old = append(j.old, j.seq)
	j.mu.Unlock()
	j.file, j.seq, j.pos, j.size, j.full = file, j.seq+1, sectorSize, size, false
	j.measure()
	return nil
}

// nextFile makes a file ready for groups from first on, and durable. Its name
// exists only once its header does, or the header is all that is missing.
func (j *Journal) nextFile(seq Seq, first uint64) (vfs.File, int64, error) {
	j.mu.Lock()
	var spare Seq
	if len(j.spares) > 0 {
		spare = j.spares[0]
		j.spares = j.spares[1:]
	}
	j.mu.Unlock()
	if spare == 0 {
		file, err := j.create(seq, first)
		return file, sectorSize, err
	}
	file, err := j.fs.Open(name(j.dir, spare))
	if err != nil {
		return nil, 0, err
	}
	size, err := file.Size()
	if err != nil {
		return nil, 0, err
	}
	if _, err := file.WriteAt(encodeFileHeader(seq, first), 0); err != nil {
		return nil, 0, err
	}
	if err := file.Sync(); err != nil {
		return nil, 0, err
	}
	if err := j.fs.Rename(name(j.dir, spare), name(j.dir, seq)); err != nil {
		return nil, 0, err
	}
	assert.Reached("journal: file recycled")
	return file, size, j.fs.SyncDir(j.dir)
}

func (j *Journal) create(seq Seq, first uint64) (vfs.File, error) {
	file, err := j.fs.Create(name(j.dir, seq))
	if err != nil {
		return nil, err
	}
	if _, err := file.WriteAt(encodeFileHeader(seq, first), 0); err != nil {
		if errors.Is(err, vfs.ErrNoSpace) {
			err = errors.Join(err, j.fs.Remove(name(j.dir, seq)))
		}
		return nil, err
	}
	if err := file.Sync(); err != nil {
		return nil, err
	}
	return file, j.fs.SyncDir(j.dir)
}

// Replace makes a group durable in the place of everything before it, and
// removes the files that held that.
func (j *Journal) Replace(d *Draft) error {
	if err := j.Rotate(); err != nil {
		return err
	}
	if err := j.append(d, flagReset); err != nil {
		return err
	}
	if err := j.Sync(); err != nil {
		return err
	}
	if err := j.Recycle(j.seq); err != nil {
		return j.fail(err)
	}
	if err := j.fs.SyncDir(j.dir); err != nil {
		return j.fail(err)
	}
	return nil
}

// Recycle says that no file before seq is needed. The caller must have made
// sure, durably, that recovery will not ask for one.
func (j *Journal) Recycle(before Seq) error {
	j.mu.Lock()
	var drop []Seq
	for len(j.old) > 0 && j.old[0] < before {
		if len(j.spares) < j.cfg.Spares {
			j.spares = append(j.spares, j.old[0])
		} else {
			drop = append(drop, j.old[0])
		}
		j.old = j.old[1:]
	}
	j.mu.Unlock()
	for _, seq := range drop {
		if err := j.fs.Remove(name(j.dir, seq)); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the file. It syncs nothing.
func (j *Journal) Close() error {
	if j.err == nil {
		j.err = errors.New("journal is closed")
	}
	return j.file.Close()
}

// Seq is the sequence of the file that the next group goes to, unless it does
// not fit.
func (j *Journal) Seq() Seq { return j.seq }

// Last is the number of the last group appended.
func (j *Journal) Last() uint64 { return j.next - 1 }

// Pos is where in its file the next group goes, in bytes.
func (j *Journal) Pos() int64 { return j.pos }

func (j *Journal) fail(err error) error {
	if j.err == nil {
		j.err = fmt.Errorf("journal %s: %w", name(j.dir, j.seq), err)
	}
	return j.err
}
