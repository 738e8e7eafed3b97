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

	"github.com/pawlbroker/pawl/broker/partition"
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
	lives map[storage.LogID]*life

	// Damage is what the node said is damaged, by partition; such a partition
	// may lose what it had, but not serve anything else in its place.
	Damage map[history.Partition]string
	// Rotten says that bits were flipped, or sectors broken, on a running
	// machine, so that bytes may go bad after the node has checked them.
	Rotten bool
	// Dropped says that a node has read bytes to send which a failed sync may have
	// made the page cache forget, before it could know.
	Dropped bool
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

// life is what a node has shown of a log since it started, and before.
type life struct {
	topic         string
	highWatermark record.Offset
	logStart      record.Offset
	epoch         record.LeaderEpoch
	hashedAt      record.Offset // the end of the log that producers is the hash of
	producers     uint64
}

// New returns a checker of a run.
func New() *Checker {
	return &Checker{
		parts: map[history.Partition]*log{}, ids: map[record.ProducerID]record.ProducerEpoch{},
		lives: map[storage.LogID]*life{}, Damage: map[history.Partition]string{},
	}
}

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
// do the five after it.
func (c *Checker) Served(p history.Partition, b record.Batch) {
	c.agree("served", p, b.BaseOffset(), identify(b, b.BaseOffset()))
}

// Acked is a batch that a client was told is at base.
func (c *Checker) Acked(p history.Partition, base record.Offset, b record.Batch) {
	c.agree("acknowledged", p, base, identify(b, base))
}

// agree holds one sight of a batch against all the others.
func (c *Checker) agree(how string, p history.Partition, base record.Offset, b batch) {
	l := c.log(p)
	if old, ok := l.batches[base]; ok && old != b {
		c.Violate("one batch per offset", "%s offset %d: was %+v, is now %s as %+v", p, base, old, how, b)
		return
	}
	l.batches[base] = b
	l.acked = max(l.acked, b.next)
}

// Spoiled is what a client got that was no batch.
func (c *Checker) Spoiled(p history.Partition, at record.Offset, what string) {
	if !c.Rotten && !c.Dropped {
		c.Violate("only what was written is served", "%s at %d: %s", p, at, what)
	}
}

// OutOfRange is an answer that makes a client lose its place: for an offset that
// it knows from the node it must never come, however little the node knows as
// yet. Nothing is deleted from the front of a simulated log.
func (c *Checker) OutOfRange(p history.Partition, at record.Offset) {
	if known := c.log(p).acked; at <= known && c.Damage[p] == "" {
		c.Violate("an offset that was served is in range", "%s: %d is out of range, clients know of %d", p, at, known)
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

// Step looks at a node's partitions after an event, at what costs little to see.
func (c *Checker) Step(t *partition.Table) { t.Glances(c.glance) }

// Table does too, and at what costs more.
func (c *Checker) Table(t *partition.Table) {
	for _, s := range t.Status() {
		c.glance(s.Glance)
		if s.Damage == nil {
			was := c.life(s.Log)
			was.hashedAt, was.producers = s.OnDisk, s.ProducerHash
		}
	}
}

func (c *Checker) life(id storage.LogID) *life {
	l := c.lives[id]
	if l == nil {
		l = &life{}
		c.lives[id] = l
	}
	return l
}

func (c *Checker) glance(g partition.Glance) {
	p := history.Partition{Topic: g.Topic, Index: g.Log.Partition}
	was := c.life(g.Log)
	switch {
	case g.Damage != nil:
		c.damaged(p, g.Damage.Error())
		return
	case g.LogStart > g.HighWatermark || g.HighWatermark > g.OnDisk || g.OnDisk > g.LogEnd:
		c.Violate("order of offsets", "%s: log start %d, high watermark %d, on disk %d, log end %d", p, g.LogStart, g.HighWatermark, g.OnDisk, g.LogEnd)
	case g.View.Start() != g.LogStart || g.View.End() < g.OnDisk: // a view is of a whole commit group
		c.Violate("the node and its store agree", "%s: log start %d, on disk %d, in the store %d to %d", p, g.LogStart, g.OnDisk, g.View.Start(), g.View.End())
	case g.HighWatermark < was.highWatermark:
		c.Violate("high watermark does not go back", "%s: from %d to %d", p, was.highWatermark, g.HighWatermark)
	case g.LogStart < was.logStart:
		c.Violate("log start does not go back", "%s: from %d to %d", p, was.logStart, g.LogStart)
	case g.LeaderEpoch < was.epoch:
		c.Violate("leader epoch does not go back", "%s: from %d to %d", p, was.epoch, g.LeaderEpoch)
	}
	if acked := c.log(p).acked; g.HighWatermark < acked {
		c.Violate("what clients know is committed", "%s: high watermark is %d, clients know of %d", p, g.HighWatermark, acked)
	}
	for i := 1; i < len(g.Epochs); i++ {
		if a, b := g.Epochs[i-1], g.Epochs[i]; a.Epoch >= b.Epoch || a.Start >= b.Start {
			c.Violate("epochs ascend", "%s: %v", p, g.Epochs)
		}
	}
	was.topic, was.highWatermark, was.logStart, was.epoch = g.Topic, g.HighWatermark, g.LogStart, g.LeaderEpoch
}

func (c *Checker) damaged(p history.Partition, what string) {
	if !c.Rotten && c.ReadErrors {
		return
	}
	if !c.Rotten {
		c.Violate("nothing is damaged unless something damages it", "%s: %s", p, what)
	}
	c.Damage[p] = what
}

// Recovered looks at what a node found on its disk. clean says that the process
// before it stopped in good order, perhaps that it was at it.
func (c *Checker) Recovered(r *storage.Recovered, clean, perhaps bool) {
	if r.Clean && !clean && !perhaps {
		c.Violate("a crash is not taken for a clean stop", "the store says it was closed")
	}
	for i := range r.Logs {
		l := &r.Logs[i]
		was, end := c.life(l.ID), l.View.End()
		p := history.Partition{Topic: was.topic, Index: l.ID.Partition}
		if l.Damage != nil {
			c.damaged(p, l.Damage.Error())
			continue
		}
		if acked := c.log(p).acked; end < acked {
			c.Violate("what was acknowledged is there after a crash", "%s: log end is %d, acknowledged is %d", p, end, acked)
		}
		if end < was.highWatermark {
			c.Violate("what was committed is there after a crash", "%s: log end is %d, high watermark was %d", p, end, was.highWatermark)
		}
		hash, err := partition.Replayed(l)
		switch {
		case err != nil:
			c.Violate("producer state can be replayed", "%s: %v", p, err)
		case end == was.hashedAt && hash != was.producers && end > 0:
			c.Violate("producer state is the same replayed as live", "%s at %d: %#x, was %#x", p, end, hash, was.producers)
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(c.parts), history.Partition.Compare) { //pawl:total-order keys of a map are unique
		there := slices.ContainsFunc(r.Logs, func(l storage.RecoveredLog) bool { return l.ID.Partition == p.Index && c.life(l.ID).topic == p.Topic })
		if acked := c.parts[p].acked; acked > 0 && !there && c.Damage[p] == "" {
			c.Violate("what was acknowledged is there after a crash", "%s is gone; acknowledged was %d", p, acked)
		}
	}
	if clean && !r.Clean && !c.Rotten {
		c.Violate("a clean stop is known at the next start", "the store says it was not")
	}
	if clean && r.Groups > 0 && !c.Rotten {
		c.Violate("a clean start replays nothing", "%d groups of %d bytes", r.Groups, r.Bytes)
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
