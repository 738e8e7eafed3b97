// Package metalog is a node's copy of the metadata log: the quorum's entries,
// the image that they come to, and, on the active controller, what was proposed
// and is not committed yet.
//
// The active controller decides on Scratch, the image with everything it
// proposed applied. Whoever waits for a proposal gives a Promise and is told
// exactly once what became of it.
//
// Source: KIP-500, KIP-630 (snapshots), KIP-631.
package metalog

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/storage/assert"
)

// Promise stands for what somebody waits for. It comes back exactly once, in
// Kept or Broken.
type Promise uint64

// Out is what a call decided. The caller acts on it, in the order of the fields,
// and resets it.
type Out struct {
	// Save must be made durable; then Saved is called, or SaveFailed.
	Save *quorum.Save
	// Messages go to other nodes. They may be lost.
	Messages []quorum.Message
	// Deltas are how the image moved, oldest first.
	Deltas []metadata.Delta
	// Kept promises are true now.
	Kept []Kept
	// Broken promises were made by a controller that lost its office. What they
	// stood for may or may not become true.
	Broken []Promise
	// Leader is set when it changed.
	Leader *quorum.Leader
	// Joining are nodes that ask to join the quorum.
	Joining []quorum.Joining
	// Warnings are for the operator.
	Warnings []quorum.Warning
	// Err says the log holds what cannot be read: the node must stop.
	Err error
}

// Kept is a promise that is kept.
type Kept struct {
	Promise Promise
	// Offset is where in the metadata log it became true. A read (see Read) is
	// true for everybody whose image has come that far.
	Offset metadata.Offset
}

// Log is one node's copy of the metadata log.
//
// Invariants: scratch is image with every pending proposal applied; pending is
// empty unless this node leads.
type Log struct {
	quorum  *quorum.Quorum
	out     quorum.Out
	self    metadata.NodeID
	image   metadata.Image
	scratch metadata.Image
	pending []pending // oldest first
	reads   map[quorum.Ticket]Promise
	ticket  quorum.Ticket // of the latest read

	snapshotEvery uint64
	snapshotAt    quorum.Index // of the last that was asked for
}

// pending is a proposal and who waits for it.
type pending struct {
	ticket   quorum.Ticket
	promises []Promise
}

// New goes on with the log that was saved, oldest record first. A snapshot is
// made every so many entries.
func New(cfg quorum.Config, rng *rand.Rand, saved [][]byte, snapshotEvery uint64, out *Out) (*Log, error) {
	l := &Log{self: metadata.NodeID(cfg.ID), reads: make(map[quorum.Ticket]Promise), snapshotEvery: snapshotEvery}
	q, err := quorum.New(cfg, rng, saved, &l.out)
	if err != nil {
		return nil, err
	}
	l.quorum = q
	l.settle(out)
	return l, nil
}

// Image is what is committed.
func (l *Log) Image() metadata.Image { return l.image }

// Scratch is what the active controller decides on.
func (l *Log) Scratch() metadata.Image { return l.scratch }

// Applied is how far the image has come, in entries of the log.
func (l *Log) Applied() metadata.Offset { return metadata.Offset(l.quorum.Applied()) }

// Leader is the active controller, or metadata.NoNode.
func (l *Log) Leader() metadata.NodeID { return metadata.NodeID(l.quorum.Leader().Node) }

// Leading reports whether this node is the active controller.
func (l *Log) Leading() bool { return l.quorum.Leading() }

// Settled reports whether everything that was proposed here is committed.
func (l *Log) Settled() bool { return len(l.pending) == 0 }

// Quorum is the log's quorum, for questions about it.
func (l *Log) Quorum() *quorum.Quorum { return l.quorum }

// NextWake is when Wake wants to be called.
func (l *Log) NextWake() clock.Instant { return l.quorum.NextWake() }

// Wake says what time it is.
func (l *Log) Wake(now clock.Instant, out *Out) {
	l.quorum.Woken(now, &l.out)
	l.settle(out)
}

// Received takes a message of another node.
func (l *Log) Received(m quorum.Message, now clock.Instant, out *Out) {
	l.quorum.Received(m, now, &l.out)
	l.settle(out)
}

// Suspect says that a node's process has probably ended.
func (l *Log) Suspect(node metadata.NodeID, now clock.Instant, out *Out) {
	l.quorum.Suspect(quorum.NodeID(node), now, &l.out)
	l.settle(out)
}

// AddVoter has a node vote that follows the log, as soon as it has caught up. A
// promise that is made next waits for it.
func (l *Log) AddVoter(node metadata.NodeID, out *Out) error {
	ticket, err := l.quorum.AddVoter(quorum.NodeID(node), &l.out)
	return l.changing(ticket, err, out)
}

// RemoveVoter has a node vote no more. A promise that is made next waits for it.
func (l *Log) RemoveVoter(node metadata.NodeID, out *Out) error {
	ticket, err := l.quorum.RemoveVoter(quorum.NodeID(node), &l.out)
	return l.changing(ticket, err, out)
}

// Forget has a node that does not vote be no member of the quorum. It reports
// false if that has to be tried again, after another change.
func (l *Log) Forget(node metadata.NodeID, out *Out) bool {
	ticket, err := l.quorum.Forget(quorum.NodeID(node), &l.out)
	return !errors.Is(l.changing(ticket, err, out), quorum.ErrChanging)
}

// Resign has another voter lead, if this node does.
func (l *Log) Resign(now clock.Instant, out *Out) {
	l.quorum.Resign(now, &l.out)
	l.settle(out)
}

func (l *Log) changing(t quorum.Ticket, err error, out *Out) error {
	if err == nil && t != 0 {
		l.pending = append(l.pending, pending{ticket: t})
	}
	l.settle(out)
	return err
}

// Saved says that the outstanding save is durable.
func (l *Log) Saved(out *Out) {
	l.quorum.Saved(&l.out)
	l.settle(out)
}

// SaveFailed says that there was no space for the outstanding save.
func (l *Log) SaveFailed(now clock.Instant) { l.quorum.SaveFailed(now) }

// Propose asks for batches of records to become part of the log, in order, and
// makes a promise about the last. A decision without records waits for what was
// proposed before it: it may have been decided on what is not committed yet.
// Only the active controller may propose.
func (l *Log) Propose(batches [][]metadata.Record, p Promise, out *Out) {
	assert.That(l.Leading(), "metalog: proposal by a node that does not lead")
	proposed := false
	for _, records := range batches {
		if len(records) == 0 {
			continue
		}
		scratch, _, err := metadata.Apply(l.scratch, l.scratch.Offset()+1, records)
		assert.That(err == nil, "metalog: the controller decided what cannot be applied")
		ticket, err := l.quorum.Propose(metadata.Encode(records), &l.out)
		if err != nil {
			out.Broken = append(out.Broken, p)
			l.settle(out)
			return
		}
		l.scratch = scratch
		l.pending = append(l.pending, pending{ticket: ticket})
		proposed = true
	}
	switch last := len(l.pending) - 1; {
	case last >= 0:
		l.pending[last].promises = append(l.pending[last].promises, p)
	default:
		assert.That(!proposed, "metalog: a proposal that nobody waits for")
		out.Kept = append(out.Kept, Kept{p, l.Applied()})
	}
	l.settle(out)
}

// Read makes a promise that is kept once it is certain that this node led when
// Read was called, with everything that had been committed by then.
func (l *Log) Read(p Promise, out *Out) {
	l.ticket++
	l.reads[l.ticket] = p
	if err := l.quorum.ReadIndex(l.ticket, &l.out); err != nil {
		delete(l.reads, l.ticket)
		out.Broken = append(out.Broken, p)
	}
	l.settle(out)
}

// settle takes what the quorum decided.
func (l *Log) settle(out *Out) {
	q := l.out
	l.out = quorum.Out{}
	if q.Save != nil {
		assert.That(out.Save == nil, "metalog: two saves at once")
		out.Save = q.Save
	}
	out.Messages = append(out.Messages, q.Messages...)
	out.Joining = append(out.Joining, q.Joining...)
	out.Warnings = append(out.Warnings, q.Warnings...)
	if q.Restore != nil {
		l.apply(metadata.Restore, q.Restore.Index, q.Restore.Data, out)
	}
	for _, e := range q.Committed {
		if len(e.Data) > 0 {
			l.apply(metadata.Apply, e.Index, e.Data, out)
		}
		if e.Ticket != 0 {
			l.committed(e, out)
		}
	}
	l.lost(q.Lost, out)
	l.lost(q.Unknown, out)
	for _, r := range q.Reads {
		out.Kept = append(out.Kept, Kept{l.take(r.Ticket), metadata.Offset(r.Index)})
	}
	for _, t := range q.LostReads {
		out.Broken = append(out.Broken, l.take(t))
	}
	if q.Leader != nil {
		out.Leader = q.Leader
	}
	if len(l.pending) == 0 {
		l.scratch = l.image
	}
	l.snapshot()
	if l.out.Save != nil { // the snapshot's
		l.settle(out)
	}
}

// apply moves the image on by the records of one entry, or puts a snapshot in
// its place.
func (l *Log) apply(by func(metadata.Image, metadata.Offset, []metadata.Record) (metadata.Image, metadata.Delta, error),
	index quorum.Index, data []byte, out *Out) {
	records, err := metadata.Decode(data)
	if err == nil {
		var delta metadata.Delta
		if l.image, delta, err = by(l.image, metadata.Offset(index), records); err == nil {
			out.Deltas = append(out.Deltas, delta)
			return
		}
	}
	if out.Err == nil {
		out.Err = fmt.Errorf("metadata log entry %d: %w", index, err)
	}
}

// committed keeps the promises made about a proposal.
func (l *Log) committed(e quorum.Entry, out *Out) {
	assert.That(len(l.pending) > 0 && l.pending[0].ticket == e.Ticket, "metalog: proposals committed out of order")
	for _, p := range l.pending[0].promises {
		out.Kept = append(out.Kept, Kept{p, metadata.Offset(e.Index)})
	}
	l.pending = l.pending[1:]
}

// lost breaks the promises made about proposals whose fate this node does not
// know.
func (l *Log) lost(tickets []quorum.Ticket, out *Out) {
	for _, t := range tickets {
		for i, p := range l.pending {
			if p.ticket == t {
				out.Broken = append(out.Broken, p.promises...)
				l.pending = append(l.pending[:i], l.pending[i+1:]...)
				break
			}
		}
	}
}

func (l *Log) take(t quorum.Ticket) Promise {
	p, ok := l.reads[t]
	assert.That(ok, "metalog: a read that nobody waits for")
	delete(l.reads, t)
	return p
}

// snapshot gives up the log so far for the image it comes to, when it has become
// long.
func (l *Log) snapshot() {
	applied := l.quorum.Applied()
	if uint64(applied-max(l.quorum.Compacted(), l.snapshotAt)) < l.snapshotEvery {
		return
	}
	assert.Reached("broker: metadata snapshot")
	l.snapshotAt = applied
	l.quorum.Compact(applied, metadata.Encode(l.image.Records()), &l.out)
}
