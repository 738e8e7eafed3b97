package quorum

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/pawlbroker/pawl/storage/assert"
)

// Raft takes a change of the members for made when it is applied, and a follower
// learns only from its leader how far it may apply. So there is a deadlock: the
// leader dies just after a voter became none and nobody but that voter knows.
// The others still count on its vote, which it gives to nobody who has less than
// it has; and it does not campaign. Therefore whoever is asked for a vote tells
// the candidate what is committed, which is so for ever and for everybody, and a
// candidate that has the entry applies it.

// tellCommitted answers a candidate.
func (q *Quorum) tellCommitted(m Message, out *Out) {
	st := q.node.BasicStatus()
	commit := min(st.GetCommit(), q.last())
	if !q.founded() || st.Lead != raft.None || m.body.GetIndex() < commit {
		return
	}
	term, err := q.store.Term(commit)
	check(err)
	q.say(m.From, &word{kind: commitWord, id: q.id, index: commit, term: term}, out)
}

// takeCommitted applies what is committed, if no leader could tell.
func (q *Quorum) takeCommitted(m Message) {
	st := q.node.BasicStatus()
	w := m.word
	if m.quorum == 0 || m.quorum != q.members.quorum || st.Lead != raft.None || w.index <= st.GetCommit() || w.index > q.last() {
		return
	}
	if term, err := q.store.Term(w.index); err != nil || term != w.term {
		return
	}
	if q.node.HasReady() {
		return // it is asked again
	}
	// There is no way to tell raft but to begin anew, which loses only a candidacy.
	assert.Reached("quorum: what is committed heard from no leader")
	q.hard.commit = w.index
	check(q.startRaft(&q.members))
}

// resumed is a storage whose entries were handed out up to some index, and came
// to a membership.
type resumed struct {
	*raft.MemoryStorage
	members *raftpb.ConfState
}

func (r resumed) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hard, _, err := r.MemoryStorage.InitialState()
	return hard, r.members, err
}
