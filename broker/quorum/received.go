package quorum

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/pawlbroker/pawl/broker/clock"
)

// inbox has the messages that came while a save was outstanding. What raft makes
// of them could not be sent or saved before, and until then it would not be
// clear what of the log is durable.
type inbox struct {
	messages []Message
	bytes    int
}

// What does not fit is dropped, which messages may always be.
const (
	maxInboxMessages = 4096
	maxInboxBytes    = 32 << 20
)

// heard is when a member was last heard of.
type heard struct {
	id       uint64
	at       clock.Instant
	caughtUp clock.Instant // when it last had all that was committed, if this node leads
}

// Received takes a message of another node.
func (q *Quorum) Received(m Message, now clock.Instant, out *Out) {
	q.now = now
	if m.To != q.cfg.ID || m.From == q.cfg.ID || !q.named {
		return
	}
	if q.saving != nil {
		q.put(m)
		return
	}
	q.take(m, out)
	q.run(out)
}

// put keeps a message until raft may be told it.
func (q *Quorum) put(m Message) {
	size := 0
	if m.body != nil {
		for _, e := range m.body.GetEntries() {
			size += len(e.GetData())
		}
		size += len(m.body.GetSnapshot().GetData())
		if st := q.node.BasicStatus(); q.fromLeader(m.body) && m.body.GetTerm() == st.GetTerm() {
			q.leaderHeard()
		}
	}
	if b := &q.inbox; len(b.messages) < maxInboxMessages && (b.bytes == 0 || b.bytes+size <= maxInboxBytes) {
		b.messages = append(b.messages, m)
		b.bytes += size
	}
}

// open takes what is in the inbox.
func (q *Quorum) open(out *Out) {
	if len(q.inbox.messages) == 0 {
		return
	}
	messages := q.inbox.messages
	q.inbox = inbox{}
	for _, m := range messages {
		q.take(m, out)
	}
}

// take tells raft a message, or does what a word says.
func (q *Quorum) take(m Message, out *Out) {
	if m.body == nil {
		q.takeWord(m, out)
		return
	}
	if m.body.GetTo() != q.id || q.left || !q.sameQuorum(m, out) {
		return
	}
	q.hear(m.body.GetFrom())
	if q.lateWord(m.body) || !q.fits(m.body) {
		return
	}
	if err := q.node.Step(m.body); err != nil {
		return // raft refuses what comes from nowhere; so a message may be lost
	}
	if q.fromLeader(m.body) {
		q.leaderHeard()
	}
	if t := m.body.GetType(); t == raftpb.MsgPreVote || t == raftpb.MsgVote {
		q.tellCommitted(m, out)
	}
}

// fromLeader reports whether m says that its sender leads, and it does.
func (q *Quorum) fromLeader(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		st := q.node.BasicStatus()
		return st.Lead == m.GetFrom() && st.RaftState != raft.StateLeader
	}
	return false
}

// sameQuorum reports whether the sender's quorum is this node's. Who belongs to
// none is led into one by its leader, and its answers are those of a newcomer.
func (q *Quorum) sameQuorum(m Message, out *Out) bool {
	switch {
	case m.quorum == q.members.quorum:
		return m.quorum != 0
	case m.quorum == 0:
		return m.body.GetType() == raftpb.MsgAppResp || m.body.GetType() == raftpb.MsgHeartbeatResp
	case !q.founded():
		return true
	case q.mayLeave(m):
		q.left = true
		return false
	}
	q.warn(m.From, warnQuorum, out)
	return false
}

// hear notes that a member is there.
func (q *Quorum) hear(id uint64) {
	if h := q.hearing(id); h != nil {
		h.at = q.now
	}
}

// hearing is what is known of a member's life, or nil of who is none.
func (q *Quorum) hearing(id uint64) *heard {
	for i := range q.heard {
		if q.heard[i].id == id {
			return &q.heard[i]
		}
	}
	if _, at := q.members.find(id); at < 0 {
		return nil
	}
	q.heard = append(q.heard, heard{id, never, never})
	return &q.heard[len(q.heard)-1]
}

// forget drops what is known of who is no member.
func (q *Quorum) forget() {
	q.heard = slices.DeleteFunc(q.heard, func(h heard) bool {
		_, at := q.members.find(h.id)
		return at < 0
	})
}

// never is when something happened that did not.
const never clock.Instant = -1
