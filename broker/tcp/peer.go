package tcp

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

const (
	// peerInFlight is how many requests of one connection of another node may be
	// without a response. It is more than a node ever has: the reader does not
	// wait, since what follows may be what the others wait for.
	peerInFlight = 16 << 10
	// wholeBytes is the longest frame whose memory is made at once.
	wholeBytes = 16 << 20
)

var (
	// errHello says a connection on the listener for nodes did not begin as one.
	errHello = errors.New("not a node of this cluster")
	// errFlood says a node has too many requests without a response.
	errFlood = errors.New("too many requests in flight")
)

// readPeer reads what another node sends. Its requests take nothing from the
// budgets: the other node bounds them, and what keeps a cluster together must not
// wait for clients. Their frames are bounded.
func (c *conn) readPeer() error {
	if err := c.greet(); err != nil {
		return err
	}
	for {
		frame, err := c.readPeerFrame(c.s.cfg.MaxRequestBytes)
		if err != nil {
			return err
		}
		c.heard.Store(time.Now().UnixNano())
		if err := c.decodePeer(frame); err != nil {
			return err
		}
	}
}

// greet reads the other node's hello and answers it.
func (c *conn) greet() error {
	if err := c.readBy(time.Now().Add(c.s.cfg.FrameTimeout)); err != nil {
		return err
	}
	frame, err := c.readPeerFrame(wire.MaxHelloFrame)
	if err != nil {
		return err
	}
	hello, correlation, err := wire.DecodeHello(frame)
	if err != nil {
		return err
	}
	answer := *c.self
	if answer.Refused = refusal(c.self, hello); answer.Refused == "" {
		answer.Twin = c.s.meet(c, hello)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errGone
	}
	seq := c.order.Expect(correlation, request{})
	c.order.Answer(seq, wire.Response{Body: &wire.PeerHelloResponse{PeerHello: answer}, Close: answer.Refused != ""})
	c.some.Signal()
	if answer.Refused != "" {
		for !c.closed { // by the writer, once the other node has been told
			c.room.Wait()
		}
		return fmt.Errorf("%w: %s", errHello, answer.Refused)
	}
	c.peer = hello.Node
	return nil
}

// refusal is what is wrong with another node's hello, or empty.
func refusal(self, hello *wire.PeerHello) string {
	switch {
	case hello.ClusterID != self.ClusterID:
		return fmt.Sprintf("node %d is of cluster %q, node %d of cluster %q: give all nodes the same --controllers, of which a fresh directory makes its id, or the same --cluster-id", hello.Node, hello.ClusterID, self.Node, self.ClusterID)
	case hello.Node == self.Node && hello.Incarnation == self.Incarnation:
		return fmt.Sprintf("node %d called itself: it listens where --controllers has another node", self.Node)
	case hello.Node == self.Node:
		return fmt.Sprintf("both sides are node %d: every node needs a node id of its own", self.Node)
	case hello.Node < 0:
		return fmt.Sprintf("no node has the id %d", hello.Node)
	}
	return ""
}

// readPeerFrame reads a frame of at most max bytes. Nobody hurries a connection
// that is silent: the kernel finds out whether the other side is there.
func (c *conn) readPeerFrame(max int) ([]byte, error) {
	if c.in.Buffered() == 0 {
		c.postAll()
		if c.peer != wire.NoPeer && !c.deadline.IsZero() {
			if err := c.readBy(time.Time{}); err != nil {
				return nil, err
			}
		}
		if _, err := c.in.Peek(1); err != nil {
			return nil, c.late(err)
		}
	}
	prefix, err := c.peekPeer(wire.PrefixSize)
	if err != nil {
		return nil, err
	}
	if err := wire.Hello(prefix); err != nil {
		return nil, err
	}
	size, err := wire.FrameSize(prefix, max)
	if err != nil {
		return nil, err
	}
	c.in.Discard(wire.PrefixSize)
	return c.readBody(size)
}

// peekPeer is peek, which leaves the time of the hello alone.
func (c *conn) peekPeer(n int) ([]byte, error) {
	if c.peer != wire.NoPeer {
		return c.peek(n)
	}
	p, err := c.in.Peek(n)
	return p, c.late(err)
}

// readBody reads size bytes. Memory for very many is made as they arrive.
func (c *conn) readBody(size int) ([]byte, error) {
	if c.in.Buffered() < size && c.peer != wire.NoPeer {
		if err := c.expectBytes(size); err != nil {
			return nil, err
		}
	}
	frame := make([]byte, 0, min(size, wholeBytes))
	for len(frame) < size {
		if len(frame) == cap(frame) {
			frame = slices.Grow(frame, min(size-len(frame), len(frame)))
		}
		from := len(frame)
		frame = frame[:min(size, cap(frame))]
		if _, err := io.ReadFull(c.in, frame[from:]); err != nil {
			return nil, c.late(err)
		}
	}
	return frame, nil
}

// decodePeer makes a frame an event or an answer at once.
func (c *conn) decodePeer(frame []byte) error {
	req, answer, err := c.decodePeerFrame(frame)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errGone
	}
	ev := broker.Request{Caller: wire.Caller{Conn: c.id, Seq: math.MaxUint64}, Request: req, Host: c.host, Port: c.port}
	if answer != nil || !wire.OneWay(req.Body) {
		if c.order.Len() >= peerInFlight {
			return errFlood
		}
		ev.Caller.Seq = c.order.Expect(req.Correlation, request{forwarded: req.Forwarded})
	}
	if answer != nil {
		c.order.Answer(ev.Caller.Seq, *answer)
		c.some.Signal()
		return nil
	}
	c.events = append(c.events, ev)
	if len(c.events) >= postAtMost {
		c.postAll()
	}
	return nil
}

func (c *conn) decodePeerFrame(frame []byte) (req wire.Request, answer *wire.Response, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.s.log.Error("decoder panicked", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
			err = fmt.Errorf("%w: panic", wire.ErrMalformed)
		}
	}()
	return wire.DecodePeer(frame, c.peer, c.s.cfg.MaxDecompressed)
}

// reportPeer logs why another node's connection was closed, if that is worth a
// line.
func (c *conn) reportPeer(err error) {
	from, node, why := slog.String("address", c.tcp.RemoteAddr().String()), nodeAttr(c.peer), slog.Any("err", err)
	switch {
	case errors.Is(err, errHello):
		c.s.complaints.about("node refused", from, why)
	case c.peer == wire.NoPeer && (errors.Is(err, wire.ErrForeign) || errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrFrameSize)):
		c.s.complaints.about("something that is no node connects where nodes listen", from, why)
	case errors.Is(err, wire.ErrFrameSize), errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrUnsupportedVersion),
		errors.Is(err, errFlood), errors.Is(err, wire.ErrForeign):
		c.s.complaints.about("node sent a request that cannot be read", from, node, why)
	default:
		c.s.log.Debug("node's connection closed", from, node, why)
	}
}

func nodeAttr(id metadata.NodeID) slog.Attr { return slog.Int("peer", int(id)) }
