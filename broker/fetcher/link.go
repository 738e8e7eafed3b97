package fetcher

import (
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// place is from where on a partition is fetched.
type place struct {
	offset      record.Offset
	logStart    record.Offset
	leaderEpoch record.LeaderEpoch
	lastEpoch   record.LeaderEpoch // of the record before offset
}

func placeOf(p Follow) place { return place{p.Offset, p.LogStart, p.LeaderEpoch, p.LastFetchedEpoch} }

// same reports whether what is fetched from one place is of use at the other.
func (p place) same(q place) bool {
	p.logStart = q.logStart
	return p == q
}

// link is one partition of one leader. It outlives the partition's being
// followed until the leader was told to forget it.
//
// Invariant: dirty links are in the leader's dirty, each once; a link that is not
// is in the leader's session as it ought to be.
type link struct {
	leader *leader
	log    storage.LogID
	want   place
	gone   bool // not followed from that leader any more
	paused bool // by the last Follow
	held   bool // what was received last moved it: the next Follow says where to

	failures int           // in a row
	retryAt  clock.Instant // after an error; 0 if it is not backing off

	told     place // what the leader's session has, or will have if the Fetch arrives
	inTold   bool  // it has the partition
	missed   bool  // an answer was dropped: the leader thinks that its news are known
	counted  bool  // in leader.active
	dirty    bool
	answered uint64 // by which answer last

	prev, next *link // in the leader's order
}

// active reports whether the partition is to be fetched.
func (k *link) active() bool { return !k.gone && !k.paused && !k.held && k.retryAt == 0 }

// settled reports whether the leader's session has the link as it ought to be.
func (k *link) settled() bool {
	if !k.active() {
		return !k.inTold && !k.gone
	}
	return k.inTold && k.told == k.want && !k.missed
}

// changed is called when anything did that active or settled go by.
func (k *link) changed(f *Fetcher, now clock.Instant) {
	l := k.leader
	if a := k.active(); a != k.counted {
		k.counted = a
		if a {
			l.active++
		} else {
			l.active--
		}
	}
	if k.settled() {
		return
	}
	if !k.dirty {
		k.dirty = true
		l.dirty = append(l.dirty, k)
	}
	if k.active() && l.inFlight != 0 && !l.closing && l.nudgeAt == 0 {
		l.nudgeAt = now.Add(f.cfg.NudgeAfter)
	}
}

// order is a leader's links, in the order in which a full Fetch names them. The
// zero value is empty.
type order struct{ first, last *link }

func (o *order) push(k *link) {
	k.prev, k.next = o.last, nil
	if o.last == nil {
		o.first = k
	} else {
		o.last.next = k
	}
	o.last = k
}

func (o *order) remove(k *link) {
	if k.prev == nil {
		o.first = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next == nil {
		o.last = k.prev
	} else {
		k.next.prev = k.prev
	}
	k.prev, k.next = nil, nil
}
