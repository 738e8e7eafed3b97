package simdisk

import (
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// inode is a file or a directory.
//
// Of a sector of a file the disk has: what old says, if it says anything; else
// nothing, if the sector is dirty or stale; else what data has.
type inode struct {
	dir     bool
	entries map[string]*inode // of a directory: as the running system sees it
	durable map[string]*inode // as a crash leaves it

	data        []byte // as the running system sees it
	durableSize int64
	sizes       []int64          // sizes since durableSize was set, oldest first
	old         map[int64][]byte // by sector; what the disk has where data differs
	dirty       bitset           // sectors that the next sync writes
	stale       bitset           // sectors that a failed sync marked clean
	broken      map[int64]bool   // sectors that cannot be read
	syncs       uint32           // that wrote something
	synced      []uint32         // by sector: which of them wrote it last
	links       int
	handles     int
}

func newDir() *inode {
	return &inode{dir: true, entries: map[string]*inode{}, durable: map[string]*inode{}}
}

func (n *inode) sorted() []string { return slices.Sorted(maps.Keys(n.entries)) }

// bytes is how much n and everything in it holds.
func (n *inode) bytes() int64 {
	total := int64(len(n.data))
	for _, child := range n.entries { //pawl:unordered sums
		total += child.bytes()
	}
	return total
}

// closeAll forgets the handles of a process that ended.
func (n *inode) closeAll() {
	n.handles = 0
	for _, child := range n.entries { //pawl:unordered each is independent
		child.closeAll()
	}
}

func sectorOf(pos int64) int64 { return pos / SectorSize }

// sectors is how many sectors size bytes touch.
func sectors(size int64) int64 { return (size + SectorSize - 1) / SectorSize }

// touch makes sectors [from, next) dirty, and remembers what the disk has of
// them.
func (n *inode) touch(from, next int64) {
	for s := from; s < next; s++ {
		if n.dirty.has(s) {
			continue
		}
		if !n.stale.has(s) && s < sectors(n.durableSize) && n.old[s] == nil {
			n.keepOld(s)
		}
		n.stale.clear(s)
		n.dirty.set(s)
		delete(n.broken, s)
	}
}

func (n *inode) keepOld(s int64) {
	if n.old == nil {
		n.old = map[int64][]byte{}
	}
	was := make([]byte, SectorSize)
	if at := s * SectorSize; at < int64(len(n.data)) {
		copy(was, n.data[at:])
	}
	n.old[s] = was
}

func (n *inode) write(p []byte, at int64) {
	next := at + int64(len(p))
	if len(p) == 0 {
		return
	}
	n.touch(sectorOf(at), sectors(next))
	if next > int64(len(n.data)) {
		n.data = append(n.data[:at], p...)
		n.sizes = append(n.sizes, next)
		return
	}
	copy(n.data[at:], p)
}

func (n *inode) truncate(size int64) {
	if size == int64(len(n.data)) {
		return
	}
	// The sectors cut off are not written, but if the cut is lost they are there
	// again, as the disk had them.
	n.touch(sectorOf(size), sectors(int64(len(n.data))))
	n.data = n.data[:size]
	n.sizes = append(n.sizes, size)
}

// sync makes everything durable but what is stale. It returns how many bytes
// went to the disk.
func (n *inode) sync() int64 {
	written := int64(0)
	end := sectors(int64(len(n.data)))
	if int64(len(n.synced)) < end {
		n.synced = append(n.synced, make([]uint32, end-int64(len(n.synced)))...)
	}
	if !n.dirty.empty() {
		n.syncs++
	}
	n.dirty.each(func(s int64) {
		delete(n.old, s)
		if s < end {
			written += SectorSize
			n.synced[s] = n.syncs
		}
	})
	n.dirty.reset()
	n.syncSize()
	return written
}

func (n *inode) syncSize() {
	n.durableSize = int64(len(n.data))
	n.sizes = n.sizes[:0]
	end := sectors(n.durableSize)
	//pawl:unordered deletes only
	for s := range n.old {
		if s >= end {
			delete(n.old, s)
		}
	}
	n.stale.cut(end)
}

// failSync writes some of the dirty sectors and marks the others clean. If
// drop, the running system sees those as the disk has them.
func (n *inode) failSync(rng *rand.Rand, drop bool) {
	n.dirty.each(func(s int64) {
		if rng.IntN(2) == 0 {
			delete(n.old, s)
			return
		}
		n.stale.set(s)
		if at := s * SectorSize; drop && at < int64(len(n.data)) {
			end := min(at+SectorSize, int64(len(n.data)))
			clear(n.data[at:end])
			copy(n.data[at:end], n.old[s])
		}
	})
	n.dirty.reset()
	if rng.IntN(2) == 0 {
		n.syncSize()
	}
}

// afterCrash returns what is left of n, and for a directory of everything in
// it. n is used up.
func (n *inode) afterCrash(rng *rand.Rand) *inode {
	if n.dir {
		after := newDir()
		for _, name := range slices.Sorted(maps.Keys(n.durable)) {
			child := n.durable[name].afterCrash(rng)
			after.entries[name], after.durable[name] = child, child
		}
		return after
	}
	after := &inode{links: 1, broken: n.broken, syncs: n.syncs, synced: n.synced}
	if len(n.sizes) == 0 && n.dirty.empty() && n.stale.empty() {
		after.data = n.data
		after.durableSize = int64(len(n.data))
		return after
	}
	size := n.sizeAfterCrash(rng)
	data := n.data
	for int64(len(data)) < size {
		data = append(data, make([]byte, size-int64(len(data)))...)
	}
	lose := func(s int64) {
		at := s * SectorSize
		end := min(at+SectorSize, int64(len(data)))
		if at >= end {
			return
		}
		clear(data[at:end])
		copy(data[at:end], n.old[s])
	}
	n.stale.each(lose)
	n.dirty.each(func(s int64) {
		switch {
		case rng.IntN(2) == 0:
			lose(s)
		case len(n.sizes) > 0 && rng.IntN(4) == 0:
			n.keepUpTo(s, n.sizes[rng.IntN(len(n.sizes))], data)
		}
	})
	after.data = data[:size:size]
	after.durableSize = size
	return after
}

// sizeAfterCrash chooses among the sizes that may be on the disk.
func (n *inode) sizeAfterCrash(rng *rand.Rand) int64 {
	now := int64(len(n.data))
	if len(n.sizes) == 0 {
		return now
	}
	switch rng.IntN(4) {
	case 0:
		return n.durableSize
	case 1:
		return now
	case 2:
		return n.sizes[rng.IntN(len(n.sizes))]
	}
	if grown := sectors(now) - sectors(n.durableSize); grown > 0 {
		return min(now, (sectors(n.durableSize)+rng.Int64N(grown+1))*SectorSize)
	}
	return now
}

// keepUpTo leaves sector s as it was when the file was size bytes long and
// growing: with zeros after, as far as nothing was there before.
func (n *inode) keepUpTo(s, size int64, data []byte) {
	at := s * SectorSize
	end := min(at+SectorSize, int64(len(data)))
	if size > at && size < end && n.durableSize <= size {
		clear(data[size:end])
	}
}

// bitset is a set of small numbers.
type bitset []uint64

func (b bitset) has(i int64) bool {
	w := i / 64
	return w < int64(len(b)) && b[w]&(1<<(i%64)) != 0
}

func (b *bitset) set(i int64) {
	for i/64 >= int64(len(*b)) {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}

func (b bitset) clear(i int64) {
	if w := i / 64; w < int64(len(b)) {
		b[w] &^= 1 << (i % 64)
	}
}

// cut removes everything from i on.
func (b bitset) cut(i int64) {
	for w := i / 64; w < int64(len(b)); w++ {
		if w == i/64 {
			b[w] &= 1<<(i%64) - 1
		} else {
			b[w] = 0
		}
	}
}

func (b *bitset) reset() {
	clear(*b)
	*b = (*b)[:0]
}

func (b bitset) empty() bool {
	for _, w := range b {
		if w != 0 {
			return false
		}
	}
	return true
}

// each calls f with every member, ascending.
func (b bitset) each(f func(i int64)) {
	for w, word := range b {
		for word != 0 {
			f(int64(w)*64 + int64(bits.TrailingZeros64(word)))
			word &= word - 1
		}
	}
}
