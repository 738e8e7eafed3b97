package check

import (
	"fmt"
	"slices"
	"sort"

	"github.com/pawlbroker/pawl/sim/digest"
	"github.com/pawlbroker/pawl/storage/record"
)

// ghost is what a log on a disk must hold, known from the jobs that wrote it. Its
// first batch may begin before the log does.
type ghost struct {
	start   record.Offset
	base    uint64          // chain before the first batch
	origin  record.Offset   // where it began when it was last empty: of what was before nothing is known
	entries []entry         // durable, as the node has been told or has found
	flying  []entry         // submitted, and not told of; without chains
	doubt   []entry         // submitted, and told to be in doubt
	shown   record.Offset   // of what is flying all below is readable, and others may have it
	raising []record.Offset // log starts that were submitted, and not told of or in doubt
}

// entry is one batch of a log.
type entry struct {
	base  record.Offset
	epoch record.LeaderEpoch
	id    batch
	chain uint64 // what tells this batch and all before it from any other such log
}

func newEntry(b record.Batch) entry {
	return entry{base: b.BaseOffset(), epoch: b.LeaderEpoch(), id: identify(b, b.BaseOffset())}
}

func (g *ghost) end() record.Offset {
	if n := len(g.entries); n > 0 {
		return g.entries[n-1].id.next
	}
	return g.start
}

// chain is that of the whole log.
func (g *ghost) chain() uint64 {
	if n := len(g.entries); n > 0 {
		return g.entries[n-1].chain
	}
	return g.base
}

// add puts an entry at the end, and reports whether it belongs there.
func (g *ghost) add(e entry) bool {
	if len(g.entries) == 0 && g.base == 0 {
		g.start = e.base // where a log begins is where its first append does
	}
	if e.base != g.end() {
		return false
	}
	d := digest.Digest(g.chain())
	d.Word(uint64(e.base))
	d.Word(uint64(e.epoch))
	d.Word(uint64(e.id.next))
	d.Word(uint64(e.id.crc))
	d.Word(uint64(e.id.producer))
	d.Word(uint64(e.id.sequence)<<16 | uint64(uint16(e.id.epoch)))
	e.chain = uint64(d)
	g.entries = append(g.entries, e)
	return true
}

func (g *ghost) submitted(batches []record.Batch) {
	for _, b := range batches {
		g.flying = append(g.flying, newEntry(b))
	}
}

// drop takes what is at the front of flying away.
func (g *ghost) drop(n int) {
	g.flying = g.flying[:copy(g.flying, g.flying[min(n, len(g.flying)):])]
}

// refused takes back what was submitted; in doubt says that it may be found all
// the same.
func (g *ghost) refused(batches []record.Batch, inDoubt bool) {
	if n := min(len(batches), len(g.flying)); inDoubt {
		g.doubt = append(g.doubt, g.flying[:n]...)
	}
	g.drop(len(batches))
}

func (g *ghost) written(batches []record.Batch) bool {
	g.drop(len(batches))
	for _, b := range batches {
		if !g.add(newEntry(b)) {
			return false
		}
	}
	return true
}

// cut drops what reaches past end.
func (g *ghost) cut(end record.Offset) {
	g.shown = min(g.shown, end)
	n := len(g.entries)
	for n > 0 && g.entries[n-1].id.next > end {
		n--
	}
	g.entries = g.entries[:n]
}

// from is where the first batch begins.
func (g *ghost) from() record.Offset {
	if len(g.entries) > 0 {
		return g.entries[0].base
	}
	return g.start
}

// raise lets the log begin later, and drops what is wholly before.
func (g *ghost) raise(start record.Offset) {
	n := 0
	for n < len(g.entries) && g.entries[n].id.next <= start {
		g.base = g.entries[n].chain
		n++
	}
	g.entries = g.entries[n:]
	g.start = max(g.start, start)
}

// recovered says what is wrong if the log is found from start to end: all that
// is durable, and what was on its way as far as it goes.
func (g *ghost) recovered(start, end record.Offset) string {
	flying := append(g.doubt, g.flying...)
	g.doubt, g.flying = nil, nil
	if was := g.end(); end < was {
		return fmt.Sprintf("the log ends at %d, %d was durable", end, was)
	}
	raising := g.raising
	g.raising = nil
	if len(g.entries) > 0 && start != g.start && !slices.Contains(raising, start) {
		return fmt.Sprintf("the log begins at %d, not at %d, nor at one of %v", start, g.start, raising)
	}
	for g.end() < end || len(g.entries) == 0 && end > start {
		at := g.end()
		if len(g.entries) == 0 && !slices.Contains(raising, start) {
			at = start
		}
		// Of two at one offset the first was refused, before it was told.
		i := len(flying) - 1
		for i >= 0 && flying[i].base != at {
			i--
		}
		if i < 0 || !g.add(flying[i]) {
			return fmt.Sprintf("nobody wrote what is at %d", at)
		}
	}
	if g.end() != end && len(g.entries) > 0 {
		return fmt.Sprintf("the log ends at %d, within a batch", end)
	}
	return ""
}

// find is the entry that begins at an offset.
func find(entries []entry, base record.Offset) (int, bool) {
	i := sort.Search(len(entries), func(i int) bool { return entries[i].base >= base })
	return i, i < len(entries) && entries[i].base == base
}

// chainAt is the chain of what is below an offset, which is the end of a batch,
// or 0.
func chainAt(entries []entry, base uint64, at record.Offset) uint64 {
	i := sort.Search(len(entries), func(i int) bool { return entries[i].id.next >= at })
	switch {
	case i < len(entries) && entries[i].id.next == at:
		return entries[i].chain
	case i == 0:
		return base
	}
	return 0
}
