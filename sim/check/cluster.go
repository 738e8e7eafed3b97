package check

import (
	"fmt"
	"slices"
	"sort"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// truth is what is true of a partition, whichever node one asks. There is one
// history, and every replica's every state is on it, unless a leader was elected
// that lacked some of it: with that an era begins.
//
// Source: the state checker of TigerBeetle's simulator; the invariants of Kafka's
// replication in Vanlightly's TLA+ specifications.
type truth struct {
	eras      []*era // by the leader epochs that they begin with
	leaders   map[record.LeaderEpoch]metadata.NodeID
	chains    map[where]uint64  // of every batch that was ever durable
	producers map[uint64]uint64 // hash of the producers' state, by the chain of the log it is of
	state     *metadata.Partition
}

// where is a batch's place in the history: a leader puts one batch at an offset.
type where struct {
	epoch record.LeaderEpoch
	base  record.Offset
}

func (c *Checker) truth(id storage.LogID) *truth {
	t := c.truths[id]
	if t == nil {
		t = &truth{eras: []*era{{begun: true}}, leaders: map[record.LeaderEpoch]metadata.NodeID{}, chains: map[where]uint64{}, producers: map[uint64]uint64{}}
		c.truths[id] = t
	}
	return t
}

// matches looks at what was added to a log: two logs that have a batch of one
// leader epoch at one offset are the same up to there.
func (c *Checker) matches(n *node, id storage.LogID, l *life, first int) {
	t := c.truth(id)
	for _, e := range l.ghost.entries[min(first, len(l.ghost.entries)):] {
		at := where{e.epoch, e.base}
		if chain, ok := t.chains[at]; ok && chain != e.chain && n.lost == whole {
			c.Violate("logs match", "%s-%d on node %d: offset %d of epoch %d is another batch than on another node, or has others before it", l.topic, id.Partition, n.id, e.base, e.epoch)
		}
		t.chains[at] = e.chain
	}
}

// derives looks at the producers' state of a replica: it is the same wherever the
// log is, as far back as it was ever there.
func (c *Checker) derives(n *node, l *life, id storage.LogID, end record.Offset, hash uint64) {
	if len(l.cutting) > 0 || l.ghost.end() != end || end == 0 {
		return
	}
	t, chain := c.truth(id), l.ghost.chain()+uint64(l.ghost.origin)
	if other, ok := t.producers[chain]; ok && other != hash {
		c.Violate("replicas agree on producers", "%s-%d on node %d at %d: %#x, was %#x elsewhere or before", l.topic, id.Partition, n.id, end, hash, other)
	}
	t.producers[chain] = hash
}

// committed looks at a replica whose high watermark has moved: what is below is
// what it is on every other, for all time.
func (c *Checker) committed(n *node, l *life, id storage.LogID, p history.Partition) {
	t, at := c.truth(id).eras[l.era], l.highWatermark
	known := min(at, t.highWatermark)
	if !l.holds(t, known) {
		c.Violate("replicas agree on what is committed", "%s on node %d: not what was committed below %d", p, n.id, known)
		return
	}
	if at <= t.highWatermark {
		return
	}
	i, ok := find(l.ghost.entries, t.highWatermark)
	for ; ok && i < len(l.ghost.entries) && l.ghost.entries[i].id.next <= at; i++ {
		t.committed = append(t.committed, l.ghost.entries[i])
	}
	t.highWatermark = at
	t.rose(l.epoch)
	if !ok || t.committed[len(t.committed)-1].id.next != at {
		c.Violate("what is committed is durable", "%s on node %d: high watermark %d, durable is what is below %d", p, n.id, at, l.ghost.end())
		return
	}
	c.candidates(id, p)
}

// leads looks at a node that begins to lead: nobody else did in that epoch, and
// it has everything that was committed.
func (c *Checker) leads(n *node, l *life, id storage.LogID, p history.Partition) {
	t := c.truth(id)
	if other, ok := t.leaders[l.epoch]; ok && other != n.id {
		c.Violate("one leader per epoch", "%s: node %d leads epoch %d, as node %d did", p, n.id, l.epoch, other)
	}
	t.leaders[l.epoch] = n.id
	i := t.eraOf(l.epoch)
	if !t.eras[i].begun {
		t.begin(i, l)
	}
	l.enters(t, l.epoch, l.ghost.end())
	if at := t.eras[i].before(l.epoch); !l.holds(t.eras[i], at) {
		c.Violate("leaders have everything committed", "%s: node %d leads epoch %d with what is below %d, committed was what is below %d", p, n.id, l.epoch, l.ghost.end(), at)
	}
}

// holds says whether a log has everything that is committed below an offset, but
// for what was deleted of it. A high watermark that comes from a log start may be
// within a batch.
func (l *life) holds(t *era, at record.Offset) bool {
	if i := sort.Search(len(t.committed), func(i int) bool { return t.committed[i].id.next >= at }); i < len(t.committed) && t.committed[i].id.next > at {
		at = t.committed[i].base
	}
	at = max(at, l.ghost.from())
	return chainAt(l.ghost.entries, l.ghost.base, at) == chainAt(t.committed, 0, at)
}

// candidates looks at who may be elected: each has everything committed.
func (c *Checker) candidates(id storage.LogID, p history.Partition) {
	if c.lone() {
		return
	}
	part, ok := c.newest.Partition(id.Topic, id.Partition)
	if !ok {
		return
	}
	all := c.truth(id)
	t := all.eras[all.eraOf(part.LeaderEpoch)]
	if t.highWatermark == 0 {
		return
	}
	c.heirsBegin(id, p)
	for _, list := range [][]metadata.NodeID{part.ISR, part.ELR} {
		for _, member := range list {
			n := c.nodes[member-1]
			if n.lost == whole && !n.life(id).holds(t, t.highWatermark) {
				c.Violate("candidates have everything committed", "%s: node %d may be elected with what is below %d, committed is what is below %d; %v",
					p, member, n.life(id).ghost.end(), t.highWatermark, part)
			}
		}
	}
}

// cut looks at a replica that drops the end of its log because it follows the
// leader of an epoch: nothing of it was committed before that epoch, for its
// leader has all of that. The leader itself may have committed some meanwhile that
// was still on its way to its disk when it told the replica to cut, and a later
// one what this one never had: then the replica is in the ISR of neither, which
// is for candidates to see.
func (c *Checker) cut(n *node, id storage.LogID, end record.Offset, epoch record.LeaderEpoch) {
	l := n.life(id)
	l.enters(c.truth(id), epoch, end)
	c.severed(n, id, end, epoch)
	l.ghost.cut(end)
	if l.hashedAt > end {
		l.hashedAt = -1
	}
	c.candidates(id, history.Partition{Topic: l.topic, Index: id.Partition})
}

// severed looks at the end that a replica drops, from an offset on.
func (c *Checker) severed(n *node, id storage.LogID, end record.Offset, epoch record.LeaderEpoch) {
	l, all := n.life(id), c.truth(id)
	t := all.eras[all.eraOf(epoch)]
	committed := t.before(epoch)
	for _, e := range l.ghost.entries {
		if e.id.next <= end || e.id.next > committed {
			continue
		}
		if i, ok := find(t.committed, e.base); ok && t.committed[i].chain == e.chain && n.lost == whole && !l.damaged {
			c.Violate("what is committed is not cut off", "%s-%d on node %d: cut at %d in epoch %d, committed is what is below %d", l.topic, id.Partition, n.id, end, epoch, committed)
			break
		}
	}
}

// Newest is the newest image that any node has had.
func (c *Checker) Newest() metadata.Image { return c.newest }

// Image looks at what a node knows of the cluster, and reports whether that is
// more than before.
func (c *Checker) Image(node int, m metadata.Image) (moved bool) {
	n := c.nodes[node]
	at := m.Offset()
	switch {
	case at == n.image:
		return false
	case at < n.image:
		c.Violate("metadata do not go back", "node %d: from offset %d to %d", n.id, n.image, at)
	}
	n.image = at
	if hash, ok := c.hashes[at]; ok && hash != m.Hash() {
		c.Violate("nodes agree on metadata", "node %d at offset %d: %#x, another has %#x", n.id, at, m.Hash(), hash)
	}
	c.hashes[at] = m.Hash()
	if at <= c.newest.Offset() {
		return true
	}
	before := c.newest
	c.newest = m
	for t := range m.Topics() {
		for p := range m.Partitions(t.ID) {
			old, was := before.Partition(t.ID, p.Index)
			if was && old == p {
				continue // images share what is the same
			}
			name := history.Partition{Topic: t.Name, Index: p.Index}
			if c.Say != nil {
				c.Say(fmt.Sprintf("%s at %d: %v", name, m.Offset(), p))
			}
			c.wellFormed(m, name, p)
			if was {
				c.follows(name, old, p)
			}
		}
	}
	if c.lone() {
		return true
	}
	for t := range m.Topics() {
		for p := range m.Partitions(t.ID) {
			c.candidates(storage.LogID{Topic: t.ID, Partition: p.Index}, history.Partition{Topic: t.Name, Index: p.Index})
		}
	}
	return true
}

// Leading looks at a node that leads the cluster in a term.
func (c *Checker) Leading(node int, term quorum.Term) {
	id := c.nodes[node].id
	if other, ok := c.terms[term]; ok && other != id {
		c.Violate("one controller per term", "nodes %d and %d in term %d", other, id, term)
	}
	c.terms[term] = id
}

// wellFormed looks at a partition in an image.
func (c *Checker) wellFormed(m metadata.Image, name history.Partition, p *metadata.Partition) {
	in := func(list []metadata.NodeID) func(metadata.NodeID) bool {
		return func(n metadata.NodeID) bool { return slices.Contains(list, n) }
	}
	out := func(list []metadata.NodeID) func(metadata.NodeID) bool {
		return func(n metadata.NodeID) bool { return !slices.Contains(list, n) }
	}
	switch {
	case slices.ContainsFunc(p.ISR, out(p.Replicas)), slices.ContainsFunc(p.ELR, out(p.Replicas)):
		c.Violate("who is in sync is a replica", "%s: %v", name, p)
	case slices.ContainsFunc(p.ISR, in(p.ELR)):
		c.Violate("nobody is both in sync and eligible", "%s: %v", name, p)
	case p.Leader != metadata.NoNode && !slices.Contains(p.ISR, p.Leader):
		c.Violate("leaders are in sync", "%s: %v", name, p)
	case len(p.ISR) >= m.EffectiveMinISR(p) && len(p.ELR) > 0:
		c.Violate("nobody is eligible beside enough in sync", "%s: %v, want %d in sync", name, p, m.EffectiveMinISR(p))
	}
	if c.lone() {
		return
	}
	for _, n := range p.ISR {
		if b, ok := m.Broker(n); !ok || b.Fenced {
			c.Violate("who is in sync is not fenced", "%s: node %d; %v", name, n, p)
		}
	}
}

// follows looks at how a partition has changed.
func (c *Checker) follows(name history.Partition, old, p *metadata.Partition) {
	switch {
	case p.LeaderEpoch < old.LeaderEpoch || p.Epoch < old.Epoch:
		c.Violate("a partition's epochs do not go back", "%s: from %v to %v", name, old, p)
	case p.LeaderEpoch == old.LeaderEpoch && p.Leader != old.Leader:
		c.Violate("another leader has another epoch", "%s: from %v to %v", name, old, p)
	}
	// Of several changes that a node applied at once only the last is seen here. A
	// replica that is added and removed was given up: nothing ends when it goes. One
	// that was added and is gone was taken back.
	moves, ended := false, p.Epoch == old.Epoch+1 && len(p.Adding)+len(p.Removing) == 0
	for _, n := range slices.Concat(old.Adding, old.Removing) {
		adds, removes := slices.Contains(old.Adding, n), slices.Contains(old.Removing, n)
		moves = moves || adds != removes
		ended = ended && (adds && removes || adds == slices.Contains(p.Replicas, n))
	}
	moved := moves && ended
	if moved && !slices.Equal(slices.Sorted(slices.Values(p.Replicas)), slices.Sorted(slices.Values(p.ISR))) {
		c.Violate("a move ends with all its targets", "%s: from %v to %v", name, old, p)
	}
}

// stillborn says whether a partition never had anything committed and has lost
// whoever was in sync: it was created while others were fenced, and then a disk
// was replaced. An operator deletes such a topic, or has anybody lead it.
func (c *Checker) stillborn(p *metadata.Partition) bool {
	return c.Losses > 0 && len(p.ISR)+len(p.ELR) == 0 && c.truth(storage.LogID{Topic: p.Topic, Partition: p.Index}).newest().highWatermark == 0
}

// Apart says what nodes that run in peace do not agree on, or nothing.
func (c *Checker) Apart() string {
	for _, n := range c.nodes {
		if n.image != c.newest.Offset() {
			return fmt.Sprintf("node %d has metadata to %d, another to %d", n.id, n.image, c.newest.Offset())
		}
	}
	for t := range c.newest.Topics() {
		for p := range c.newest.Partitions(t.ID) {
			name := history.Partition{Topic: t.Name, Index: p.Index}
			if c.stillborn(p) {
				continue
			}
			if p.Leader == metadata.NoNode || len(p.ISR) != len(p.Replicas) || len(p.Adding) > 0 {
				return fmt.Sprintf("%s: %v", name, p)
			}
			id := storage.LogID{Topic: t.ID, Partition: p.Index}
			all := c.truth(id)
			truth := all.eras[all.eraOf(p.LeaderEpoch)]
			for _, r := range p.Replicas {
				if !c.starts(id, p.Leader, r) {
					return fmt.Sprintf("%s begins at %d on node %d, at %d on the leader %d", name, c.nodes[r-1].life(id).ghost.start, r, c.nodes[p.Leader-1].life(id).ghost.start, p.Leader)
				}
			}
			for _, r := range p.Replicas {
				l := c.nodes[r-1].life(id)
				if l.ghost.end() != truth.highWatermark || !l.holds(truth, truth.highWatermark) || l.highWatermark != truth.highWatermark {
					return fmt.Sprintf("%s on node %d: log end %d, high watermark %d, committed is what is below %d", name, r, l.ghost.end(), l.highWatermark, truth.highWatermark)
				}
			}
		}
	}
	return ""
}
