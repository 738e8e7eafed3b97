package quorum

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/pawlbroker/pawl/broker/clock"
)

func FuzzReplay(f *testing.F) {
	self := raftID(1, 9)
	ms := foundedBy(self, []uint64{self})
	f.Add(encodeIdentity(self), foundingSnapshot(ms).encode(), hardState{1, self, 1}.encode(), []byte{kindEntry, 1, 2, 'a'})
	f.Add(encodeIdentity(self), snapshotRecord{5, 2, ms, []byte("s")}.encode(), hardState{2, self, 5}.encode(), []byte{kindEntry, 2, 6})
	f.Add(encodeIdentity(self), foundingSnapshot(ms).encode(), hardState{2, self, 1}.encode(),
		append([]byte{kindChange, 2, 2}, change{addLearner, raftID(2, 5), noWish}.encode()...))
	f.Add(encodeIdentity(self), hardState{7, 0, 0}.encode(), hardState{8, 0, 0}.encode(), hardState{9, 0, 0}.encode())
	f.Fuzz(func(t *testing.T, a, b, c, d []byte) {
		var out Out
		q, err := New(DefaultConfig(1), rand.New(rand.NewPCG(1, 1)), [][]byte{a, b, c, d}, &out)
		if err != nil {
			return
		}
		Describe(a, func(b []byte) string { return string(b) })
		lone := q.lone()
		q.Woken(0, &out)
		for q.Saving() {
			q.Saved(&out)
		}
		if lone && !q.Leading() {
			t.Fatal("what was accepted does not lead")
		}
	})
}

// examples are messages of every kind.
func examples(f testing.TB) []Message {
	var list []Message
	seen := map[int]bool{}
	w := newWorld(f, 3, plan{voters: 3, others: 1}, io.Discard)
	w.saying = func(m Message) bool {
		kind := -1
		if m.body != nil {
			kind = int(m.body.GetType())
			if len(m.body.GetEntries()) > 0 {
				kind += 100
			}
		} else {
			kind = -int(m.word.kind)
		}
		if !seen[kind] {
			seen[kind] = true
			list = append(list, m)
		}
		return true
	}
	w.pass(40 * time.Second)
	if len(list) < 10 {
		f.Fatalf("only %d kinds of messages", len(list))
	}
	return append(list, Message{From: 1, To: 0, quorum: raftID(0, 1), word: &word{kind: refuseWord, id: raftID(0, 1), why: refusedTwin}})
}

func FuzzMessage(f *testing.F) {
	for _, m := range examples(f) {
		f.Add(m.Marshal())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := UnmarshalMessage(b)
		if err != nil {
			return
		}
		again, err := UnmarshalMessage(m.Marshal())
		if err != nil || again.String() != m.String() {
			t.Fatalf("%v became %v, %v", m, again, err)
		}
	})
}

// A victim is a node that is told lies. Its disk is a list of records, and what
// it saves can always be read.
type victim struct {
	q    *Quorum
	past past
	size int
	now  clock.Instant
	said []Message
}

// elect lets time pass, and the others tell the truth, until it leads.
func (v *victim) elect(t testing.TB) {
	for range 40 {
		v.now = v.now.Add(100 * time.Millisecond)
		v.said = nil
		v.do(t, func(q *Quorum, out *Out) { q.Woken(v.now, out) })
		for len(v.said) > 0 && !v.q.Leading() {
			m := v.said[0].body
			if v.said = v.said[1:]; m == nil {
				continue
			}
			answer := &raftpb.Message{From: m.To, To: m.From, Term: m.Term}
			switch m.GetType() {
			case raftpb.MsgPreVote:
				answer.Type = raftpb.MsgPreVoteResp.Enum()
			case raftpb.MsgVote:
				answer.Type = raftpb.MsgVoteResp.Enum()
			case raftpb.MsgApp:
				last := m.GetIndex() + uint64(len(m.GetEntries()))
				answer.Type, answer.Index = raftpb.MsgAppResp.Enum(), &last
			default:
				continue
			}
			v.do(t, func(q *Quorum, out *Out) {
				q.Received(Message{From: nodeOf(m.GetTo()), To: q.cfg.ID, quorum: q.members.quorum, body: answer}, v.now, out)
			})
		}
	}
}

func (v *victim) do(t testing.TB, f func(q *Quorum, out *Out)) {
	for {
		var out Out
		f(v.q, &out)
		v.said = append(v.said, out.Messages...)
		if out.Save == nil {
			return
		}
		if out.Save.Replace {
			v.past, v.size = past{}, 0
		}
		for _, r := range out.Save.Records {
			if err := v.past.add(r, v.size); err != nil {
				t.Fatalf("it saved %s: %v", showRecord(r), err)
			}
			v.size++
		}
		f = func(q *Quorum, out *Out) { q.Saved(out) }
	}
}

// FuzzReceived has a node of three, in one of the states of its life, be told
// anything. It must not panic, and what it saves must be readable. The bytes say
// which messages of a real quorum it is told, and how they are changed.
func FuzzReceived(f *testing.F) {
	told := examples(f)
	disks, ids := states(f)
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	f.Add([]byte{1, 0, 0x11, 3, 0xff, 0xff, 2, 0, 0x21, 4, 1, 1})
	for i := range 30 {
		b := make([]byte, 120)
		rng := rand.New(rand.NewPCG(uint64(i), 9))
		for k := range b {
			b[k] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 0 {
			tellLies(t, script, told, disks, ids)
		}
	})
}

func TestLiesEndNoProcess(t *testing.T) {
	told := examples(t)
	disks, ids := states(t)
	rng := rand.New(rand.NewPCG(7, 7))
	runs := 1500
	if testing.Short() {
		runs = 500
	}
	for run := range runs {
		script := make([]byte, 50+rng.IntN(2000))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Fatalf("run %d: %v\n%s", run, p, debug.Stack())
				}
			}()
			tellLies(t, script, told, disks, ids)
		}()
	}
}

func tellLies(t *testing.T, script []byte, told []Message, disks [][][]byte, ids []uint64) {
	s := script[1:]
	next := func() byte {
		if len(s) == 0 {
			return 0
		}
		b := s[0]
		s = s[1:]
		return b
	}
	state := int(script[0]) % len(disks)
	cfg := DefaultConfig(nodeOf(ids[state]))
	cfg.Voters = []NodeID{0, 1, 2}
	v := &victim{}
	var out Out
	q, err := New(cfg, rand.New(rand.NewPCG(1, 1)), disks[state], &out)
	if err != nil {
		t.Fatal(err)
	}
	v.q = q
	for _, r := range disks[state] {
		if err := v.past.add(r, v.size); err != nil {
			t.Fatal(err)
		}
		v.size++
	}
	v.do(t, func(q *Quorum, out *Out) { q.Woken(0, out) })
	for len(s) > 0 {
		if b := next(); b >= 0xe0 {
			v.now = v.now.Add(time.Duration(b&0x1f) * 100 * time.Millisecond)
			v.do(t, func(q *Quorum, out *Out) { q.Woken(v.now, out) })
			continue
		} else if b >= 0xd8 {
			if b&4 == 0 {
				v.elect(t)
			}
			v.do(t, func(q *Quorum, out *Out) {
				q.Suspect(NodeID(b&3), v.now, out)
				_, _ = q.Propose([]byte("x"), out)
				_ = q.ReadIndex(1, out)
				_, _ = q.RemoveVoter(NodeID(b&3), out)
			})
			continue
		}
		m, err := UnmarshalMessage(lie(told[int(next())%len(told)], v.q, next).Marshal())
		if err == nil {
			v.do(t, func(q *Quorum, out *Out) { q.Received(m, v.now, out) })
		}
	}
	q.Status(v.now)
	q.Missing(v.now)
}

// lie changes a message so that the victim listens, and a few of its numbers.
func lie(m Message, q *Quorum, next func() byte) Message {
	if m.word != nil {
		w := *m.word
		m.word = &w
		m.To, m.From = q.cfg.ID, (q.cfg.ID+1+NodeID(next()&1))%3
		if next()&1 == 0 {
			m.quorum = q.members.quorum
		}
		w.id = someID(q, next())
		w.index, w.term = uint64(next()), uint64(next())
		return m
	}
	m.body = proto.Clone(m.body).(*raftpb.Message)
	b := m.body
	m.quorum = q.members.quorum
	to, from := q.id, someID(q, next())
	b.To, b.From = &to, &from
	m.To, m.From = q.cfg.ID, nodeOf(from)
	number := func(old uint64) *uint64 {
		k := next()
		v := old
		switch k >> 6 {
		case 1:
			v = uint64(int64(q.last()) + int64(k&0x3f) - 0x20)
		case 2:
			v = uint64(k & 0x3f)
		case 3:
			v = uint64(1) << (k & 0x3f)
		}
		return &v
	}
	term := q.node.BasicStatus().GetTerm() + uint64(next()&3)
	b.Term = &term
	how := next()
	if how&1 != 0 {
		b.Index = number(b.GetIndex())
	}
	if how&2 != 0 {
		b.LogTerm = number(b.GetLogTerm())
	}
	if how&4 != 0 {
		b.Commit = number(b.GetCommit())
	}
	if how&8 != 0 {
		b.RejectHint = number(b.GetRejectHint())
		reject := next()&1 != 0
		b.Reject = &reject
	}
	if how&16 != 0 {
		b.Type = raftpb.MessageType(next() % 24).Enum()
	}
	if how&32 != 0 {
		b.Context = binary.LittleEndian.AppendUint64(nil, *number(1))
	}
	if how&64 != 0 && len(b.GetEntries()) > 0 {
		index, term := b.GetIndex(), b.GetLogTerm()
		for _, e := range b.Entries {
			index++
			i, tm := index, term
			e.Index, e.Term = &i, &tm
			if next()&1 != 0 {
				e.Type = raftpb.EntryConfChangeV2.Enum()
				e.Data = change{raftpb.ConfChangeType(next() % 4), someID(q, next()), wishKind(next() % 3)}.encode()
			}
		}
	}
	if how&128 != 0 && b.GetSnapshot() != nil {
		b.Snapshot.Metadata.Index = number(b.GetSnapshot().GetMetadata().GetIndex())
		b.Snapshot.Metadata.Term = number(b.GetSnapshot().GetMetadata().GetTerm())
	}
	return m
}

func someID(q *Quorum, k byte) uint64 {
	ids := append(q.members.ids(true), q.members.ids(false)...)
	ids = append(ids, raftID(NodeID(k&3), 1+uint32(k)>>4))
	return ids[int(k)%len(ids)]
}

// states are what is on disk at moments of a quorum's life.
func states(f testing.TB) (disks [][][]byte, ids []uint64) {
	w := newWorld(f, 5, plan{voters: 3, others: 1}, io.Discard)
	for _, d := range []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, 20 * time.Second} {
		w.pass(d)
		for _, a := range w.nodes {
			if a.past.id != 0 {
				disks = append(disks, slices.Clone(a.disk))
				ids = append(ids, a.past.id)
			}
		}
	}
	return append(disks, nil), append(ids, raftID(1, 1))
}
