package quorum

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/pawlbroker/pawl/storage/assert"
)

// run asks raft for work until there is none, or a save is outstanding.
func (q *Quorum) run(out *Out) {
	for q.saving == nil {
		if q.compact != nil && q.compact.Index <= q.compacted {
			q.compact = nil // a peer's snapshot came first
		}
		if q.compact != nil && !q.voteUnsaved() {
			q.saveCompaction(out)
			return
		}
		if !q.node.HasReady() {
			break
		}
		ready := q.node.Ready()
		if !raft.IsEmptyHardState(ready.HardState) {
			q.hard = hardStateOf(ready.HardState)
		}
		switch {
		case len(ready.Entries) > 0 || !raft.IsEmptySnap(ready.Snapshot), q.voteUnsaved() && !q.lone():
			q.save(ready, out)
		default:
			// Nothing here rests on the disk, or nobody can tell: a lone voter's
			// vote for itself matters to nobody before the entry that follows.
			q.finish(ready, out)
		}
	}
	q.tell(out)
}

// voteUnsaved reports whether the term or the vote is not in any Save.
func (q *Quorum) voteUnsaved() bool {
	return q.hard.term != q.written.term || q.hard.vote != q.written.vote
}

func (q *Quorum) save(ready raft.Ready, out *Out) {
	s := &Save{}
	last := q.last()
	if !raft.IsEmptySnap(ready.Snapshot) {
		snapshot := snapshotRecordOf(ready.Snapshot)
		s.Replace = true
		s.Records = append(s.Records, snapshot.encode())
		last = snapshot.index
	} else if !q.founded {
		s.Records = append(s.Records, snapshotRecord{voters: q.voters}.encode())
	}
	// A crash may leave any number of the records, from the first. So what this
	// hard state calls committed must be as saved before, and not in the part of
	// the log that the entries after it replace; the rest is told next time.
	hard := q.hard
	hard.commit = min(hard.commit, last)
	if len(ready.Entries) > 0 {
		hard.commit = min(hard.commit, ready.Entries[0].GetIndex()-1)
	}
	if hard != q.written || s.Replace {
		s.Records = append(s.Records, hard.encode())
		q.written = hard
	}
	for _, e := range ready.Entries {
		s.Records = append(s.Records, encodeEntry(e))
	}
	q.founded = true
	q.saving = &saving{save: s, ready: ready}
	out.Save = s
	q.tell(out)
}

func (q *Quorum) saveCompaction(out *Out) {
	c := q.compact
	q.compact = nil
	term, err := q.store.Term(uint64(c.Index))
	check(err)
	s := &Save{Replace: true}
	q.written = q.hard
	q.written.commit = uint64(c.Index) // what is committed comes after it
	s.Records = append(s.Records,
		snapshotRecord{index: uint64(c.Index), term: term, voters: q.voters, data: c.Data}.encode(), q.written.encode())
	if last := q.last(); last > uint64(c.Index) {
		entries, err := q.store.Entries(uint64(c.Index)+1, last+1, ^uint64(0))
		check(err)
		for _, e := range entries {
			s.Records = append(s.Records, encodeEntry(e))
		}
	}
	q.saving = &saving{save: s, compact: c}
	out.Save = s
	q.tell(out)
}

// last is the index of the last durable entry.
func (q *Quorum) last() uint64 {
	last, err := q.store.LastIndex()
	check(err)
	return last
}

// keep notes what of ready is durable.
func (q *Quorum) keep(ready raft.Ready) {
	if !raft.IsEmptySnap(ready.Snapshot) {
		check(q.store.ApplySnapshot(ready.Snapshot))
		q.compacted = Index(ready.Snapshot.GetMetadata().GetIndex())
	}
	check(q.store.Append(ready.Entries))
}

// finish hands out what ready allows once it is durable.
func (q *Quorum) finish(ready raft.Ready, out *Out) {
	if s := ready.Snapshot; !raft.IsEmptySnap(s) {
		q.restore(s, out)
	}
	for _, e := range ready.CommittedEntries {
		q.commit(e, out)
	}
	for _, m := range ready.Messages {
		q.send(m, out)
	}
	q.node.Advance(ready)
}

func (q *Quorum) restore(s *raftpb.Snapshot, out *Out) {
	q.applied = Index(s.GetMetadata().GetIndex())
	q.appliedTerm = Term(s.GetMetadata().GetTerm())
	assert.That(len(out.Committed) == 0, "quorum: a snapshot after entries in one step")
	out.Restore = &Snapshot{q.applied, s.GetData()}
	n := 0
	for n < len(q.pending) && q.pending[n].term <= q.appliedTerm {
		out.Unknown = append(out.Unknown, q.pending[n].ticket)
		n++
	}
	q.pending = q.pending[n:]
}

// commit hands out one entry. The proposals of one term are committed in order,
// and none of a term after an entry of a later one.
func (q *Quorum) commit(e *raftpb.Entry, out *Out) {
	assert.That(Index(e.GetIndex()) == q.applied+1, "quorum: a gap in what is committed")
	assert.That(e.GetType() == raftpb.EntryNormal, "quorum: an entry of another kind")
	q.applied, q.appliedTerm = Index(e.GetIndex()), Term(e.GetTerm())
	entry := Entry{Index: q.applied, Term: q.appliedTerm, Data: e.GetData()}
	for len(q.pending) > 0 && q.pending[0].term < q.appliedTerm {
		out.Lost = append(out.Lost, q.pending[0].ticket)
		q.pending = q.pending[1:]
	}
	if len(entry.Data) > 0 && len(q.pending) > 0 && q.pending[0].term == q.appliedTerm {
		entry.Ticket = q.pending[0].ticket
		q.pending = q.pending[1:]
	}
	out.Committed = append(out.Committed, entry)
}

func (q *Quorum) send(m *raftpb.Message, out *Out) {
	out.Messages = append(out.Messages, Message{From: q.cfg.ID, To: nodeID(m.GetTo()), body: m})
	switch m.GetType() {
	case raftpb.MsgVoteResp:
		if !m.GetReject() {
			q.elapsed = 0
		}
	case raftpb.MsgSnap:
		// Nobody tells whether it arrives. If it does not, the follower refuses
		// what comes next and is sent another.
		q.node.ReportSnapshot(m.GetTo(), raft.SnapshotFinish)
	}
}

// tick moves raft's clock. Only a leader's tick does not ask for an election
// timeout.
func (q *Quorum) tick() {
	if q.node.BasicStatus().RaftState == raft.StateLeader {
		q.elapsed = 0
		q.node.Tick()
		return
	}
	// Deprecated, but it moves the clock of leases and, unlike Tick, draws no
	// random number.
	q.node.TickQuiesced()
	if q.elapsed++; q.elapsed >= q.patience {
		q.elapsed, q.patience = 0, q.drawPatience()
		check(q.node.Campaign())
	}
}

// tell reports a change of leader. That this node was elected is not told
// before it was handed an entry of its term.
func (q *Quorum) tell(out *Out) {
	st := q.node.BasicStatus()
	is := Leader{Node: nodeID(st.Lead), Term: Term(st.GetTerm())}
	if st.Lead == raft.None || st.RaftState == raft.StateLeader && q.appliedTerm != is.Term {
		is.Node = NoNode
	}
	if is != q.told {
		q.told = is
		out.Leader = &is
	}
}
