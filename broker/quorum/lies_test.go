package quorum

import (
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// from is what a node says to another, in the first's quorum and the second's term.
func from(a, to *actor, m *raftpb.Message) Message {
	if m.Term == nil {
		term := to.q.node.BasicStatus().GetTerm()
		m.Term = &term
	}
	m.From, m.To = &a.q.id, &to.q.id
	return Message{From: a.id, To: to.id, quorum: a.q.members.quorum, body: m}
}

// heard is what a node says to a message, once it has saved what it must.
func (w *world) hears(a *actor, m Message) []Message {
	w.until("it saves nothing", func() bool { return a.save == nil })
	var out Out
	a.q.Received(m, w.now, &out)
	said := out.Messages
	for a.q.Saving() {
		save := out.Save
		out = Out{}
		a.save = save
		a.put(len(save.Records))
		a.q.Saved(&out)
		said = append(said, out.Messages...)
	}
	return said
}

// Followers cannot confirm reads that nobody asked for, nor claim to have what
// the leader has not.
func TestLiesToALeader(t *testing.T) {
	w := calmWorld(t, plan{voters: 3})
	l := w.leader()
	a, b := w.others(l)[0], w.others(l)[1]
	w.read(l)
	w.until("it is answered", func() bool { return w.reads == 1 })
	many := uint64(1) << 40
	for _, x := range []*actor{a, b} {
		w.hears(l, from(x, l, &raftpb.Message{Type: raftpb.MsgHeartbeatResp.Enum(), Context: binary.LittleEndian.AppendUint64(nil, many)}))
	}
	w.hears(l, from(a, l, &raftpb.Message{Type: raftpb.MsgAppResp.Enum(), Index: &many}))
	for _, m := range l.q.Status(w.now).Members {
		if m.Match > Index(l.q.last()) {
			t.Fatalf("it believes that node %d has entry %d", m.Node, m.Match)
		}
	}
	w.commit("x")
	w.read(l)
	w.until("it is answered", func() bool { return w.reads == 2 })
}

// Who is in no quorum has no vote, and takes no entries before it was told who
// the members are.
func TestNewcomerHasNoSay(t *testing.T) {
	w := newWorld(t, 1, plan{voters: 3, others: 1, reliable: true, idle: true}, io.Discard)
	w.saying = func(m Message) bool { return m.word == nil || m.word.kind != joinWord }
	w.until("a quorum is founded", func() bool { return w.leader() != nil && w.nodes[3].q != nil && w.nodes[3].save == nil })
	l, a := w.leader(), w.nodes[3]
	term, index := uint64(9), uint64(100)
	for _, kind := range []raftpb.MessageType{raftpb.MsgVote, raftpb.MsgPreVote} {
		if said := w.hears(a, from(l, a, &raftpb.Message{Type: kind.Enum(), Term: &term, LogTerm: &term, Index: &index})); len(said) > 0 {
			t.Fatalf("it was asked for its vote, and says %v", said)
		}
	}
	zero, one := uint64(0), uint64(1)
	m := from(l, a, &raftpb.Message{Type: raftpb.MsgApp.Enum(), Term: &term, LogTerm: &zero, Index: &zero, Commit: &one,
		Entries: []*raftpb.Entry{{Term: &one, Index: &one, Data: []byte("x")}}})
	if m, err := UnmarshalMessage(m.Marshal()); err == nil {
		t.Fatalf("%v is taken for a message", m)
	}
	gap := uint64(7)
	m.body.Index, m.body.LogTerm = &one, &one
	m.body.Entries[0].Index = &gap
	if m, err := UnmarshalMessage(m.Marshal()); err == nil {
		t.Fatalf("%v is taken for a message", m)
	}
}

// A node believes nothing of another quorum, and leaves its own only if it never
// voted in it.
func TestOtherQuorumIsNotBelieved(t *testing.T) {
	w := calmWorld(t, plan{voters: 3})
	l := w.leader()
	a := w.others(l)[0]
	w.until("it saves nothing", func() bool { return a.save == nil })
	term := uint64(50)
	for _, kind := range []raftpb.MessageType{raftpb.MsgVote, raftpb.MsgHeartbeat, raftpb.MsgApp} {
		m := from(w.others(l)[1], a, &raftpb.Message{Type: kind.Enum(), Term: &term, LogTerm: &term, Index: &term})
		m.quorum = raftID(0, 12345)
		var out Out
		a.q.warned = nil
		a.q.Received(m, w.now, &out)
		if len(out.Messages) > 0 || out.Save != nil || len(out.Warnings) != 1 || a.q.Leader().Term >= 50 {
			t.Fatalf("it was told %v, and says %s", m, showOut(&out))
		}
	}
	join := Message{From: 3, To: l.id, quorum: raftID(0, 12345), word: &word{kind: joinWord, id: raftID(3, 5)}}
	if said := w.hears(l, join); len(said) != 1 || said[0].word.why != refusedOther {
		t.Fatalf("who belongs to another quorum asks to join, and it says %v", said)
	}
}

// A lone voter's vote for itself need not be saved at once. One for another must.
func TestLoneVoterSavesItsVoteForAnother(t *testing.T) {
	w := newWorld(t, 1, plan{voters: 1, others: 1, reliable: true, idle: true}, io.Discard)
	w.until("it leads", func() bool { return w.leader() != nil && w.nodes[1].q != nil && w.nodes[1].save == nil })
	a, b := w.nodes[0], w.nodes[1]
	a.q, a.save = nil, nil
	w.now++
	w.start(a)
	term, index := uint64(9), uint64(100)
	m := from(b, a, &raftpb.Message{Type: raftpb.MsgVote.Enum(), Term: &term, LogTerm: &term, Index: &index})
	m.quorum = a.q.members.quorum
	var out Out
	a.q.Received(m, w.now, &out)
	if len(out.Messages) > 0 && out.Messages[0].body != nil || out.Save == nil {
		t.Fatalf("it was asked for its vote, and says before it has saved it: %s", showOut(&out))
	}
	said := slices.Clone(out.Messages)
	a.save = out.Save
	a.put(len(out.Save.Records))
	out = Out{}
	a.q.Saved(&out)
	for _, m := range append(said, out.Messages...) {
		w.mayBeSaid(a, m)
	}
	if a.past.hard.vote != b.q.id {
		t.Fatalf("on disk is %+v", a.past.hard)
	}
}

// A founder that lost its disk does not take for an answer what the others said
// to the one it was, nor they its last words for the new one's.
func TestFounderWithANewDiskAsksAnew(t *testing.T) {
	founder := func(incarnation uint64) (*Quorum, [2]Message) {
		w := newWorld(t, incarnation, plan{voters: 3, reliable: true, idle: true}, io.Discard)
		var hellos [2]Message
		w.saying = func(m Message) bool {
			if m.word != nil && m.word.kind == helloWord && m.To == 0 && m.quorum == 0 && m.word.seen != 0 {
				hellos[m.From-1] = m
			}
			return m.word == nil || m.word.kind != foundWord
		}
		w.pass(time.Second)
		if !w.nodes[0].q.founded() || w.nodes[1].q.founded() {
			t.Fatalf("only the first is to be in the quorum:\n%s", w.show())
		}
		return w.nodes[0].q, hellos
	}
	_, stale := founder(1)
	w := newWorld(t, 2, plan{voters: 3, reliable: true, idle: true}, io.Discard)
	w.saying = func(Message) bool { return false }
	w.pass(time.Second)
	for _, m := range stale {
		w.hears(w.nodes[0], m)
	}
	if w.nodes[0].q.founded() {
		t.Fatal("it founded a quorum on what was not said to it")
	}

	old, _ := founder(1)
	a := w.nodes[1]
	ms := foundedBy(old.id, []uint64{old.id, a.q.id, w.nodes[2].q.id})
	w.hears(a, Message{From: 0, To: 1, word: &word{kind: helloWord, id: w.nodes[0].q.id, voters: []NodeID{0, 1, 2}}})
	w.hears(a, Message{From: 0, To: 1, quorum: old.id, word: &word{kind: foundWord, id: old.id, members: ms}})
	if a.q.founded() {
		t.Fatal("it adopts a quorum of a founder that is no more")
	}
}
