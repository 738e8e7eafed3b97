package maelstrom

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/maelstrom/mesh"
)

const (
	// callTime is how long a call may be without an answer, beside what a Fetch
	// may wait. Then its link is broken.
	callTime = 5 * time.Second
	// greetTime is how long a connection and its hello may take.
	greetTime  = 2 * time.Second
	minBackoff = 20 * time.Millisecond
	maxBackoff = 500 * time.Millisecond
	// maxQueue is how many one-way messages wait for a connection.
	maxQueue = 64
)

// peerLink is one of the links to another broker. It is made again and again for
// as long as the broker is named.
type peerLink struct {
	c    *carrier
	to   wire.Peer
	kind wire.Link

	conn        *mesh.Conn // nil while the link is down
	greeted     bool
	until       time.Time // while it is not greeted: when it is given up
	dialAt      time.Time // while it is down
	backoff     time.Duration
	in          []byte
	correlation int32
	queue       []kmsg.Request // one-way, while there is no connection
	flying      []call         // oldest first; the hello too
}

type call struct {
	id          broker.CallID
	req         kmsg.Request
	correlation int32
	until       time.Time
}

// SetPeers implements broker.Peers.
func (r *carrier) SetPeers(list []wire.Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.links = slices.DeleteFunc(r.links, func(l *peerLink) bool {
		gone := !slices.Contains(list, l.to)
		if gone {
			l.end()
		}
		return gone
	})
	for _, p := range list {
		for kind := range wire.Link(wire.Links) {
			if r.find(p.ID, kind) == nil {
				r.links = append(r.links, &peerLink{c: r, to: p, kind: kind, backoff: minBackoff})
			}
		}
	}
}

func (r *carrier) find(to metadata.NodeID, kind wire.Link) *peerLink {
	for _, l := range r.links {
		if l.to.ID == to && l.kind == kind {
			return l
		}
	}
	return nil
}

// Call implements broker.Peers.
func (r *carrier) Call(to metadata.NodeID, id broker.CallID, req kmsg.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, oneWay := r.find(to, wire.LinkOf(req)), wire.OneWay(req)
	switch {
	case l != nil && l.greeted:
		l.send(call{id: id, req: req})
	case !oneWay:
		r.post(broker.PeerReply{From: to, Call: id, Err: fmt.Errorf("%w: node %d is not connected", wire.ErrPeerGone, to)})
	case l != nil:
		if len(l.queue) == maxQueue {
			l.queue = slices.Delete(l.queue, 0, 1)
		}
		l.queue = append(l.queue, req)
	}
}

// Hangup implements broker.Peers.
func (r *carrier) Hangup(to metadata.NodeID, kind wire.Link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.find(to, kind); l != nil && l.conn != nil {
		l.broken("hung up")
	}
}

// tick makes a connection when it is time to, and gives up what takes too long.
func (l *peerLink) tick(now time.Time) {
	switch {
	case l.conn == nil && !now.Before(l.dialAt):
		l.until = now.Add(greetTime)
		l.conn = l.c.mesh.Dial(now, l.to.Host, int(l.kind), l)
	case l.conn == nil:
	case !l.greeted && now.After(l.until):
		l.broken("no hello in time")
	case l.greeted && len(l.flying) > 0 && now.After(l.flying[0].until):
		l.broken("no answer in time")
	}
}

// Opened implements mesh.Handler.
func (l *peerLink) Opened() {
	hello := l.c.self
	l.send(call{req: &hello})
}

// send sends a request.
func (l *peerLink) send(c call) {
	l.correlation++
	c.correlation = l.correlation
	l.conn.Send(wire.AppendRequest(nil, c.correlation, l.c.local.name, c.req))
	if wire.OneWay(c.req) {
		return
	}
	c.until = time.Now().Add(callTime)
	if f, ok := c.req.(*kmsg.FetchRequest); ok {
		c.until = c.until.Add(time.Duration(f.MaxWaitMillis) * time.Millisecond)
	}
	l.flying = append(l.flying, c)
}

// Received implements mesh.Handler.
func (l *peerLink) Received(p []byte) {
	l.in = append(l.in, p...)
	for len(l.in) >= wire.PrefixSize && l.conn != nil {
		size, err := wire.ResponseSize(l.in, maxFrame)
		if err == nil && len(l.in) < wire.PrefixSize+size {
			return
		}
		if err == nil {
			frame := slices.Clone(l.in[wire.PrefixSize : wire.PrefixSize+size])
			l.in = append(l.in[:0], l.in[wire.PrefixSize+size:]...)
			err = l.response(frame)
		}
		if err != nil {
			l.c.log.Error("node's answer cannot be used", l.attrs(slog.Any("err", err))...)
			l.broken(err.Error())
		}
	}
}

// response takes the answer to the oldest call.
func (l *peerLink) response(frame []byte) error {
	if len(l.flying) == 0 || wire.Correlation(frame) != l.flying[0].correlation {
		return fmt.Errorf("%w: a response to nothing", wire.ErrMalformed)
	}
	c := l.flying[0]
	resp, err := wire.DecodeResponse(c.req, frame)
	if err != nil {
		return err
	}
	l.flying = l.flying[1:]
	if hello, ok := resp.(*wire.PeerHelloResponse); ok {
		return l.welcome(hello)
	}
	l.c.post(broker.PeerReply{From: l.to.ID, Call: c.id, Response: resp})
	return nil
}

// errStranger says that a node is not who was to be called.
var errStranger = errors.New("another node than was called")

// welcome begins to use a connection.
func (l *peerLink) welcome(r *wire.PeerHelloResponse) error {
	if r.Refused != "" || r.Node != l.to.ID || r.ClusterID != l.c.self.ClusterID {
		return fmt.Errorf("%w: node %d of cluster %q: %s", errStranger, r.Node, r.ClusterID, r.Refused)
	}
	l.greeted, l.backoff = true, minBackoff
	queue := l.queue
	l.queue = nil
	for _, req := range queue {
		l.send(call{req: req})
	}
	return nil
}

// Closed implements mesh.Handler.
func (l *peerLink) Closed(err error) {
	l.conn = nil
	l.broken(err.Error())
	if errors.Is(err, mesh.ErrReset) {
		l.c.post(broker.PeerDown{Peer: l.to.ID})
	}
}

// broken ends the connection. Another is made in a while.
func (l *peerLink) broken(why string) {
	l.c.log.Debug("link is down", l.attrs(slog.String("why", why))...)
	l.end()
	l.dialAt = time.Now().Add(l.backoff/2 + rand.N(l.backoff/2))
	l.backoff = min(2*l.backoff, maxBackoff)
}

// end closes the connection and fails what was sent on it.
func (l *peerLink) end() {
	if l.conn != nil {
		l.conn.Close()
	}
	l.conn, l.greeted, l.in = nil, false, nil
	for _, c := range l.flying {
		if _, hello := c.req.(*wire.PeerHello); !hello {
			l.c.post(broker.PeerReply{From: l.to.ID, Call: c.id, Err: fmt.Errorf("%w: the connection broke", wire.ErrPeerGone)})
		}
	}
	l.flying, l.queue = nil, nil
}

func (l *peerLink) attrs(more slog.Attr) []any {
	return []any{slog.Int("peer", int(l.to.ID)), slog.String("link", l.kind.String()), more}
}
