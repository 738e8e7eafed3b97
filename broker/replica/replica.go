// Package replica decides for one replica of one partition: which offsets
// records get, what is on disk, what counts as committed, who is in sync, and
// what a follower must drop to agree with its leader. It is a pure state
// machine. It does no I/O, has no clock and calls nobody: every method takes
// plain values and leaves what must be done in an Out.
//
// What the replica of a leader does is in reign.go and isr.go, that of a
// follower in follower.go, and how both find out where logs diverge in
// epochs.go.
//
// Sources: KIP-101, KIP-279, KIP-320 and KIP-595 (leader epochs and
// truncation), KIP-497 and KIP-903 (changes of the ISR), KIP-966 (a high
// watermark that stands still below the minimum), KIP-98 (acks of duplicates).
package replica

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

var (
	// ErrNotLeader says another broker leads the partition, or none does.
	ErrNotLeader = errors.New("not leader or follower")
	// ErrFencedEpoch says the asker lives in an older leader epoch.
	ErrFencedEpoch = errors.New("fenced leader epoch")
	// ErrUnknownEpoch says the asker has heard of a leader epoch that this
	// replica has not.
	ErrUnknownEpoch = errors.New("unknown leader epoch")
	// ErrUnderMinISR says that the in-sync replicas became fewer than the minimum
	// after a batch was appended. It may still be committed.
	ErrUnderMinISR = errors.New("in-sync replicas fell below the minimum after the append")
)

// Ticket stands for a promise the node made to someone. The replica hands it
// back exactly once; what it stands for is not its business.
type Ticket uint64

// Out is what a call decided. The caller acts on it and resets it.
type Out struct {
	Done    []Done    // promises that can be kept now
	Propose *Proposal // what the controller is to be asked, or nil
}

// Done reports the end of one produce. Err is nil when it is acknowledged.
type Done struct {
	Ticket Ticket
	Base   record.Offset
	Err    error
}

// role is what a replica is in its leader epoch.
type role uint8

const (
	standing  role = iota // nobody leads
	leading               // this replica does
	following             // another one does
)

// Term is a partition at one point of the metadata log.
type Term struct {
	Leader      metadata.NodeID // NoNode if nobody leads
	LeaderEpoch record.LeaderEpoch
	Epoch       metadata.PartitionEpoch
	Replicas    []metadata.NodeID // this node among them
	ISR         []metadata.NodeID
	ELR         []metadata.NodeID // eligible leader replicas
	MinISR      int               // at least 1, and at most as many as there are replicas
	Recovering  bool              // the leader was elected though it was not in sync
}

// Replica is one broker's copy of one partition.
//
// Invariants: logStart <= highWatermark <= written <= shown <= logEnd; the flights
// that are not doomed cover [written, logEnd) in order; nothing below shown is
// refused.
type Replica struct {
	role   role
	busy   bool // a truncation or a reset is on its way: the log end is not known
	inSync bool // the metadata has this replica in the ISR
	// certain says that the high watermark cannot be above the log of any leader
	// that was elected cleanly: no truncation goes below it. It is not certain
	// what a former process knew, nor what an unclean election left of it.
	certain bool

	epoch          record.LeaderEpoch
	partitionEpoch metadata.PartitionEpoch
	leader         metadata.NodeID

	logStart      record.Offset // offset of the oldest record
	logEnd        record.Offset // next offset to assign or fetch; [written, logEnd) is on its way to disk
	shown         record.Offset // followers get what is below: it is on disk, or will be if this process lives
	written       record.Offset // log end offset on disk
	highWatermark record.Offset // everything below is committed

	// electedAt is, of a leader, the log end when it was elected. Until the high
	// watermark has come so far the leader does not know what is committed.
	electedAt record.Offset

	epochs  []EpochStart // ascending in both
	flights []flight     // oldest first
	waiting []waiter     // by next, ascending
	local   int          // how many of waiting wait for the disk here only
	reign   *reign       // nil unless it leads others
	pursuit *pursuit     // nil unless it follows
}

// New returns a replica of a log that holds [start, end), and of which a former
// process knew that it is committed below highWatermark. It leads and follows
// nobody. It owns epochs.
func New(start, end, highWatermark record.Offset, epochs []EpochStart) *Replica {
	return &Replica{
		epoch: record.NoEpoch, partitionEpoch: -1, leader: metadata.NoNode,
		logStart: start, logEnd: end, shown: end, written: end, highWatermark: max(start, min(highWatermark, end)),
		epochs: epochs,
	}
}

// Epoch is the leader epoch the replica lives in.
func (r *Replica) Epoch() record.LeaderEpoch { return r.epoch }

// PartitionEpoch is the newest state of the partition that the replica knows.
func (r *Replica) PartitionEpoch() metadata.PartitionEpoch { return r.partitionEpoch }

// Leader is who leads in the replica's epoch, or NoNode.
func (r *Replica) Leader() metadata.NodeID { return r.leader }

// Leads reports whether the replica is the leader, and knows its log.
func (r *Replica) Leads() bool { return r.role == leading && !r.busy }

// Leading reports whether the replica is the leader.
func (r *Replica) Leading() bool { return r.role == leading }

// Following reports whether the replica has a leader.
func (r *Replica) Following() bool { return r.role == following }

// InSync reports whether the metadata has the replica in the ISR.
func (r *Replica) InSync() bool { return r.inSync }

// Settled reports whether a leader knows all that its predecessors had
// committed: what it says of the partition's end is not less than what others
// said before.
func (r *Replica) Settled() bool { return r.highWatermark >= r.electedAt }

// Followed reports whether the replica leads others.
func (r *Replica) Followed() bool { return r.reign != nil }

// LogStart is the offset of the oldest record.
func (r *Replica) LogStart() record.Offset { return r.logStart }

// LogEnd is the next offset to assign, or to fetch.
func (r *Replica) LogEnd() record.Offset { return r.logEnd }

// OnDisk is the log end offset on disk.
func (r *Replica) OnDisk() record.Offset { return r.written }

// Shown is the offset up to which followers may have the log: what is below is on
// its way to the disk here at least, and is not refused any more.
func (r *Replica) Shown() record.Offset { return r.shown }

// HighWatermark is the first offset that is not known to be committed.
func (r *Replica) HighWatermark() record.Offset { return r.highWatermark }

// Epochs lists the leader epochs in the log. It must not be changed.
func (r *Replica) Epochs() []EpochStart { return r.epochs }

// Assigned takes what the metadata make of the replica. What is older than what
// it knows is ignored.
//
// A new leader epoch breaks every promise: the records may or may not survive,
// and the client has to ask again.
func (r *Replica) Assigned(t *Term, n *Node, now clock.Instant, out *Out) {
	if t.LeaderEpoch < r.epoch || t.LeaderEpoch == r.epoch && t.Epoch < r.partitionEpoch {
		return
	}
	if t.LeaderEpoch > r.epoch || t.Leader != r.leader {
		r.begin(t, n, now, out)
	}
	newer := t.Epoch > r.partitionEpoch
	r.partitionEpoch = t.Epoch
	r.inSync = slices.Contains(t.ISR, n.Self)
	if r.role == leading {
		r.reassigned(t, newer, n, now, out)
	}
	r.check()
}

// begin starts a leader epoch.
func (r *Replica) begin(t *Term, n *Node, now clock.Instant, out *Out) {
	r.fail(0, ErrNotLeader, out)
	if t.Recovering || r.epoch == record.NoEpoch || t.Epoch > r.partitionEpoch+1 {
		r.certain = false // of what came in between nothing is known
	}
	r.epoch, r.leader = t.LeaderEpoch, t.Leader
	r.reign, r.pursuit = nil, nil
	switch t.Leader {
	case n.Self:
		r.role, r.electedAt = leading, r.logEnd
		r.reign = newReign(now)
	case metadata.NoNode:
		r.role, r.electedAt = standing, 0
	default:
		r.role, r.electedAt = following, 0
		r.pursuit = newPursuit()
	}
}

// Resign ends what the replica was, because of err. What was waiting fails with
// it.
func (r *Replica) Resign(err error, out *Out) {
	r.role, r.leader, r.reign, r.pursuit = standing, metadata.NoNode, nil, nil
	r.fail(0, err, out)
}

// InFlight is how many results of appends, cuts and resets are yet to come.
func (r *Replica) InFlight() int {
	if r.busy {
		return len(r.flights) + 1
	}
	return len(r.flights)
}

// CheckLeader compares the leader epoch that a request was made under with the
// replica's, which must be the leader. NoEpoch agrees with every epoch.
//
// Source: KIP-320.
func (r *Replica) CheckLeader(current record.LeaderEpoch) error {
	if err := r.CheckEpoch(current); err != nil {
		return err
	}
	if !r.Leads() {
		return ErrNotLeader
	}
	return nil
}

// CheckEpoch is CheckLeader for what a follower may answer too.
func (r *Replica) CheckEpoch(current record.LeaderEpoch) error {
	switch {
	case current == record.NoEpoch:
	case current < r.epoch:
		return fmt.Errorf("%w: request has %d, partition has %d", ErrFencedEpoch, current, r.epoch)
	case current > r.epoch:
		return fmt.Errorf("%w: request has %d, partition has %d", ErrUnknownEpoch, current, r.epoch)
	}
	return nil
}

// ReviewAt is when Review is due, or clock.Never.
func (r *Replica) ReviewAt(n *Node) clock.Instant {
	switch r.role {
	case leading:
		return r.reignReviewAt(n)
	case following:
		return r.pursuit.reviewAt(r.busy)
	}
	return clock.Never
}

func (r *Replica) check() {
	assert.That(r.logStart <= r.highWatermark, "replica: high watermark below log start")
	assert.That(r.highWatermark <= r.written, "replica: high watermark above what is on disk")
	assert.That(r.written <= r.shown, "replica: more on disk than followers may have")
	assert.That(r.shown <= r.logEnd, "replica: followers may have more than was assigned")
	if !assert.Slow {
		return
	}
	at := r.written
	for _, f := range r.flights {
		if !f.doomed {
			assert.That(f.base == at, "replica: appends in flight leave a gap")
			at = f.next
		}
	}
	assert.That(at == r.logEnd, "replica: appends in flight do not reach the log end")
	local := 0
	for i, w := range r.waiting {
		assert.That(i == 0 || r.waiting[i-1].next() <= w.next(), "replica: promises out of order")
		if w.local {
			local++
		}
	}
	assert.That(local == r.local, "replica: promises miscounted")
	for i := 1; i < len(r.epochs); i++ {
		assert.That(r.epochs[i-1].Epoch < r.epochs[i].Epoch && r.epochs[i-1].Start <= r.epochs[i].Start, "replica: epochs out of order")
	}
	r.checkReign()
}
