package quorum

import (
	"io"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// A leader whose process is known to be dead is replaced within a second,
// mostly much less; without that knowledge it takes an election timeout.
func TestSuspectedLeaderIsReplacedSoon(t *testing.T) {
	for _, c := range []struct{ spread, median, longest time.Duration }{
		{50 * time.Millisecond, 150 * time.Millisecond, 500 * time.Millisecond},
		{400 * time.Millisecond, 400 * time.Millisecond, 900 * time.Millisecond},
	} {
		var took []time.Duration
		for seed := range uint64(150) {
			w := newWorld(t, seed, plan{voters: 3 + 2*int(seed%2), others: int(seed % 3), reliable: true, idle: true}, io.Discard)
			w.settle0()
			w.commit("before")
			l := w.leader()
			at := w.now
			l.q, l.save = nil, nil
			w.suspect(l, c.spread)
			w.until("another leads", func() bool { return w.leader() != nil })
			took = append(took, w.now.Sub(at))
		}
		slices.Sort(took)
		t.Logf("known within %v: median %v, longest %v", c.spread, took[len(took)/2], took[len(took)-1])
		if took[len(took)/2] > c.median || took[len(took)-1] > c.longest {
			t.Errorf("known within %v, it took %v", c.spread, took)
		}
	}
}

// What a dead leader said last may come after the news of its death.
func TestLastWordsOfADeadLeader(t *testing.T) {
	w := calmWorld(t, plan{voters: 3})
	l := w.leader()
	a := w.others(l)[0]
	var last []Message
	w.saying = func(m Message) bool {
		if m.body != nil && m.body.GetType() == raftpb.MsgHeartbeat && m.To == a.id {
			last = append(last, m)
		}
		return true
	}
	w.until("it says something", func() bool { return len(last) > 0 })
	w.until("nothing is saved", func() bool { return a.save == nil })
	w.call(a, func(q *Quorum, out *Out) {
		q.Suspect(l.id, w.now, out)
		q.Received(last[0], w.now, out)
	})
	if a.q.Leader().Node != NoNode {
		t.Fatal("it follows the dead")
	}
	w.call(a, func(q *Quorum, out *Out) { q.Received(last[0], w.now.Add(100*time.Millisecond), out) })
	if a.q.Leader().Node != l.id {
		t.Fatal("it does not believe that who speaks a tick later is alive")
	}
}

// A leader that is suspected wrongly goes on, if a majority hears it.
func TestWrongSuspicionChangesNothing(t *testing.T) {
	w := calmWorld(t, plan{voters: 5})
	l := w.leader()
	term := l.q.Leader().Term
	for _, a := range w.others(l)[:2] {
		w.call(a, func(q *Quorum, out *Out) { q.Suspect(l.id, w.now, out) })
	}
	w.pass(3 * time.Second)
	if w.leader() != l || l.q.Leader().Term != term {
		t.Fatalf("two of five replaced it:\n%s", w.show())
	}
}

// A leader that is cut off does not know it yet. What is read of it must not be
// answered, for another may lead and have committed more.
func TestReadsOfALeaderThatIsNoneAreLost(t *testing.T) {
	w := calmWorld(t, plan{voters: 3})
	old := w.leader()
	w.commit("before")
	old.cut = true
	w.read(old)
	if len(old.reads) != 1 {
		t.Fatal("it takes no reads")
	}
	w.until("another leads", func() bool { return w.leader() != nil && w.leader() != old })
	w.commit("after")
	if !old.q.Leading() && len(old.reads) > 0 {
		t.Fatal("it knows that it does not lead, and keeps who reads waiting")
	}
	w.pass(3 * time.Second)
	if len(old.reads) > 0 || w.reads > 0 {
		t.Fatalf("%d reads wait, %d were answered", len(old.reads), w.reads)
	}
	w.read(w.leader())
	w.until("it is answered", func() bool { return w.reads == 1 })
	if err := old.q.ReadIndex(9, new(Out)); err == nil {
		t.Fatal("who follows takes reads")
	}
}

// A read that waits for another voter is answered when that one is none any more.
func TestReadsOfTheLastVoterAreAnswered(t *testing.T) {
	w := calmWorld(t, plan{voters: 2})
	l, other := w.leader(), w.others(w.leader())[0]
	w.saying = func(m Message) bool { return m.body == nil || m.body.GetType() != raftpb.MsgHeartbeatResp }
	w.read(l)
	w.change(func(q *Quorum, out *Out) (Ticket, error) { return q.RemoveVoter(other.id, out) })
	if !l.q.Lone() || w.reads != 1 || len(l.reads) > 0 {
		t.Fatalf("it is alone (%t); %d reads are answered, and %d wait for nobody", l.q.Lone(), w.reads, len(l.reads))
	}
}

func TestStatusAndMissing(t *testing.T) {
	w := calmWorld(t, plan{voters: 3, others: 1})
	l := w.leader()
	w.commit("x")
	w.pass(time.Second)
	s := l.q.Status(w.now)
	if s.Leader != l.id || s.Commit != w.top || len(s.Members) != 4 {
		t.Fatalf("status %+v", s)
	}
	for i, m := range s.Members {
		if m.Node != NodeID(i) || m.Match != s.Commit || m.Lag != 0 || !m.Active || m.Voter != (i < 3) || w.now.Sub(m.CaughtUp) > time.Second {
			t.Fatalf("member %+v of %+v", m, s)
		}
	}
	if m := l.q.Missing(w.now); m != nil {
		t.Fatalf("%v are missing", m)
	}
	a := w.others(l)[0]
	a.q = nil
	for range 5 {
		w.commit("more")
		w.promise = w.promise[:1]
	}
	w.pass(2 * time.Second)
	if m := l.q.Missing(w.now); len(m) != 1 || m[0].Node != a.id || w.now.Sub(m[0].Since) < time.Second {
		t.Fatalf("%v are missing, not node %d", m, a.id)
	}
	if m := l.q.Status(w.now).Members[a.id]; m.Lag < 5 || m.Active {
		t.Fatalf("it is dead, and %+v", m)
	}
	if m := w.others(l)[1].q.Missing(w.now); m != nil {
		t.Fatalf("to a follower %v are missing", m)
	}
}

// Before there is a quorum the controllers that were never heard are missing.
func TestMissingFounders(t *testing.T) {
	w := newWorld(t, 1, plan{voters: 3, reliable: true, idle: true}, io.Discard)
	w.nodes[2].cut = true
	w.pass(10 * time.Second)
	for _, a := range w.nodes[:2] {
		if m := a.q.Missing(w.now); len(m) != 1 || m[0].Node != 2 {
			t.Fatalf("to node %d %v are missing", a.id, m)
		}
		if len(a.q.Members()) > 0 {
			t.Fatal("two of three founded a quorum")
		}
	}
	w.nodes[2].cut = false
	w.settle0()
}

// Who is a little behind when the log is compacted is sent entries; who is far
// behind, or new, a snapshot.
func TestSnapshotsAreForThoseFarBehind(t *testing.T) {
	for _, c := range []struct {
		entries, restores int
	}{{300, 0}, {keptEntries + 100, 1}} {
		w := calmWorld(t, plan{voters: 3})
		l := w.leader()
		a := w.others(l)[0]
		a.q = nil
		for range c.entries {
			w.commit("x")
			w.promise = w.promise[:0]
		}
		w.call(l, func(q *Quorum, out *Out) { q.Compact(q.Applied(), []byte(`["x"]`), out) })
		w.pass(time.Second)
		w.start(a)
		w.until("it has all", func() bool { return a.q.Applied() == w.top })
		if w.restores != c.restores {
			t.Fatalf("%d entries behind: %d snapshots restored, want %d", c.entries, w.restores, c.restores)
		}
	}
}
