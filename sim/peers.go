package sim

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/sim/simnet"
)

const (
	// callTimeout is how long a call may be without an answer, beside what a Fetch
	// may wait. Then its link is broken.
	callTimeout = 10 * time.Second
	// dialTimeout is how long a connection and its hello may take.
	dialTimeout = 2 * time.Second
	minBackoff  = 20 * time.Millisecond
	maxBackoff  = 500 * time.Millisecond
	// maxQueue is how many one-way messages wait for a connection.
	maxQueue = 64
)

// peers calls other nodes. It has the part of broker/tcp that dials.
type peers struct {
	m     *machine
	rng   *rand.Rand
	links []*peerLink // by node, then link

	tell    []broker.Event // later
	telling bool
}

// peerLink is one link to one node.
type peerLink struct {
	p    *peers
	id   int // in links; what timers say
	to   metadata.NodeID
	kind wire.Link
	dead bool // hung up for good

	state       linkState
	conn        simnet.ConnID
	in          []byte
	correlation int32
	queue       []kmsg.Request // one-way, while there is no connection
	flying      []call         // oldest first; the hello too
	timer       bool           // one is set for the oldest call
	backoff     time.Duration
}

type linkState uint8

const (
	linkDown linkState = iota // until its backoff is over
	linkDialing
	linkGreeting
	linkReady
)

type call struct {
	id          broker.CallID
	req         kmsg.Request
	correlation int32
	until       clock.Instant
}

// SetPeers implements broker.Peers.
func (p *peers) SetPeers(list []wire.Peer) {
	for _, l := range p.links {
		if !l.dead && !slices.ContainsFunc(list, func(n wire.Peer) bool { return n.ID == l.to }) {
			l.end()
			l.dead = true
		}
	}
	for _, n := range list {
		if n.Host != who(n.ID) || n.Port != peerPort {
			p.m.w.check.Violate("nodes know where others are", "%s is to be called", n)
		}
		if p.find(n.ID, 0) == nil {
			for kind := range wire.Link(wire.Links) {
				l := &peerLink{p: p, id: len(p.links), to: n.ID, kind: kind, backoff: minBackoff}
				p.links = append(p.links, l)
				p.m.after(0, whatPeerLink, uint64(l.id))
			}
		}
	}
}

func (p *peers) find(to metadata.NodeID, kind wire.Link) *peerLink {
	for _, l := range p.links {
		if l.to == to && l.kind == kind && !l.dead {
			return l
		}
	}
	return nil
}

// Call implements broker.Peers.
func (p *peers) Call(to metadata.NodeID, id broker.CallID, req kmsg.Request) {
	l, oneWay := p.find(to, wire.LinkOf(req)), wire.OneWay(req)
	switch {
	case l != nil && l.state == linkReady:
		l.send(call{id: id, req: req})
	case oneWay && l == nil:
	case oneWay:
		if len(l.queue) == maxQueue {
			l.queue = append(l.queue[:0], l.queue[1:]...)
		}
		l.queue = append(l.queue, req)
	default:
		p.later(broker.PeerReply{From: to, Call: id, Err: fmt.Errorf("%w: node %d is not connected", wire.ErrPeerGone, to)})
	}
}

// Hangup implements broker.Peers.
func (p *peers) Hangup(to metadata.NodeID, kind wire.Link) {
	if l := p.find(to, kind); l != nil && l.state != linkDown {
		l.broken("hung up")
	}
}

// later tells the node of something after the event that it handles now.
func (p *peers) later(ev broker.Event) {
	p.tell = append(p.tell, ev)
	if !p.telling {
		p.telling = true
		p.m.after(kernel.Between(p.rng, 0, 200*time.Microsecond), whatPeerEvents, 0)
	}
}

func (p *peers) events() {
	p.telling = false
	tell, life := p.tell, p.m.life
	p.tell = nil
	for _, ev := range tell {
		if p.m.life == life {
			p.m.step(ev)
		}
	}
}

// dial makes a connection, when the backoff is over.
func (l *peerLink) dial() {
	if l.dead || l.state != linkDown {
		return
	}
	w := l.p.m.w
	l.state, l.in = linkDialing, nil
	l.conn = w.net.Dial(l.p.m.host(), hostOf(l.to), simnet.PeerPort, l)
	l.watch(w.k.Now().Add(dialTimeout))
}

// timeout finds the link whose timer a connection's is.
func (p *peers) timeout(conn uint64) {
	for _, l := range p.links {
		if l.conn == simnet.ConnID(conn) {
			l.tooLate()
			return
		}
	}
}

// tooLate gives up what has taken too long.
func (l *peerLink) tooLate() {
	l.timer = false
	now := l.p.m.w.k.Now()
	switch {
	case l.state == linkDialing:
		l.broken("no connection in time")
	case len(l.flying) > 0 && l.flying[0].until <= now:
		l.broken("no answer in time")
	case len(l.flying) > 0:
		l.watch(l.flying[0].until)
	}
}

// watch sets the timer of a connection, unless it is set.
func (l *peerLink) watch(at clock.Instant) {
	if !l.timer {
		l.timer = true
		l.p.m.w.k.At(at, l.p.m, whatPeerTimer, uint64(l.conn)<<32|l.p.m.life)
	}
}

// send sends a request.
func (l *peerLink) send(c call) {
	m := l.p.m
	l.correlation++
	c.correlation = l.correlation
	var frame []byte
	m.guard(func() { frame = wire.AppendRequest(nil, c.correlation, m.who, c.req) })
	if m.node == nil {
		return
	}
	m.w.net.Send(l.conn, simnet.Dialer, frame)
	if wire.OneWay(c.req) {
		return
	}
	c.until = m.w.k.Now().Add(callTimeout)
	switch req := c.req.(type) {
	case *kmsg.FetchRequest:
		c.until = c.until.Add(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	case *wire.PeerHello:
		c.until = m.w.k.Now().Add(dialTimeout)
	}
	l.flying = append(l.flying, c)
	l.watch(c.until)
}

// end closes the connection and fails what was sent on it.
func (l *peerLink) end() {
	l.p.m.w.net.Close(l.conn, simnet.Dialer)
	l.state, l.conn, l.in, l.timer = linkDown, 0, nil, false
	for _, c := range l.flying {
		if _, hello := c.req.(*wire.PeerHello); !hello {
			l.p.later(broker.PeerReply{From: l.to, Call: c.id, Err: fmt.Errorf("%w: the connection broke", wire.ErrPeerGone)})
		}
	}
	l.flying, l.queue = nil, nil
}

// broken ends the connection and makes another in a while.
func (l *peerLink) broken(why string) {
	if t := &l.p.m.w.k.Trace; t.Wanted() {
		t.Say(l.p.m.who, fmt.Sprintf("%s link to node %d: %s", l.kind, l.to, why))
	}
	l.end()
	wait := kernel.Between(l.p.rng, l.backoff/2, l.backoff)
	l.backoff = min(2*l.backoff, maxBackoff)
	l.p.m.after(wait, whatPeerLink, uint64(l.id))
}

// Opened implements simnet.Peer.
func (l *peerLink) Opened(c simnet.ConnID) { l.p.m.arrive(arrival{to: l, conn: c, kind: opened}) }

// Received implements simnet.Peer.
func (l *peerLink) Received(c simnet.ConnID, p []byte) {
	l.p.m.arrive(arrival{to: l, conn: c, kind: received, data: p})
}

// Closed implements simnet.Peer.
func (l *peerLink) Closed(c simnet.ConnID, why simnet.Reason) {
	l.p.m.arrive(arrival{to: l, conn: c, kind: closed, why: why})
}

func (l *peerLink) handle(a arrival) {
	switch {
	case a.conn != l.conn:
	case a.kind == opened:
		l.state = linkGreeting
		hello := l.p.m.hello()
		l.send(call{req: &hello})
	case a.kind == received:
		l.in = append(l.in, a.data...)
		l.responses()
	default:
		// Only one link says that nobody listens: all of them hear it.
		down := a.why != simnet.PeerClosed && (a.why != simnet.Refused || l.kind == wire.LinkControl)
		l.broken(string(a.why))
		if down {
			l.p.later(broker.PeerDown{Peer: l.to})
		}
	}
}

// responses takes every whole response.
func (l *peerLink) responses() {
	m, life, conn := l.p.m, l.p.m.life, l.conn
	for m.life == life && l.conn == conn && len(l.in) >= wire.PrefixSize {
		size, err := wire.ResponseSize(l.in, maxFrame)
		if err == nil && len(l.in) < wire.PrefixSize+size {
			return
		}
		var resp any
		if err == nil {
			frame := slices.Clone(l.in[wire.PrefixSize : wire.PrefixSize+size])
			l.in = append(l.in[:0], l.in[wire.PrefixSize+size:]...)
			if len(l.flying) == 0 || wire.Correlation(frame) != l.flying[0].correlation {
				err = fmt.Errorf("%w: a response to nothing", wire.ErrMalformed)
			} else {
				m.guard(func() { resp, err = wire.DecodeResponse(l.flying[0].req, frame) })
			}
		}
		if m.node == nil {
			return
		}
		if err != nil {
			m.w.check.Violate("responses can be decoded", "%v", err)
			l.broken(err.Error())
			return
		}
		c := l.flying[0]
		l.flying = l.flying[1:]
		if hello, ok := resp.(*wire.PeerHelloResponse); ok {
			l.greeted(hello)
			continue
		}
		m.step(broker.PeerReply{From: l.to, Call: c.id, Response: resp})
	}
}

// greeted begins to use a connection.
func (l *peerLink) greeted(r *wire.PeerHelloResponse) {
	if r.Refused != "" || r.Node != l.to || r.ClusterID != clusterID {
		l.p.m.w.check.Violate("nodes know each other", "node %d refuses node %d: %s", r.Node, l.p.m.nodeID(), r.Refused)
		return
	}
	l.state, l.backoff = linkReady, minBackoff
	queue := l.queue
	l.queue = nil
	for _, req := range queue {
		l.send(call{req: req})
	}
}

// hello is how the process introduces itself to other nodes.
func (m *machine) hello() wire.PeerHello {
	h := wire.PeerHello{ClusterID: clusterID, Node: m.nodeID(), Version: "sim"}
	binary.BigEndian.PutUint64(h.Incarnation[:], m.life)
	h.Incarnation[8] = byte(m.id + 1)
	return h
}
