package controller

import (
	"slices"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
)

// election says who may be elected.
type election uint8

const (
	// online keeps the leader if it may lead, and else elects one that has
	// everything that was committed.
	online election = iota
	// preferred elects the first replica if that has everything, and is else as
	// online.
	preferred
	// unclean is as online, but elects one that may lack something rather than
	// none.
	unclean
)

// change returns what becomes of the partition p when its Replicas, ISR, ELR,
// Adding, Removing and Recovering are to be those of to, or nil if nothing
// does: a reassignment that is done ends, the eligible leaders are brought up
// to date, a leader is elected, and the epochs grow. Nodes in unfit do not have
// everything that was committed.
//
// What is true of the result:
//
//   - The leader is in the ISR. It was in it before, or, if that is empty, in
//     the ELR; else the election was unclean.
//   - Who left the ISR after it was smaller than the minimum has everything
//     that was committed, because nothing can be committed then, and is in the
//     ELR (KIP-966). The ELR is empty when the ISR is not that small: also when
//     it was just elected out of the ELR.
//   - A leader that lives is not taken out of the ISR or the replicas: it may
//     serve reads for as long as its lease is valid. If it is to go, another is
//     elected first. For the same reason a reassignment does not end with the
//     last replica that has come in sync, if of those that go one is in sync and
//     lives: it may have led a moment ago. Finish ends it, a little later.
//   - The leader epoch grows when the leader changes, also to none, and when
//     replicas are removed, so that they cannot go on (KAFKA-9212); not when the
//     ISR shrinks (KAFKA-15021).
//
// Source: KIP-497, KIP-704, KIP-841, KIP-966.
func (d *draft) change(p *metadata.Partition, to metadata.Partition, how election, unfit ...metadata.NodeID) *metadata.Partition {
	leaving := metadata.NoNode
	if done, ok := complete(to); ok {
		switch {
		case !slices.ContainsFunc(without(to.ISR, done.ISR), d.lives):
			to = done
		case slices.Contains(to.Removing, p.Leader) && d.reigns(p):
			leaving = p.Leader
		}
	}
	if d.reigns(p) && slices.Contains(ordered(to.Adding, to.Removing), p.Leader) {
		leaving = p.Leader
	}
	if d.reigns(p) && !slices.Contains(to.Replicas, p.Leader) {
		leaving = p.Leader
		to = keeping(p, to)
	}
	to.ISR = ordered(to.Replicas, to.ISR)
	to.ELR = eligible(p, &to, unfit)
	leader, wasUnclean := d.elect(p, &to, how, leaving)
	switch {
	case leader == metadata.NoNode:
	case wasUnclean:
		to.ISR, to.ELR, to.Recovering = []metadata.NodeID{leader}, nil, true
	case !slices.Contains(to.ISR, leader):
		assert.That(len(to.ISR) == 0, "controller: elected past replicas in sync")
		to.ISR, to.ELR = []metadata.NodeID{leader}, without(to.ELR, []metadata.NodeID{leader})
	}
	if len(to.ISR) >= d.image.EffectiveMinISR(&to) {
		to.ELR = nil
	}
	switch {
	case leader != metadata.NoNode:
		to.LastKnownELR = nil
	case p.Leader != metadata.NoNode:
		to.LastKnownELR = without(ordered(to.Replicas, []metadata.NodeID{p.Leader}), unfit)
	default:
		to.LastKnownELR = without(ordered(to.Replicas, p.LastKnownELR), unfit)
	}
	to.Leader, to.LeaderEpoch, to.Epoch = leader, p.LeaderEpoch, p.Epoch
	if alike(p, &to) {
		return nil
	}
	if leader != p.Leader || len(without(p.Replicas, to.Replicas)) > 0 {
		to.LeaderEpoch++
	}
	to.Epoch++
	return &to
}

// elect returns who leads, or NoNode, and whether it may lack something that
// was committed. It is not leaving, unless nobody else can.
func (d *draft) elect(p, to *metadata.Partition, how election, leaving metadata.NodeID) (leader metadata.NodeID, wasUnclean bool) {
	lacksNothing := func(n metadata.NodeID) bool {
		return n != leaving && active(d.image, n) &&
			(slices.Contains(to.ISR, n) || len(to.ISR) == 0 && slices.Contains(to.ELR, n))
	}
	if how == preferred && lacksNothing(to.Replicas[0]) {
		return to.Replicas[0], false
	}
	if lacksNothing(p.Leader) {
		return p.Leader, false
	}
	for _, n := range goal(to) {
		if lacksNothing(n) {
			return n, false
		}
	}
	for _, n := range to.Removing {
		if lacksNothing(n) {
			return n, false
		}
	}
	if d.reigns(p) && slices.Contains(to.ISR, p.Leader) {
		return p.Leader, false // it is about to stop, and nobody else can
	}
	return d.electUnclean(p, to, how)
}

// electUnclean elects one that may lack something that was committed, if that is
// wanted: the last leader if it lives (KAFKA-19522), since it lacks the least,
// or else the first replica that does.
func (d *draft) electUnclean(p, to *metadata.Partition, how election) (metadata.NodeID, bool) {
	t, ok := d.image.TopicByID(p.Topic)
	assert.That(ok, "controller: a partition of no topic")
	cfg := t.Config(d.broker())
	all := how == unclean || how == online && cfg.UncleanLeaderAllowed
	for _, n := range p.LastKnownELR {
		// A topic that is not synced loses records whenever the power fails, and
		// was made so on purpose; it is Kafka's rule for all topics.
		if (all || cfg.PageCache && len(to.ELR) == 0) && active(d.image, n) && slices.Contains(to.Replicas, n) {
			return n, true
		}
	}
	if all {
		for _, n := range to.Replicas {
			if active(d.image, n) {
				return n, true
			}
		}
	}
	return metadata.NoNode, false
}

// eligible is the ELR that goes with the ISR of to if that is too small, before
// anybody is elected.
func eligible(p, to *metadata.Partition, unfit []metadata.NodeID) []metadata.NodeID {
	elr := ordered(to.Replicas, slices.Concat(p.ISR, to.ELR))
	return without(without(elr, to.ISR), unfit)
}

// lives reports whether a broker may be serving what it leads, or thinks it
// does.
func (d *draft) lives(n metadata.NodeID) bool {
	b, ok := d.image.Broker(n)
	return ok && !b.Fenced
}

// reigns reports whether the partition's leader may be serving reads.
func (d *draft) reigns(p *metadata.Partition) bool { return d.lives(p.Leader) }

// keeping is to with the replicas of p that it lacks, as Removing. Those that were
// being brought in are not of the replicas from before by that.
func keeping(p *metadata.Partition, to metadata.Partition) metadata.Partition {
	gone := without(p.Replicas, to.Replicas)
	to.Adding = slices.Concat(to.Adding, ordered(gone, p.Adding))
	to.Removing = slices.Concat(to.Removing, gone)
	to.Replicas = slices.Concat(to.Replicas, gone)
	to.ISR = slices.Concat(to.ISR, ordered(gone, p.ISR))
	return to
}

// ordered is the nodes of list in the order of replicas, each once, and nil if
// there are none. Others are left out.
func ordered(replicas, list []metadata.NodeID) []metadata.NodeID {
	var in []metadata.NodeID
	for _, n := range replicas {
		if slices.Contains(list, n) {
			in = append(in, n)
		}
	}
	return in
}

// alike reports whether two states of a partition differ in nothing that anybody
// must know.
func alike(a, b *metadata.Partition) bool {
	return a.Leader == b.Leader && a.Recovering == b.Recovering && slices.Equal(a.Replicas, b.Replicas) &&
		slices.Equal(ordered(a.Replicas, a.ISR), ordered(b.Replicas, b.ISR)) &&
		slices.Equal(ordered(a.Replicas, a.ELR), ordered(b.Replicas, b.ELR)) && slices.Equal(a.LastKnownELR, b.LastKnownELR) &&
		slices.Equal(a.Adding, b.Adding) && slices.Equal(a.Removing, b.Removing)
}
