package simdisk

import (
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"github.com/pawlbroker/pawl/storage/vfs"
)

// Fault is a way to fail. Hits counts each.
type Fault uint8

const (
	PowerCut     Fault = iota // the fuse struck
	ReadError                 // EIO
	WriteError                // EIO after a part of the write
	SyncError                 // EIO, and what was not written is marked clean
	NoSpace                   // a write or a new name did not fit
	BitFlip                   // a durable bit changed
	BrokenSector              // a read met a sector that cannot be read

	faultKinds
)

var faultNames = [faultKinds]string{
	"power cut", "read error", "write error", "sync error", "no space", "bit flip", "broken sector",
}

// String is the fault in words.
func (f Fault) String() string { return faultNames[f] }

// Hits is how often f has happened, over all lives of the disk.
func (d *Disk) Hits(f Fault) int64 { return d.hits[f] }

// SetFuse makes the power go at the n-th call from here; the next is number 0.
// A write that is struck leaves a prefix, of a length that tear chooses; tear
// also orders SyncFiles. A negative n takes the fuse out.
func (d *Disk) SetFuse(n int64, tear uint64) { d.fuse, d.tear = n, tear }

// FailRead makes the n-th read from here fail; the next is number 1.
func (d *Disk) FailRead(n int64) { d.faults[ReadError] = countdown{left: n} }

// FailWrite makes the n-th write from here fail, after a prefix whose length
// tear chooses; the next is number 1.
func (d *Disk) FailWrite(n int64, tear uint64) { d.faults[WriteError] = countdown{left: n, tear: tear} }

// FailSync makes the n-th Sync or SyncDir from here fail; the next is number 1.
// tear chooses what it wrote nevertheless. If drop, the page cache forgets the
// rest, and reads give what the disk has.
func (d *Disk) FailSync(n int64, tear uint64, drop bool) {
	d.faults[SyncError] = countdown{left: n, tear: tear, drop: drop}
}

// Drops is how often a file's failed sync made the page cache forget, over all
// lives of the disk.
func (d *Disk) Drops() int64 { return d.drops }

// Calm takes out the fuse and every fault that waits.
func (d *Disk) Calm() {
	d.fuse = -1
	d.faults = [faultKinds]countdown{}
}

// strike counts a call of one kind, and says whether it fails.
func (d *Disk) strike(f Fault) bool {
	c := &d.faults[f]
	if c.left == 0 {
		return false
	}
	c.left--
	if c.left > 0 {
		return false
	}
	d.hits[f]++
	return true
}

func newTear(tear uint64) *rand.Rand { return rand.New(rand.NewPCG(tear, 1)) }

// SetCapacity limits the bytes in files; negative is no limit. It may be below
// what is used.
func (d *Disk) SetCapacity(bytes int64) { d.capacity = bytes }

// Used is how many bytes files hold that have a name or are open.
func (d *Disk) Used() int64 { return d.used }

// roomForName fails if the disk is so full that not even a directory can grow.
func (d *Disk) roomForName(op, name string) error {
	if d.capacity < 0 || d.used+SectorSize <= d.capacity {
		return nil
	}
	d.hits[NoSpace]++
	return pathError(op, name, vfs.ErrNoSpace)
}

// FileInfo describes a file.
type FileInfo struct {
	Name   string
	Size   int64
	Synced int64 // the size a crash keeps for sure
}

// Files lists every file, sorted by name.
func (d *Disk) Files() []FileInfo {
	var out []FileInfo
	var walk func(prefix string, n *inode)
	walk = func(prefix string, n *inode) {
		for _, base := range n.sorted() {
			child, name := n.entries[base], path.Join(prefix, base)
			if child.dir {
				walk(name, child)
				continue
			}
			out = append(out, FileInfo{name, int64(len(child.data)), child.durableSize})
		}
	}
	walk("", d.root)
	slices.SortFunc(out, func(a, b FileInfo) int { //pawl:total-order names are unique
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// clean returns the file if the byte at pos is durable and nothing newer waits
// to be written over it.
func (d *Disk) clean(name string, pos int64) *inode {
	n := d.find(name)
	if n == nil || n.dir || pos < 0 || pos >= int64(len(n.data)) || pos >= n.durableSize {
		return nil
	}
	if s := sectorOf(pos); n.dirty.has(s) || n.stale.has(s) {
		return nil
	}
	return n
}

// FlipBit changes a durable bit, and the page cache with it, and says whether
// it did: it leaves alone what is not durable or about to be written over.
func (d *Disk) FlipBit(name string, pos int64, bit uint) bool {
	n := d.clean(name, pos)
	if n == nil {
		return false
	}
	n.data[pos] ^= 1 << (bit % 8)
	d.hits[BitFlip]++
	return true
}

// BreakSector makes the sector at pos unreadable until it is written again, and
// says whether it did, by the rule of FlipBit.
func (d *Disk) BreakSector(name string, pos int64) bool {
	n := d.clean(name, pos)
	if n == nil {
		return false
	}
	if n.broken == nil {
		n.broken = map[int64]bool{}
	}
	n.broken[sectorOf(pos)] = true
	return true
}

// Followed says whether the byte at pos was durable before the file was last
// synced with something new in it. What came with the last sync cannot be told,
// once it has changed, from what a crash has torn.
func (d *Disk) Followed(name string, pos int64) bool {
	n := d.clean(name, pos)
	s := sectorOf(pos)
	return n != nil && s < int64(len(n.synced)) && n.synced[s] < n.syncs
}

// Peek reads a file without counting as a call, and works on a crashed disk
// too. It is for checkers.
func (d *Disk) Peek(name string) ([]byte, bool) {
	n := d.find(name)
	if n == nil || n.dir {
		return nil, false
	}
	return n.data, true
}
