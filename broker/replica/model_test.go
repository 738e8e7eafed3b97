package replica

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/record"
)

// Three replicas of one partition, a controller that does what the real one is
// to do, and a network that loses, delays and reorders. Replicas are deciders
// with disks in memory; a crash loses what was not on the disk, though it was in
// the page cache and followers may have it. Batches have one
// record, and a number that no other has.
//
// What must hold, after every step:
//
//   - what was acknowledged is on the disks of all that the controller may elect,
//     but for those that know that theirs are damaged, and refuse;
//   - an offset that was committed once has one record for ever, on every replica
//     whose high watermark is above it;
//   - a leader that may answer consumers has committed all that was acknowledged;
//   - there is one leader in an epoch.
//
// And in the end, when faults stop, all replicas are in sync and have the same
// log, all of it committed.

// site is a node: its disk, what is on the way to it, and its process.
type site struct {
	node  Node
	disk  []record.Batch
	jobs  []task        // of the process
	cache int           // how many of jobs, the first ones, are in the page cache
	tells int           // how many of those the process has not heard of
	done  []task        // whose results it has not seen
	r     *Replica      // nil: no process
	saved record.Offset // high watermark in a checkpoint
	rot   bool          // the log is damaged, and the process knows
	known int           // how many metadata states the process has applied
	lease clock.Instant
}

// task is a job. One of appends, cut and reset is meant.
type task struct {
	batches []record.Batch
	early   bool // the process wants to know when it is in the page cache
	cut     bool
	end     record.Offset
	refused bool
}

// log is what of a site's log can be read.
func (s *site) log() []record.Batch {
	log := slices.Clone(s.disk)
	for _, j := range s.jobs[:s.cache] {
		log = append(log, j.batches...)
	}
	return log
}

// state is the partition in the metadata, and the brokers.
type state struct {
	leader  metadata.NodeID
	epoch   record.LeaderEpoch
	version metadata.PartitionEpoch
	isr     []metadata.NodeID
	elr     []metadata.NodeID
	brokers []Broker
}

// packet is a message that is on its way.
type packet struct {
	to   metadata.NodeID // 0: the controller
	from metadata.NodeID
	what any
}

type (
	ask struct { // a fetch
		epoch  record.LeaderEpoch
		offset record.Offset
		last   record.LeaderEpoch
	}
	answer struct {
		ask
		batches       []record.Batch
		highWatermark record.Offset
		diverges      bool
		at            Divergence
	}
	lost struct { // a damaged follower's fetch
		epoch   record.LeaderEpoch
		process metadata.BrokerEpoch
	}
	over    struct{ epoch record.LeaderEpoch } // its leader says that it may give up its log
	decided struct {
		Proposal
		Decision
		epoch metadata.PartitionEpoch
	}
)

type world struct {
	t         *rapid.T
	min       int
	now       clock.Instant
	sites     map[metadata.NodeID]*site
	history   []state // of the metadata; the last is the controller's
	net       []packet
	unique    uint64
	committed []record.Batch
	acked     record.Offset   // everything below was acknowledged
	all       map[Ticket]bool // produces with acks=all
	leaders   map[record.LeaderEpoch]metadata.NodeID
	nextEpoch metadata.BrokerEpoch
	calm      bool // no more faults
	rotted    bool // some log was damaged
}

var everyone = []metadata.NodeID{1, 2, 3}

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, min: rapid.IntRange(1, 2).Draw(t, "min isr"), sites: map[metadata.NodeID]*site{}, now: 1000,
		all: map[Ticket]bool{}, leaders: map[record.LeaderEpoch]metadata.NodeID{}, nextEpoch: 10,
	}
	first := state{leader: 1, isr: everyone}
	for _, id := range everyone {
		w.nextEpoch++
		first.brokers = append(first.brokers, Broker{ID: id, Epoch: w.nextEpoch, Active: true})
	}
	w.history = []state{first}
	for _, id := range everyone {
		s := &site{node: Node{Self: id, MaxLag: 20 * time.Millisecond, Retry: 5 * time.Millisecond}}
		w.sites[id] = s
		w.boot(s)
	}
	return w
}

func (w *world) controller() *state { return &w.history[len(w.history)-1] }

// change makes the next state of the metadata.
func (w *world) change(f func(*state)) {
	next := *w.controller()
	next.isr, next.elr, next.brokers = slices.Clone(next.isr), slices.Clone(next.elr), slices.Clone(next.brokers)
	f(&next)
	next.version++
	w.history = append(w.history, next)
}

func (st *state) broker(id metadata.NodeID) *Broker { return &st.brokers[id-1] }

// without takes a node out of the ISR, by the rules of KIP-966.
func (st *state) without(id metadata.NodeID, min int) {
	old := st.isr
	st.isr = slices.DeleteFunc(slices.Clone(st.isr), func(n metadata.NodeID) bool { return n == id })
	if len(st.isr) < min {
		for _, n := range old {
			if !slices.Contains(st.isr, n) && !slices.Contains(st.elr, n) {
				st.elr = append(st.elr, n)
			}
		}
	}
	st.grown(min)
}

// grown is what follows when the ISR has grown.
func (st *state) grown(min int) {
	if len(st.isr) >= min {
		st.elr = nil
	}
	st.elr = slices.DeleteFunc(st.elr, func(n metadata.NodeID) bool { return slices.Contains(st.isr, n) })
}

// elect gives the partition a leader, if it has none that is active.
func (st *state) elect() {
	ok := func(n metadata.NodeID) bool { return st.broker(n).Active }
	if st.leader != metadata.NoNode && ok(st.leader) && slices.Contains(st.isr, st.leader) {
		return
	}
	was := st.leader
	st.leader = metadata.NoNode
	for _, n := range st.isr {
		if ok(n) {
			st.leader = n
			break
		}
	}
	if len(st.isr) == 0 {
		for _, n := range st.elr {
			if ok(n) {
				st.leader, st.isr = n, []metadata.NodeID{n}
				st.grown(1 << 10)
				break
			}
		}
	}
	if st.leader != was || was != metadata.NoNode {
		st.epoch++
	}
}

// boot starts a node's process on what is on its disk.
func (w *world) boot(s *site) {
	var epochs []EpochStart
	for i, b := range s.disk {
		if n := len(epochs); n == 0 || epochs[n-1].Epoch < b.LeaderEpoch() {
			epochs = append(epochs, EpochStart{Epoch: b.LeaderEpoch(), Start: record.Offset(i)})
		}
	}
	s.r = New(0, record.Offset(len(s.disk)), s.saved, epochs)
	s.jobs, s.done, s.known, s.lease = nil, nil, 0, 0
	s.cache, s.tells = 0, 0
}

// apply makes a process know the next state of the metadata. At the first it is
// given the newest that it had before, as from a snapshot.
func (w *world) apply(s *site) {
	if s.r == nil || s.known == len(w.history) {
		return
	}
	st := &w.history[s.known]
	s.known++
	s.node.Brokers, s.node.Epoch = st.brokers, st.broker(s.node.Self).Epoch
	var out Out
	s.r.Review(&s.node, w.now, &out)
	w.act(s, &out)
	out = Out{}
	s.r.Assigned(&Term{
		Leader: st.leader, LeaderEpoch: st.epoch, Epoch: st.version, Replicas: everyone, ISR: st.isr, ELR: st.elr, MinISR: w.min,
	}, &s.node, w.now, &out)
	w.act(s, &out)
}

// act does what a replica decided.
func (w *world) act(s *site, out *Out) {
	for _, d := range out.Done {
		if d.Err == nil && w.all[d.Ticket] {
			w.acked = max(w.acked, d.Base+1)
		}
	}
	if out.Propose != nil {
		w.net = append(w.net, packet{0, s.node.Self, *out.Propose})
	}
	if s.r == nil {
		return
	}
	if durable, ok := s.r.Progress(&s.node, w.now); ok {
		w.net = append(w.net, packet{s.r.Leader(), s.node.Self, Report{s.node.Self, s.node.Epoch, s.r.Epoch(), durable, s.r.LogStart()}})
	}
	w.commit(s)
}

// commit notes what the replica takes for committed.
func (w *world) commit(s *site) {
	hw := s.r.HighWatermark()
	if s.r.busy {
		return // its disk may be ahead of it
	}
	for i := record.Offset(0); i < hw; i++ {
		b := s.disk[i]
		switch {
		case int(i) < len(w.committed):
			if string(w.committed[i]) != string(b) {
				w.t.Fatalf("node %d has another record at %d than was committed", s.node.Self, i)
			}
		case !s.r.Leads():
			w.t.Fatalf("follower %d takes %d for committed, which no leader did", s.node.Self, i)
		default:
			w.committed = append(w.committed, b)
		}
	}
}

func (w *world) pick(what string) *site {
	return w.sites[rapid.SampledFrom(everyone).Draw(w.t, what)]
}

func (w *world) odds(in int) bool { return rapid.IntRange(1, in).Draw(w.t, "odds") == 1 }

// Produce has a client ask every node: those that do not lead refuse.
func (w *world) Produce(t *rapid.T) {
	w.t = t
	for _, id := range everyone {
		s := w.sites[id]
		if s.r == nil || !s.r.Leads() || s.r.UnderMinISR() || s.rot {
			continue
		}
		w.unique++
		b := batch(1)
		binary.BigEndian.PutUint64(b[27:], w.unique)
		all := !w.odds(4)
		w.all[Ticket(w.unique)] = all
		if _, err := s.r.Produce(b, all, Ticket(w.unique)); err != nil {
			w.t.Fatal(err)
		}
		s.jobs = append(s.jobs, task{batches: []record.Batch{b}, early: s.r.Followed()})
	}
}

// Write lets a node put an append into the page cache: from then on it is not
// refused. Or the process hears of one.
func (w *world) Write(t *rapid.T) {
	w.t = t
	s := w.pick("node")
	if s.tells > 0 && w.odds(2) {
		w.tell(s)
		return
	}
	if s.cache == len(s.jobs) || s.jobs[s.cache].cut || s.jobs[s.cache].batches[0].BaseOffset() != record.Offset(len(s.log())) {
		t.Skip("nothing to be written")
	}
	s.cache++
	s.tells++
}

// tell lets a process hear of the first append in the page cache that it has not
// heard of, if it wants to.
func (w *world) tell(s *site) {
	j := s.jobs[s.cache-s.tells]
	s.tells--
	if j.early {
		s.r.Show(j.batches[len(j.batches)-1].NextOffset())
	}
}

// Run does a job, or lets the process see what came of one.
func (w *world) Run(t *rapid.T) {
	w.t = t
	s := w.pick("node")
	if len(s.done) > 0 && (len(s.jobs) == 0 || w.odds(2)) {
		w.seeDone(s)
	} else if len(s.jobs) > 0 {
		if s.cache > 0 && s.tells == s.cache {
			w.tell(s) // before it hears that it is on disk
		}
		w.runJob(s, !w.calm && s.cache == 0 && w.odds(20))
	}
}

func (w *world) runJob(s *site, full bool) {
	j := s.jobs[0]
	s.jobs = s.jobs[1:]
	s.cache = max(0, s.cache-1)
	s.tells = min(s.tells, s.cache)
	switch {
	case full, !j.cut && j.batches[0].BaseOffset() != record.Offset(len(s.disk)):
		j.refused = true
	case j.cut:
		if int(j.end) < len(s.disk) {
			s.disk = slices.Clone(s.disk[:j.end])
		}
		j.end = record.Offset(len(s.disk))
	default:
		s.disk = append(s.disk[:len(s.disk):len(s.disk)], j.batches...)
	}
	s.done = append(s.done, j)
}

func (w *world) seeDone(s *site) {
	j := s.done[0]
	s.done = s.done[1:]
	var out Out
	switch {
	case j.cut && j.refused:
		s.r.TruncateFailed(w.now.Add(time.Millisecond), &out)
	case j.cut:
		var epochs []EpochStart
		for i, b := range s.disk[:j.end] {
			if n := len(epochs); n == 0 || epochs[n-1].Epoch < b.LeaderEpoch() {
				epochs = append(epochs, EpochStart{Epoch: b.LeaderEpoch(), Start: record.Offset(i)})
			}
		}
		s.rot = s.rot && j.end > 0
		s.r.Truncated(0, j.end, epochs, &out)
	case j.refused:
		s.r.Rejected(errFull, w.now.Add(time.Millisecond), &out)
	default:
		s.r.Written(w.now, &out)
	}
	w.act(s, &out)
}

var errFull = fmt.Errorf("no space")

// Fetch sends what a follower asks.
func (w *world) Fetch(t *rapid.T) {
	w.t = t
	w.fetch(w.pick("node"))
}

func (w *world) fetch(s *site) {
	if s.r == nil || !s.r.Following() {
		return
	}
	if p := s.r.Position(w.now); s.rot {
		w.net = append(w.net, packet{s.r.Leader(), s.node.Self, lost{s.r.Epoch(), s.node.Epoch}})
	} else if !p.Paused {
		w.net = append(w.net, packet{s.r.Leader(), s.node.Self, ask{s.r.Epoch(), p.Offset, p.Last}})
	}
}

// Deliver lets a message arrive, any one that is on its way.
func (w *world) Deliver(t *rapid.T) {
	w.t = t
	if len(w.net) == 0 {
		t.Skip("nothing is on its way")
	}
	w.deliver(rapid.IntRange(0, len(w.net)-1).Draw(t, "message"))
}

func (w *world) deliver(i int) {
	p := w.net[i]
	if w.calm || !w.odds(10) { // else it may come again
		w.net = slices.Delete(w.net, i, i+1)
	}
	if p.to == 0 {
		w.decide(p.from, p.what.(Proposal))
		return
	}
	s := w.sites[p.to]
	if s == nil || s.r == nil {
		return
	}
	var out Out
	switch m := p.what.(type) {
	case ask:
		w.judge(s, p.from, m)
	case answer:
		w.answered(s, p.from, m, &out)
	case lost:
		if !s.rot && s.r.CheckLeader(m.epoch) == nil && s.r.Knows(p.from, m.process, &s.node) && s.r.Lost(p.from, m.process, &s.node, w.now, &out) {
			w.net = append(w.net, packet{p.from, p.to, over{m.epoch}})
		}
	case over:
		st := &w.history[max(0, s.known-1)]
		counted := slices.Contains(st.isr, p.to) || slices.Contains(st.elr, p.to)
		if s.rot && !counted && s.r.Fetches(p.from, m.epoch) {
			s.r.Reset()
			s.jobs = append(s.jobs, task{cut: true})
		}
	case Report:
		s.r.Reported(m, &s.node, w.now, &out)
	case decided:
		s.r.Decided(&m.Proposal, m.Decision, m.epoch, &s.node, w.now, &out)
	}
	w.act(s, &out)
}

// judge answers a fetch.
func (w *world) judge(s *site, from metadata.NodeID, m ask) {
	if s.r.CheckLeader(m.epoch) != nil || s.rot {
		return
	}
	j, at := s.r.Judge(m.offset, m.last)
	a := answer{ask: m, highWatermark: s.r.HighWatermark(), diverges: j == Diverges, at: at}
	if j == Unsure {
		return
	}
	if j == Agrees {
		most := record.Offset(3)
		if !w.calm {
			most = record.Offset(rapid.IntRange(0, 3).Draw(w.t, "batches"))
		}
		end := min(s.r.Shown(), m.offset+most)
		for _, b := range s.log()[min(m.offset, end):end] {
			a.batches = append(a.batches, slices.Clone(b))
		}
	}
	w.net = append(w.net, packet{from, s.node.Self, a})
}

// answered takes in a leader's answer, if it is one to where the fetcher is.
func (w *world) answered(s *site, from metadata.NodeID, a answer, out *Out) {
	if !s.r.Fetches(from, a.epoch) || s.rot {
		return
	}
	if p := s.r.Position(w.now); p.Offset != a.offset || p.Last != a.last {
		return
	}
	if a.diverges {
		end, _, err := s.r.Diverged(a.at)
		if err != nil {
			w.t.Fatal(err)
		}
		s.jobs = append(s.jobs, task{cut: true, end: end})
		return
	}
	s.r.Agreed(a.highWatermark, out)
	if len(a.batches) > 0 {
		if err := s.r.Extend(a.batches); err != nil {
			w.t.Fatal(err)
		}
		s.jobs = append(s.jobs, task{batches: a.batches})
	}
}

// decide is the controller's answer to a proposal.
func (w *world) decide(from metadata.NodeID, p Proposal) {
	st := w.controller()
	d, epoch := Accepted, metadata.PartitionEpoch(0)
	switch {
	case p.LeaderEpoch != st.epoch || p.Epoch != st.version || from != st.leader:
		d = Outdated
	case slices.ContainsFunc(p.ISR, func(m Member) bool {
		b := st.broker(m.Node)
		return !b.Active || b.Epoch != m.Epoch
	}):
		d = Refused
	default:
		w.change(func(st *state) {
			old := st.isr
			st.isr = nil
			for _, m := range p.ISR {
				st.isr = append(st.isr, m.Node)
			}
			if len(st.isr) < w.min {
				for _, n := range old {
					if !slices.Contains(st.isr, n) && !slices.Contains(st.elr, n) {
						st.elr = append(st.elr, n)
					}
				}
			}
			st.grown(w.min)
		})
		epoch = w.controller().version
	}
	w.net = append(w.net, packet{from, 0, decided{p, d, epoch}})
	if !w.calm && w.odds(4) { // the answer is lost, and the leader told so
		w.net[len(w.net)-1].what = decided{p, Unanswered, 0}
	}
}

// Lose loses a message. A proposal that is lost has no answer, or is one that is
// late.
func (w *world) Lose(t *rapid.T) {
	w.t = t
	if len(w.net) == 0 {
		t.Skip("nothing is on its way")
	}
	i := rapid.IntRange(0, len(w.net)-1).Draw(t, "message")
	p := w.net[i]
	if w.odds(2) {
		w.net = slices.Delete(w.net, i, i+1)
	}
	if q, ok := p.what.(Proposal); ok {
		w.net = append(w.net, packet{p.from, 0, decided{q, Unanswered, 0}})
	}
}

// Apply lets a process learn of the next change of the metadata.
func (w *world) Apply(t *rapid.T) {
	w.t = t
	w.apply(w.pick("node"))
}

// Crash ends a process. What was not on its disk is gone.
func (w *world) Crash(t *rapid.T) {
	w.t = t
	s := w.pick("node")
	if s.r == nil || !w.odds(3) {
		t.Skip("no crash")
	}
	if w.odds(2) {
		s.saved = s.r.HighWatermark()
	}
	for len(s.jobs) > 0 && !w.odds(2) {
		w.runJob(s, false) // before the process could see it
	}
	s.r, s.jobs, s.done = nil, nil, nil
	s.cache, s.tells = 0, 0
}

// Rot damages the log of a follower, if another replica that the controller may
// elect has what is in it.
func (w *world) Rot(t *rapid.T) {
	w.t = t
	s := w.pick("node")
	if s.r == nil || !s.r.Following() || s.rot || !w.spared(s) || !w.odds(4) {
		t.Skip("not now")
	}
	s.rot, w.rotted = true, true
	s.r.Doubt()
}

// spared reports whether the controller may elect another node than s, whose log
// is good.
func (w *world) spared(s *site) bool {
	st := w.controller()
	for _, n := range everyone {
		if n != s.node.Self && !w.sites[n].rot && (slices.Contains(st.isr, n) || slices.Contains(st.elr, n)) {
			return true
		}
	}
	return false
}

// Restart starts a process, perhaps on an empty disk, if another replica that the
// controller may elect has what was on it. It registers, and is fenced at first.
func (w *world) Restart(t *rapid.T) {
	w.t = t
	if s := w.pick("node"); s.r == nil {
		w.restart(s, w.spared(s) && w.odds(6))
	}
}

func (w *world) restart(s *site, wiped bool) {
	id := s.node.Self
	if wiped {
		s.disk, s.saved, s.rot = nil, 0, false
	}
	w.nextEpoch++
	w.change(func(st *state) {
		*st.broker(id) = Broker{ID: id, Epoch: w.nextEpoch}
		st.without(id, w.min)
		if wiped || s.rot { // it is said with the registration
			st.elr = slices.DeleteFunc(st.elr, func(n metadata.NodeID) bool { return n == id })
		}
		st.elect()
	})
	w.boot(s)
	for s.known < len(w.history) {
		// A process begins with the metadata that its disk has, which lead to those
		// that its registration is in.
		s.known = len(w.history) - 1
		w.apply(s)
	}
}

// Fence takes a broker out that was silent for longer than its lease.
func (w *world) Fence(t *rapid.T) {
	w.t = t
	s := w.pick("node")
	if !w.controller().broker(s.node.Self).Active || w.now < s.lease || !w.odds(3) {
		t.Skip("it lives")
	}
	w.change(func(st *state) {
		st.broker(s.node.Self).Active = false
		st.without(s.node.Self, w.min)
		st.elect()
	})
}

// Unfence lets a broker in whose process has seen its own registration.
func (w *world) Unfence(t *rapid.T) {
	w.t = t
	w.unfence(w.pick("node"))
}

func (w *world) unfence(s *site) {
	b := w.controller().broker(s.node.Self)
	if s.r == nil || b.Active || s.node.Epoch != b.Epoch {
		return
	}
	w.change(func(st *state) {
		st.broker(s.node.Self).Active = true
		st.elect()
	})
}

// Heartbeat gives a broker a lease. It counts only once its process knows the
// metadata as they are.
func (w *world) Heartbeat(t *rapid.T) {
	w.t = t
	s := w.pick("node")
	if s.r != nil && w.controller().broker(s.node.Self).Active && s.known == len(w.history) {
		s.lease = w.now.Add(5 * time.Millisecond)
	}
}

// Move makes another in-sync replica the leader, of whom the former one learns
// later.
func (w *world) Move(t *rapid.T) {
	w.t = t
	st := w.controller()
	to := w.pick("to").node.Self
	if st.leader == metadata.NoNode || to == st.leader || !slices.Contains(st.isr, to) || !st.broker(to).Active || !w.odds(3) {
		t.Skip("it stays")
	}
	w.change(func(st *state) {
		st.leader = to
		st.epoch++
	})
}

// Pass lets time pass.
func (w *world) Pass(t *rapid.T) {
	w.t = t
	w.pass(time.Duration(rapid.IntRange(1, 8).Draw(t, "ms")) * time.Millisecond)
}

func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for _, id := range everyone {
		if s := w.sites[id]; s.r != nil && s.r.ReviewAt(&s.node) <= w.now {
			var out Out
			s.r.Review(&s.node, w.now, &out)
			w.act(s, &out)
			if at := s.r.ReviewAt(&s.node); at <= w.now {
				w.t.Fatalf("node %d was reviewed at %d, and is to be again at %d", id, w.now, at)
			}
		}
	}
}

// Check is what must always hold.
func (w *world) Check(t *rapid.T) {
	w.t = t
	st := w.controller()
	for _, n := range slices.Concat(st.isr, st.elr) {
		s := w.sites[n]
		if s.rot {
			continue
		}
		for i := range w.acked {
			if int(i) >= len(s.disk) || string(s.disk[i]) != string(w.committed[i]) {
				t.Fatalf("node %d may be elected, and lacks offset %d, which was acknowledged", n, i)
			}
		}
	}
	for _, n := range everyone {
		s := w.sites[n]
		if s.r == nil {
			continue
		}
		if s.r.Leading() {
			if other, ok := w.leaders[s.r.Epoch()]; ok && other != n {
				t.Fatalf("nodes %d and %d lead epoch %d", n, other, s.r.Epoch())
			}
			w.leaders[s.r.Epoch()] = n
		}
		if s.r.Leads() && s.r.Settled() && !s.rot && w.now < s.lease && s.r.HighWatermark() < w.acked {
			t.Fatalf("node %d tells consumers that the log ends at %d, acknowledged was %d", n, s.r.HighWatermark(), w.acked)
		}
	}
}

// Flow lets things go their way for a while, for some of the nodes: messages
// between others stay where they are.
func (w *world) Flow(t *rapid.T) {
	w.t = t
	in := rapid.SampledFrom([][]metadata.NodeID{everyone, {1, 2}, {1, 3}, {2, 3}, {1}, {2}, {3}}).Draw(t, "nodes")
	for range rapid.IntRange(1, 4).Draw(t, "rounds") {
		w.flow(in, w.odds(2))
	}
}

// flow lets nodes do what there is to do, and exchange messages with each other,
// and with the controller if they reach it.
func (w *world) flow(in []metadata.NodeID, controlled bool) {
	for _, id := range in {
		s := w.sites[id]
		for controlled && s.r != nil && s.known < len(w.history) {
			w.apply(s)
		}
		for len(s.jobs) > 0 {
			w.runJob(s, false)
		}
		for len(s.done) > 0 {
			w.seeDone(s)
		}
		w.fetch(s)
	}
	calm := w.calm
	w.calm = true
	for i := 0; i < len(w.net); {
		p := &w.net[i]
		if slices.Contains(in, p.to) && (slices.Contains(in, p.from) || p.from == 0) || p.to == 0 && controlled && slices.Contains(in, p.from) {
			w.deliver(i)
		} else {
			i++
		}
	}
	w.calm = calm
}

// heal stops the faults, and waits until nothing is left to do.
func (w *world) heal(t *rapid.T) {
	w.t, w.calm, w.net = t, true, nil
	for _, id := range everyone {
		if s := w.sites[id]; s.r == nil {
			w.restart(s, false)
		}
		for _, p := range everyone { // what was lost is told as such
			s := w.sites[p]
			if s.r != nil && s.r.reign != nil && s.r.reign.asking {
				w.net = append(w.net, packet{p, 0, decided{Proposal{LeaderEpoch: s.r.epoch, Epoch: s.r.partitionEpoch}, Unanswered, 0}})
			}
		}
	}
	for range 100 {
		for _, id := range everyone {
			s := w.sites[id]
			if st := w.controller(); s.rot && (st.leader == id || slices.Contains(st.elr, id)) { // an operator looks after it
				w.restart(s, false)
			}
			w.unfence(s)
		}
		w.flow(everyone, true)
		w.pass(10 * time.Millisecond)
	}
	w.Check(t)
	st := w.controller()
	if st.leader == metadata.NoNode && w.rotted {
		return // the last replica that could be elected was damaged
	}
	if len(st.isr) != 3 || st.leader == metadata.NoNode {
		for _, id := range everyone {
			s := w.sites[id]
			t.Logf("node %d: rotten %t, busy %t, %d jobs, registered as %d, knows %d of %d states, log to %d, %+v", id, s.rot, s.r.busy, len(s.jobs), s.node.Epoch, s.known, len(w.history), s.r.logEnd, s.r.pursuit)
			if g := s.r.reign; g != nil {
				t.Logf("  reign %+v", *g)
			}
		}
		t.Fatalf("in the end node %d leads, %v are in sync, and %v eligible", st.leader, st.isr, st.elr)
	}
	for _, id := range everyone {
		r := w.sites[id].r
		if leader := w.sites[st.leader].r; r.HighWatermark() != leader.LogEnd() || r.OnDisk() != leader.LogEnd() || !r.Settled() {
			t.Fatalf("in the end node %d has its high watermark at %d and %d on disk, and leader %d ends at %d", id, r.HighWatermark(), r.OnDisk(), st.leader, leader.LogEnd())
		}
	}
}

func TestReplicasKeepWhatWasAcknowledged(t *testing.T) {
	for range 20 { // what goes wrong takes a while to happen
		rapid.Check(t, replicasKeepWhatWasAcknowledged)
	}
}

func replicasKeepWhatWasAcknowledged(t *rapid.T) {
	w := newWorld(t)
	actions := rapid.StateMachineActions(w)
	for _, often := range []string{"Deliver", "Write", "Run", "Fetch", "Produce", "Flow"} { // else little happens
		for i := range 4 {
			actions[fmt.Sprint(often, i)] = actions[often]
		}
	}
	for _, id := range everyone {
		for w.sites[id].known < len(w.history) {
			w.apply(w.sites[id])
		}
	}
	t.Repeat(actions)
	w.heal(t)
}
