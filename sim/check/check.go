// Package check says what must be true of every run, whatever its faults. It
// looks on from outside: at what clients are told and served, at what a node
// shows of itself, and at what it finds on disk when it starts.
//
// What is true of operations in time is linearizability's to judge; here is
// what is true at once.
package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// Violation is something that was not true.
type Violation struct {
	Check string // which of the checks
	Text  string
}

// Checker watches one run. It keeps the first violation.
type Checker struct {
	first *Violation
	parts map[history.Partition]*log
	ids   map[record.ProducerID]record.ProducerEpoch
	nodes []*node

	truths map[storage.LogID]*truth
	names  map[history.Partition]storage.LogID // latest
	lax    map[history.Partition]bool          // may be led by who lacks something
	hashes map[metadata.Offset]uint64          // of images
	newest metadata.Image                      // that any node has had
	terms  map[quorum.Term]metadata.NodeID     // who has led the cluster

	// Say, if not nil, is told of every change of a partition, in words.
	Say func(string)
	// Damage is what is damaged beyond repair, by partition; such a partition may
	// lose what it had, but not serve anything else in its place. With more than
	// one replica nothing is.
	Damage map[history.Partition]string
	// Unclean is how often a leader was elected that may have lacked something.
	Unclean int64
	// Losses is how often a node has lost what was durable.
	Losses int64
	// Beyond says that clocks were beyond the bound that reads rest on.
	Beyond bool
	// Rotten says that bits were flipped, or sectors broken, on a running
	// machine, so that bytes may go bad after the node has checked them.
	Rotten bool
	// Dropped says that a node has read bytes to send which a failed sync may have
	// made the page cache forget, before it could know.
	Dropped bool
	// Gone says that several faults at once took all that there was of a partition.
	Gone bool
	// ReadErrors says that a read may have failed which would succeed again. The
	// node may take a log for damaged over it, until it is started anew.
	ReadErrors bool
	// Refusals is how often a producer was told that its sequence is wrong.
	Refusals int64
}

// log is what one partition's log has been seen to hold.
type log struct {
	batches map[record.Offset]batch // by base offset
	acked   record.Offset           // everything below was acknowledged or served
	asked   record.Offset           // everything below may be deleted: somebody has asked for that
	all     bool                    // or for the end of everything that is committed
	start   record.Offset           // everything below is deleted: somebody was told so
}

// batch is what tells a batch from every other.
type batch struct {
	next     record.Offset
	producer record.ProducerID
	epoch    record.ProducerEpoch
	sequence record.Sequence
	crc      uint32
	count    int32
}

func identify(b record.Batch, base record.Offset) batch {
	return batch{
		next: base + record.Offset(b.LastOffsetDelta()) + 1, producer: b.ProducerID(), epoch: b.ProducerEpoch(),
		sequence: b.BaseSequence(), crc: b.CRC(), count: b.Count(),
	}
}

// New returns a checker of a run with so many nodes.
func New(nodes int) *Checker {
	c := &Checker{
		parts: map[history.Partition]*log{}, ids: map[record.ProducerID]record.ProducerEpoch{},
		truths: map[storage.LogID]*truth{}, names: map[history.Partition]storage.LogID{},
		lax: map[history.Partition]bool{}, hashes: map[metadata.Offset]uint64{}, terms: map[quorum.Term]metadata.NodeID{}, Damage: map[history.Partition]string{},
	}
	for i := range nodes {
		c.nodes = append(c.nodes, &node{id: metadata.NodeID(i + 1), lives: map[storage.LogID]*life{}})
	}
	return c
}

// lone says whether a node is the whole cluster.
func (c *Checker) lone() bool { return len(c.nodes) == 1 }

// Violate records a violation, unless there is one.
func (c *Checker) Violate(check, format string, args ...any) {
	if c.first == nil && !slices.Contains(blind, check) {
		c.first = &Violation{check, fmt.Sprintf(format, args...)}
	}
}

// First is the first violation, or nil.
func (c *Checker) First() *Violation { return c.first }

func (c *Checker) log(p history.Partition) *log {
	l := c.parts[p]
	if l == nil {
		l = &log{batches: map[record.Offset]batch{}}
		c.parts[p] = l
	}
	return l
}

// Served is a batch that a client was served. It implements client.Watcher, as
// do those after it, and those in deletion.go.
func (c *Checker) Served(p history.Partition, b record.Batch) {
	c.agree("served", p, b.BaseOffset(), identify(b, b.BaseOffset()))
}

// Acked is a batch that a client was told is at base.
func (c *Checker) Acked(p history.Partition, base record.Offset, b record.Batch) {
	c.agree("acknowledged", p, base, identify(b, base))
}

// known holds what a client was told against what is committed.
func (c *Checker) known(how string, p history.Partition, base record.Offset, b batch) {
	t := c.truths[c.names[p]]
	if t == nil {
		return // before any node has shown the partition
	}
	for _, e := range t.eras[:len(t.eras)-1] {
		if i, ok := find(e.committed, base); ok && e.committed[i].id == b {
			return // by who led then
		}
	}
	e := t.eras[len(t.eras)-1]
	i, ok := find(e.committed, base)
	switch {
	case !ok:
		c.Violate("what clients know is committed", "%s: %s [%d, %d), committed is what is below %d", p, how, base, b.next, e.highWatermark)
	case e.committed[i].id != b:
		c.Violate("one batch per offset", "%s offset %d: committed is %+v, %s %+v", p, base, e.committed[i].id, how, b)
	}
}

// agree holds one sight of a batch against all the others.
func (c *Checker) agree(how string, p history.Partition, base record.Offset, b batch) {
	l := c.log(p)
	if c.uncleanly(p) {
		c.known(how, p, base, b)
		return
	}
	if old, ok := l.batches[base]; ok && old != b {
		c.Violate("one batch per offset", "%s offset %d: was %+v, is now %s as %+v", p, base, old, how, b)
		return
	}
	l.batches[base] = b
	l.acked = max(l.acked, b.next)
	c.known(how, p, base, b)
}

// Spoiled is what a client got that was no batch.
func (c *Checker) Spoiled(p history.Partition, at record.Offset, what string) {
	if !c.Rotten && !c.Dropped {
		c.Violate("only what was written is served", "%s at %d: %s", p, at, what)
	}
}

// OutOfRange is an answer that makes a client lose its place: for an offset that
// it knows from the node it must never come, however little the node knows as
// yet, unless it may have been deleted.
func (c *Checker) OutOfRange(p history.Partition, at record.Offset) {
	l := c.log(p)
	if known := l.acked; at <= known && at >= c.deletable(p) && c.Damage[p] == "" {
		c.Violate("an offset that was served is in range", "%s: %d is out of range, clients know of %d and have deleted what is below %d at most", p, at, known, c.deletable(p))
	}
}

// Issued is an id that a producer was given.
func (c *Checker) Issued(id record.ProducerID, epoch record.ProducerEpoch) {
	if before, ok := c.ids[id]; ok {
		c.Violate("producer ids are unique", "id %d was issued with epoch %d and again with %d", id, before, epoch)
	}
	c.ids[id] = epoch
}

// Refused is an answer that a correct node does not give to a producer that
// numbers its batches as it should.
func (c *Checker) Refused(p history.Partition, what string) {
	c.Refusals++
	if c.Damage[p] == "" {
		c.Violate("a producer in order is not refused", "%s: %s", p, what)
	}
}

// Finish looks at the whole: every producer's sequences are stored once and in
// order, and no two batches overlap.
func (c *Checker) Finish() {
	for _, p := range slices.SortedFunc(maps.Keys(c.parts), history.Partition.Compare) { //pawl:total-order keys of a map are unique
		c.idempotent(p, c.parts[p])
	}
}

type producer struct {
	id    record.ProducerID
	epoch record.ProducerEpoch
}

func (c *Checker) idempotent(p history.Partition, l *log) {
	next := map[producer]record.Sequence{}
	end := record.Offset(0)
	whole := true // nothing was left out up to here
	for _, base := range slices.Sorted(maps.Keys(l.batches)) {
		b := l.batches[base]
		if base < end {
			c.Violate("batches do not overlap", "%s: a batch ends at %d, the next begins at %d", p, end, base)
		}
		whole = whole && base == end
		end = b.next
		if b.producer == record.NoProducer {
			continue
		}
		id := producer{b.producer, b.epoch}
		want, known := next[id]
		if b.sequence < want || whole && b.sequence != want {
			c.Violate("sequences are stored once, in order", "%s offset %d: producer %d epoch %d sequence %d, want %d (known %t)", p, base, id.id, id.epoch, b.sequence, want, known)
		}
		next[id] = b.sequence.Add(b.count)
	}
}
