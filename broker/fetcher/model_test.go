package fetcher

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/broker/session"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// world is a follower, node 1, and the nodes that lead what it follows, 2 and 3,
// with links between them that lose calls. A log is a number of records; it is the
// same at all leaders, so only who answers changes.
type world struct {
	t       *rapid.T
	now     clock.Instant
	f       *Fetcher
	leaders []*server
	logs    []*log
}

// log is a partition: what is true of it, and what the follower has.
type log struct {
	id            storage.LogID
	leader        metadata.NodeID
	epoch         record.LeaderEpoch
	end           record.Offset
	highWatermark record.Offset

	followed bool
	paused   bool
	late     bool          // it says later where it goes on
	has      record.Offset // the follower's log end
	told     record.Offset // the high watermark that it knows
}

// server is a leader, and the link to it.
type server struct {
	node    metadata.NodeID
	cache   *session.Cache
	parts   map[storage.LogID]*served
	waiting *waiting // the Fetch that waits
	sent    []Call   // that have not arrived
	answers []reply  // that have not come back
	open    []Call   // without an answer
	looked  int
}

type served struct {
	log   *log
	watch session.Watch
}

type waiting struct {
	seq      uint64
	session  *session.Session
	deadline clock.Instant
	maxBytes int // records
}

type reply struct {
	seq  uint64
	resp *wire.Fetched
}

func newWorld(t *rapid.T, partitions, slots, weight int) *world {
	cfg := DefaultConfig()
	cfg.Self = 1
	w := &world{t: t, f: New(cfg)}
	for node := metadata.NodeID(2); node <= 3; node++ {
		v := &server{node: node}
		w.leaders = append(w.leaders, v)
		w.restart(v, slots, weight)
	}
	for i := range partitions {
		g := &log{id: storage.LogID{Topic: [16]byte{byte('a' + i%3)}, Partition: int32(i)}, leader: 2, epoch: 1}
		w.logs = append(w.logs, g)
	}
	return w
}

// restart makes a leader one that knows nothing of sessions, as a new process.
func (w *world) restart(v *server, slots, weight int) {
	cfg := session.DefaultConfig()
	cfg.Slots, cfg.Weight = slots, weight
	v.cache = session.New(cfg, rand.New(rand.NewPCG(uint64(v.node), uint64(w.now))))
	v.parts = make(map[storage.LogID]*served)
	v.waiting = nil
}

func (w *world) server(node metadata.NodeID) *server { return w.leaders[node-2] }

// part is a partition as a leader has it.
func (v *server) part(g *log) *served {
	if v.parts[g.id] == nil {
		v.parts[g.id] = &served{log: g}
	}
	return v.parts[g.id]
}

// say tells the fetcher where a log stands.
func (w *world) say(g *log) {
	p := Follow{Log: g.id, Leader: metadata.NoNode}
	if g.followed {
		p = Follow{Log: g.id, Leader: g.leader, LeaderEpoch: g.epoch, Offset: g.has, LastFetchedEpoch: record.NoEpoch, Paused: g.paused}
	}
	w.f.Follow(p, w.now)
}

// step does what a node does after an event.
func (w *world) step(out *Out) {
	for _, r := range out.Received {
		w.received(r)
	}
	w.f.Wake(w.now, out)
	for _, c := range out.Calls {
		v := w.server(c.To)
		v.sent = append(v.sent, c)
		v.open = append(v.open, c)
	}
	if next := w.f.NextWake(); next <= w.now {
		w.t.Fatalf("wants to be woken at %d, and it is %d", next, w.now)
	}
}

// received appends what came to the follower's log.
func (w *world) received(r Received) {
	i := slices.IndexFunc(w.logs, func(g *log) bool { return g.id.Topic == r.Topic && g.id.Partition == r.Index })
	g := w.logs[i]
	if !g.followed || g.leader != r.From || g.epoch != r.LeaderEpoch || g.paused {
		w.t.Fatalf("received %v of node %d, epoch %d, and it is %+v", g.id, r.From, r.LeaderEpoch, g)
	}
	if r.Err != nil {
		return
	}
	g.told = r.HighWatermark
	for _, b := range r.Batches {
		if b.BaseOffset() != g.has {
			w.t.Fatalf("%v: records from %d on, log end %d", g.id, b.BaseOffset(), g.has)
		}
		g.has = b.NextOffset()
	}
	if !g.late {
		w.say(g)
	}
}

// arrive makes the oldest request arrive at a leader.
func (w *world) arrive(v *server) {
	c := v.sent[0]
	v.sent = v.sent[1:]
	if v.waiting != nil { // a node's Fetch ends the wait of its former one
		w.answer(v, true)
	}
	var out session.Out
	s, err := v.cache.Begin(c.Req, 1, w.now, &out)
	if err != nil {
		v.answers = append(v.answers, reply{c.Seq, &wire.Fetched{ErrorCode: wire.Code(err)}})
		return
	}
	for e := range s.Ready() {
		w.look(v, e)
	}
	v.waiting = &waiting{
		seq: c.Seq, session: s, maxBytes: 3,
		deadline: w.now.Add(time.Duration(c.Req.MaxWaitMillis) * time.Millisecond),
	}
	s.Wait(true)
	w.answer(v, c.Req.MaxWaitMillis == 0)
}

func (w *world) find(v *server, e *session.Entry) (*served, error) {
	i := slices.IndexFunc(w.logs, func(g *log) bool { return g.id.Topic == e.Topic().ID && g.id.Partition == e.Index() })
	g := w.logs[i]
	switch {
	case g.leader != v.node:
		return v.part(g), replica.ErrNotLeader
	case g.epoch != e.LeaderEpoch:
		return v.part(g), replica.ErrFencedEpoch
	}
	return v.part(g), nil
}

// look settles an entry that has nothing to tell.
func (w *world) look(v *server, e *session.Entry) {
	v.looked++
	p, err := w.find(v, e)
	if !e.Watched() {
		p.watch.Add(e)
	}
	if err == nil && e.Offset >= p.log.end && !e.News(p.log.highWatermark, 0) {
		e.Session().Settle(e)
	}
}

// answer answers the Fetch that waits at a leader, if there is something to tell
// or if it must be answered.
func (w *world) answer(v *server, must bool) {
	f := v.waiting
	s := f.session
	must = must || s.Size() == 0 || f.deadline <= w.now
	for e := range s.Ready() {
		p, err := w.find(v, e)
		must = must || err != nil || e.Offset < p.log.end
	}
	if !must {
		return
	}
	resp := &wire.Fetched{SessionID: s.ID()}
	left := f.maxBytes
	for e := range s.Ready() {
		v.looked++
		p, err := w.find(v, e)
		q := wire.FetchedPartition{
			Topic: e.Topic().ID, Index: e.Index(), Err: err, HighWatermark: p.log.highWatermark,
			Diverging: wire.Divergence{Epoch: record.NoEpoch}, Leader: metadata.NoNode,
		}
		n := min(p.log.end-e.Offset, record.Offset(left))
		switch {
		case err != nil:
			e.Fail()
		case n > 0:
			left -= int(n)
			b := make(record.Batch, record.HeaderSize)
			b[26] = byte(n - 1) // last offset delta
			b.Assign(e.Offset, e.LeaderEpoch)
			q.Batches = []record.Batch{b}
			e.Tell(p.log.highWatermark, 0, true)
		case s.Full() || e.News(p.log.highWatermark, 0):
			e.Tell(p.log.highWatermark, 0, false)
		default:
			continue
		}
		resp.Partitions = append(resp.Partitions, q)
	}
	s.Wait(false)
	if s.ID() == 0 {
		v.cache.Close(s, &session.Out{})
	}
	v.waiting = nil
	v.answers = append(v.answers, reply{f.seq, resp})
}

// comeBack makes the oldest answer of a leader come back.
func (w *world) comeBack(v *server) {
	r := v.answers[0]
	v.answers = v.answers[1:]
	v.open = slices.DeleteFunc(v.open, func(c Call) bool { return c.Seq == r.seq })
	var out Out
	w.f.Answer(v.node, r.seq, r.resp, nil, w.now, &out)
	w.step(&out)
}

// breakLink loses the calls that are open, in one direction or the other.
func (w *world) breakLink(v *server) {
	v.sent, v.answers = nil, nil
	if f := v.waiting; f != nil { // as a table does when a connection closes
		f.session.Wait(false)
		if f.session.ID() == 0 {
			v.cache.Close(f.session, &session.Out{})
		}
		v.waiting = nil
	}
	open := v.open
	v.open = nil
	for _, c := range open {
		var out Out
		w.f.Answer(v.node, c.Seq, nil, wire.ErrPeerGone, w.now, &out)
		w.step(&out)
	}
}

// news tells a leader's session that a partition changed.
func (w *world) news(g *log) {
	for _, v := range w.leaders {
		if woken := v.part(g).watch.News(false, nil); len(woken) > 0 && v.waiting != nil {
			w.answer(v, false)
		}
	}
}

// pass makes time pass, and what is due happen.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for _, v := range w.leaders {
		if v.waiting != nil && v.waiting.deadline <= w.now {
			w.answer(v, true)
		}
	}
	w.step(&Out{})
}

// The actions of the model.

func (w *world) draw(t *rapid.T) *log { return rapid.SampledFrom(w.logs).Draw(t, "log") }

func (w *world) drawLeader(t *rapid.T) *server { return rapid.SampledFrom(w.leaders).Draw(t, "leader") }

func (w *world) Produce(t *rapid.T) {
	g := w.draw(t)
	g.end += record.Offset(rapid.IntRange(1, 4).Draw(t, "records"))
	w.news(g)
}

func (w *world) Commit(t *rapid.T) {
	g := w.draw(t)
	g.highWatermark = g.end
	w.news(g)
}

// Elect gives a partition another leader epoch, and maybe another leader. The
// follower may know before the leaders do, or after.
func (w *world) Elect(t *rapid.T) {
	g := w.draw(t)
	g.epoch++
	g.leader = w.drawLeader(t).node
	w.news(g)
	w.say(g)
	w.step(&Out{})
}

func (w *world) Follow(t *rapid.T) {
	g := w.draw(t)
	g.followed, g.paused = !g.followed, rapid.Bool().Draw(t, "paused")
	w.say(g)
	w.step(&Out{})
}

func (w *world) Pause(t *rapid.T) {
	g := w.draw(t)
	g.paused = !g.paused
	w.say(g)
	w.step(&Out{})
}

// Truncate makes the follower's log shorter.
func (w *world) Truncate(t *rapid.T) {
	g := w.draw(t)
	g.has = record.Offset(rapid.IntRange(0, int(g.has)).Draw(t, "end"))
	w.say(g)
	w.step(&Out{})
}

// Late makes the follower say later, or not any more, where a log goes on.
func (w *world) Late(t *rapid.T) {
	g := w.draw(t)
	if g.late = !g.late; !g.late {
		w.say(g)
		w.step(&Out{})
	}
}

func (w *world) Arrive(t *rapid.T) {
	if v := w.drawIf(t, func(v *server) bool { return len(v.sent) > 0 }); v != nil {
		w.arrive(v)
	}
}

func (w *world) ComeBack(t *rapid.T) {
	if v := w.drawIf(t, func(v *server) bool { return len(v.answers) > 0 }); v != nil {
		w.comeBack(v)
	}
}

func (w *world) drawIf(t *rapid.T, f func(*server) bool) *server {
	var some []*server
	for _, v := range w.leaders {
		if f(v) {
			some = append(some, v)
		}
	}
	if some == nil {
		return nil
	}
	return rapid.SampledFrom(some).Draw(t, "leader")
}

// Break loses calls, and now and then what the leader knows of sessions.
func (w *world) Break(t *rapid.T) {
	how := rapid.IntRange(0, 9).Draw(t, "how")
	if how > 2 {
		return
	}
	v := w.drawLeader(t)
	w.breakLink(v)
	if how > 0 {
		return
	}
	w.restart(v, rapid.IntRange(0, 2).Draw(t, "slots"), rapid.IntRange(3, 20).Draw(t, "weight"))
}

func (w *world) Pass(t *rapid.T) {
	w.pass(time.Duration(rapid.SampledFrom([]int{1, 5, 20, 100, 500}).Draw(t, "ms")) * time.Millisecond)
}

// Check says that each leader has at most one Fetch that waits, with one before
// it that called back the Fetch before and one behind it that calls it back.
func (w *world) Check(t *rapid.T) {
	for _, v := range w.leaders {
		wait := 0
		for _, c := range v.open {
			if c.Req.MaxWaitMillis > 0 {
				wait++
			}
		}
		if wait > 1 || len(v.open) > 3 {
			t.Fatalf("node %d: calls %v are open", v.node, v.open)
		}
	}
	for _, l := range w.f.leaders {
		l.check()
	}
	for _, k := range w.f.links {
		if k.gone || k.leader.links[k.log] != k {
			t.Fatalf("%v is followed and gone", k.log)
		}
	}
}

// agree says whether the two ends of the sessions hold the same partitions.
func (w *world) agree() error {
	for _, l := range w.f.leaders {
		v := w.server(l.node)
		if l.sessionEpoch == fullEpoch || v.waiting == nil || v.waiting.seq != l.inFlight {
			continue
		}
		n := 0
		for e := range v.waiting.session.Entries() {
			k := l.links[storage.LogID{Topic: e.Topic().ID, Partition: e.Index()}]
			if k == nil || !k.inTold || k.told != (place{e.Offset, e.LogStart, e.LeaderEpoch, e.LastFetchedEpoch}) {
				return fmt.Errorf("node %d has %v-%d at %d, the follower %+v", l.node, e.Topic().ID, e.Index(), e.Offset, k)
			}
			n++
		}
		for _, k := range l.links {
			if k.inTold {
				n--
			}
		}
		if n != 0 {
			return fmt.Errorf("node %d has %d partitions more than the follower", l.node, n)
		}
	}
	return nil
}

// check panics unless what is counted is what there is.
func (l *leader) check() {
	n, followed, active := 0, 0, 0
	for k := l.order.first; k != nil; k = k.next {
		n++
		if !k.gone {
			followed++
		}
		if k.active() {
			active++
		}
		if k.dirty != slices.Contains(l.dirty, k) || l.links[k.log] != k || k.counted != k.active() {
			panic(fmt.Sprintf("%+v is not where it is", k))
		}
		if !k.dirty && l.sessionEpoch != fullEpoch && !k.settled() {
			panic(fmt.Sprintf("%+v is to be told, and nobody knows", k))
		}
	}
	if n != len(l.links) || followed != l.followed || active != l.active {
		panic(fmt.Sprintf("%d links, %d followed, %d active: %+v", n, followed, active, l))
	}
}

// settle lets everything run without faults until nothing is left to happen.
func (w *world) settle() {
	for range 10_000 {
		moved := false
		for _, v := range w.leaders {
			for len(v.sent) > 0 {
				w.arrive(v)
				moved = true
			}
			for len(v.answers) > 0 {
				w.comeBack(v)
				moved = true
			}
		}
		if moved {
			if err := w.agree(); err != nil {
				w.t.Fatal(err)
			}
			continue
		}
		if w.done() == nil {
			return
		}
		w.pass(5 * time.Millisecond)
	}
	w.t.Fatal(w.done())
}

// done says what the follower still has to receive.
func (w *world) done() error {
	for _, g := range w.logs {
		if g.followed && (g.has != g.end || g.told != g.highWatermark) {
			return fmt.Errorf("%v: the follower has %d of %d records, high watermark %d of %d", g.id, g.has, g.end, g.told, g.highWatermark)
		}
	}
	return nil
}

// TestFollowerReceivesEverything pairs a fetcher with leaders' sessions, over
// links that lose calls, while leaders change, fail and run out of room. In the
// end the follower has everything, and it never got anything but the next
// records.
func TestFollowerReceivesEverything(t *testing.T) {
	var stats Stats
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.IntRange(1, 6).Draw(t, "partitions"), rapid.IntRange(0, 2).Draw(t, "slots"), rapid.IntRange(3, 20).Draw(t, "weight"))
		for _, g := range w.logs {
			g.followed = true
			w.say(g)
		}
		w.step(&Out{})
		actions := rapid.StateMachineActions(w)
		for i := range 4 { // most of what happens is that calls are carried
			actions[fmt.Sprint("Arrive", i)], actions[fmt.Sprint("ComeBack", i)] = w.Arrive, w.ComeBack
		}
		t.Repeat(actions)
		for _, g := range w.logs {
			g.paused, g.late = false, false
			w.say(g)
		}
		w.step(&Out{})
		w.settle()
		stats.Fetches += w.f.Stats.Fetches
		stats.Nudges += w.f.Stats.Nudges
		stats.Failures += w.f.Stats.Failures
		stats.Forgotten += w.f.Stats.Forgotten
	})
	if stats.Fetches == 0 || stats.Nudges == 0 || stats.Failures == 0 || stats.Forgotten == 0 {
		t.Errorf("%+v: something never happened", stats)
	}
}
