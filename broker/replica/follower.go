package replica

import (
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/record"
)

// pursuit is what a follower knows in a leader epoch.
type pursuit struct {
	matched  bool          // the leader's log holds all of this one
	told     record.Offset // the leader's high watermark, or -1
	reported record.Offset // what it last told its leader
	againAt  clock.Instant // when it says so again; clock.Never if the leader knows
	pausedTo clock.Instant // it does not fetch before; 0 if it may
}

const nothingReported record.Offset = -2

func newPursuit() *pursuit {
	return &pursuit{told: -1, reported: nothingReported, againAt: clock.Never}
}

func (f *pursuit) reviewAt() clock.Instant {
	if f.pausedTo > 0 {
		return min(f.pausedTo, f.againAt)
	}
	return f.againAt
}

// Position is from where a follower fetches.
type Position struct {
	Offset        record.Offset      // log end
	Last          record.LeaderEpoch // of the record before, or NoEpoch
	LogStart      record.Offset
	HighWatermark record.Offset // the leader's, as far as it is known
	Paused        bool          // not now
}

// Position is from where a follower fetches at now.
func (r *Replica) Position(now clock.Instant) Position {
	f := r.pursuit
	return Position{
		Offset: r.logEnd, Last: r.lastEpoch(), LogStart: r.logStart,
		HighWatermark: max(f.told, r.highWatermark), Paused: r.busy || now < f.pausedTo,
	}
}

// Fetches reports whether the replica fetches from a leader in an epoch: whether
// what that one answers means anything to it. An answer that comes too late must
// not cut what the replica leads by then (KAFKA-13207).
func (r *Replica) Fetches(from metadata.NodeID, epoch record.LeaderEpoch) bool {
	return r.role == following && !r.busy && r.leader == from && r.epoch == epoch
}

// Agreed says that the leader answered a fetch from the log end without finding
// that the logs diverge, and what its high watermark is. So the leader's log
// holds all of this one, and what of it is below is committed.
//
// A divergence is to be acted on before the high watermark that comes with it
// is believed (KAFKA-14704): it says nothing of what is about to be cut.
func (r *Replica) Agreed(highWatermark record.Offset, out *Out) {
	f := r.pursuit
	f.matched = true
	f.told = max(f.told, highWatermark)
	r.advance(out)
	r.check()
}

// Pause makes a follower wait before it fetches again.
func (r *Replica) Pause(until clock.Instant) {
	if r.pursuit != nil {
		r.pursuit.pausedTo = until
	}
}

// Progress is what a follower has to tell its leader: how far its disk is. It
// reports false if there is nothing new. What is not known to be known is said
// again, because it may get lost.
func (r *Replica) Progress(n *Node, now clock.Instant) (durable record.Offset, ok bool) {
	f := r.pursuit
	if f == nil || !f.matched || r.busy {
		return 0, false
	}
	known := r.inSync && f.told >= r.written
	switch {
	case r.written != f.reported:
	case known:
		f.againAt = clock.Never
		return 0, false
	case f.againAt != clock.Never && now < f.againAt:
		return 0, false
	}
	f.reported, f.againAt = r.written, now.Add(n.Retry)
	return r.written, true
}

// Forget makes a follower tell its leader again, under another registration.
func (r *Replica) Forget() {
	if r.pursuit != nil {
		r.pursuit.reported, r.pursuit.againAt = nothingReported, clock.Never
	}
}
