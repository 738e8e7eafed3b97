package quorum

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/pawlbroker/pawl/storage/assert"
)

// run tells raft what came and asks it for work until there is none, or a save
// is outstanding.
func (q *Quorum) run(out *Out) {
	for q.saving == nil {
		q.open(out)
		switch {
		case q.left:
			q.leave(out)
		case q.compact != nil && q.compact.Index <= q.compacted:
			q.compact = nil // a peer's snapshot came first
		case q.found != nil && q.founded():
			q.found = nil // a leader's snapshot came first
		case q.found != nil:
			q.saveFoundation(out)
		case q.compact != nil && !q.voteUnsaved() && len(q.unsaved) == 0:
			q.saveCompaction(out)
		case q.node.HasReady():
			q.handle(q.node.Ready(), out)
		default:
			q.tell(out)
			if !q.maintain(out) {
				return
			}
		}
	}
	q.tell(out)
}

// handle acts on what raft wants, once it is durable if it must be.
func (q *Quorum) handle(ready raft.Ready, out *Out) {
	if !raft.IsEmptyHardState(ready.HardState) {
		q.hard = hardStateOf(ready.HardState)
	}
	switch {
	case len(ready.Entries) > 0 || !raft.IsEmptySnap(ready.Snapshot):
		q.save(ready, out)
	case q.voteUnsaved() && !(q.lone() && q.hard.vote == q.id && len(ready.Messages) == 0):
		q.save(ready, out)
	default:
		// Nothing here rests on the disk, or nobody can tell: a lone voter's
		// vote for itself matters to nobody before the entry that follows.
		q.finish(&ready, out)
	}
}

// voteUnsaved reports whether the term or the vote is not in any Save.
func (q *Quorum) voteUnsaved() bool {
	return q.hard.term != q.written.term || q.hard.vote != q.written.vote
}

func (q *Quorum) save(ready raft.Ready, out *Out) {
	s := &Save{Records: q.unsaved, Replace: q.unsavedAt}
	q.unsaved, q.unsavedAt = nil, false
	last := q.last()
	if !raft.IsEmptySnap(ready.Snapshot) {
		snapshot, err := snapshotRecordOf(ready.Snapshot)
		check(err)
		s.Replace = true
		s.Records = [][]byte{encodeIdentity(q.id), snapshot.encode()}
		last = snapshot.index
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
	q.ask(&saving{save: s, ready: &ready}, out)
}

// ask asks for a save. Everything else waits for it.
func (q *Quorum) ask(s *saving, out *Out) {
	q.saving = s
	out.Save = s.save
}

// saveIdentity makes a new node somebody before it speaks.
func (q *Quorum) saveIdentity(out *Out) {
	q.ask(&saving{save: &Save{Records: q.unsaved}}, out)
	q.unsaved = nil
}

func (q *Quorum) saveCompaction(out *Out) {
	c := q.compact
	q.compact = nil
	term, err := q.store.Term(uint64(c.Index))
	check(err)
	q.written = q.hard
	q.written.commit = uint64(c.Index) // what is committed comes after it
	s := &Save{Replace: true, Records: [][]byte{
		encodeIdentity(q.id),
		snapshotRecord{uint64(c.Index), term, q.membersAt(c.Index), c.Data}.encode(),
		q.written.encode(),
	}}
	if last := q.last(); last > uint64(c.Index) {
		entries, err := q.store.Entries(uint64(c.Index)+1, last+1, ^uint64(0))
		check(err)
		for _, e := range entries {
			s.Records = append(s.Records, encodeEntry(e))
		}
	}
	q.ask(&saving{save: s, compact: c}, out)
}

// What is kept of the log before a snapshot, in memory, for those who are a
// little behind: to send them entries is cheaper than all of the snapshot.
const (
	keptEntries = 1000
	keptBytes   = 4 << 20
)

func (q *Quorum) compactedTo(c *Snapshot) {
	ms := q.membersAt(c.Index)
	_, err := q.store.CreateSnapshot(uint64(c.Index), ms.confState(), append(ms.appendTo(nil), c.Data...))
	check(err)
	q.compacted = c.Index
	for len(q.history) > 1 && q.history[1].from <= c.Index {
		q.history = q.history[1:]
	}
	first, err := q.store.FirstIndex()
	check(err)
	entries, err := q.store.Entries(first, uint64(c.Index)+1, ^uint64(0))
	check(err)
	keep, size := 0, 0
	for keep < len(entries) && keep < keptEntries && size < keptBytes {
		keep++
		size += len(entries[len(entries)-keep].GetData())
	}
	if keep < len(entries) {
		check(q.store.Compact(uint64(c.Index) - uint64(keep)))
	}
}

// membersAt is the membership at an index that was handed out and is not before
// the durable snapshot.
func (q *Quorum) membersAt(index Index) membership {
	ms := q.history[0].members
	for _, h := range q.history[1:] {
		if h.from <= index {
			ms = h.members
		}
	}
	return ms
}

// last is the index of the last durable entry.
func (q *Quorum) last() uint64 {
	last, err := q.store.LastIndex()
	check(err)
	return last
}

// keep notes what of ready is durable.
func (q *Quorum) keep(ready *raft.Ready) {
	if !raft.IsEmptySnap(ready.Snapshot) {
		check(q.store.ApplySnapshot(ready.Snapshot))
		q.compacted = Index(ready.Snapshot.GetMetadata().GetIndex())
	}
	check(q.store.Append(ready.Entries))
}

// finish hands out what ready allows once it is durable.
func (q *Quorum) finish(ready *raft.Ready, out *Out) {
	if s := ready.Snapshot; !raft.IsEmptySnap(s) {
		q.restore(s, out)
	}
	for _, e := range ready.CommittedEntries {
		q.commit(e, out)
	}
	q.answer(ready.ReadStates, out)
	for _, m := range ready.Messages {
		q.send(m, out)
	}
	q.node.Advance(*ready)
}

func (q *Quorum) restore(s *raftpb.Snapshot, out *Out) {
	r, err := snapshotRecordOf(s)
	check(err)
	q.applied, q.appliedTerm = Index(r.index), Term(r.term)
	q.members = r.members
	q.history = []historical{{q.applied, q.members}}
	if q.applied > foundingIndex {
		assert.That(len(out.Committed) == 0, "quorum: a snapshot after entries in one step")
		out.Restore = &Snapshot{q.applied, r.data}
	}
	n := 0
	for n < len(q.pending) && q.pending[n].term <= q.appliedTerm {
		if t := q.pending[n].ticket; t != 0 {
			out.Unknown = append(out.Unknown, t)
		}
		n++
	}
	q.pending = q.pending[n:]
}

// commit hands out one entry. The proposals of one term are committed in order,
// and none of a term after an entry of a later one.
func (q *Quorum) commit(e *raftpb.Entry, out *Out) {
	assert.That(Index(e.GetIndex()) == q.applied+1, "quorum: a gap in what is committed")
	first := q.appliedTerm != Term(e.GetTerm())
	q.applied, q.appliedTerm = Index(e.GetIndex()), Term(e.GetTerm())
	entry := Entry{Index: q.applied, Term: q.appliedTerm}
	for len(q.pending) > 0 && q.pending[0].term < q.appliedTerm {
		if t := q.pending[0].ticket; t != 0 {
			out.Lost = append(out.Lost, t)
		}
		q.pending = q.pending[1:]
	}
	ours := len(q.pending) > 0 && q.pending[0].term == q.appliedTerm
	isChange := e.GetType() == raftpb.EntryConfChangeV2
	if isChange {
		q.change(e)
	} else {
		assert.That(e.GetType() == raftpb.EntryNormal, "quorum: an entry of another kind")
		entry.Data = e.GetData()
	}
	// The entry that a leader begins its term with is nobody's.
	if ours && (isChange || len(entry.Data) > 0 || !first) {
		assert.That(q.pending[0].change == isChange, "quorum: raft refused a change of the membership")
		entry.Ticket = q.pending[0].ticket
		q.pending = q.pending[1:]
	}
	out.Committed = append(out.Committed, entry)
}

func (q *Quorum) send(m *raftpb.Message, out *Out) {
	to := nodeOf(m.GetTo())
	if to == q.cfg.ID {
		return // to what this node was before it lost its disk
	}
	switch m.GetType() {
	case raftpb.MsgVoteResp:
		if !m.GetReject() {
			q.voted()
		}
	case raftpb.MsgSnap:
		// Nobody tells whether it arrives. If it does not, the follower refuses
		// what comes next and is sent another.
		q.node.ReportSnapshot(m.GetTo(), raft.SnapshotFinish)
		m.Snapshot = forMember(m.GetSnapshot(), m.GetTo())
	}
	out.Messages = append(out.Messages, Message{From: q.cfg.ID, To: to, quorum: q.members.quorum, body: m})
}

// forMember is a snapshot as a node is sent it that joined after its index. Raft
// takes no snapshot that does not name the node that restores it.
func forMember(s *raftpb.Snapshot, id uint64) *raftpb.Snapshot {
	r, err := snapshotRecordOf(s)
	check(err)
	if _, at := r.members.find(id); at >= 0 {
		return s
	}
	r.members = r.members.with(id)
	return r.proto()
}

// tell reports what changed: the leader, and the members. That this node was
// elected is not told before it was handed an entry of its term.
func (q *Quorum) tell(out *Out) {
	st := q.node.BasicStatus()
	is := Leader{Node: NoNode, Term: Term(st.GetTerm())}
	if st.Lead != raft.None && (st.RaftState != raft.StateLeader || q.appliedTerm == is.Term) {
		is.Node = nodeOf(st.Lead)
	}
	if is != q.told {
		q.loseReads(out)
		q.told = is
		q.warned = q.warned[:0]
		q.changing, q.joins, q.twins = false, nil, nil
		switch is.Node {
		case q.cfg.ID:
			q.since = q.now
			q.noteProgress()
		case NoNode: // the leader spoke for the others
			q.since = q.now
		}
		out.Leader = &is
	}
	if !sameMembers(q.members, q.toldMembers) {
		q.toldMembers = q.members
		out.Members = q.Members()
	}
}
