package peer

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

func TestEveryLinkAnswersAndKnowsWhoCalls(t *testing.T) {
	type seen struct {
		key       int16
		peer      metadata.NodeID
		forwarded bool
	}
	requests := make(chan seen, 16)
	there := answering(t, node2, func(env broker.Env, ev broker.Event) {
		if r, ok := ev.(broker.Request); ok {
			requests <- seen{r.Body.Key(), r.Peer, r.Forwarded}
		}
		echo(env, ev)
	})
	c := call(t, quick())
	c.SetPeers([]wire.Peer{there.peer})
	c.until("node is connected")
	for _, x := range []struct {
		req  kmsg.Request
		want seen
	}{
		{heartbeat(), seen{kmsg.BrokerHeartbeat.Int16(), 1, false}},
		{fetch(), seen{kmsg.Fetch.Int16(), 1, false}},
		{envelope(), seen{kmsg.Metadata.Int16(), 1, true}},
	} {
		resp := c.ask(2, x.req)
		if got := <-requests; got != x.want {
			t.Errorf("%T arrives as %+v, want %+v", x.req, got, x.want)
		}
		if e, ok := resp.(*kmsg.EnvelopeResponse); ok {
			if _, _, err := wire.Unwrap(e, kmsg.NewPtrMetadataRequest()); err != nil {
				t.Error(err)
			}
		}
		if _, ok := resp.(*wire.Fetched); ok != (x.req.Key() == kmsg.Fetch.Int16()) {
			t.Errorf("%T is answered with %T", x.req, resp)
		}
	}
	if !c.Connected(2) || c.Connected(3) {
		t.Error("not connected to node 2, or connected to node 3, who is nobody")
	}
	c.Call(2, 0, &wire.QuorumMessages{From: 1, Messages: [][]byte{[]byte("m")}})
	if got := <-requests; got.key != 30001 || got.peer != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestEachOfAThousandCallsHasItsOwnAnswer(t *testing.T) {
	const calls = 1000
	rng := rand.New(rand.NewPCG(1, 2))
	var held []broker.Request
	got := 0
	there := answering(t, node2, func(env broker.Env, ev broker.Event) {
		r, ok := ev.(broker.Request)
		if !ok || wire.OneWay(r.Body) {
			return
		}
		b := r.Body.(*kmsg.BrokerHeartbeatRequest)
		if b.CurrentMetadataOffset < 0 {
			echo(env, ev)
			return
		}
		held, got = append(held, r), got+1
		if len(held) < 10 && got < calls {
			return
		}
		rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		for _, r := range held {
			resp := r.Body.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
			resp.ThrottleMillis = int32(r.Body.(*kmsg.BrokerHeartbeatRequest).CurrentMetadataOffset)
			env.Network.Reply(r.Caller, wire.Response{Body: resp})
		}
		held = held[:0]
	})
	c := call(t, quick())
	c.SetPeers([]wire.Peer{there.peer})
	warm := heartbeat()
	warm.CurrentMetadataOffset = -1
	c.ask(2, warm)
	want := map[broker.CallID]int32{}
	for i := range int64(calls) {
		req := heartbeat()
		req.CurrentMetadataOffset = i
		id := c.next()
		want[id] = int32(i)
		c.Call(2, id, req)
		c.Call(2, 0, &wire.QuorumMessages{From: 1, Messages: [][]byte{make([]byte, 100)}})
	}
	for len(want) > 0 {
		r := (<-c.events).(broker.PeerReply)
		number, ok := want[r.Call]
		if !ok || r.Err != nil || r.From != 2 || r.Response.(*kmsg.BrokerHeartbeatResponse).ThrottleMillis != number {
			t.Fatalf("%+v, want the answer to call %d, %d", r, r.Call, number)
		}
		delete(want, r.Call)
	}
	c.Close()
	if len(c.events) > 0 {
		t.Errorf("%d events more than there were calls: %v", len(c.events), <-c.events)
	}
}

func TestFollowerReadsRegionsOfFiles(t *testing.T) {
	fsys := vfs.OS(t.TempDir())
	file, err := fsys.Create("segment")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	var batches []byte
	for i := range 40 {
		b := record.NewBuilder().Append(1, nil, bytes.Repeat([]byte{byte(i)}, 100_000)).Build(record.Options{})
		b.Assign(record.Offset(i), 1)
		batches = append(batches, b...)
	}
	if _, err := file.WriteAt(batches, 0); err != nil {
		t.Fatal(err)
	}
	there := answering(t, node2, func(env broker.Env, ev broker.Event) {
		if r, ok := ev.(broker.Request); ok {
			p := wire.FetchPartition{HighWatermark: 7, Records: storage.Region{File: file, Len: int64(len(batches))}}
			topic := wire.FetchTopic{TopicID: [16]byte{9}, Partitions: []wire.FetchPartition{p}}
			env.Network.Reply(r.Caller, wire.Response{Body: &wire.FetchResponse{Version: 17, Topics: []wire.FetchTopic{topic}}})
		}
	})
	c := call(t, quick())
	c.SetPeers([]wire.Peer{there.peer})
	got := c.ask(2, fetch()).(*wire.Fetched)
	if p := &got.Partitions[0]; len(p.Batches) != 40 || p.Bad != nil || p.HighWatermark != 7 || p.Topic != (metadata.TopicID{9}) || p.Batches[39].BaseOffset() != 39 {
		t.Errorf("%d batches, %v", len(p.Batches), p.Bad)
	}
}

func TestNobodyThereMeansDownAndNoAnswerButOneWillDo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr()
	l.Close()
	c := call(t, quick())
	c.SetPeers([]wire.Peer{peerAt(2, addr)})
	c.down(2)
	c.down(2) // again and again: who becomes controller later must learn of it too
	for _, req := range []kmsg.Request{heartbeat(), fetch(), envelope()} {
		id := c.next()
		c.Call(2, id, req)
		if r := c.reply(id); !errors.Is(r.Err, wire.ErrPeerGone) || r.From != 2 || r.Response != nil {
			t.Errorf("%+v", r)
		}
	}
	id := c.next()
	c.Call(3, id, heartbeat())
	if r := c.reply(id); !errors.Is(r.Err, wire.ErrPeerGone) || r.From != 3 {
		t.Errorf("a node nobody named: %+v", r)
	}
	c.Call(3, 0, &wire.QuorumMessages{From: 1})
	if n := c.log.count("node cannot be reached"); n != 1 {
		t.Errorf("said %d times that it cannot be reached", n)
	}
	// It is called again until it comes up.
	answeringAt(t, addr.String(), node2, echo)
	c.ask(2, heartbeat())
	c.until("node is connected")
}

func TestOneWayRequestsWaitForALinkAndTheOldestAreDropped(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr()
	l.Close()
	c := call(t, quick())
	c.SetPeers([]wire.Peer{peerAt(2, addr)})
	const sent = 3 * queuedDown
	for i := range sent {
		c.Call(2, 0, &wire.QuorumMessages{From: 1, Messages: [][]byte{{byte(i)}}})
	}
	arrived := make(chan byte, sent)
	answeringAt(t, addr.String(), node2, func(_ broker.Env, ev broker.Event) {
		if r, ok := ev.(broker.Request); ok {
			arrived <- r.Body.(*wire.QuorumMessages).Messages[0][0]
		}
	})
	for want := sent - queuedDown; want < sent; want++ {
		if got := <-arrived; int(got) != want {
			t.Fatalf("message %d arrives, want %d", got, want)
		}
	}
}

// A process that is killed leaves half a response, and its kernel a reset.
func TestPeerKilledInTheMiddleOfAFrame(t *testing.T) {
	hang := make(chan struct{})
	peer := impostor(t, func(conn *net.TCPConn) {
		frame, err := readRequest(conn)
		if err != nil {
			return
		}
		if int16(frame[0])<<8|int16(frame[1]) != kmsg.BrokerHeartbeat.Int16() {
			<-hang
			return
		}
		conn.Write([]byte{0, 0, 0, 100, 0, 0, 0, 1, 0, 0}) // of 100 bytes
		if _, err := readRequest(conn); err != nil {       // so that nothing is unread, and the reset comes after the bytes
			return
		}
		reset(conn)
	})
	t.Cleanup(func() { close(hang) })
	c := call(t, quick())
	c.SetPeers([]wire.Peer{peer})
	c.until("node is connected")
	first, second := c.next(), c.next()
	c.Call(2, first, heartbeat())
	c.Call(2, second, heartbeat())
	for _, id := range []broker.CallID{first, second} {
		if r := c.reply(id); !errors.Is(r.Err, wire.ErrPeerGone) {
			t.Errorf("%+v", r)
		}
	}
	c.down(2)
}

// A machine that has vanished says nothing: then the time for calls decides, and
// nobody is said to be down.
func TestSilenceEndsCallsAndTellsOfNoDeath(t *testing.T) {
	hang := make(chan struct{})
	peer := impostor(t, func(conn *net.TCPConn) { <-hang })
	t.Cleanup(func() { close(hang) })
	cfg := quick()
	cfg.CallTimeout = 30 * time.Millisecond
	c := call(t, cfg)
	c.SetPeers([]wire.Peer{peer})
	for _, req := range []kmsg.Request{heartbeat(), envelope(), fetch()} {
		for c.log.count(fmt.Sprintf("link=%v", wire.LinkOf(req))) == 0 { // until it was asked over a connection
			id := c.next()
			c.Call(2, id, req)
			if r := c.reply(id); !errors.Is(r.Err, wire.ErrPeerGone) {
				t.Fatalf("%+v", r)
			}
		}
	}
	if n := c.log.count("node does not answer"); n < wire.Links {
		t.Errorf("%d lines: %s", n, c.log.String())
	}
	for len(c.events) > 0 {
		if ev, ok := (<-c.events).(broker.PeerDown); ok {
			t.Errorf("%v", ev)
		}
	}
}

func TestStrangersRefuseEachOtherAndBothSaySo(t *testing.T) {
	for name, x := range map[string]struct {
		there    wire.PeerHello
		as       metadata.NodeID
		mine     string // logged here
		theirs   string // logged there; empty if they see nothing wrong
		protocol bool
	}{
		"another cluster": {wire.PeerHello{ClusterID: "other", Node: 2}, 2, `is of cluster`, "node refused", true},
		"own id":          {wire.PeerHello{ClusterID: "cluster", Node: 1, Incarnation: metadata.IncarnationID{7}}, 2, "both sides are node 1", "node refused", true},
		"itself":          {wire.PeerHello{ClusterID: "cluster", Node: 1}, 2, "node 1 called itself: it listens where --controllers has another node", "node refused", true},
		"another node":    {wire.PeerHello{ClusterID: "cluster", Node: 3}, 2, "is node 3, not 2", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			there := answering(t, x.there, echo)
			c := call(t, quick())
			peer := there.peer
			peer.ID = x.as
			c.SetPeers([]wire.Peer{peer})
			c.until(x.mine)
			for x.theirs != "" && there.log.count(x.theirs) == 0 {
				continue
			}
			id := c.next()
			c.Call(2, id, heartbeat())
			if r := c.reply(id); !errors.Is(r.Err, wire.ErrPeerGone) {
				t.Errorf("%+v", r)
			}
			c.Close()
			if len(c.events) > 0 {
				t.Errorf("%v", <-c.events)
			}
		})
	}
}

func TestWhatIsNoNodeIsRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-served
	})
	c := call(t, quick())
	c.SetPeers([]wire.Peer{peerAt(2, l.Addr())})
	c.until("node cannot be reached")
}

func TestAnswersThatWereNotAskedForBreakTheLink(t *testing.T) {
	for name, answer := range map[string]string{
		"another call's": "\x00\x00\x00\x0f\x00\x00\x00\x63" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"too long":       "\x7f\xff\xff\xff",
		"too short":      "\x00\x00\x00\x03abc",
		"garbage":        "\x00\x00\x00\x06\x00\x00\x00\x01\xff\xff",
	} {
		t.Run(name, func(t *testing.T) {
			peer := impostor(t, func(conn *net.TCPConn) {
				if _, err := readRequest(conn); err == nil {
					conn.Write([]byte(answer))
					readRequest(conn) // until the other side has had enough
				}
			})
			c := call(t, quick())
			c.SetPeers([]wire.Peer{peer})
			c.until("node is connected")
			id := c.next()
			c.Call(2, id, heartbeat())
			if r := c.reply(id); !errors.Is(r.Err, wire.ErrPeerGone) {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("without a call", func(t *testing.T) {
		peer := impostor(t, func(conn *net.TCPConn) {
			conn.Write([]byte("\x00\x00\x00\x04\x00\x00\x00\x01"))
			readRequest(conn)
		})
		c := call(t, quick())
		c.SetPeers([]wire.Peer{peer})
		c.until("answer to no call")
	})
}

// Who reads nothing costs bounded memory: one-way requests are dropped, calls
// fail, and in the end the link is broken.
func TestSlowReaderIsNotWaitedFor(t *testing.T) {
	hang := make(chan struct{})
	peer := impostor(t, func(conn *net.TCPConn) { <-hang })
	t.Cleanup(func() { close(hang) })
	cfg := quick()
	cfg.MaxQueued, cfg.MaxOpen = 1<<20, 100
	c := call(t, cfg)
	c.SetPeers([]wire.Peer{peer})
	c.until("node is connected")
	l := c.find(2, wire.LinkControl)
	for range 1000 {
		c.Call(2, 0, &wire.QuorumMessages{From: 1, Messages: [][]byte{make([]byte, 64<<10)}})
		l.mu.Lock()
		if l.queuedBytes > cfg.MaxQueued {
			t.Fatalf("%d bytes are queued", l.queuedBytes)
		}
		l.mu.Unlock()
	}
	for range 150 {
		c.Call(2, c.next(), fetch())
	}
	for range 50 { // or more, if the link was not there yet
		if r := (<-c.events).(broker.PeerReply); !errors.Is(r.Err, wire.ErrPeerGone) {
			t.Errorf("%+v", r)
		}
	}
	c.Hangup(2, wire.LinkFetch)
	for range 100 {
		if r := (<-c.events).(broker.PeerReply); !errors.Is(r.Err, wire.ErrPeerGone) {
			t.Errorf("%+v", r)
		}
	}
}

func TestWriteThatDoesNotEndBreaksTheLink(t *testing.T) {
	hang := make(chan struct{})
	peer := impostor(t, func(conn *net.TCPConn) { <-hang })
	t.Cleanup(func() { close(hang) })
	cfg := quick()
	cfg.CallTimeout = 30 * time.Millisecond
	c := call(t, cfg)
	c.SetPeers([]wire.Peer{peer})
	c.until("node is connected")
	l := c.find(2, wire.LinkControl)
	l.mu.Lock()
	first := l.conn
	l.mu.Unlock()
	for broken := first == nil; !broken; {
		c.Call(2, 0, &wire.QuorumMessages{From: 1, Messages: [][]byte{make([]byte, 1<<20)}})
		l.mu.Lock()
		broken = l.conn != first
		l.mu.Unlock()
	}
}

func TestHangupAnswersOpenCallsAndSparesOtherLinks(t *testing.T) {
	var waits []broker.Request
	arrived := make(chan struct{}, 8)
	there := answering(t, node2, func(env broker.Env, ev broker.Event) {
		r, ok := ev.(broker.Request)
		if !ok {
			return
		}
		if r.Body.Key() == kmsg.Fetch.Int16() && r.Body.(*kmsg.FetchRequest).MaxWaitMillis > 0 {
			waits = append(waits, r)
			arrived <- struct{}{}
			return
		}
		echo(env, ev)
	})
	c := call(t, quick())
	c.SetPeers([]wire.Peer{there.peer})
	c.ask(2, fetch())
	c.ask(2, heartbeat())
	long := fetch()
	long.MaxWaitMillis = 1000
	id := c.next()
	c.Call(2, id, long)
	<-arrived
	control := c.find(2, wire.LinkControl)
	control.mu.Lock()
	before := control.conn
	control.mu.Unlock()
	c.Hangup(2, wire.LinkFetch)
	c.Hangup(3, wire.LinkFetch) // nobody
	if r := c.reply(id); !errors.Is(r.Err, wire.ErrPeerGone) {
		t.Errorf("%+v", r)
	}
	c.ask(2, fetch())
	control.mu.Lock()
	defer control.mu.Unlock()
	if control.conn != before {
		t.Error("the control link broke as well")
	}
}

func TestPeersThatAreNotNamedAreHungUp(t *testing.T) {
	closed := make(chan struct{}, 64)
	there := answering(t, node2, func(env broker.Env, ev broker.Event) {
		if _, ok := ev.(broker.ConnClosed); ok {
			closed <- struct{}{}
		}
		echo(env, ev)
	})
	elsewhere := answering(t, node2, echo)
	c := call(t, quick())
	c.SetPeers([]wire.Peer{there.peer})
	for _, req := range []kmsg.Request{heartbeat(), fetch(), envelope()} {
		c.ask(2, req)
	}
	c.SetPeers([]wire.Peer{elsewhere.peer}) // it moved
	for range wire.Links {
		<-closed
	}
	c.ask(2, heartbeat())
	c.SetPeers(nil)
	id := c.next()
	c.Call(2, id, heartbeat())
	if r := c.reply(id); !errors.Is(r.Err, wire.ErrPeerGone) {
		t.Errorf("%+v", r)
	}
	c.Close()
	c.SetPeers([]wire.Peer{there.peer}) // too late: nothing is dialled
	if c.Connected(2) {
		t.Error("connected after the end")
	}
}

func TestPeerThatEndsInGoodOrderIsFoundOutAtOnce(t *testing.T) {
	there := answering(t, node2, echo)
	c := call(t, quick())
	c.SetPeers([]wire.Peer{there.peer})
	c.ask(2, heartbeat())
	there.stop()
	c.down(2) // its port refuses
}

func TestConfigurationThatCannotWorkIsRefused(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	cfg := DefaultConfig()
	cfg.MaxOpen = 0
	if _, err := New(cfg, wire.PeerHello{}, nil); !errors.Is(err, ErrConfig) {
		t.Errorf("%v", err)
	}
}
