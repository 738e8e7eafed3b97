package replica

import (
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// Member is one of the in-sync replicas, and the registration that is meant.
//
// Source: KIP-903.
type Member struct {
	Node  metadata.NodeID
	Epoch metadata.BrokerEpoch
}

// Proposal is what a leader asks the controller to make of the ISR. What came of
// it is to be told by Decided.
//
// Source: KIP-497.
type Proposal struct {
	LeaderEpoch record.LeaderEpoch
	Epoch       metadata.PartitionEpoch // of the state that it is to change
	ISR         []Member                // in the order of the replicas
}

// Decision is what came of a proposal.
type Decision uint8

const (
	// Accepted says the ISR is as proposed.
	Accepted Decision = iota
	// Refused says the controller will not have it, and has not.
	Refused
	// Outdated says the controller knows a newer state of the partition, which the
	// metadata will tell.
	Outdated
	// Unanswered says that nothing is known: it may have been accepted.
	Unanswered
)

// propose asks for an ISR without those that have been behind too long, and
// with those that have caught up, unless a proposal is on its way.
//
// Who is taken out counts until the controller has agreed, who is added counts
// at once: so what is committed is on every replica that the controller may
// elect, whatever it has decided and not yet told.
func (r *Replica) propose(n *Node, now clock.Instant, out *Out) {
	g := r.reign
	if g == nil || r.busy || g.asking || now < g.retryAt {
		return
	}
	change := g.unsure // then anything that the controller decides makes sure
	for i := range g.followers {
		f := &g.followers[i]
		change = change || f.inSync && r.lags(f, n, now) || !f.inSync && r.joins(f, n, now)
	}
	if !change {
		return
	}
	p := &Proposal{LeaderEpoch: r.epoch, Epoch: r.partitionEpoch, ISR: make([]Member, 0, len(g.followers)+1)}
	self := Member{n.Self, n.Epoch}
	placed := false
	for i := range g.followers {
		f := &g.followers[i]
		if !placed && int(f.place) > i { // the leader stands before it
			p.ISR, placed = append(p.ISR, self), true
		}
		if f.inSync && r.lags(f, n, now) || !f.inSync && !r.joins(f, n, now) {
			continue
		}
		f.added = f.added || !f.inSync
		p.ISR = append(p.ISR, Member{f.node, r.registration(f, n)})
	}
	if !placed {
		p.ISR = append(p.ISR, self)
	}
	g.asking = true
	out.Propose = p
}

// registration is the one under which a follower is, or is to be, in sync.
func (r *Replica) registration(f *follower, n *Node) metadata.BrokerEpoch {
	if f.epoch != noBrokerEpoch {
		return f.epoch
	}
	b, _ := n.broker(f.node)
	return b.Epoch
}

// lags reports whether an in-sync follower has been behind for too long.
func (r *Replica) lags(f *follower, n *Node, now clock.Instant) bool {
	return f.durable < r.written && now >= r.lagsAt(f, n)
}

func (r *Replica) lagsAt(f *follower, n *Node) clock.Instant {
	if f.lost {
		return r.reign.since.Add(grace)
	}
	return max(max(f.caughtUp, r.reign.since).Add(n.MaxLag), r.reign.since.Add(grace))
}

// joins reports whether a follower that is not in sync could be. It must have
// all that is committed, which a leader does not know before it has come to the
// end of the log that it was elected with; and it must not be one that would be
// taken out again, as one could be that has all that is committed because nothing
// is committed below the minimum, or that the controller has just taken out. And its
// log must begin where the leader's does: what was deleted is deleted on all that may
// lead.
//
// Source: KAFKA-7128.
func (r *Replica) joins(f *follower, n *Node, now clock.Instant) bool {
	return !f.dismissed && f.logStart >= r.logStart && f.durable >= r.highWatermark && f.durable >= r.electedAt && n.active(f.node, f.epoch) &&
		(f.durable >= r.written || now < f.caughtUp.Add(n.MaxLag))
}

// Decided takes what came of a proposal. epoch is, if it was accepted, the epoch
// of the state that it led to.
func (r *Replica) Decided(p *Proposal, d Decision, epoch metadata.PartitionEpoch, n *Node, now clock.Instant, out *Out) {
	g := r.reign
	if g == nil || !g.asking || p.LeaderEpoch != r.epoch || p.Epoch != r.partitionEpoch {
		return // the metadata have told of something newer
	}
	g.asking = false
	switch d {
	case Accepted:
		r.partitionEpoch = max(r.partitionEpoch, epoch)
		g.unsure, g.isr, g.heirs = false, len(p.ISR), false
		for i := range g.followers {
			f := &g.followers[i]
			f.inSync, f.added = p.has(f.node), false
		}
	case Refused:
		// Another proposal of the same state that was not answered may still come
		// to be accepted. So a refusal makes sure of nothing if there was one; then
		// the ISR as it is is proposed, to outdate it.
		assert.Reached("replica: the controller refused an ISR")
		for i := range g.followers {
			g.followers[i].added = g.followers[i].added && g.unsure
		}
		g.retryAt = now.Add(n.Retry)
	case Outdated:
		g.unsure, g.retryAt = true, now.Add(4*n.Retry)
	case Unanswered:
		assert.Reached("replica: the controller did not answer")
		g.unsure, g.retryAt = true, now.Add(n.Retry)
	}
	r.decided(n, now, out)
	r.check()
}

func (p *Proposal) has(id metadata.NodeID) bool {
	for _, m := range p.ISR {
		if m.Node == id {
			return true
		}
	}
	return false
}

// reignReviewAt is when a leader has something to decide though nothing happens.
func (r *Replica) reignReviewAt(n *Node) clock.Instant {
	g := r.reign
	if g == nil || r.busy {
		return clock.Never
	}
	at := clock.Never
	for i := range g.followers {
		f := &g.followers[i]
		if f.inSync && f.durable < r.written && !g.asking {
			at = min(at, max(r.lagsAt(f, n), g.retryAt))
		}
		if f.holds && !f.inSync && f.durable < r.written {
			at = min(at, f.caughtUp.Add(n.MaxLag))
		}
		if !f.inSync && !g.asking && g.retryAt > 0 && r.joins(f, n, g.retryAt) {
			at = min(at, g.retryAt)
		}
	}
	if g.unsure && !g.asking {
		at = min(at, g.retryAt)
	}
	return at
}
