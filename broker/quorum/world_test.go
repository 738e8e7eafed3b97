package quorum

import (
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/pawlbroker/pawl/broker/clock"
)

// A world is some nodes, their disks and a network that loses, doubles and
// reorders messages. Everything that happens is drawn from one seed.
type world struct {
	t      testing.TB
	rng    *rand.Rand
	trace  io.Writer // of all that came out
	plan   plan
	nodes  []*actor // by id
	queue  events
	seq    uint64
	saying func(Message) bool // told every message, and whether it is sent; or nil
	now    clock.Instant
	calm   bool // no more faults

	leaders  map[Term]NodeID
	reigning map[uint64]bool // quorums that had a leader
	founded  map[uint64]bool // quorums that somebody belonged to
	chosen   map[Index]string
	top      Index    // the highest that was handed out, by anyone
	promise  []string // data whose ticket came back
	lost     map[string]bool
	made     int
	warnings map[string]int

	crashes, wipes, reigns, restores, reads, moves int
}

// plan is what a world has and what befalls it.
type plan struct {
	voters, others     int
	wipes, ops, cramps bool // lost disks; operators who add and remove voters; slow disks and networks
	reliable           bool // no message is lost, and nothing crashes
	idle               bool // no client does anything
	storm              bool // much goes wrong at once, and some nodes lose their disks again and again
}

// actor is one node.
type actor struct {
	id        NodeID
	q         *Quorum // nil while it is down
	run       int     // which process it is
	disk      [][]byte
	past      past // what the disk comes to
	save      *Save
	state     []string
	at        []Index // of each in state, or of the snapshot that it was in
	proposals map[Ticket]string
	reads     map[Ticket]Index // what was committed when it was asked for
	lastRead  Ticket
	cut       bool
	voters    []NodeID // that it is configured with, unless nil
	wakeAt    clock.Instant
}

type event struct {
	at  clock.Instant
	seq uint64
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func newWorld(t testing.TB, seed uint64, p plan, trace io.Writer) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), trace: trace, plan: p, calm: p.reliable,
		leaders: map[Term]NodeID{}, reigning: map[uint64]bool{}, founded: map[uint64]bool{}, chosen: map[Index]string{}, lost: map[string]bool{}, warnings: map[string]int{}}
	for id := range NodeID(p.voters + p.others) {
		a := &actor{id: id}
		w.nodes = append(w.nodes, a)
		w.after(w.upTo(200*time.Millisecond), func() { w.start(a) })
	}
	if p.storm {
		order := w.rng.Perm(p.voters)
		if w.chance(50) { // the founder
			i := slices.Index(order, 0)
			order[0], order[i] = 0, order[0]
		}
		w.after(0, func() { w.rage(order) })
	} else {
		w.after(w.upTo(time.Second), w.mischief)
	}
	if !p.idle {
		w.after(w.upTo(time.Second), w.work)
	}
	return w
}

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now.Add(d), w.seq, do})
}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); ; {
		if len(w.queue) == 0 || w.queue[0].at > end {
			w.now = end
			return
		}
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
		if w.t.Failed() {
			w.t.FailNow()
		}
	}
}

func (w *world) voters() []NodeID {
	var ids []NodeID
	for id := range NodeID(w.plan.voters) {
		ids = append(ids, id)
	}
	return ids
}

func (w *world) start(a *actor) {
	if a.q != nil {
		return
	}
	a.run++
	a.at = nil
	a.save, a.state, a.proposals, a.reads, a.wakeAt = nil, nil, map[Ticket]string{}, map[Ticket]Index{}, clock.Never
	cfg := DefaultConfig(a.id)
	if cfg.Voters = w.voters(); a.voters != nil {
		cfg.Voters = a.voters
	}
	cfg.Address = fmt.Sprintf("host%d", a.id)
	var out Out
	q, err := New(cfg, rand.New(rand.NewPCG(w.rng.Uint64(), uint64(a.id))), a.disk, &out)
	if err != nil {
		for _, r := range a.disk {
			w.t.Log(showRecord(r))
		}
		w.t.Fatalf("node %d: %v", a.id, err)
	}
	a.q = q
	w.act(a, &out)
}

// call does something with a node that is up.
func (w *world) call(a *actor, do func(q *Quorum, out *Out)) {
	if a.q == nil {
		return
	}
	var out Out
	do(a.q, &out)
	w.act(a, &out)
}

func (w *world) act(a *actor, out *Out) {
	w.note(a, out)
	if out.Save != nil {
		w.write(a, out.Save)
	}
	if out.Restore != nil {
		w.restores++
		a.state, a.at = nil, nil
		if err := json.Unmarshal(out.Restore.Data, &a.state); err != nil {
			w.t.Fatal(err)
		}
		for range a.state {
			a.at = append(a.at, out.Restore.Index)
		}
	}
	for _, e := range out.Committed {
		w.committed(a, e)
	}
	for _, ticket := range out.Lost {
		w.lost[a.proposals[ticket]] = true
		delete(a.proposals, ticket)
	}
	for _, ticket := range out.Unknown {
		delete(a.proposals, ticket)
	}
	for _, r := range out.Reads {
		floor, ok := a.reads[r.Ticket]
		if !ok || r.Index < floor {
			w.t.Errorf("node %d: read %d at %d, but %d was committed when it was asked for (%t)", a.id, r.Ticket, r.Index, floor, ok)
		}
		delete(a.reads, r.Ticket)
		w.reads++
	}
	for _, ticket := range out.LostReads {
		if _, ok := a.reads[ticket]; !ok {
			w.t.Errorf("node %d: read %d is lost, and was not asked for", a.id, ticket)
		}
		delete(a.reads, ticket)
	}
	for _, m := range out.Messages {
		w.mayBeSaid(a, m)
		if w.saying == nil || w.saying(m) {
			w.send(m)
		}
	}
	if out.Leader != nil && out.Leader.Node == a.id {
		w.elected(a, out.Leader.Term)
	}
	if out.Members != nil {
		w.moves++
		w.founded[a.q.members.quorum] = true
	}
	for _, warning := range out.Warnings {
		w.warnings[warning.Text]++
	}
	w.rewake(a)
}

// note writes down what came out, for comparing.
func (w *world) note(a *actor, out *Out) {
	fmt.Fprintln(w.trace, w.now, a.id, out.Committed, out.Lost, out.Unknown, out.Reads, out.LostReads, out.Leader == nil, out.Members, out.Joining, out.Warnings)
	if out.Save != nil {
		for _, r := range out.Save.Records {
			w.trace.Write(r)
		}
	}
	for _, m := range out.Messages {
		w.trace.Write(m.Marshal())
	}
}

func (w *world) committed(a *actor, e Entry) {
	what := fmt.Sprintf("%d %s", e.Term, e.Data)
	if before, ok := w.chosen[e.Index]; ok && before != what {
		w.t.Errorf("index %d: %q, and %q", e.Index, before, what)
	}
	w.chosen[e.Index] = what
	w.top = max(w.top, e.Index)
	if len(e.Data) > 0 {
		a.state, a.at = append(a.state, string(e.Data)), append(a.at, e.Index)
	}
	if e.Ticket == 0 {
		return
	}
	data, ok := a.proposals[e.Ticket]
	if !ok || data != string(e.Data) {
		w.t.Errorf("ticket %d of node %d came back with %q, not %q", e.Ticket, a.id, e.Data, data)
	}
	delete(a.proposals, e.Ticket)
	if data != "" {
		w.promise = append(w.promise, data)
	}
}

func (w *world) elected(a *actor, term Term) {
	if other, ok := w.leaders[term]; ok && other != a.id {
		w.t.Errorf("term %d has two leaders: %d and %d", term, other, a.id)
	}
	w.leaders[term] = a.id
	w.reigns++
	w.reigning[a.q.members.quorum] = true
	if len(w.reigning) > 1 {
		w.t.Errorf("node %d leads a second quorum", a.id)
	}
	for _, data := range w.promise {
		if !slices.Contains(a.state, data) {
			w.t.Errorf("node %d leads term %d without %q, which was promised", a.id, term, data)
		}
	}
}

// rewake has the node woken when it wants to be.
func (w *world) rewake(a *actor) {
	at := a.q.NextWake()
	if at == clock.Never || at >= a.wakeAt && a.wakeAt > w.now {
		return
	}
	a.wakeAt = at
	run := a.run
	w.after(max(0, at.Sub(w.now)), func() {
		if a.run != run || a.q == nil || a.wakeAt > w.now {
			return
		}
		a.wakeAt = clock.Never
		w.call(a, func(q *Quorum, out *Out) { q.Woken(w.now, out) })
	})
}

// write makes a save durable, some time later.
func (w *world) write(a *actor, s *Save) {
	if a.save != nil && a.save != s {
		w.t.Errorf("node %d wants two saves at once", a.id)
	}
	a.save = s
	run, delay := a.run, w.upTo(10*time.Millisecond)
	if w.plan.cramps && !w.calm && w.chance(2) {
		delay = w.upTo(3 * time.Second)
	}
	w.after(delay, func() {
		if a.run != run || a.q == nil {
			return
		}
		if !w.calm && w.chance(2) {
			a.q.SaveFailed(w.now)
			w.rewake(a)
			return
		}
		a.put(len(s.Records))
		w.call(a, func(q *Quorum, out *Out) { q.Saved(out) })
	})
}

// put leaves the first n records of the save on disk.
func (a *actor) put(n int) {
	s := a.save
	a.save = nil
	if s.Replace && n < len(s.Records) {
		return
	}
	if s.Replace {
		a.disk, a.past = nil, past{}
	}
	for _, r := range s.Records[:n] {
		if err := a.past.add(r, len(a.disk)); err != nil {
			panic(fmt.Sprintf("node %d saves %s: %v", a.id, showRecord(r), err))
		}
		a.disk = append(a.disk, r)
	}
}

func (w *world) send(m Message) {
	b := m.Marshal()
	for copies := 1; copies > 0; copies-- {
		delay := w.upTo(5 * time.Millisecond)
		if !w.calm {
			switch {
			case w.plan.storm && w.chance(45):
				continue
			case w.plan.storm && w.chance(20):
				delay = w.upTo(4 * time.Second)
			case w.chance(4):
				continue
			case w.chance(4):
				copies++
			case w.chance(4):
				delay = w.upTo(200 * time.Millisecond)
			case w.plan.cramps && w.chance(2):
				delay = w.upTo(20 * time.Second)
			}
		}
		w.after(delay, func() { w.deliver(b) })
	}
}

func (w *world) deliver(b []byte) {
	m, err := UnmarshalMessage(b)
	if err != nil {
		w.t.Fatal(err)
	}
	from, to := w.nodes[m.From], w.nodes[m.To]
	if from.cut || to.cut || to.q == nil {
		return
	}
	w.call(to, func(q *Quorum, out *Out) { q.Received(m, w.now, out) })
}

// mayBeSaid checks that what a message promises is on its sender's disk.
func (w *world) mayBeSaid(a *actor, m Message) {
	past := a.past
	if past.id != a.q.id {
		w.t.Errorf("node %d says %v, and on disk it is %x", a.id, m, past.id)
	}
	if m.quorum != past.snapshot.members.quorum && (m.word == nil || m.word.kind != joinWord) {
		w.t.Errorf("node %d says %v of quorum %x, and has %x on disk", a.id, m, m.quorum, past.snapshot.members.quorum)
	}
	if m.body == nil {
		return
	}
	last, _ := past.last()
	term, hard := m.body.GetTerm(), past.hard
	ok := true
	switch m.body.GetType() {
	case raftpb.MsgVote:
		ok = hard.term > term || hard.term == term && hard.vote == a.q.id
	case raftpb.MsgVoteResp:
		ok = m.body.GetReject() || hard.term > term || hard.term == term && hard.vote == m.body.GetTo()
	case raftpb.MsgAppResp:
		ok = m.body.GetReject() || hard.term > term || last >= m.body.GetIndex() && hard.term >= term
	case raftpb.MsgApp:
		ok = hard.term > term || last >= m.body.GetIndex()+uint64(len(m.body.GetEntries())) // one that no longer leads may say what it did not keep
	}
	if !ok {
		w.t.Errorf("node %d says %v, and has %+v and entries up to %d on disk", a.id, m, hard, last)
	}
}

func (w *world) any() *actor { return w.nodes[w.rng.IntN(len(w.nodes))] }

// work is what clients and operators do.
func (w *world) work() {
	a := w.any()
	if l := w.leader(); l != nil && w.chance(50) {
		a = l
	}
	switch k := w.rng.IntN(100); {
	case k < 60:
		w.propose(a)
	case k < 90:
		w.read(a)
	case k < 94 && a.q != nil && a.q.Applied() > 1:
		w.compact(a)
	case k < 96 && w.plan.ops && !w.calm:
		w.operate()
	}
	w.after(w.upTo(100*time.Millisecond), w.work)
}

// compact gives up some or all of a node's log.
func (w *world) compact(a *actor) {
	upTo := a.q.Applied() - min(a.q.Applied(), Index(w.rng.IntN(30)))
	n, _ := slices.BinarySearch(a.at, upTo+1)
	data, err := json.Marshal(a.state[:n])
	if err != nil {
		w.t.Fatal(err)
	}
	w.call(a, func(q *Quorum, out *Out) { q.Compact(upTo, data, out) })
}

func (w *world) propose(a *actor) {
	w.call(a, func(q *Quorum, out *Out) {
		data := fmt.Sprintf("p%d", w.made)
		if ticket, err := q.Propose([]byte(data), out); err == nil {
			w.made++
			a.proposals[ticket] = data
		} else if !errors.Is(err, ErrNotLeader) {
			w.t.Fatal(err)
		}
	})
}

func (w *world) read(a *actor) {
	w.call(a, func(q *Quorum, out *Out) {
		a.lastRead++
		a.reads[a.lastRead] = w.top
		if err := q.ReadIndex(a.lastRead, out); err != nil {
			delete(a.reads, a.lastRead)
		}
	})
}

// leader is who leads, or nil.
func (w *world) leader() *actor {
	var leads *actor
	for _, a := range w.nodes {
		if a.q != nil && a.q.Leading() && (leads == nil || a.q.Leader().Term > leads.q.Leader().Term) {
			leads = a
		}
	}
	return leads
}

// operate adds a voter or removes one. At least three are left of three and more.
func (w *world) operate() {
	l, a := w.leader(), w.any()
	if l == nil {
		return
	}
	w.call(l, func(q *Quorum, out *Out) {
		var ticket Ticket
		var err error
		if m, ok := q.members.newest(a.id); ok && m.voter {
			if len(q.members.ids(true)) <= 3 {
				return
			}
			ticket, err = q.RemoveVoter(a.id, out)
		} else {
			ticket, err = q.AddVoter(a.id, out)
		}
		if err == nil {
			l.proposals[ticket] = ""
		} else if !errors.Is(err, ErrChanging) && !errors.Is(err, ErrTooFew) && !errors.Is(err, ErrNoMember) {
			w.t.Errorf("node %d: %v", a.id, err)
		}
	})
}

// mischief is what goes wrong.
func (w *world) mischief() {
	if w.calm {
		return
	}
	switch a := w.any(); w.rng.IntN(10) {
	case 0, 1, 2, 3:
		w.crash(a)
	case 4, 5:
		a.cut = true
		w.after(w.upTo(5*time.Second), func() { a.cut = false })
	case 6:
		w.suspect(a, 50*time.Millisecond)
	case 9:
		if l := w.leader(); l != nil {
			w.call(l, func(q *Quorum, out *Out) { q.Resign(w.now, out) })
		}
	case 7, 8:
		if w.plan.wipes && w.spare(a) {
			w.wipes++
			w.crash(a)
			a.disk, a.past = nil, past{}
		}
	}
	w.after(w.upTo(4*time.Second), w.mischief)
}

// rage is what goes wrong in a storm: also that any of the first few of a shuffle
// of the voters, less than half, loses its disk at any moment.
func (w *world) rage(order []int) {
	if w.calm {
		return
	}
	a := w.any()
	wipe := false
	for _, i := range order[:(len(order)-1)/2] {
		wipe = wipe || w.nodes[i] == a && w.chance(40)
	}
	w.crash(a)
	if wipe && a.q == nil {
		w.wipes++
		a.disk, a.past = nil, past{}
	}
	w.after(w.upTo(200*time.Millisecond), func() { w.rage(order) })
}

// crash ends a process in the middle of what it writes.
func (w *world) crash(a *actor) {
	if a.q == nil {
		return
	}
	w.crashes++
	if a.save != nil {
		a.put(w.rng.IntN(len(a.save.Records) + 1))
	}
	a.q = nil
	if w.chance(60) {
		w.suspect(a, 50*time.Millisecond)
	}
	down := 3 * time.Second
	if w.plan.storm {
		down = 500 * time.Millisecond
	}
	w.after(w.upTo(down), func() { w.start(a) })
}

// suspect tells the others, sooner or later, that a process is dead.
func (w *world) suspect(a *actor, spread time.Duration) {
	for _, b := range w.nodes {
		if b != a {
			w.after(w.upTo(spread), func() {
				w.call(b, func(q *Quorum, out *Out) { q.Suspect(a.id, w.now, out) })
			})
		}
	}
}

// spare reports whether a node can lose its disk, and the quorum go on without
// losing anything: every voter has the disk that it is counted for, and there are
// enough of them, whatever of the latest changes comes to be.
func (w *world) spare(a *actor) bool {
	l := w.leader()
	if l == nil || l == a || l.q.changing || l.q.Applied() < w.top {
		return false
	}
	for _, id := range l.q.members.ids(true) {
		if n := w.nodes[nodeOf(id)]; n.q == nil || n.q.id != id {
			return false
		}
	}
	for _, b := range w.nodes { // nobody is somewhere else
		if b.q == nil || b.q.founded() && !sameMembers(b.q.members, l.q.members) {
			return false
		}
	}
	return len(l.q.members.ids(true)) >= 3
}

// settle ends all faults and waits until the quorum is as it should be, and a
// new proposal is everywhere.
func (w *world) settle() {
	w.calm = true
	for _, a := range w.nodes {
		a.cut = false
		w.start(a)
	}
	w.pass(5 * time.Second) // what is slow ends
	var wrong string
	for range 60 {
		w.pass(time.Second)
		if wrong = w.wrong(); wrong == "" {
			break
		}
	}
	if wrong != "" {
		w.t.Fatalf("a minute after the last fault %s:\n%s", wrong, w.show())
	}
	made := len(w.promise)
	w.pass(2 * time.Second)
	if len(w.promise) == made {
		w.t.Fatalf("nothing is agreed on any more:\n%s", w.show())
	}
	w.verify(w.leader())
}

// wrong is what is not as it should be in the end.
func (w *world) wrong() string {
	l := w.leader()
	if l == nil {
		return "nobody leads"
	}
	var want []Member
	for _, a := range w.nodes {
		if a.q == nil {
			return fmt.Sprintf("node %d is down", a.id)
		}
		vote, wished := l.q.members.wished(a.id)
		if !wished {
			vote = int(a.id) < w.plan.voters
		}
		want = append(want, Member{a.id, a.q.Incarnation(), vote})
	}
	if got := l.q.Members(); !slices.Equal(got, want) {
		return fmt.Sprintf("the members are %v, not %v", got, want)
	}
	for _, a := range w.nodes {
		if a.q.Applied()+5 < w.top {
			return fmt.Sprintf("node %d is behind", a.id)
		}
	}
	return ""
}

// verify compares what everybody has.
func (w *world) verify(l *actor) {
	for _, data := range w.promise {
		if !slices.Contains(l.state, data) {
			w.t.Fatalf("%q was promised and is gone", data)
		}
	}
	for _, data := range l.state {
		if w.lost[data] {
			w.t.Fatalf("%q was lost and is there", data)
		}
	}
	for _, a := range w.nodes {
		n := min(len(a.state), len(l.state))
		if !slices.Equal(a.state[:n], l.state[:n]) || len(l.state)-n > 20 {
			w.t.Fatalf("node %d has %d of %d:\n%s", a.id, n, len(l.state), w.show())
		}
		if !sameMembers(a.q.members, l.q.members) {
			w.t.Fatalf("node %d has other members:\n%s", a.id, w.show())
		}
		if len(a.reads) > 5 || len(a.proposals) > 20 {
			w.t.Fatalf("node %d: %d reads and %d proposals never came back", a.id, len(a.reads), len(a.proposals))
		}
	}
}

func (w *world) show() string {
	var b strings.Builder
	for _, a := range w.nodes {
		if a.q == nil {
			fmt.Fprintf(&b, "node %d is down\n", a.id)
			continue
		}
		st := a.q.node.BasicStatus()
		fmt.Fprintf(&b, "node %d: id=%s %v term=%d lead=%s applied=%d last=%d saving=%t cut=%t %v\n", a.id, showID(a.q.id),
			st.RaftState, st.GetTerm(), showID(st.Lead), a.q.applied, a.q.last(), a.q.saving != nil, a.cut, a.q.members)
	}
	return b.String()
}

// TestWorlds runs many seeds, which must hold what was promised, and the first
// twice: it must be the same again.
func TestWorlds(t *testing.T) {
	for _, c := range []struct {
		name string
		plan plan
	}{
		{"three voters", plan{voters: 3}},
		{"five voters", plan{voters: 5}},
		{"lost disks", plan{voters: 3, others: 1, wipes: true}},
		{"lost disks of five", plan{voters: 5, wipes: true}},
		{"learners", plan{voters: 3, others: 3, cramps: true}},
		{"one voter and learners", plan{voters: 1, others: 2}},
		{"operators", plan{voters: 3, others: 3, ops: true}},
		{"everything", plan{voters: 4, others: 2, ops: true, wipes: true, cramps: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seeds := uint64(10)
			if testing.Short() {
				seeds = 4
			}
			var sum world
			for seed := range seeds {
				var sums [2]uint64
				for i := range sums {
					if seed > 1 && i > 0 {
						sums[1] = sums[0]
						break
					}
					h := fnv.New64a()
					w := newWorld(t, seed, c.plan, h)
					t.Logf("seed %d", seed)
					w.pass(60 * time.Second)
					w.settle()
					sums[i] = h.Sum64()
					sum.crashes, sum.wipes, sum.reigns, sum.restores = sum.crashes+w.crashes, sum.wipes+w.wipes, sum.reigns+w.reigns, sum.restores+w.restores
					sum.reads, sum.moves, sum.made = sum.reads+w.reads, sum.moves+w.moves, sum.made+len(w.promise)
				}
				if sums[0] != sums[1] {
					t.Fatalf("seed %d: two runs differ", seed)
				}
			}
			t.Logf("%d crashes, %d lost disks, %d reigns, %d promises, %d reads, %d snapshots restored, %d memberships",
				sum.crashes, sum.wipes, sum.reigns, sum.made, sum.reads, sum.restores, sum.moves)
			if sum.crashes == 0 || sum.reigns == 0 || sum.made == 0 || sum.reads == 0 {
				t.Fatal("the seeds do not try everything")
			}
		})
	}
}
