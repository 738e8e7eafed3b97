package quorum

import (
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"
)

// leaderOfThree is the leader of a cluster without faults, and what it says
// when something is proposed.
func leaderOfThree(t testing.TB) (*Quorum, Out) {
	w := newWorld(t, 1, plan{voters: 3, reliable: true}, io.Discard)
	for range 100 {
		w.pass(100 * time.Millisecond)
		if l := w.leader(); l != nil && l.q.saving == nil {
			var out Out
			if _, err := l.q.Propose([]byte("x"), &out); err != nil {
				t.Fatal(err)
			}
			out = Out{}
			l.q.Saved(&out)
			return l.q, out
		}
	}
	t.Fatal("nobody leads")
	return nil, Out{}
}

func TestLeaderWithoutMajorityStepsDown(t *testing.T) {
	q, _ := leaderOfThree(t)
	now := q.NextWake()
	for range 3 * DefaultConfig(0).ElectionTicks {
		var out Out
		q.Woken(now, &out)
		if !q.Leading() {
			return
		}
		now = now.Add(100 * time.Millisecond)
	}
	t.Fatal("it leads without having heard from anyone")
}

func TestMessageFromNoVoterIsIgnored(t *testing.T) {
	q, said := leaderOfThree(t)
	m := said.Messages[0]
	var out Out
	q.Received(Message{From: 9, To: q.cfg.ID, quorum: m.quorum, body: m.body}, 0, &out)
	q.Received(m, 0, &out) // is for another
	if s := showOut(&out); s != "" {
		t.Fatalf("it acted on what was not for it: %s", s)
	}
}

func TestProposalMayBeTooLarge(t *testing.T) {
	var out Out
	cfg := DefaultConfig(1)
	cfg.MaxProposalBytes = 3
	q, err := New(cfg, rand.New(rand.NewPCG(1, 1)), nil, &out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Propose([]byte("abc"), &out); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("before it leads: %v", err)
	}
	q.Woken(0, &out)
	q.Saved(&out)
	if _, err := q.Propose([]byte("abcd"), &out); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("four bytes of three: %v", err)
	}
	if _, err := q.Propose([]byte("abc"), &out); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkCommitAlone(b *testing.B) {
	var out Out
	q, err := New(DefaultConfig(1), rand.New(rand.NewPCG(1, 1)), nil, &out)
	if err != nil {
		b.Fatal(err)
	}
	q.Woken(0, &out)
	q.Saved(&out)
	data := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		out = Out{}
		if _, err := q.Propose(data, &out); err != nil {
			b.Fatal(err)
		}
		q.Saved(&out)
		if q.Applied()%10_000 == 0 {
			q.Compact(q.Applied(), data, &out)
			q.Saved(&out)
		}
	}
}
