package partition

// What a leader does with its followers and with the controller.

import (
	"errors"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// BrokerState is a member of an ISR, and the registration that is meant.
//
// Source: KIP-903.
type BrokerState struct {
	Node  metadata.NodeID
	Epoch metadata.BrokerEpoch
}

// ISRProposal is what a leader asks the controller to make of a partition's
// in-sync replicas. What became of it is told by Table.ISRDecided; there is one
// for a partition at a time.
//
// Source: KIP-497.
type ISRProposal struct {
	Log            storage.LogID
	LeaderEpoch    record.LeaderEpoch
	PartitionEpoch metadata.PartitionEpoch // of the state that is to be changed
	ISR            []BrokerState           // in the order of the replicas
}

// Progress takes what a follower says of its disk.
func (t *Table) Progress(from metadata.NodeID, said *wire.Progress, at Moment, out *Out) {
	for i := range said.Partitions {
		q := &said.Partitions[i]
		p := t.partition(storage.LogID{Topic: q.Topic, Partition: q.Index})
		if p == nil {
			continue
		}
		was := p.marks()
		var ro replica.Out
		counts := p.replica.Reported(replica.Report{
			Node: from, BrokerEpoch: said.BrokerEpoch, LeaderEpoch: q.LeaderEpoch, Durable: q.Durable, LogStart: q.LogStart,
		}, &t.node, at.Now, &ro)
		if !counts {
			t.Stats.StaleReports++
			continue
		}
		t.moved(p, was, &ro, at, out)
	}
}

// ISRDecided says what became of a proposal: epoch is the partition epoch that
// it led to, if err is nil. It reports whether the controller will not have it.
func (t *Table) ISRDecided(decided ISRProposal, epoch metadata.PartitionEpoch, err error, at Moment, out *Out) (refused bool) {
	p := t.partition(decided.Log)
	if p == nil {
		return false
	}
	was := p.marks()
	var ro replica.Out
	isr := make([]replica.Member, len(decided.ISR))
	for i, m := range decided.ISR {
		isr[i] = replica.Member{Node: m.Node, Epoch: m.Epoch}
	}
	d := decisionOf(err)
	if mp, ok := t.image.Partition(p.topic.ID, p.index); d == replica.Accepted && ok && mp.Epoch < epoch {
		// The controller decided on metadata that may be newer than what this node
		// has, min.insync.replicas among it, and has made whoever left the ISR an
		// eligible leader if that leaves too few. Nothing may be committed without
		// it before that is known, and it comes with the ISR.
		assert.Reached("partition: an ISR is accepted before it is in the metadata")
		d = replica.Outdated
	}
	p.replica.Decided(&replica.Proposal{LeaderEpoch: decided.LeaderEpoch, Epoch: decided.PartitionEpoch, ISR: isr}, d, epoch, &t.node, at.Now, &ro)
	t.moved(p, was, &ro, at, out)
	return d == replica.Refused
}

// decisionOf is what an error says of a proposal. What it does not say for sure
// counts as nothing said.
func decisionOf(err error) replica.Decision {
	switch {
	case err == nil:
		return replica.Accepted
	case errors.Is(err, metadata.ErrIneligibleReplica), errors.Is(err, metadata.ErrInvalidRequest):
		return replica.Refused
	case errors.Is(err, metadata.ErrInvalidUpdateVersion), errors.Is(err, metadata.ErrNewLeaderElected),
		errors.Is(err, replica.ErrFencedEpoch), errors.Is(err, metadata.ErrFencedLeaderEpoch),
		errors.Is(err, metadata.ErrUnknownTopicID), errors.Is(err, metadata.ErrUnknownTopic):
		return replica.Outdated
	}
	return replica.Unanswered
}

// propose hands a proposal to the controller.
func (t *Table) propose(p *Partition, pr *replica.Proposal, out *Out) {
	isr := make([]BrokerState, len(pr.ISR))
	for i, m := range pr.ISR {
		isr[i] = BrokerState{m.Node, m.Epoch}
	}
	t.Stats.ISRProposals++
	out.AlterISR = append(out.AlterISR, ISRProposal{Log: p.log(), LeaderEpoch: pr.LeaderEpoch, PartitionEpoch: pr.Epoch, ISR: isr})
}

// marks is what an event may change of a partition that others wait for.
type marks struct {
	shown         record.Offset
	logEnd        record.Offset
	highWatermark record.Offset
	epoch         record.LeaderEpoch
	leads         bool
	inSync        bool
	settled       bool
	standing      int
}

func (p *Partition) marks() marks {
	r := &p.replica
	return marks{r.Shown(), r.LogEnd(), r.HighWatermark(), r.Epoch(), r.Leads(), r.InSync(), r.Settled(), r.Standing()}
}

// moved does what a replica decided, and what follows from it.
func (t *Table) moved(p *Partition, was marks, ro *replica.Out, at Moment, out *Out) {
	t.keep(ro.Done, out)
	if ro.Propose != nil {
		t.propose(p, ro.Propose, out)
	}
	t.note(p)
	t.report(p, at, out)
	is := p.marks()
	if is == was {
		return
	}
	if is.highWatermark != was.highWatermark {
		p.producers.Settled(is.highWatermark)
		t.touch(p)
		t.raiseAfter(p, out)
	}
	// What is only appended is news for nobody who reads what is committed.
	committed := was
	committed.shown, committed.logEnd = is.shown, is.logEnd
	t.news(p, committed == is, at, out)
}

// note keeps the lists that the partition is in as they should be.
func (t *Table) note(p *Partition) {
	if at := p.replica.ReviewAt(&t.node); at < p.reviewAt {
		p.reviewAt = at
		t.reviews.Add(at, p)
	}
	switch short := p.replica.Short(); {
	case short && p.shortAt < 0:
		p.shortAt = int32(len(t.short))
		t.short = append(t.short, p)
	case !short && p.shortAt >= 0:
		last := t.short[len(t.short)-1]
		t.short[p.shortAt], last.shortAt = last, p.shortAt
		t.short[len(t.short)-1] = nil
		t.short = t.short[:len(t.short)-1]
		p.shortAt = -1
	}
}

// reviewDue reviews the partitions that are due.
func (t *Table) reviewDue(at Moment, out *Out) {
	for {
		p, ok := t.reviews.Due(at.Now)
		if !ok {
			return
		}
		if p.reviewAt > at.Now || t.partition(p.log()) != p {
			continue // it was reviewed meanwhile
		}
		p.reviewAt = clock.Never
		t.review(p, at, out)
	}
}

// review lets a partition decide though nothing happened to it.
func (t *Table) review(p *Partition, at Moment, out *Out) {
	was := p.marks()
	var ro replica.Out
	resumed := p.replica.Review(&t.node, at.Now, &ro)
	t.moved(p, was, &ro, at, out)
	if resumed {
		t.follow(p, at, out)
	}
}
