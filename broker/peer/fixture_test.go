package peer

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/host"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/tcp"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is what was logged.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.Bytes(), []byte(s))
}

// caller is node 1: a carrier, and what it posted.
type caller struct {
	*Carrier
	t      testing.TB
	log    lines
	events chan broker.Event
	last   broker.CallID
}

// quick makes a configuration that does not try the patience of tests.
func quick() Config {
	cfg := DefaultConfig()
	cfg.MinBackoff, cfg.MaxBackoff, cfg.RefusedBackoff = time.Millisecond, 5*time.Millisecond, 5*time.Millisecond
	return cfg
}

func call(t testing.TB, cfg Config) *caller {
	t.Helper()
	return callAs(t, cfg, wire.PeerHello{ClusterID: "cluster", Node: 1, Version: "test"})
}

func callAs(t testing.TB, cfg Config, self wire.PeerHello) *caller {
	t.Helper()
	c := &caller{t: t, events: make(chan broker.Event, 1<<16)}
	var err error
	c.Carrier, err = New(cfg, self, slog.New(slog.NewTextHandler(&c.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c.Open(func(events ...broker.Event) {
		for _, ev := range events {
			c.events <- ev
		}
	})
	t.Cleanup(c.Close)
	return c
}

// next is a new call id.
func (c *caller) next() broker.CallID {
	c.last++
	return c.last
}

// reply waits for the answer to a call, and passes what else comes by.
func (c *caller) reply(id broker.CallID) broker.PeerReply {
	c.t.Helper()
	for ev := range c.events {
		if r, ok := ev.(broker.PeerReply); ok {
			if r.Call != id {
				c.t.Fatalf("answer to call %d, want %d", r.Call, id)
			}
			return r
		}
	}
	panic("unreachable")
}

// ask calls until there is an answer, and so a connection.
func (c *caller) ask(to metadata.NodeID, req kmsg.Request) any {
	c.t.Helper()
	for {
		id := c.next()
		c.Call(to, id, req)
		switch r := c.reply(id); {
		case r.Err == nil:
			return r.Response
		case !errors.Is(r.Err, wire.ErrPeerGone):
			c.t.Fatal(r.Err)
		}
		runtime.Gosched()
	}
}

// down waits until a node is said to be down.
func (c *caller) down(node metadata.NodeID) {
	c.t.Helper()
	for ev := range c.events {
		if d, ok := ev.(broker.PeerDown); ok {
			if d.Peer != node {
				c.t.Fatalf("node %d is down, want %d", d.Peer, node)
			}
			return
		}
	}
}

// until waits for a line of the log.
func (c *caller) until(line string) {
	for c.log.count(line) == 0 {
		runtime.Gosched()
	}
}

// logic is a node that does what the test says with each event.
type logic struct {
	env broker.Env
	on  func(broker.Env, broker.Event)
}

func (n *logic) Step(ev broker.Event) {
	if _, ok := ev.(broker.Shutdown); ok {
		n.env.Stop(nil)
		return
	}
	n.on(n.env, ev)
}

func (n *logic) NextWake() clock.Instant { return clock.Never }

// answerer is another node with a real listener.
type answerer struct {
	peer   wire.Peer
	server *tcp.Server
	host   *host.Host
	log    lines
	served chan error
	stop   func()
}

func answering(t testing.TB, self wire.PeerHello, on func(broker.Env, broker.Event)) *answerer {
	t.Helper()
	return answeringAt(t, "127.0.0.1:0", self, on)
}

func answeringAt(t testing.TB, addr string, self wire.PeerHello, on func(broker.Env, broker.Event)) *answerer {
	t.Helper()
	a := &answerer{served: make(chan error, 1)}
	logger := slog.New(slog.NewTextHandler(&a.log, nil))
	var err error
	if a.server, err = tcp.New(tcp.DefaultConfig(), logger); err != nil {
		t.Fatal(err)
	}
	run := func([]job.Job) []job.Result { panic("no disk") }
	a.host = host.Start(host.Config{Run: run, Network: a.server, Logger: logger}, func(env broker.Env) host.Node {
		return &logic{env, on}
	})
	l, err := Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	a.peer = peerAt(self.Node, l.Addr())
	go func() { a.served <- a.server.ServePeers(l, self, a.host.Post) }()
	a.stop = sync.OnceFunc(func() {
		a.server.Close()
		if err := <-a.served; !errors.Is(err, tcp.ErrClosed) {
			t.Errorf("serve: %v", err)
		}
		a.host.Shutdown()
		if err := a.host.Wait(); err != nil {
			t.Errorf("host: %v", err)
		}
	})
	t.Cleanup(a.stop)
	return a
}

func peerAt(id metadata.NodeID, addr net.Addr) wire.Peer {
	return wire.Peer{ID: id, Host: "127.0.0.1", Port: int32(addr.(*net.TCPAddr).Port)}
}

// node2 is what node 2 says of itself.
var node2 = wire.PeerHello{ClusterID: "cluster", Node: 2, Version: "test"}

// echo answers every request with an empty response.
func echo(env broker.Env, ev broker.Event) {
	if r, ok := ev.(broker.Request); ok && !wire.OneWay(r.Body) {
		env.Network.Reply(r.Caller, wire.Response{Body: r.Body.ResponseKind()})
	}
}

// impostor listens as node 2 and does by hand, with each connection that has said
// hello, what the test says.
func impostor(t testing.TB, on func(*net.TCPConn)) wire.Peer {
	t.Helper()
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			conn, err := l.AcceptTCP()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				if _, err := readRequest(conn); err != nil {
					return
				}
				var f wire.Frame
				if err := f.Append(0, &wire.PeerHelloResponse{PeerHello: node2}); err != nil {
					t.Error(err)
				}
				if _, err := conn.Write(f.Bytes); err == nil {
					on(conn)
				}
			})
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-accepted
		conns.Wait()
	})
	return peerAt(2, l.Addr())
}

// readRequest reads one request, without its length.
func readRequest(conn net.Conn) ([]byte, error) {
	var prefix [wire.PrefixSize]byte
	if _, err := io.ReadFull(conn, prefix[:]); err != nil {
		return nil, err
	}
	size, err := wire.FrameSize(prefix[:], 1<<30)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, size)
	_, err = io.ReadFull(conn, frame)
	return frame, err
}

// reset ends a connection as the end of its process does.
func reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}

func heartbeat() *kmsg.BrokerHeartbeatRequest {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.Version, req.BrokerID = 1, 1
	return req
}

func fetch() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaState.ID = 17, 1
	return req
}

func envelope() *kmsg.EnvelopeRequest {
	return wire.Envelope(&wire.Request{ClientID: "app", Body: kmsg.NewPtrMetadataRequest()})
}
