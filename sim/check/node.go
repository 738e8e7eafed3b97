package check

import (
	"errors"
	"maps"
	"slices"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/partition"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

// node is what one node has shown of itself.
type node struct {
	id    metadata.NodeID
	lives map[storage.LogID]*life
	image metadata.Offset // of its image, when it was last looked at

	// lost says that its disk has lost what was durable: it was wiped, or damaged.
	// The cluster may believe that it has everything, until a process that knows
	// better serves.
	lost loss
}

type loss uint8

const (
	whole    loss = iota
	untold        // until a process serves
	unserved      // until one does after the one that runs
)

// life is what a node has shown of a log: since its process started, and what
// must still be there when the next one starts.
type life struct {
	topic string
	ghost ghost

	highWatermark record.Offset
	committed     record.Offset // the highest high watermark of all processes
	logStart      record.Offset
	epoch         record.LeaderEpoch
	leads         bool
	era           int // in which it was known what is committed, by its place in those of the partition
	damaged       bool
	gaveUp        metadata.PartitionEpoch // at which a process has told of damage, or -1
	deleting      bool                    // a job to delete it was submitted
	cutting       []cutting               // what drops its end and was not told of
	hashedAt      record.Offset           // the end of the log that producers is the hash of
	producers     uint64
}

// cutting is a job that drops the end of a log, on the word of a leader of an
// epoch.
type cutting struct {
	job   job.Job
	epoch record.LeaderEpoch
}

func (n *node) life(id storage.LogID) *life {
	l := n.lives[id]
	if l == nil {
		l = &life{gaveUp: -1}
		n.lives[id] = l
	}
	return l
}

// Step looks at a node's partitions after an event, at what costs little to see.
func (c *Checker) Step(node int, t *partition.Table) {
	n := c.nodes[node]
	t.Glances(func(g partition.Glance) { c.glance(n, g) })
}

// Table does too, and at what costs more.
func (c *Checker) Table(node int, t *partition.Table) {
	n := c.nodes[node]
	for _, s := range t.Status() {
		c.glance(n, s.Glance)
		if s.Damage == nil {
			was := n.life(s.Log)
			was.hashedAt, was.producers = s.OnDisk, s.ProducerHash
			c.derives(n, was, s.Log, s.OnDisk, s.ProducerHash)
		}
	}
}

func (c *Checker) glance(n *node, g partition.Glance) {
	p := history.Partition{Topic: g.Topic, Index: g.Log.Partition}
	was := n.life(g.Log)
	if was.topic == "" {
		was.topic = g.Topic
		c.names[p] = g.Log
	}
	switch {
	case g.Damage != nil:
		was.damaged = true
		c.damaged(n, p, g.Damage.Error())
		c.rises(n, was, g, p, g.LeaderEpoch == was.epoch)
		return
	case g.LogStart > g.HighWatermark || g.HighWatermark > g.OnDisk || g.OnDisk > g.LogEnd:
		c.Violate("order of offsets", "%s: log start %d, high watermark %d, on disk %d, log end %d", p, g.LogStart, g.HighWatermark, g.OnDisk, g.LogEnd)
	case len(was.cutting) == 0 && (g.View.Start() != g.LogStart || g.View.End() < g.OnDisk): // a view is of a whole commit group
		c.Violate("the node and its store agree", "%s: log start %d, on disk %d, in the store %d to %d", p, g.LogStart, g.OnDisk, g.View.Start(), g.View.End())
	case g.HighWatermark < was.highWatermark:
		c.Violate("high watermark does not go back", "%s on node %d: from %d to %d", p, n.id, was.highWatermark, g.HighWatermark)
	case g.LogStart < was.logStart:
		c.Violate("log start does not go back", "%s: from %d to %d", p, was.logStart, g.LogStart)
	case g.LeaderEpoch < was.epoch:
		c.Violate("leader epoch does not go back", "%s: from %d to %d", p, was.epoch, g.LeaderEpoch)
	}
	if acked := c.log(p).acked; c.lone() && g.HighWatermark < acked {
		c.Violate("what clients know is committed", "%s: high watermark is %d, clients know of %d", p, g.HighWatermark, acked)
	}
	for i := 1; i < len(g.Epochs); i++ {
		if a, b := g.Epochs[i-1], g.Epochs[i]; a.Epoch >= b.Epoch || a.Start >= b.Start {
			c.Violate("epochs ascend", "%s: %v", p, g.Epochs)
		}
	}
	was.damaged = false
	same := g.LeaderEpoch == was.epoch
	if !same {
		was.leads = false
	}
	was.logStart, was.epoch = g.LogStart, g.LeaderEpoch
	if g.Leads && !was.leads {
		was.leads = true
		c.leads(n, was, g.Log, p)
	}
	c.rises(n, was, g, p, same)
}

// rises takes note of a high watermark. same says that the leader epoch is the one of
// before: else it may be that one's that has moved it.
func (c *Checker) rises(n *node, was *life, g partition.Glance, p history.Partition, same bool) {
	if g.HighWatermark > was.highWatermark && len(was.cutting) == 0 {
		if g.HighWatermark > was.committed && same { // its leader has said so
			was.enters(c.truth(g.Log), was.epoch, was.ghost.end())
		}
		was.highWatermark = g.HighWatermark
		was.committed = max(was.committed, g.HighWatermark)
		c.committed(n, was, g.Log, p)
	}
}

func (c *Checker) damaged(n *node, p history.Partition, what string) {
	c.Gone = c.Gone || !c.lone() && c.bereft(n, c.names[p])
	if part, ok := c.newest.Partition(c.names[p].Topic, p.Index); ok {
		n.life(c.names[p]).gaveUp = part.Epoch
	}
	if !c.Rotten && c.ReadErrors {
		return
	}
	if !c.Rotten {
		c.Violate("nothing is damaged unless something damages it", "%s: %s", p, what)
	}
	if c.lone() {
		c.Damage[p] = what
	} else {
		n.lost = unserved
		c.Losses++
	}
}

// bereft says whether a partition, whose log a node gives up, has others that may be
// elected, but each has lost it or is to give it up, which the metadata do not say yet:
// be it that a process which is no more has told so.
func (c *Checker) bereft(n *node, id storage.LogID) bool {
	part, ok := c.newest.Partition(id.Topic, id.Partition)
	if c.lax[history.Partition{Topic: n.life(id).topic, Index: id.Partition}] {
		return false
	}
	if !ok || !slices.Contains(part.ISR, n.id) && !slices.Contains(part.ELR, n.id) {
		return false
	}
	others := 0
	for _, member := range slices.Concat(part.ISR, part.ELR) {
		o := c.nodes[member-1]
		if l := o.life(id); o != n && l.holds(c.truth(id).newest(), c.truth(id).newest().highWatermark) && !l.damaged && l.gaveUp != part.Epoch {
			return false
		}
		if o != n {
			others++
		}
	}
	return others > 0
}

// Submitted looks at a job that a node wants done.
func (c *Checker) Submitted(node int, j job.Job) {
	switch j := j.(type) {
	case job.Append:
		c.nodes[node].life(j.Log).ghost.submitted(j.Batches)
	case job.Truncate:
		l := c.nodes[node].life(j.Log)
		l.cutting = append(l.cutting, cutting{j, l.epoch})
	case job.Reset:
		l := c.nodes[node].life(j.Log)
		l.cutting = append(l.cutting, cutting{j, l.epoch})
	case job.RaiseStart:
		l := c.nodes[node].life(j.Log)
		l.ghost.raising = append(l.ghost.raising, j.Start)
	case job.Delete:
		l := c.nodes[node].life(j.Log)
		l.deleting, l.leads = true, false
		l.highWatermark, l.logStart, l.epoch = 0, 0, 0 // another replica of the same log may follow
	}
}

// Done looks at the result of a job that a node is about to hear of.
func (c *Checker) Done(node int, r job.Result) {
	n := c.nodes[node]
	inDoubt := r.Err != nil && !errors.Is(r.Err, storage.ErrNoSpace) && !errors.Is(r.Err, storage.ErrNotNext) && !errors.As(r.Err, new(*storage.DamageError))
	switch j := r.Job.(type) {
	case job.Append:
		l := n.life(j.Log)
		if r.Early {
			l.ghost.shown = max(l.ghost.shown, j.Batches[len(j.Batches)-1].NextOffset())
			return
		}
		if r.Err != nil {
			if first := j.Batches[0].BaseOffset(); !inDoubt && first < l.ghost.shown {
				c.Violate("what is shown is not refused", "%s on node %d: %v, what is below %d was shown", l.topic, n.id, j, l.ghost.shown)
			}
			l.ghost.refused(j.Batches, inDoubt)
			return
		}
		first := len(l.ghost.entries)
		if !l.ghost.written(j.Batches) {
			c.Violate("appends follow one another", "%s on node %d: %v, its log ends at %d", l.topic, n.id, j, l.ghost.end())
			return
		}
		c.matches(n, j.Log, l, first)
	case job.Truncate:
		epoch := n.life(j.Log).done(inDoubt)
		if r.Err == nil {
			c.cut(n, j.Log, r.View.End(), epoch)
		}
	case job.Reset:
		epoch := n.life(j.Log).done(inDoubt)
		if r.Err == nil {
			c.reset(n, j, epoch)
		}
	case job.RaiseStart:
		if l := n.life(j.Log); !inDoubt {
			l.ghost.raising = slices.DeleteFunc(l.ghost.raising, func(o record.Offset) bool { return o == j.Start })
		}
		if r.Err == nil && r.View.Start() > n.life(j.Log).ghost.start {
			c.raised(n, j.Log, r.View.Start())
		}
	case job.Delete:
		if r.Err == nil {
			n.life(j.Log).deleted()
		}
	}
}

// done takes the first of the jobs that drop the end of a log from those that may
// yet be found to have done it.
func (l *life) done(inDoubt bool) record.LeaderEpoch {
	epoch := l.cutting[0].epoch
	if !inDoubt {
		l.cutting = l.cutting[1:]
	}
	return epoch
}

// Ended says that a node's process is no more.
func (c *Checker) Ended(node int) {
	n := c.nodes[node]
	n.image = 0
	if n.lost == unserved {
		n.lost = untold
	}
	for _, l := range n.lives { //pawl:unordered each by itself
		l.leads, l.damaged, l.ghost.shown = false, false, 0
		if !c.lone() {
			l.highWatermark, l.epoch = 0, 0
		}
	}
}

// Wiped says that a node has another disk, which is empty.
func (c *Checker) Wiped(node int) {
	n := c.nodes[node]
	for id := range n.lives { //pawl:unordered whether there is one
		c.Gone = c.Gone || !c.lone() && c.bereft(n, id)
	}
	n.lives = map[storage.LogID]*life{}
	n.lost = untold
	c.Losses++
}

// Serves says that a node serves: the cluster knows its process.
func (c *Checker) Serves(node int) {
	if n := c.nodes[node]; n.lost == untold {
		n.lost = whole
	}
}

// Recovered looks at what a node found on its disk. clean says that the process
// before it stopped in good order, perhaps that it was at it.
func (c *Checker) Recovered(node int, r *storage.Recovered, clean, perhaps bool) {
	n := c.nodes[node]
	if r.Clean && !clean && !perhaps {
		c.Violate("a crash is not taken for a clean stop", "the store says it was closed")
	}
	for i := range r.Logs {
		l := &r.Logs[i]
		was, end := n.life(l.ID), l.View.End()
		p := history.Partition{Topic: was.topic, Index: l.ID.Partition}
		if l.Damage != nil {
			if c.damaged(n, p, l.Damage.Error()); n.lost == unserved {
				n.lost = untold
			}
			was.ghost.cut(end)
			was.cutting = nil
			continue
		}
		if acked := c.log(p).acked; c.lone() && end < acked {
			c.Violate("what was acknowledged is there after a crash", "%s: log end is %d, acknowledged is %d", p, end, acked)
		}
		c.cutLate(n, l.ID, end)
		if end < was.committed {
			c.Violate("what was committed is there after a crash", "%s: log end is %d, high watermark was %d", p, end, was.committed)
		}
		first := len(was.ghost.entries)
		if what := was.ghost.recovered(l.View.Start(), end); what != "" {
			c.Violate("what was written is there after a crash", "%s on node %d: %s", p, n.id, what)
		}
		c.matches(n, l.ID, was, first)
		if l.View.Start() > was.ghost.start {
			c.raised(n, l.ID, l.View.Start())
		}
		hash, err := partition.Replayed(l)
		switch {
		case err != nil:
			c.Violate("producer state can be replayed", "%s: %v", p, err)
		case end == was.hashedAt && hash != was.producers && end > 0:
			c.Violate("producer state is the same replayed as live", "%s at %d: %#x, was %#x", p, end, hash, was.producers)
		}
	}
	c.missing(n, r)
	if clean && !r.Clean && !c.Rotten {
		c.Violate("a clean stop is known at the next start", "the store says it was not")
	}
	if clean && r.Groups > 0 && !c.Rotten {
		c.Violate("a clean start replays nothing", "%d groups of %d bytes", r.Groups, r.Bytes)
	}
}

// reset looks at a log that begins anew.
func (c *Checker) reset(n *node, j job.Reset, epoch record.LeaderEpoch) {
	l := n.life(j.Log)
	if may := c.deletable(history.Partition{Topic: l.topic, Index: j.Log.Partition}); j.Start > may {
		c.Violate("nothing is deleted unless somebody says so", "%s-%d on node %d: begins anew at %d, what is below %d was to be deleted", l.topic, j.Log.Partition, n.id, j.Start, may)
	}
	c.severed(n, j.Log, j.Start, epoch) // what is before is deleted where the leader is
	l.ghost = ghost{start: j.Start, origin: j.Start}
	t := c.truth(j.Log)
	l.era = t.eraOf(epoch)
	l.ghost.base = chainAt(t.eras[l.era].committed, 0, j.Start)
	l.highWatermark, l.committed, l.logStart, l.hashedAt = 0, 0, 0, -1
	c.candidates(j.Log, history.Partition{Topic: l.topic, Index: j.Log.Partition})
}

// cutLate looks at a log that was found, and that the process before may have cut
// without having been told.
func (c *Checker) cutLate(n *node, id storage.LogID, end record.Offset) {
	l := n.life(id)
	for _, cut := range l.cutting {
		switch j := cut.job.(type) {
		case job.Truncate:
			if end < l.ghost.end() && end >= j.End {
				c.cut(n, id, end, cut.epoch)
			}
		case job.Reset:
			if end < l.ghost.end() || end == j.Start {
				c.reset(n, j, cut.epoch)
			}
		}
	}
	l.cutting = nil
	if l.deleting && end != l.ghost.end() {
		l.deleted()
	}
	l.deleting = false
}

// deleted forgets what a log has held. What is on its way to it is for the next
// of that name.
func (l *life) deleted() {
	l.ghost = ghost{flying: l.ghost.flying}
	l.committed, l.hashedAt, l.deleting = 0, -1, false
}

// missing looks for logs that are gone.
func (c *Checker) missing(n *node, r *storage.Recovered) {
	found := map[storage.LogID]bool{}
	for i := range r.Logs {
		found[r.Logs[i].ID] = true
	}
	for id, l := range n.lives { //pawl:unordered any of them is a violation
		if found[id] {
			continue
		}
		if len(l.ghost.entries)+int(l.ghost.start) > 0 && !l.deleting && n.lost == whole && !c.Rotten {
			c.Violate("what was written is there after a crash", "%s-%d on node %d is gone; its end was %d", l.topic, id.Partition, n.id, l.ghost.end())
		}
		l.cutting = nil // nor is what was to be done with it any more
		l.deleted()
	}
	if !c.lone() {
		return
	}
	for _, p := range slices.SortedFunc(maps.Keys(c.parts), history.Partition.Compare) { //pawl:total-order keys of a map are unique
		there := slices.ContainsFunc(r.Logs, func(l storage.RecoveredLog) bool { return l.ID.Partition == p.Index && n.life(l.ID).topic == p.Topic })
		if acked := c.parts[p].acked; acked > 0 && !there && c.Damage[p] == "" {
			c.Violate("what was acknowledged is there after a crash", "%s is gone; acknowledged was %d", p, acked)
		}
	}
}
