package quorum

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/pawlbroker/pawl/broker/clock"
)

// quiet is a test in which the world may fail.
type quiet struct {
	testing.TB
	failures []string
}

func (q *quiet) Errorf(format string, args ...any) {
	q.failures = append(q.failures, fmt.Sprintf(format, args...))
}
func (q *quiet) Failed() bool { return false }

// calmWorld is one without faults, but for those that the test makes, in which
// everybody is where he is to be.
func calmWorld(t testing.TB, p plan) *world {
	p.reliable, p.idle = true, true
	w := newWorld(t, 4, p, io.Discard)
	w.until("it is settled", func() bool { return w.leader() != nil && w.wrong() == "" })
	return w
}

// until lets time pass until something is so.
func (w *world) until(what string, so func() bool) {
	w.t.Helper()
	for range 10_000 {
		if so() {
			return
		}
		w.pass(10 * time.Millisecond)
	}
	w.t.Fatalf("it never comes to pass that %s:\n%s", what, w.show())
}

// commit has the leader propose, and waits until that is committed.
func (w *world) commit(data string) {
	w.t.Helper()
	l := w.leader()
	w.call(l, func(q *Quorum, out *Out) {
		ticket, err := q.Propose([]byte(data), out)
		if err != nil {
			w.t.Fatal(err)
		}
		l.proposals[ticket] = data
	})
	w.until(data+" is committed", func() bool { return slices.Contains(w.promise, data) })
}

func (w *world) votes(l *actor, id NodeID) bool {
	m, _ := l.q.members.newest(id)
	return m.voter
}

// others are the voters that do not lead, by id.
func (w *world) others(l *actor) []*actor {
	var list []*actor
	for _, a := range w.nodes {
		if a != l && w.votes(l, a.id) {
			list = append(list, a)
		}
	}
	return list
}

// An entry is committed by the leader and one of two followers. The follower
// loses its disk, and the leader its connections. If the follower were taken for
// the voter it was, it would elect the one who does not have the entry.
func TestVoterWithoutDiskDoesNotVoteAsItDid(t *testing.T) {
	lose := func(t testing.TB, as func(old [][]byte) [][]byte) *world {
		w := calmWorld(t, plan{voters: 3})
		l := w.leader()
		has, lacks := w.others(l)[0], w.others(l)[1]
		lacks.cut = true
		w.commit("precious")
		has.disk = as(has.disk)
		has.past = past{}
		for i, r := range has.disk {
			check(has.past.add(r, i))
		}
		has.q, has.save = nil, nil
		l.cut, lacks.cut = true, false
		w.start(has)
		w.pass(time.Minute)
		return w
	}
	w := lose(t, func([][]byte) [][]byte { return nil })
	if l := w.leader(); l != nil && !l.cut {
		t.Fatalf("node %d leads without what was promised", l.id)
	}
	for _, a := range w.nodes {
		a.cut = false
	}
	w.settle0()
	if !slices.Contains(w.leader().state, "precious") {
		t.Fatal("what was promised is gone")
	}

	q := &quiet{TB: t}
	lose(q, func(old [][]byte) [][]byte { return old[:1] }) // it still has its name
	if len(q.failures) == 0 {
		t.Fatal("with the name it had it did no harm, so the story shows nothing")
	}
}

// settle0 waits until everything is as it should be.
func (w *world) settle0() {
	w.t.Helper()
	w.until("all is well", func() bool { return w.leader() != nil && w.wrong() == "" })
}

func TestNewDiskTakesThePlaceOfTheOld(t *testing.T) {
	for _, leads := range []bool{false, true} {
		w := calmWorld(t, plan{voters: 3})
		l := w.leader()
		a := w.others(l)[0]
		if leads {
			a = l
		}
		w.commit("before")
		old := a.q.Incarnation()
		a.q, a.save, a.disk, a.past = nil, nil, nil, past{}
		w.start(a)
		w.settle0()
		l = w.leader()
		if len(l.q.Members()) != 3 || a.q.Incarnation() == old || !w.votes(l, a.id) || !slices.Contains(a.state, "before") {
			t.Fatalf("leads=%t: it is not a voter as before:\n%s", leads, w.show())
		}
	}
}

func TestTwoNodesWithOneID(t *testing.T) {
	w := calmWorld(t, plan{voters: 3, others: 1})
	l := w.leader()
	twin := raftID(3, 77)
	join := Message{From: 3, To: l.id, word: &word{kind: joinWord, id: twin, address: "elsewhere"}}
	var out Out
	l.q.Received(join, w.now, &out)
	if len(out.Warnings)+len(out.Messages) != 0 {
		t.Fatalf("it might have lost its disk just now, and the leader says %s", showOut(&out))
	}
	w.pass(200 * time.Millisecond) // the member is heard
	out = Out{}
	l.q.Received(join, w.now, &out)
	if len(out.Warnings) != 1 || out.Warnings[0] != (Warning{3, warnTwin}) || len(out.Messages) != 1 || out.Messages[0].word.kind != refuseWord {
		t.Fatalf("it says %s", showOut(&out))
	}
	refused := out.Messages[0]
	w.until("nobody saves anything", func() bool { return w.nodes[3].save == nil })
	out = Out{}
	w.nodes[3].q.Received(refused, w.now, &out)
	if len(out.Warnings) != 1 || out.Warnings[0] != (Warning{3, warnTwinOther}) {
		t.Fatalf("the other says %s", showOut(&out))
	}
	out = Out{}
	l.q.Received(join, w.now, &out)
	if len(out.Warnings) != 0 || len(out.Messages) != 1 {
		t.Fatalf("the second time it says %s", showOut(&out))
	}
	w.nodes[3].q = nil // its machine is replaced
	w.pass(1100 * time.Millisecond)
	w.call(w.leader(), func(q *Quorum, out *Out) { q.Received(join, w.now, out) })
	w.until("the new one is a member", func() bool {
		return slices.Contains(w.leader().q.Members(), Member{3, 77, false})
	})
}

// A controller that is alone is joined by others, and then by more controllers.
func TestControllersAreAddedByConfiguration(t *testing.T) {
	w := newWorld(t, 2, plan{voters: 1, others: 2, reliable: true, idle: true}, io.Discard)
	w.settle0()
	w.commit("alone")
	for id := range NodeID(3) {
		a := w.nodes[id]
		a.q, a.save = nil, nil
		a.voters = []NodeID{0, 1, 2}
		w.start(a)
	}
	w.plan.voters = 3
	w.settle0()
	w.commit("together")
	w.nodes[0].cut = true
	w.until("another leads", func() bool { l := w.leader(); return l != nil && l.id != 0 })
	w.commit("without the first")
}

func TestRemovedVoterStaysRemoved(t *testing.T) {
	w := calmWorld(t, plan{voters: 4})
	l := w.leader()
	gone := w.others(l)[2]
	var out Out
	if _, err := l.q.AddVoter(gone.id, &out); !errors.Is(err, ErrVotes) {
		t.Fatalf("add a voter: %v", err)
	}
	if _, err := gone.q.RemoveVoter(gone.id, &out); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("asked of a follower: %v", err)
	}
	w.change(func(q *Quorum, out *Out) (Ticket, error) { return q.RemoveVoter(gone.id, out) })
	if w.votes(l, gone.id) {
		t.Fatal("the ticket came back, and it votes")
	}
	if _, err := l.q.RemoveVoter(gone.id, &out); !errors.Is(err, ErrNoVoter) {
		t.Fatalf("remove it again: %v", err)
	}
	for _, a := range w.nodes {
		w.crash(a)
	}
	w.pass(20 * time.Second)
	w.settle0()
	l = w.leader()
	if w.votes(l, gone.id) {
		t.Fatal("it votes again, and nobody asked for it")
	}
	w.commit("and it follows")
	w.until("it has that", func() bool { return slices.Contains(gone.state, "and it follows") })
	w.change(func(q *Quorum, out *Out) (Ticket, error) { return q.AddVoter(gone.id, out) })
	w.until("it votes", func() bool { return w.votes(w.leader(), gone.id) })
	w.change(func(q *Quorum, out *Out) (Ticket, error) { return q.RemoveVoter(gone.id, out) })
	gone.q = nil
	w.change(func(q *Quorum, out *Out) (Ticket, error) { return q.Forget(gone.id, out) })
	if m := w.leader().q.Members(); len(m) != 3 {
		t.Fatalf("it is forgotten, and the members are %v", m)
	}
	if _, err := w.leader().q.Forget(gone.id, &out); !errors.Is(err, ErrNoMember) {
		t.Fatalf("forget it again: %v", err)
	}
	if _, err := w.leader().q.AddVoter(gone.id, &out); !errors.Is(err, ErrNoMember) {
		t.Fatalf("add who is no member: %v", err)
	}
}

// change has the leader change the members, and waits for the ticket.
func (w *world) change(do func(q *Quorum, out *Out) (Ticket, error)) {
	w.t.Helper()
	l := w.leader()
	var mine Ticket
	w.call(l, func(q *Quorum, out *Out) {
		var err error
		if mine, err = do(q, out); err != nil {
			w.t.Fatal(err)
		}
		l.proposals[mine] = ""
		if _, err := q.AddVoter(99, out); !errors.Is(err, ErrNoMember) {
			w.t.Fatalf("a node that does not exist: %v", err)
		}
	})
	w.until("the ticket comes back", func() bool { _, waits := l.proposals[mine]; return !waits })
}

func TestOneChangeAtATime(t *testing.T) {
	w := calmWorld(t, plan{voters: 4, others: 1})
	l := w.leader()
	w.call(l, func(q *Quorum, out *Out) {
		first, err := q.RemoveVoter(w.others(l)[0].id, out)
		if err != nil {
			t.Fatal(err)
		}
		l.proposals[first] = ""
		if _, err := q.RemoveVoter(w.others(l)[1].id, out); !errors.Is(err, ErrChanging) {
			t.Fatalf("the second at once: %v", err)
		}
	})
}

func TestVotersThatAreNeededStay(t *testing.T) {
	w := calmWorld(t, plan{voters: 3})
	l := w.leader()
	dead, alive := w.others(l)[0], w.others(l)[1]
	dead.q = nil
	w.pass(1100 * time.Millisecond)
	var out Out
	if _, err := l.q.RemoveVoter(alive.id, &out); !errors.Is(err, ErrTooFew) {
		t.Fatalf("with one dead of three: %v", err)
	}
	w.change(func(q *Quorum, out *Out) (Ticket, error) { return q.RemoveVoter(dead.id, out) })
	w.change(func(q *Quorum, out *Out) (Ticket, error) { return q.RemoveVoter(alive.id, out) })
	if !l.q.Lone() {
		t.Fatalf("it is not the only voter:\n%s", w.show())
	}
	if _, err := l.q.RemoveVoter(l.id, &out); !errors.Is(err, ErrTooFew) {
		t.Fatalf("the last: %v", err)
	}
	w.commit("alone")
}

func TestLeaderThatIsRemovedHandsOver(t *testing.T) {
	w := calmWorld(t, plan{voters: 3})
	l := w.leader()
	at := w.now
	w.change(func(q *Quorum, out *Out) (Ticket, error) { return q.RemoveVoter(l.id, out) })
	w.until("another leads, and the old one does not vote", func() bool {
		n := w.leader()
		return n != nil && n != l && !w.votes(n, l.id)
	})
	if d := w.now.Sub(at); d > 200*time.Millisecond {
		t.Fatalf("that took %v", d)
	}
	w.commit("after it")
	w.until("it follows", func() bool { return slices.Contains(l.state, "after it") })
}

func TestResignedLeaderIsReplacedAtOnce(t *testing.T) {
	w := calmWorld(t, plan{voters: 3})
	l := w.leader()
	at := w.now
	w.call(l, func(q *Quorum, out *Out) { q.Resign(w.now, out) })
	w.until("another leads", func() bool { n := w.leader(); return n != nil && n != l })
	if d := w.now.Sub(at); d > 100*time.Millisecond {
		t.Fatalf("that took %v", d)
	}
}

func TestLearnersAreNotCounted(t *testing.T) {
	w := calmWorld(t, plan{voters: 3, others: 4})
	l := w.leader()
	for _, a := range w.others(l) {
		a.cut = true
	}
	w.call(l, func(q *Quorum, out *Out) {
		ticket, err := q.Propose([]byte("by learners"), out)
		if err != nil {
			t.Fatal(err)
		}
		l.proposals[ticket] = "by learners"
	})
	w.pass(5 * time.Second)
	if len(w.promise) > 0 || w.leader() != nil {
		t.Fatalf("one voter and four learners agreed on something, or think that they can:\n%s", w.show())
	}
	if missing := l.q.Missing(w.now); len(missing) != 2 || missing[0].Node == l.id || missing[1].Node == l.id {
		t.Fatalf("missing are %v", missing)
	}
}

// stuck keeps what fills a node's log from it.
func stuck(id NodeID) func(Message) bool {
	return func(m Message) bool {
		return m.To != id || m.body == nil || m.body.GetType() != raftpb.MsgApp && m.body.GetType() != raftpb.MsgSnap
	}
}

// A voter gives way to its new disk only when that has all, and a learner is
// promoted only then.
func TestNobodyVotesWhoHasNotCaughtUp(t *testing.T) {
	w := calmWorld(t, plan{voters: 3})
	l := w.leader()
	a := w.others(l)[0]
	old := a.q.Incarnation()
	a.q, a.save, a.disk, a.past = nil, nil, nil, past{}
	w.saying = stuck(a.id)
	w.start(a)
	w.pass(10 * time.Second)
	want := []Member{{a.id, old, true}, {a.id, a.q.Incarnation(), false}}
	if got := w.leader().q.Members(); len(got) != 4 || !slices.Contains(got, want[0]) || !slices.Contains(got, want[1]) {
		t.Fatalf("members are %v, want %v among them", got, want)
	}
	w.saying = func(m Message) bool { // the old one is not dead after all
		if m.From == a.id && m.body != nil && m.body.GetTo() == w.leader().q.id {
			twin := from(a, w.leader(), &raftpb.Message{Type: raftpb.MsgHeartbeatResp.Enum()})
			id := raftID(a.id, old)
			twin.body.From = &id
			w.send(twin)
		}
		return true
	}
	w.pass(5 * time.Second)
	if got := w.leader().q.Members(); len(got) != 4 || !slices.Contains(got, want[0]) || !slices.Contains(got, want[1]) {
		t.Fatalf("two answer by one name, and members are %v, want %v among them", got, want)
	}
	w.saying = nil
	w.settle0()

	w.change(func(q *Quorum, out *Out) (Ticket, error) { return q.RemoveVoter(a.id, out) })
	w.saying = stuck(a.id)
	for range caughtUpEntries + 1 {
		w.commit("x")
		w.promise = nil
	}
	w.change(func(q *Quorum, out *Out) (Ticket, error) { return q.AddVoter(a.id, out) })
	w.pass(5 * time.Second)
	if w.votes(w.leader(), a.id) {
		t.Fatal("it votes, and has nothing")
	}
	w.saying = nil
	w.settle0()
}

// The new disk of a voter was let in because the old was silent; if the old
// comes back it goes on voting.
func TestOldDiskThatComesBackVotes(t *testing.T) {
	w := calmWorld(t, plan{voters: 3})
	l := w.leader()
	a := w.others(l)[0]
	old := *a
	oldID := a.q.id
	a.q, a.save, a.disk, a.past = nil, nil, nil, past{}
	w.saying = stuck(a.id)
	w.start(a)
	w.until("it is a learner", func() bool { return len(w.leader().q.Members()) == 4 })
	newID := a.q.id
	a.run++ // it stops, and the old one runs again
	run := a.run
	*a = old
	a.run, a.wakeAt = run, clock.Never
	a.q = nil
	w.saying = nil
	w.start(a)
	w.pass(10 * time.Second)
	if got := w.leader().q.Members(); len(got) != 3 || !slices.Contains(got, Member{a.id, incarnationOf(oldID), true}) {
		t.Fatalf("it is not as it was, without %s:\n%s", showID(newID), w.show())
	}
}

// A voter that is not configured as one, any more, is one also after it lost its
// disk: only an operator removes voters.
func TestVoterWithANewDiskVotesThoughNotConfigured(t *testing.T) {
	w := calmWorld(t, plan{voters: 3})
	for _, a := range w.nodes {
		a.q, a.save = nil, nil
		a.voters = []NodeID{0, 1}
		if a.id == 2 {
			a.disk, a.past = nil, past{}
		}
		w.start(a)
	}
	w.settle0()
}

// A join that was passed on is not passed on again.
func TestJoinsArePassedOnOnce(t *testing.T) {
	w := calmWorld(t, plan{voters: 3})
	l := w.leader()
	a, b := w.others(l)[0], w.others(l)[1]
	w.until("nobody saves anything", func() bool { return a.save == nil && b.save == nil })
	join := &word{kind: joinWord, id: raftID(7, 7), address: "x"}
	for _, c := range []struct {
		from NodeID
		to   []NodeID
	}{{7, []NodeID{l.id}}, {b.id, nil}} {
		var out Out
		a.q.Received(Message{From: c.from, To: a.id, word: join}, w.now, &out)
		var to []NodeID
		for _, m := range out.Messages {
			to = append(to, m.To)
		}
		if !slices.Equal(to, c.to) || (len(out.Joining) > 0) != (to != nil) {
			t.Fatalf("a join from %d goes to %v, want %v: %s", c.from, to, c.to, showOut(&out))
		}
	}
}

// A change that was lost with the lead does not stand in the way of others.
func TestLostChangeIsForgotten(t *testing.T) {
	w := calmWorld(t, plan{voters: 4})
	l := w.leader()
	gone := w.others(l)[0]
	l.cut = true
	var ticket Ticket
	w.call(l, func(q *Quorum, out *Out) {
		var err error
		if ticket, err = q.RemoveVoter(gone.id, out); err != nil {
			t.Fatal(err)
		}
		l.proposals[ticket] = "removed"
	})
	w.until("another leads", func() bool { n := w.leader(); return n != nil && n != l })
	l.cut = false
	w.commit("x")
	w.until("the ticket is lost", func() bool { return w.lost["removed"] })
	if !w.votes(w.leader(), gone.id) {
		t.Fatal("it was lost, and made")
	}
	w.until("the first leads again", func() bool {
		if n := w.leader(); n != nil && n != l {
			w.call(n, func(q *Quorum, out *Out) {
				q.node.TransferLeader(l.q.id)
				q.run(out)
			})
		}
		return w.leader() == l
	})
	w.change(func(q *Quorum, out *Out) (Ticket, error) { return q.RemoveVoter(gone.id, out) })
}
