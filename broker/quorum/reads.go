package quorum

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"
)

// reads are the reads that this leader has not confirmed yet, by asking a
// majority whether it still leads.
type reads struct {
	waiting []waitingRead // in the order in which they were asked for
	context uint64        // of the last; raft must never see one twice
	asked   uint64        // of raft, in this reign
}

type waitingRead struct {
	context uint64
	ticket  Ticket
}

// ReadIndex asks how far what is committed reaches by now. Unless it returns an
// error the ticket, which is the caller's, comes back once, in Reads or in
// LostReads: what any node acknowledged before this call is at most at the
// read's index, whoever leads. The only voter knows it at once.
func (q *Quorum) ReadIndex(ticket Ticket, out *Out) error {
	if !q.Leading() {
		return ErrNotLeader
	}
	if q.lone() {
		out.Reads = append(out.Reads, Read{ticket, Index(q.node.BasicStatus().GetCommit())})
		return nil
	}
	q.askRead(ticket)
	q.run(out)
	return nil
}

func (q *Quorum) askRead(ticket Ticket) {
	r := &q.reads
	r.context++
	r.asked++
	r.waiting = append(r.waiting, waitingRead{r.context, ticket})
	q.node.ReadIndex(binary.LittleEndian.AppendUint64(nil, r.context))
}

// answer hands out the reads that raft has confirmed.
func (q *Quorum) answer(states []raft.ReadState, out *Out) {
	r := &q.reads
	for _, s := range states {
		context := binary.LittleEndian.Uint64(s.RequestCtx)
		for len(r.waiting) > 0 && r.waiting[0].context <= context {
			out.Reads = append(out.Reads, Read{r.waiting[0].ticket, Index(s.Index)})
			r.waiting = r.waiting[1:]
		}
	}
}

// answerAlone answers the reads that wait for voters which are none any more.
func (q *Quorum) answerAlone(out *Out) {
	r := &q.reads
	if len(r.waiting) == 0 || !q.lone() || !q.Leading() {
		return
	}
	commit := Index(q.node.BasicStatus().GetCommit())
	for _, w := range r.waiting {
		out.Reads = append(out.Reads, Read{w.ticket, commit})
	}
	r.waiting = r.waiting[:0]
}

// loseReads is for when this node no longer leads.
func (q *Quorum) loseReads(out *Out) {
	r := &q.reads
	for _, w := range r.waiting {
		out.LostReads = append(out.LostReads, w.ticket)
	}
	r.waiting, r.asked = nil, 0
}
