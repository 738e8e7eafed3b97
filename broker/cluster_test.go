package broker_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

// town is a cluster of nodes in one goroutine: jobs take a millisecond, and so
// does what nodes say to each other, as the frames it would be on a socket.
type town struct {
	t      *testing.T
	now    clock.Instant
	queue  []due // by time, then in order
	nodes  map[metadata.NodeID]*resident
	voters int
}

type due struct {
	at clock.Instant
	do func()
}

type resident struct {
	*town
	id     metadata.NodeID
	disk   *simdisk.Disk
	holder *job.Holder
	node   *broker.Node
	life   int // of which process something is
	down   bool
	conns  map[broker.Caller]func(wire.Response)
	seq    uint64
}

const hop = clock.Instant(time.Millisecond)

func newTown(t *testing.T, voters, nodes int) *town {
	w := &town{t: t, nodes: make(map[metadata.NodeID]*resident), voters: voters}
	for i := range nodes {
		id := metadata.NodeID(i + 1)
		w.nodes[id] = &resident{town: w, id: id, disk: simdisk.New(), down: true}
	}
	for _, n := range w.list() {
		n.start()
	}
	return w
}

func (w *town) list() []*resident {
	var all []*resident
	for _, n := range w.nodes {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b *resident) int { return cmp.Compare(a.id, b.id) })
	return all
}

func (w *town) later(d clock.Instant, do func()) {
	at := w.now + d
	i, _ := slices.BinarySearchFunc(w.queue, at, func(e due, at clock.Instant) int {
		if e.at <= at {
			return -1
		}
		return 1
	})
	w.queue = slices.Insert(w.queue, i, due{at, do})
}

// until runs the town until it is so; for a minute at most.
func (w *town) until(what string, ok func() bool) {
	w.t.Helper()
	end := w.now + clock.Instant(time.Minute)
	for !ok() {
		if w.now > end {
			w.report()
			w.t.Fatalf("not within a minute: %s", what)
		}
		w.turn()
	}
}

// report tells the state of everything.
func (w *town) report() {
	for _, n := range w.list() {
		if n.down {
			continue
		}
		phase, _ := n.node.Ready()
		w.t.Logf("node %d: %s, image at %d", n.id, phase, n.node.Image().Offset())
		for b := range n.node.Image().Brokers() {
			w.t.Logf("  %v", b)
		}
		for t := range n.node.Image().Topics() {
			for p := range n.node.Image().Partitions(t.ID) {
				w.t.Logf("  %v", p)
			}
		}
		for _, s := range n.node.Table().Status() {
			w.t.Logf("  %+v", s)
		}
	}
}

func (w *town) turn() {
	next := clock.Never
	if len(w.queue) > 0 {
		next = w.queue[0].at
	}
	for _, n := range w.list() {
		if !n.down && n.node.NextWake() < next {
			next = max(w.now, n.node.NextWake())
		}
	}
	w.now = max(w.now, next)
	for len(w.queue) > 0 && w.queue[0].at <= w.now {
		do := w.queue[0].do
		w.queue = w.queue[1:]
		do()
	}
	for _, n := range w.list() {
		if !n.down && n.node.NextWake() <= w.now {
			n.node.Step(broker.Wake{})
		}
	}
}

func (n *resident) start() {
	cfg := broker.DefaultConfig(n.id, "town")
	cfg.Quorum.Voters = nil
	for i := range n.voters {
		id := metadata.NodeID(i + 1)
		cfg.Quorum.Voters = append(cfg.Quorum.Voters, quorum.NodeID(id))
		cfg.Controllers = append(cfg.Controllers, wire.Peer{ID: id, Host: "peer", Port: int32(id)})
	}
	cfg.Host, cfg.Port = "client", int32(n.id)
	cfg.PeerHost, cfg.PeerPort = "peer", int32(n.id)
	var err error
	if cfg.Broker, err = metadata.NewBrokerConfig([]metadata.Config{{Name: "min.insync.replicas", Value: "2"}, {Name: "default.replication.factor", Value: "3"}}); err != nil {
		n.t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		n.t.Fatal(err)
	}
	n.life++
	n.down = false
	n.conns = make(map[broker.Caller]func(wire.Response))
	n.holder = job.NewHolder(n.disk, storage.DefaultConfig())
	n.node = broker.New(cfg, broker.Env{
		Clock: n, Disk: n, Network: n, Peers: n, Log: n, Rand: rand.New(rand.NewPCG(uint64(n.id), uint64(n.life))),
		Stop: func(reason error) {
			if reason != nil {
				n.t.Errorf("node %d stopped: %v", n.id, reason)
			}
			n.down = true
		},
	})
}

// kill ends the process; the others' connections to it are reset.
func (n *resident) kill() {
	n.down = true
	n.life++
	for _, c := range slices.SortedFunc(maps.Keys(n.conns), func(a, b broker.Caller) int { return cmp.Compare(a.Seq, b.Seq) }) {
		n.Reply(c, wire.Response{Close: true})
	}
	for _, o := range n.list() {
		if o != n && !o.down {
			life := o.life
			n.later(hop, func() {
				if o.life == life && !o.down {
					o.node.Step(broker.ConnClosed{Conn: uint64(1000 + n.id)})
					o.node.Step(broker.PeerDown{Peer: n.id})
				}
			})
		}
	}
}

func (n *resident) Now() clock.Instant     { return n.now }
func (n *resident) Wall() record.Timestamp { return 1_700_000_000_000 }
func (n *resident) Log(l slog.Level, text string, attrs ...slog.Attr) {
	n.t.Logf("%8.3f node %d %v %s %v", float64(n.now)/1e9, n.id, l, text, attrs)
}

func (n *resident) Submit(j job.Job) {
	life := n.life
	n.later(hop, func() {
		if n.life != life || n.down {
			return
		}
		for _, res := range job.Run(n.holder, []job.Job{j}) {
			if !n.down {
				n.node.Step(broker.JobDone{Result: res})
			}
		}
	})
}

func (n *resident) Reply(c broker.Caller, r wire.Response) {
	if answer := n.conns[c]; answer != nil {
		delete(n.conns, c)
		answer(r)
	}
}

func (n *resident) SetPeers([]wire.Peer)              {}
func (n *resident) Hangup(metadata.NodeID, wire.Link) {}

// Call carries a request as bytes, and its answer.
func (n *resident) Call(to metadata.NodeID, id broker.CallID, req kmsg.Request) {
	frame := wire.AppendRequest(nil, 1, "node", req)[wire.PrefixSize:]
	there := n.nodes[to]
	life := n.life
	answer := func(r broker.PeerReply) {
		n.later(hop, func() {
			if n.life == life && !n.down && !wire.OneWay(req) {
				n.node.Step(r)
			}
		})
	}
	gone := broker.PeerReply{From: to, Call: id, Err: wire.ErrPeerGone}
	n.later(hop, func() {
		if n.life != life || n.down {
			return
		}
		if there.down {
			answer(gone)
			return
		}
		r, early, err := wire.DecodePeer(frame, n.id, 1<<20)
		if err != nil {
			n.t.Errorf("node %d to %d: %v", n.id, to, err)
			return
		}
		respond := func(resp wire.Response) {
			if resp.Close {
				answer(gone)
				return
			}
			if resp.Body == nil && resp.Err == nil {
				return // the connection is gone
			}
			var f wire.Frame
			if r.Forwarded {
				err = f.AppendForwarded(1, resp)
			} else {
				err = f.Append(1, resp.Body)
			}
			if err != nil {
				n.t.Errorf("answer of node %d to %d: %v", to, n.id, err)
			}
			decoded, err := wire.DecodeResponse(req, filled(n.t, &f)[wire.PrefixSize:])
			if err != nil {
				n.t.Errorf("answer of node %d to %d: %v", to, n.id, err)
			}
			answer(broker.PeerReply{From: to, Call: id, Response: decoded})
		}
		if early != nil {
			respond(*early)
			return
		}
		there.seq++
		if wire.OneWay(req) {
			there.node.Step(broker.Request{Caller: broker.Caller{Conn: uint64(1000 + n.id), Seq: there.seq}, Request: r})
			return
		}
		caller := broker.Caller{Conn: uint64(1000 + n.id), Seq: there.seq}
		there.conns[caller] = respond
		there.node.Step(broker.Request{Caller: caller, Request: r})
	})
}

// filled is a frame with its holes filled.
func filled(t *testing.T, f *wire.Frame) []byte {
	var b []byte
	at := 0
	for _, h := range f.Holes {
		b = append(b, f.Bytes[at:h.At]...)
		at = h.At
		data := make([]byte, h.Region.Len)
		if _, err := h.Region.File.ReadAt(data, h.Region.Pos); err != nil {
			t.Fatal(err)
		}
		b = append(b, data...)
	}
	return append(b, f.Bytes[at:]...)
}

// ask sends a client's request and waits for the answer.
func (n *resident) ask(req wire.Request) wire.Response {
	n.t.Helper()
	req.Peer = wire.NoPeer
	n.seq++
	caller := broker.Caller{Conn: 1, Seq: n.seq}
	var got *wire.Response
	n.conns[caller] = func(r wire.Response) { got = &r }
	n.node.Step(broker.Request{Caller: caller, Request: req})
	n.until(fmt.Sprintf("an answer to %T by node %d", req.Body, n.id), func() bool { return got != nil || n.down })
	if got == nil {
		return wire.Response{Close: true}
	}
	return *got
}

func (w *town) ready() {
	w.t.Helper()
	for _, n := range w.list() {
		w.until(fmt.Sprintf("node %d serves", n.id), func() bool {
			_, ok := n.node.Ready()
			b, registered := n.node.Image().Broker(n.id)
			return n.down || ok && registered && !b.Fenced
		})
	}
}

// create makes a topic with three replicas, through node n.
func (n *resident) create(name string, partitions int32) {
	n.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 3
	req.Topics = append(req.Topics, topic)
	resp, ok := n.ask(wire.Request{Body: req}).Body.(*kmsg.CreateTopicsResponse)
	if !ok || resp.Topics[0].ErrorCode != 0 {
		n.t.Fatalf("create %s: %+v", name, resp)
	}
}

// produce appends a batch, retrying as a client does, and returns its offset.
func (w *town) produce(topic string, index int32) record.Offset {
	w.t.Helper()
	last := int16(-1)
	for end := w.now + clock.Instant(30*time.Second); w.now < end; {
		leader := w.leader(topic, index)
		if leader == nil {
			w.turn()
			continue
		}
		r := produceRequest(topic, index, batchOf(1))
		resp, ok := leader.ask(r).Body.(*kmsg.ProduceResponse)
		if !ok {
			continue
		}
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode == 0 {
			return record.Offset(p.BaseOffset)
		}
		last = p.ErrorCode
		w.turn()
	}
	w.report()
	w.t.Fatalf("%s-%d takes nothing: error %d", topic, index, last)
	return 0
}

// leader is the node that the newest image names and that is there.
func (w *town) leader(topic string, index int32) *resident {
	var best metadata.Offset
	var leader *resident
	for _, n := range w.list() {
		if n.down {
			continue
		}
		if _, ok := n.node.Ready(); !ok {
			continue
		}
		image := n.node.Image()
		t, ok := image.Topic(topic)
		if !ok || image.Offset() < best {
			continue
		}
		p, _ := image.Partition(t.ID, index)
		best, leader = image.Offset(), w.nodes[p.Leader]
	}
	if leader == nil || leader.down {
		return nil
	}
	return leader
}

func TestAClusterKeepsWhatItAcknowledged(t *testing.T) {
	w := newTown(t, 3, 3)
	w.ready()
	w.nodes[2].create("t", 6)
	for i := range int32(6) {
		if got := w.produce("t", i); got != 0 {
			t.Fatalf("first offset %d", got)
		}
	}
	next := record.Offset(1)
	for round := range 6 {
		n := w.nodes[metadata.NodeID(round%3+1)]
		n.kill()
		from := w.now
		for i := range int32(6) {
			if got := w.produce("t", i); got < next {
				t.Fatalf("offset %d after a failover, %d were acknowledged", got, next)
			}
		}
		t.Logf("service back after %v", time.Duration(w.now-from))
		n.start()
		w.ready()
		for i := range int32(6) {
			got := w.produce("t", i)
			next = max(next, got+1)
		}
		w.until("everybody is in sync", func() bool {
			image := n.node.Image()
			top, _ := image.Topic("t")
			for p := range image.Partitions(top.ID) {
				if len(p.ISR) < 3 {
					return false
				}
			}
			return true
		})
	}
}

// controller is the node that leads the quorum, if there is one.
func (w *town) controller() *resident {
	for _, n := range w.list() {
		if !n.down && n.node.Quorum() != nil && n.node.Quorum().Leading() {
			return n
		}
	}
	return nil
}

func TestAControllerThatIsToldToStopHasAnotherLeadFirst(t *testing.T) {
	w := newTown(t, 3, 3)
	w.ready()
	n := w.controller()
	n.node.Step(broker.Shutdown{})
	w.until("the node has stopped", func() bool { return n.down })
	stopped := w.now
	w.until("another leads", func() bool { return w.controller() != nil })
	// Nobody tells the others that its connections have ended: without being told
	// before, they wait an election timeout.
	if d := time.Duration(w.now - stopped); d > 10*time.Duration(hop) {
		t.Errorf("nobody led for %v", d)
	}
}

func TestANodeThatIsUnregisteredLeavesTheQuorum(t *testing.T) {
	w := newTown(t, 3, 4)
	w.ready()
	member := func() bool {
		return slices.ContainsFunc(w.nodes[1].node.Quorum().Members(), func(m quorum.Member) bool { return m.Node == 4 })
	}
	if !member() {
		t.Fatal("node 4 does not follow")
	}
	w.nodes[4].kill()
	w.until("node 4 is fenced", func() bool {
		b, _ := w.nodes[1].node.Image().Broker(4)
		return b.Fenced
	})
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = 4
	if resp := w.nodes[1].ask(wire.Request{Body: req}).Body.(*kmsg.UnregisterBrokerResponse); resp.ErrorCode != 0 {
		t.Fatalf("%+v", resp)
	}
	w.until("the quorum has forgotten node 4", func() bool { return !member() })
}

// Who asks for something when the active controller dies is answered, and not cut
// off, which clients take for a refusal of themselves.
func TestWhoAsksWhenTheControllerDiesIsAnswered(t *testing.T) {
	named := kmsg.NewMetadataRequestTopic()
	named.Topic = kmsg.StringPtr("automatic")
	metadataOf := kmsg.NewPtrMetadataRequest()
	metadataOf.Version, metadataOf.AllowAutoTopicCreation, metadataOf.Topics = 9, true, []kmsg.MetadataRequestTopic{named}
	created := kmsg.NewCreateTopicsRequestTopic()
	created.Topic, created.NumPartitions, created.ReplicationFactor = "made", 1, 3
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version, create.Topics, create.TimeoutMillis = 5, append(create.Topics, created), 60_000
	for name, x := range map[string]struct {
		req  kmsg.Request
		code func(wire.Body) int16
		want error
	}{
		"a producer that starts": {kmsg.NewPtrInitProducerIDRequest(), func(b wire.Body) int16 { return b.(*kmsg.InitProducerIDResponse).ErrorCode }, wire.ErrCoordinatorLoading},
		"a topic to be created":  {create, func(b wire.Body) int16 { return b.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode }, wire.ErrTimedOut},
		"a topic to be found":    {metadataOf, func(b wire.Body) int16 { return b.(*kmsg.MetadataResponse).Topics[0].ErrorCode }, metadata.ErrUnknownTopic},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTown(t, 3, 3)
			w.ready()
			n := w.controller()
			other := w.nodes[n.id%3+1]
			w.later(hop/2, n.kill)
			resp := other.ask(wire.Request{Body: x.req})
			if resp.Close {
				t.Fatal("the connection was closed")
			}
			if got, want := x.code(resp.Body), wire.Code(x.want); got != want {
				t.Fatalf("error %d, want %d: %+v", got, want, resp.Body)
			}
			n.start()
			w.until("the next controller does it", func() bool {
				code := x.code(other.ask(wire.Request{Body: x.req}).Body)
				return code == 0 || code == wire.Code(metadata.ErrTopicExists)
			})
		})
	}
}
