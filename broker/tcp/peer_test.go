package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// peerDoor is a door with a listener for nodes too, of node 1.
type peerDoor struct {
	*door
	nodes string
}

func openPeers(t testing.TB, cfg Config, on func(broker.Env, broker.Event)) *peerDoor {
	t.Helper()
	d := &peerDoor{door: open(t, cfg, on)}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	d.nodes = l.Addr().String()
	served := make(chan error, 1)
	go func() {
		served <- d.ServePeers(l, wire.PeerHello{ClusterID: "cluster", Node: 1, Incarnation: itself}, d.host.Post)
	}()
	t.Cleanup(func() {
		d.Close()
		if err := <-served; !errors.Is(err, ErrClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return d
}

// connect opens a connection to where nodes listen, and says nothing yet.
func (d *peerDoor) connect() *client {
	d.t.Helper()
	c, err := net.Dial("tcp", d.nodes)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	return &client{d.t, c}
}

func said(correlation int32, req kmsg.Request) []byte {
	return wire.AppendRequest(nil, correlation, "node", req)
}

// greet connects and says hello as node 2.
func (d *peerDoor) greet() *client {
	d.t.Helper()
	c := d.connect()
	c.send(said(9, &wire.PeerHello{ClusterID: "cluster", Node: 2}))
	if got := c.hello(); got.Node != 1 || got.ClusterID != "cluster" || got.Refused != "" {
		d.t.Fatalf("%+v", got)
	}
	return c
}

// hello reads the answer to one.
func (c *client) hello() *wire.PeerHelloResponse {
	c.t.Helper()
	correlation, body := c.receive()
	resp := &wire.PeerHelloResponse{}
	if err := resp.ReadFrom(body); err != nil || correlation != 9 {
		c.t.Fatalf("answer %d: %v", correlation, err)
	}
	return resp
}

func heartbeat(offset int64) *kmsg.BrokerHeartbeatRequest {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.Version, req.BrokerID, req.CurrentMetadataOffset = 1, 2, offset
	return req
}

func TestOneWayRequestsNeedNoAnswerAndHoldNobodyUp(t *testing.T) {
	var first broker.Request
	messages := 0
	d := openPeers(t, DefaultConfig(), func(env broker.Env, ev broker.Event) {
		r, ok := ev.(broker.Request)
		if !ok {
			return
		}
		if r.Peer != 2 {
			t.Errorf("a request of node %d", r.Peer)
		}
		switch {
		case wire.OneWay(r.Body):
			messages++
		case messages == 0:
			first = r
		default: // the second heartbeat is answered before the first
			env.Network.Reply(r.Caller, answer(r))
			env.Network.Reply(first.Caller, answer(first))
		}
	})
	c := d.greet()
	stream := said(1, heartbeat(0))
	for range 3 * DefaultConfig().InFlight {
		stream = append(stream, said(0, &wire.QuorumMessages{From: 2, Messages: [][]byte{{1}}})...)
	}
	c.send(append(stream, said(2, heartbeat(1))...))
	for want := int32(1); want <= 2; want++ {
		if got, _ := c.receive(); got != want {
			t.Errorf("answer to %d, want %d", got, want)
		}
	}
}

func TestForwardedRequestsAreAnsweredInTheirEnvelopes(t *testing.T) {
	d := openPeers(t, DefaultConfig(), func(env broker.Env, ev broker.Event) {
		if r, ok := ev.(broker.Request); ok {
			resp := answer(r)
			resp.Offset = 12
			if r.Forwarded && r.ClientID == "c" {
				env.Network.Reply(r.Caller, resp)
			}
		}
	})
	c := d.greet()
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 7
	future := kmsg.NewPtrCreateTopicsRequest()
	future.Version = 77 // which is answered at the door
	c.send(append(said(3, wire.Envelope(&wire.Request{ClientID: "c", Body: create})), said(4, wire.Envelope(&wire.Request{ClientID: "c", Body: future}))...))
	for want, failed := range []bool{false, true} {
		correlation, body := c.receive()
		var frame []byte
		frame = append(binary.BigEndian.AppendUint32(frame, uint32(correlation)), body...)
		resp, err := wire.DecodeResponse(kmsg.NewPtrEnvelopeRequest(), frame)
		if err != nil || int(correlation) != 3+want {
			t.Fatal(correlation, err)
		}
		_, offset, err := wire.Unwrap(resp.(*kmsg.EnvelopeResponse), create)
		if (err != nil) != failed || !failed && offset != 12 {
			t.Errorf("answer %d at %d: %v", correlation, offset, err)
		}
	}
}

// itself names the process whose door it is.
var itself = metadata.IncarnationID{7}

func TestStrangersAreToldWhyTheyAreRefused(t *testing.T) {
	for name, x := range map[string]struct {
		hello wire.PeerHello
		why   string
	}{
		"another cluster": {wire.PeerHello{ClusterID: "other", Node: 2}, `node 2 is of cluster "other", node 1 of cluster "cluster"`},
		"own id":          {wire.PeerHello{ClusterID: "cluster", Node: 1}, "both sides are node 1"},
		"itself":          {wire.PeerHello{ClusterID: "cluster", Node: 1, Incarnation: itself}, "node 1 called itself: it listens where --controllers has another node"},
		"no id":           {wire.PeerHello{ClusterID: "cluster", Node: -1}, "no node has the id -1"},
	} {
		t.Run(name, func(t *testing.T) {
			d := openPeers(t, DefaultConfig(), echo)
			c := d.connect()
			c.send(append(said(9, &x.hello), said(10, heartbeat(0))...)) // which nobody reads
			if got := c.hello(); !bytes.Contains([]byte(got.Refused), []byte(x.why)) {
				t.Errorf("refused: %q", got.Refused)
			}
			d.Close()
			if !d.log.has("node refused") {
				t.Errorf("the log lacks a line: %s", d.log.String())
			}
		})
	}
}

func TestWhatIsNoNodeIsShownTheDoor(t *testing.T) {
	hello := said(9, &wire.PeerHello{ClusterID: "cluster", Node: 2})
	for _, x := range []struct{ name, send, logged string }{
		{"a client", string(framed(1, metadataRequest())), "in place of a node's hello"},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS handshake"},
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", "HTTP request"},
		{"a long hello", "\x00\x01\x00\x00" + string(hello[4:]), "frame size: 65536"},
		{"a hello cut short", "\x00\x00\x00\x10" + string(hello[4:20]), "PeerHello"},
	} {
		t.Run(x.name, func(t *testing.T) {
			d := openPeers(t, DefaultConfig(), echo)
			c := d.connect()
			c.send([]byte(x.send))
			c.Conn.(*net.TCPConn).CloseWrite()
			c.cut()
			d.Close()
			if !d.log.has(x.logged) || !d.log.has("where nodes listen") {
				t.Errorf("the log lacks %q: %s", x.logged, d.log.String())
			}
		})
	}
}

func TestNodesThatSendNonsenseAreCutOff(t *testing.T) {
	other := heartbeat(0)
	other.BrokerID = 3
	for _, x := range []struct{ name, send, logged string }{
		{"a client's request", string(said(1, metadataRequest())), "api key 3 between nodes"},
		{"another node's request", string(said(1, other)), "of node 3 from node 2"},
		{"too long", "\x7f\xff\xff\xff", "frame size: 2147483647"},
		{"cut", "\x00\x00\x00\x0a" + string(said(1, heartbeat(0))[4:14]), "malformed request"},
	} {
		t.Run(x.name, func(t *testing.T) {
			d := openPeers(t, DefaultConfig(), echo)
			c := d.greet()
			c.send([]byte(x.send))
			c.cut()
			d.Close()
			if !d.log.has(x.logged) || !d.log.has("node sent a request that cannot be read") {
				t.Errorf("the log lacks %q: %s", x.logged, d.log.String())
			}
		})
	}
}

func TestNodesMayBeSilentButNotBeforeTheirHelloOrInAFrame(t *testing.T) {
	cfg := DefaultConfig()
	cfg.FrameTimeout, cfg.IdleTimeout, cfg.MinBytesPerSecond = 20*time.Millisecond, 10*time.Millisecond, 1<<40
	d := openPeers(t, cfg, echo)
	silent := d.greet()
	mute := d.connect()
	mute.cut()
	half := d.greet()
	half.send(said(1, heartbeat(0))[:30])
	half.cut()
	silent.send(said(1, heartbeat(0))) // longer than either after it was last heard
	silent.receive()
}

func TestLongRequestsOfNodesArriveWhole(t *testing.T) {
	big := bytes.Repeat([]byte("snapshot"), 5<<20)
	whole := make(chan bool, 1)
	d := openPeers(t, DefaultConfig(), func(_ broker.Env, ev broker.Event) {
		if r, ok := ev.(broker.Request); ok {
			whole <- bytes.Equal(r.Body.(*wire.QuorumMessages).Messages[0], big)
		}
	})
	d.greet().send(said(0, &wire.QuorumMessages{From: 2, Messages: [][]byte{big}}))
	if !<-whole {
		t.Error("it is not what was sent")
	}
}

func TestShutdownLeavesNodesAlone(t *testing.T) {
	d := openPeers(t, DefaultConfig(), echo)
	node, c := d.greet(), d.dial()
	c.send(framed(1, metadataRequest()))
	c.receive()
	if err := d.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.cut()
	node.send(said(1, heartbeat(0)))
	node.receive()
	d.greet().send(said(2, heartbeat(0)))
	d.Close()
	node.cut()
}

func TestNodesAreNotCountedAsClients(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxConnections = 1
	d := openPeers(t, cfg, echo)
	d.greet()
	d.greet()
	c := d.dial()
	c.send(framed(1, metadataRequest()))
	c.receive()
}

func TestNodeThatFloodsIsCutOff(t *testing.T) {
	d := openPeers(t, DefaultConfig(), func(broker.Env, broker.Event) {}) // answers nothing
	c := d.greet()
	var stream []byte
	for i := range int32(peerInFlight + 1) {
		stream = append(stream, said(i, heartbeat(0))...)
	}
	c.send(stream)
	c.cut()
	d.Close()
	if !d.log.has("too many requests in flight") {
		t.Errorf("the log: %s", d.log.String())
	}
}
