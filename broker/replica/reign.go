package replica

import (
	"slices"
	"time"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// Node is what all replicas of one node share. The node owns it and changes it
// between calls only.
type Node struct {
	Self  metadata.NodeID
	Epoch metadata.BrokerEpoch // of Self
	// Brokers are the registered ones, by id.
	Brokers []Broker
	// MaxLag is how long an in-sync follower may be behind. Kafka:
	// replica.lag.time.max.ms.
	MaxLag time.Duration
	// Retry is how long a leader waits before it asks the controller again, and a
	// follower before it tells its leader again how far its disk is.
	Retry time.Duration
}

// Broker is a registered broker.
type Broker struct {
	ID     metadata.NodeID
	Epoch  metadata.BrokerEpoch
	Active bool // may be in sync: neither fenced nor about to stop
}

// broker finds a broker that may be in sync under that registration.
func (n *Node) active(id metadata.NodeID, epoch metadata.BrokerEpoch) bool {
	b, ok := n.broker(id)
	return ok && b.Active && b.Epoch == epoch
}

func (n *Node) broker(id metadata.NodeID) (Broker, bool) {
	i, ok := slices.BinarySearchFunc(n.Brokers, id, func(b Broker, id metadata.NodeID) int { return int(b.ID) - int(id) })
	if !ok {
		return Broker{}, false
	}
	return n.Brokers[i], true
}

// grace is how long after its election a leader keeps everybody in the ISR. A
// former leader may answer consumers by its lease for as long; while it is in
// the ISR nothing is committed that it does not have, for it tells the new
// leader how far it is only once it knows that it is none.
const grace = 550 * time.Millisecond

// reign is what a leader knows of the other replicas.
//
// Invariant: followers are the other replicas, in the order of the partition's.
type reign struct {
	since     clock.Instant
	followers []follower
	isr       int // members of the ISR, the leader counted, as far as the controller has decided
	minISR    int
	heirs     bool // it is known who is an heir: the metadata have come as far as the ISR

	asking  bool          // a proposal is with the controller
	unsure  bool          // one may have been accepted that had no answer
	retryAt clock.Instant // nothing is proposed before; 0 if that is over
}

// follower is another replica as its leader knows it.
type follower struct {
	node   metadata.NodeID
	place  int16 // among the replicas, the leader counted
	inSync bool  // decided by the controller
	heir   bool  // it is an eligible leader replica (KIP-966)
	added  bool  // it may be: it was proposed
	// dismissed says the controller has taken it out of the ISR and it has said
	// nothing since: it may be dead, which the controller knows first.
	dismissed bool
	// holds says it keeps the high watermark back though it is not in sync: it
	// keeps up, and could never join if it had to hit a moving mark.
	holds bool

	// What it reported in this leader epoch, in a process that had registered as
	// epoch. Another process may have lost what this one had.
	epoch    metadata.BrokerEpoch
	lost     bool          // its log is damaged: it has nothing
	durable  record.Offset // log end on its disk, as far as it agrees with the leader's log; -1 unknown
	caughtUp clock.Instant // when it last had all that the leader had
	logStart record.Offset // its log begins there or later
	// At its last report.
	reportAt clock.Instant
	endThen  record.Offset // the leader's log end on disk; -1 if there was none
}

func newReign(now clock.Instant) *reign { return &reign{since: now} }

const (
	noBrokerEpoch metadata.BrokerEpoch = -1
	longAgo       clock.Instant        = -1 << 62
)

// reassigned takes what the metadata say of the partition that is led. newer
// says that the controller has decided since the last time.
func (r *Replica) reassigned(t *Term, newer bool, n *Node, now clock.Instant, out *Out) {
	if r.reign == nil {
		r.reign = newReign(now)
	}
	g := r.reign
	followers := make([]follower, 0, len(t.Replicas))
	for i, id := range t.Replicas {
		if id == n.Self {
			continue
		}
		f, ok := g.follower(id)
		if !ok {
			f = &follower{node: id, epoch: noBrokerEpoch, durable: -1, endThen: -1, caughtUp: longAgo}
		}
		f.place = int16(i)
		member := slices.Contains(t.ISR, id)
		if member && !f.inSync && f.durable < 0 {
			f.caughtUp = now // it has its time to report
		}
		f.dismissed = !member && (f.dismissed || f.inSync)
		f.inSync, f.heir = member, slices.Contains(t.ELR, id)
		f.added = f.added && !newer
		f.holds = f.holds && !f.dismissed && n.active(id, f.epoch)
		followers = append(followers, *f)
	}
	g.followers, g.isr, g.minISR, g.heirs = followers, len(t.ISR), t.MinISR, true
	if newer {
		g.asking, g.unsure, g.retryAt = false, false, 0
	}
	if len(followers) == 0 {
		r.reign = nil
	}
	r.decided(n, now, out)
}

// decided goes on after the ISR, or the minimum, may have changed.
func (r *Replica) decided(n *Node, now clock.Instant, out *Out) {
	if r.UnderMinISR() {
		waiting := len(r.waiting)
		r.breakCommitted(ErrUnderMinISR, out)
		if waiting > len(r.waiting) {
			assert.Reached("replica: too few in-sync replicas for what was appended")
		}
	}
	r.advance(out)
	r.propose(n, now, out)
}

// SetMinISR changes the minimum: its configuration was.
func (r *Replica) SetMinISR(least int, n *Node, now clock.Instant, out *Out) {
	if r.reign != nil {
		r.reign.minISR = min(least, len(r.reign.followers)+1)
		r.decided(n, now, out)
	}
}

// UnderMinISR reports whether a leader has too few in-sync replicas for
// anything to be committed.
func (r *Replica) UnderMinISR() bool { return r.reign != nil && r.reign.isr < r.reign.minISR }

func (g *reign) follower(id metadata.NodeID) (*follower, bool) {
	for i := range g.followers {
		if g.followers[i].node == id {
			return &g.followers[i], true
		}
	}
	return nil, false
}

// committed is the high watermark: what is on the disks of all in-sync
// replicas, of all that may be in sync for all the leader knows, and of those
// that are about to join.
//
// It stands still while the in-sync replicas are fewer than the minimum: what
// an eligible leader replica lacks must not be committed (KIP-966).
func (g *reign) committed(written, highWatermark record.Offset) record.Offset {
	if g.isr < g.minISR {
		return highWatermark
	}
	end := written
	for i := range g.followers {
		if f := &g.followers[i]; f.inSync || f.added || f.holds {
			end = min(end, f.durable)
		}
	}
	return end
}

// outrun says the leader's disk is about to go beyond end: whoever has all up to
// there was caught up until now.
func (g *reign) outrun(end record.Offset, now clock.Instant) {
	for i := range g.followers {
		if f := &g.followers[i]; f.durable >= end {
			f.caughtUp = now
		}
	}
}

// Report is what a follower says of its disk.
type Report struct {
	Node        metadata.NodeID
	BrokerEpoch metadata.BrokerEpoch
	LeaderEpoch record.LeaderEpoch
	Durable     record.Offset // log end on its disk, as far as it agrees with the leader's log
	LogStart    record.Offset
}

// Reported takes a follower's report. One that another process of the follower
// made, or that was made in another leader epoch, counts for nothing: its log
// may be cut meanwhile (KIP-903, KIP-320). It reports whether the report counts.
func (r *Replica) Reported(p Report, n *Node, now clock.Instant, out *Out) bool {
	if !r.Leads() || r.reign == nil || p.LeaderEpoch != r.epoch || p.Durable < 0 || p.Durable > r.shown {
		return false
	}
	f, ok := r.reign.follower(p.Node)
	if b, known := n.broker(p.Node); !ok || p.BrokerEpoch < f.epoch || known && p.BrokerEpoch < b.Epoch {
		return false
	}
	if p.BrokerEpoch > f.epoch {
		f.epoch, f.durable, f.holds, f.lost, f.endThen, f.logStart = p.BrokerEpoch, -1, false, false, -1, 0
		if !f.inSync {
			f.caughtUp = longAgo
		}
	}
	if p.Durable > r.written {
		assert.Reached("replica: a follower's disk is ahead of its leader's")
	}
	f.lost, f.dismissed = false, false
	keepsUp := true
	switch {
	case p.Durable >= r.written:
		f.caughtUp = now
	case f.endThen >= 0 && p.Durable >= f.endThen:
		f.caughtUp = max(f.caughtUp, f.reportAt)
	default:
		keepsUp = false
	}
	f.durable, f.reportAt, f.endThen, f.logStart = max(f.durable, p.Durable), now, r.written, p.LogStart
	f.holds = n.active(f.node, f.epoch) && (keepsUp || f.holds && now < f.caughtUp.Add(n.MaxLag))
	r.advance(out)
	r.propose(n, now, out)
	r.check()
	return true
}

// Lost says that a follower's log is damaged, and has it taken out of the ISR. It
// reports whether the follower may give up its log: the controller has it neither
// in sync nor eligible, and cannot come to have it so by anything that this
// leader has asked for.
func (r *Replica) Lost(node metadata.NodeID, process metadata.BrokerEpoch, n *Node, now clock.Instant, out *Out) bool {
	f, ok := r.reign.follower(node)
	assert.That(ok, "replica: a log was lost by a node without one")
	f.epoch, f.durable, f.lost, f.holds, f.endThen, f.caughtUp, f.logStart = process, -1, true, false, -1, longAgo, 0
	r.propose(n, now, out)
	r.check()
	return r.reign.heirs && !f.inSync && !f.added && !f.heir
}

// Review does what is due, and what follows when brokers came, went, or were
// fenced or unfenced. It reports whether a follower that was paused may fetch
// again.
func (r *Replica) Review(n *Node, now clock.Instant, out *Out) (resumed bool) {
	if f := r.pursuit; f != nil && f.pausedTo > 0 && now >= f.pausedTo {
		f.pausedTo, resumed = 0, true
	}
	if r.reign == nil {
		return resumed
	}
	if r.reign.retryAt <= now {
		r.reign.retryAt = 0
	}
	for i := range r.reign.followers {
		f := &r.reign.followers[i]
		f.holds = f.holds && n.active(f.node, f.epoch) && (f.durable >= r.written || now < f.caughtUp.Add(n.MaxLag))
	}
	r.advance(out)
	r.propose(n, now, out)
	r.check()
	return resumed
}

// Standing is a number that differs when what a leader knows of the ISR and of
// the heirs does.
func (r *Replica) Standing() int {
	switch g := r.reign; {
	case g == nil:
		return 0
	case g.heirs:
		return 2*g.isr + 1
	default:
		return 2 * g.isr
	}
}

// Short reports whether a leader has replicas that are not in sync.
func (r *Replica) Short() bool { return r.reign != nil && r.reign.isr <= len(r.reign.followers) }

// Lag is how far a replica is behind, for its leader.
type Lag struct {
	Node     metadata.NodeID
	InSync   bool
	MayLead  bool          // it is in the ISR or the ELR, or may be for all the leader knows
	Durable  record.Offset // -1 if it has not said
	LogStart record.Offset // its log begins there or later
}

// Lags tells f of every other replica, while this one leads.
func (r *Replica) Lags(f func(Lag)) {
	if r.reign == nil {
		return
	}
	for i := range r.reign.followers {
		l := &r.reign.followers[i]
		f(Lag{l.node, l.inSync, l.inSync || l.added || l.heir || !r.reign.heirs, l.durable, l.logStart})
	}
}

// Knows reports whether node is another replica of the partition that is led,
// and that the given registration of it is not one that is over.
func (r *Replica) Knows(node metadata.NodeID, epoch metadata.BrokerEpoch, n *Node) bool {
	if r.reign == nil {
		return false
	}
	f, ok := r.reign.follower(node)
	b, known := n.broker(node)
	return ok && epoch >= f.epoch && !(known && epoch < b.Epoch)
}

func (r *Replica) checkReign() {
	if r.reign == nil {
		return
	}
	assert.That(r.role == leading, "replica: a reign without a leader")
	members := 1
	for i := range r.reign.followers {
		f := &r.reign.followers[i]
		assert.That(f.durable <= r.shown, "replica: a follower has more than its leader")
		if f.inSync {
			members++
		}
	}
	assert.That(members == r.reign.isr, "replica: the ISR is not what it is said to be")
}
