package controller

import (
	"slices"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
)

// A reassignment gives a partition other replicas without a moment in which
// there are fewer that have its records (KIP-455): first Adding joins Replicas,
// in the order of preference that was asked for, before Removing; when all that
// stay are in sync Removing leaves, and Adding and Removing are empty.
//
// A replica that is in Adding and Removing was given up: it was being brought in
// until something else was asked for. It stays for a while because it may have led
// a moment ago, or has everything that was committed when few others do. It is
// neither of the replicas from before nor of those that are wanted, so that to
// cancel what is asked for next, or what was cancelled, gives back the former.

// goal is the replicas of a partition once its reassignment, if there is one,
// is done.
func goal(p *metadata.Partition) []metadata.NodeID { return without(p.Replicas, p.Removing) }

// origin is the replicas of a partition before its reassignment, if there is
// one.
func origin(p *metadata.Partition) []metadata.NodeID { return without(p.Replicas, p.Adding) }

// complete returns p without its reassignment, if that is done with p's ISR:
// when all replicas that stay are in sync. Those that leave are in neither the
// ISR nor the ELR after it. The leader may be among them, and another has to be
// elected; epochs are the caller's to raise.
func complete(p metadata.Partition) (metadata.Partition, bool) {
	stay := goal(&p)
	if !p.Reassigning() || len(stay) == 0 || len(without(stay, p.ISR)) > 0 {
		return p, false
	}
	p.ISR, p.ELR = without(p.ISR, p.Removing), without(p.ELR, p.Removing)
	p.LastKnownELR = without(p.LastKnownELR, p.Removing)
	p.Replicas, p.Adding, p.Removing = stay, nil, nil
	return p, true
}

// released returns p without the replicas that were given up, if there are any and
// enough of those that stay, or were there before, have everything that was
// committed. As for complete, others may have to lead, and epochs are to be raised.
func released(m metadata.Image, p metadata.Partition) (metadata.Partition, bool) {
	gone := ordered(p.Adding, p.Removing)
	if len(gone) == 0 || tooFewWithout(m, &p, gone, goal(&p)) {
		return p, false
	}
	p.Replicas, p.Adding, p.Removing = without(p.Replicas, gone), without(p.Adding, gone), without(p.Removing, gone)
	p.ISR, p.ELR, p.LastKnownELR = without(p.ISR, gone), without(p.ELR, gone), without(p.LastKnownELR, gone)
	return p, true
}

// tooFewWithout reports whether without the nodes of gone fewer replicas of p than
// min.insync.replicas, or than it is to have in the end, have everything that was
// committed.
func tooFewWithout(m metadata.Image, p *metadata.Partition, gone, target []metadata.NodeID) bool {
	t, ok := m.TopicByID(p.Topic)
	assert.That(ok, "controller: a partition of no topic")
	return len(without(slices.Concat(p.ISR, p.ELR), gone)) < min(m.MinISR(t), len(target))
}

// ended returns what becomes of p once nobody that goes can have led a moment ago,
// if something does: its reassignment is done, or what was given up goes.
func ended(m metadata.Image, p *metadata.Partition) (metadata.Partition, bool) {
	if done, ok := complete(*p); ok {
		return done, true
	}
	return released(m, *p)
}

// without is list without the nodes of other, and nil if that leaves none.
func without(list, other []metadata.NodeID) []metadata.NodeID {
	var left []metadata.NodeID
	for _, n := range list {
		if !slices.Contains(other, n) {
			left = append(left, n)
		}
	}
	return left
}
