package check

import (
	"slices"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// Deleting says that a client is about to ask for the end of everything below an
// offset, or, if that is -1, of everything that is committed.
func (c *Checker) Deleting(p history.Partition, below record.Offset) {
	l := c.log(p)
	l.all = l.all || below < 0
	l.asked = max(l.asked, below)
}

// Deleted says that a client was told that a log begins at start or later: so it
// does, then and from then on, wherever it may be led from.
func (c *Checker) Deleted(p history.Partition, start record.Offset) {
	l := c.log(p)
	l.start = max(l.start, start)
	if may := c.deletable(p); start > may {
		c.Violate("nothing is deleted unless somebody says so", "%s: begins at %d, what is below %d was to be deleted", p, start, may)
	}
	c.heirsBegin(c.names[p], p)
}

// Begins is where a log begins at least, as far as clients were told.
func (c *Checker) Begins(p history.Partition) record.Offset {
	if c.Beyond {
		return 0
	}
	return c.log(p).start
}

// deletable is below what offset somebody has asked for the end of everything.
func (c *Checker) deletable(p history.Partition) record.Offset {
	l := c.log(p)
	if t := c.truths[c.names[p]]; l.all && t != nil {
		return max(l.asked, t.newest().highWatermark)
	}
	return l.asked
}

// heirsBegin looks at who leads, or may be elected: what was deleted is deleted
// there.
func (c *Checker) heirsBegin(id storage.LogID, p history.Partition) {
	start := c.log(p).start
	part, ok := c.newest.Partition(id.Topic, id.Partition)
	if !ok || start == 0 {
		return
	}
	for _, member := range slices.Concat(part.ISR, part.ELR) {
		n := c.nodes[member-1]
		if l := n.life(id); n.lost == whole && !l.damaged && l.ghost.start < start && c.Damage[p] == "" {
			c.Violate("what was deleted stays deleted", "%s: node %d may be elected with a log that begins at %d, clients were told that it begins at %d; %v",
				p, member, l.ghost.start, start, part)
		}
	}
}

// raised looks at a log that begins later than it did.
func (c *Checker) raised(n *node, id storage.LogID, to record.Offset) {
	l, t := n.life(id), c.truth(id).newest()
	if to > t.highWatermark && n.lost == whole {
		c.Violate("only what is committed is deleted", "%s-%d on node %d: begins at %d, committed is what is below %d", l.topic, id.Partition, n.id, to, t.highWatermark)
	}
	if may := c.deletable(history.Partition{Topic: l.topic, Index: id.Partition}); to > may {
		c.Violate("nothing is deleted unless somebody says so", "%s-%d on node %d: begins at %d, what is below %d was to be deleted", l.topic, id.Partition, n.id, to, may)
	}
	l.ghost.raise(to)
}

// starts says what replicas that run in peace do not agree on: a follower begins
// where its leader does, or later.
func (c *Checker) starts(id storage.LogID, leader metadata.NodeID, replica metadata.NodeID) bool {
	return c.nodes[replica-1].life(id).ghost.start >= c.nodes[leader-1].life(id).ghost.start
}
