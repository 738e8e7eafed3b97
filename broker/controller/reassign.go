package controller

import (
	"slices"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// A reassignment gives a partition other replicas without a moment in which
// there are fewer that have its records (KIP-455): first Adding joins Replicas,
// in the order of preference that was asked for, before Removing; when all that
// stay are in sync Removing leaves, and Adding and Removing are empty.

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
