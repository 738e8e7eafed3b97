// Package simnet is the network between clients and nodes: connections that
// carry bytes in order, late, in pieces, or not at all.
//
// # Fault model
//
// A connection is what TCP gives: bytes arrive in order, once, unchanged, or
// the connection is over. Nothing is duplicated or reordered within one. Every
// send may be cut into pieces that arrive apart, each after a delay of its own.
//
// A direction of a link can be silent (Mute): what is sent waits, as TCP would
// send it again, and arrives when the link is heard again, unless the
// connection was given up by then. One silent direction is a half-open link,
// two are a cut.
//
// A connection can be reset: both ends hear of it, each after a delay, and what
// was on its way is lost. So a request may have been carried out and its
// response lost; LoseNextResponse makes sure of that.
//
// A process that dies resets its connections. A machine that loses power says
// nothing: its peers find out by waiting, or once it is back and does not know
// the connection.
package simnet

import (
	"math/rand/v2"
	"time"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/sim/kernel"
)

// ConnID names a connection; none is used twice in a run. The first is 1.
type ConnID uint64

// Side is an end of a connection, and the direction that starts at it.
type Side uint8

const (
	Client Side = iota
	Node
)

func (s Side) other() Side { return 1 - s }

// Reason says why a connection ended.
type Reason string

// The reasons.
const (
	Refused    Reason = "refused"  // nobody listened
	WasReset   Reason = "reset"    // what was on its way is lost
	PeerClosed Reason = "closed"   // everything sent before has arrived
	PeerIsGone Reason = "dangling" // the peer's machine does not know the connection
)

// Peer has one end of connections.
type Peer interface {
	// Opened says the connection can be used.
	Opened(c ConnID)
	// Received gives bytes, which belong to whoever sent them and are not
	// changed any more.
	Received(c ConnID, p []byte)
	// Closed says the connection has ended at this end.
	Closed(c ConnID, why Reason)
}

// Config is how the network behaves when nothing is wrong.
type Config struct {
	MinDelay, MaxDelay time.Duration // one way
	SplitPercent       int           // how many of 100 sends are cut in pieces
}

// Net is the network. It is driven by the kernel.
type Net struct {
	k     *kernel.Kernel
	cfg   Config
	nodes map[int]*listener
	links map[[2]int]*link // by client and node
	conns map[ConnID]*conn
	last  ConnID
	hits  [faults]int64
}

// listener is a node's machine; without a peer it refuses.
type listener struct {
	peer  Peer
	on    bool     // the machine has power
	conns []ConnID // that were opened to it, oldest first; some may have ended
}

type link struct {
	muted [2]bool
	extra time.Duration // on top of each delay
}

type conn struct {
	id           ConnID
	client, node int
	peers        [2]Peer // nil once the end is closed
	ways         [2]way
	link         *link
	loseNext     bool
}

// way is one direction of a connection.
type way struct {
	rng     *rand.Rand
	queue   []packet // by due
	lastDue clock.Instant
}

type packet struct {
	due  clock.Instant
	kind kind
	data []byte
	why  Reason
}

type kind uint8

const (
	syn    kind = iota // the client asks
	synAck             // the node agrees
	data
	fin // Closed at the other end
)

// New returns a network without nodes.
func New(k *kernel.Kernel, cfg Config) *Net {
	return &Net{k: k, cfg: cfg, nodes: map[int]*listener{}, links: map[[2]int]*link{}, conns: map[ConnID]*conn{}}
}

// Listen makes a node take connections.
func (n *Net) Listen(node int, p Peer) {
	l := n.listener(node)
	l.peer, l.on = p, true
}

// Exit ends a node's process: its connections are reset, and nobody listens. The
// node's peer hears nothing of it.
func (n *Net) Exit(node int) {
	n.silence(node, func(c *conn) { n.post(c, Node, packet{kind: fin, why: WasReset}) })
	n.listener(node).on = true
}

// PowerOff ends a node's process without a word.
func (n *Net) PowerOff(node int) {
	n.silence(node, func(*conn) {})
	n.listener(node).on = false
}

func (n *Net) silence(node int, tell func(*conn)) {
	l := n.listener(node)
	for _, id := range l.conns {
		if c := n.conns[id]; c != nil && c.peers[Node] != nil {
			c.peers[Node] = nil
			c.ways[Node].queue = nil
			tell(c)
		}
	}
	l.peer, l.conns = nil, nil
}

// PowerOn gives the machine power again; Listen may come later.
func (n *Net) PowerOn(node int) { n.listener(node).on = true }

// Dial opens a connection from a client to a node. Opened or Closed follows,
// unless the link is silent or the node has no power.
func (n *Net) Dial(client, node int, p Peer) ConnID {
	n.last++
	c := &conn{id: n.last, client: client, node: node, peers: [2]Peer{Client: p}, link: n.link(client, node)}
	c.ways[Client].rng = n.k.Stream("link", uint64(c.id), 0)
	c.ways[Node].rng = n.k.Stream("link", uint64(c.id), 1)
	n.conns[c.id] = c
	n.post(c, Client, packet{kind: syn})
	return c.id
}

// Send sends p, which must not change any more.
func (n *Net) Send(id ConnID, from Side, p []byte) {
	c := n.conns[id]
	if c == nil || c.peers[from] == nil || len(p) == 0 {
		return
	}
	if from == Node && c.loseNext {
		n.hits[LostResponse]++
		n.reset(c)
		return
	}
	rng := c.ways[from].rng
	if kernel.Percent(rng, n.cfg.SplitPercent) {
		n.hits[Split]++
		for range 1 + rng.IntN(3) {
			if len(p) < 2 {
				break
			}
			at := 1 + rng.IntN(len(p)-1)
			n.post(c, from, packet{kind: data, data: p[:at]})
			p = p[at:]
		}
	}
	n.post(c, from, packet{kind: data, data: p})
}

// Close ends the connection at one end. The other end gets what was sent
// before, then Closed.
func (n *Net) Close(id ConnID, from Side) {
	c := n.conns[id]
	if c == nil || c.peers[from] == nil {
		return
	}
	c.peers[from] = nil
	n.post(c, from, packet{kind: fin, why: PeerClosed})
	n.forget(c)
}

// post puts a packet on its way.
func (n *Net) post(c *conn, from Side, p packet) {
	w := &c.ways[from]
	delay := kernel.Skewed(w.rng, n.cfg.MinDelay, n.cfg.MaxDelay) + c.link.extra
	p.due = max(w.lastDue, n.k.Now().Add(delay))
	w.lastDue = p.due
	w.queue = append(w.queue, p)
	n.k.At(p.due, n, kernel.What(from), uint64(c.id))
}

// Happen delivers what is due on one way of one connection.
func (n *Net) Happen(from kernel.What, id uint64) {
	c := n.conns[ConnID(id)]
	if c == nil {
		return
	}
	w := &c.ways[from]
	for len(w.queue) > 0 && w.queue[0].due <= n.k.Now() && !c.link.muted[from] {
		p := w.queue[0]
		w.queue[0] = packet{}
		w.queue = w.queue[1:]
		n.deliver(c, Side(from), p)
	}
	n.forget(c)
}

func (n *Net) deliver(c *conn, from Side, p packet) {
	l := n.listener(c.node)
	if from == Client && !l.on {
		return // to a machine without power
	}
	to := c.peers[from.other()]
	n.k.Trace.Event("net", packetNames[p.kind], uint64(c.id), uint64(from), uint64(len(p.data)))
	switch p.kind {
	case syn:
		if l.peer == nil {
			n.post(c, Node, packet{kind: fin, why: Refused})
			return
		}
		c.peers[Node] = l.peer
		l.conns = append(l.conns, c.id)
		l.peer.Opened(c.id)
		n.post(c, Node, packet{kind: synAck})
	case synAck:
		if to != nil {
			to.Opened(c.id)
		}
	case data:
		n.k.Trace.Bytes(p.data)
		switch {
		case to != nil:
			to.Received(c.id, p.data)
		case from == Client:
			n.post(c, Node, packet{kind: fin, why: PeerIsGone})
		}
	case fin:
		if to != nil {
			c.peers[from.other()] = nil
			to.Closed(c.id, p.why)
		}
	}
}

var packetNames = [...]string{"syn", "syn-ack", "data", "fin"}

// forget drops a connection that has no end and nothing on its way to one.
func (n *Net) forget(c *conn) {
	for side, p := range c.peers {
		if p != nil || len(c.ways[1-side].queue) > 0 && c.peers[side] != nil {
			return
		}
	}
	if len(c.ways[Client].queue) == 0 && len(c.ways[Node].queue) == 0 {
		delete(n.conns, c.id)
	}
}

func (n *Net) listener(node int) *listener {
	l := n.nodes[node]
	if l == nil {
		l = &listener{on: true}
		n.nodes[node] = l
	}
	return l
}

func (n *Net) link(client, node int) *link {
	key := [2]int{client, node}
	l := n.links[key]
	if l == nil {
		l = &link{}
		n.links[key] = l
	}
	return l
}
