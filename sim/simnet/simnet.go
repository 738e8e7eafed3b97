// Package simnet is the network between hosts: connections that carry bytes in
// order, late, in pieces, or not at all.
//
// # Fault model
//
// A connection is what TCP gives: bytes arrive in order, once, unchanged, or
// the connection is over. Nothing is duplicated or reordered within one. Every
// send may be cut into pieces that arrive apart, each after a delay of its own.
//
// The way from one host to another can be silent (Mute): what is sent waits, as
// TCP would send it again, and arrives when the way is open again, unless the
// connection was given up by then. One silent way is a half-open link, two are a
// cut; a partition is many cuts.
//
// A connection can be reset: both ends hear of it, each after a delay, and what
// was on its way is lost. So a request may have been carried out and its
// response lost; LoseNextResponse makes sure of that.
//
// A process that dies resets its connections. A machine that loses power says
// nothing: what is sent to it waits, and once it is back it does not know the
// connection.
package simnet

import (
	"math/rand/v2"
	"time"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/sim/kernel"
)

// Host names a machine; who has which number is the world's to say.
type Host int

// Port names what a host can be asked for.
type Port uint8

// The ports of a node.
const (
	ClientPort Port = iota
	PeerPort

	ports
)

// ConnID names a connection; none is used twice in a run. The first is 1.
type ConnID uint64

// Side is an end of a connection, and the direction that starts at it.
type Side uint8

const (
	Dialer Side = iota
	Acceptor
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
	hosts map[Host]*host
	paths map[[2]Host]*path // by where from and where to
	order []*path           // as they came
	conns map[ConnID]*conn
	last  ConnID
	hits  [faults]int64
}

// host is a machine; it refuses where nobody listens.
type host struct {
	peers [ports]Peer
	on    bool    // it has power
	conns []*conn // that have an end here, oldest first; some may have ended
	prune int     // when conns is as long as that, those that ended are left out
}

// path is the way from one host to another.
type path struct {
	to     *host
	silent int           // how many faults keep it silent
	extra  time.Duration // on top of each delay
	conns  []*conn       // that use it, oldest first; some may have ended
	prune  int
}

func (p *path) open() bool { return p.silent == 0 && p.to.on }

type conn struct {
	id       ConnID
	hosts    [2]*host
	port     Port
	peers    [2]Peer // nil once the end is closed
	ways     [2]way
	loseNext bool
	over     bool // it is forgotten
}

// way is one direction of a connection.
type way struct {
	path    *path
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
	syn    kind = iota // the dialer asks
	synAck             // the acceptor agrees
	data
	fin // Closed at the other end
)

// New returns a network without hosts.
func New(k *kernel.Kernel, cfg Config) *Net {
	return &Net{k: k, cfg: cfg, hosts: map[Host]*host{}, paths: map[[2]Host]*path{}, conns: map[ConnID]*conn{}}
}

// Listen makes a host, which has power then, take connections at a port.
func (n *Net) Listen(at Host, port Port, p Peer) {
	h := n.host(at)
	h.peers[port] = p
	n.powerOn(h)
}

// Exit ends the process on a host: its connections are reset, and nobody
// listens. It hears nothing of it itself.
func (n *Net) Exit(at Host) {
	h := n.host(at)
	n.silence(h, func(c *conn, side Side) { n.post(c, side, packet{kind: fin, why: WasReset}) })
	n.powerOn(h)
}

// PowerOff ends the process on a host without a word.
func (n *Net) PowerOff(at Host) {
	h := n.host(at)
	n.silence(h, func(*conn, Side) {})
	h.on = false
}

func (n *Net) silence(h *host, tell func(*conn, Side)) {
	for _, c := range h.conns {
		for side := range c.peers {
			if c.hosts[side] == h && c.peers[side] != nil {
				c.peers[side] = nil
				c.ways[side].queue = nil
				tell(c, Side(side))
			}
		}
	}
	h.peers, h.conns = [ports]Peer{}, nil
}

// PowerOn gives a host power again; Listen may come later.
func (n *Net) PowerOn(at Host) { n.powerOn(n.host(at)) }

func (n *Net) powerOn(h *host) {
	if h.on {
		return
	}
	h.on = true
	for _, p := range n.order {
		if p.to == h {
			n.kick(p)
		}
	}
}

// Dial opens a connection from one host to a port of another. Opened or Closed
// follows, unless the way is silent or the other host has no power.
func (n *Net) Dial(from, to Host, port Port, p Peer) ConnID {
	n.last++
	c := &conn{id: n.last, port: port, hosts: [2]*host{n.host(from), n.host(to)}, peers: [2]Peer{Dialer: p}}
	for side, path := range [2]*path{n.path(from, to), n.path(to, from)} {
		c.ways[side] = way{path: path, rng: n.k.Stream("link", uint64(c.id), uint64(side))}
		path.conns = remember(path.conns, &path.prune, c)
	}
	c.hosts[Dialer].conns = remember(c.hosts[Dialer].conns, &c.hosts[Dialer].prune, c)
	n.conns[c.id] = c
	n.post(c, Dialer, packet{kind: syn})
	return c.id
}

// remember adds a connection to a list, and leaves out those that are over when
// the list has doubled.
func remember(list []*conn, prune *int, c *conn) []*conn {
	if len(list) >= max(*prune, 16) {
		alive := list[:0]
		for _, old := range list {
			if !old.over {
				alive = append(alive, old)
			}
		}
		clear(list[len(alive):])
		list = alive
		*prune = 2 * len(list)
	}
	return append(list, c)
}

// Send sends p, which must not change any more.
func (n *Net) Send(id ConnID, from Side, p []byte) {
	c := n.conns[id]
	if c == nil || c.peers[from] == nil || len(p) == 0 {
		return
	}
	if from == Acceptor && c.loseNext {
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
	delay := kernel.Skewed(w.rng, n.cfg.MinDelay, n.cfg.MaxDelay) + w.path.extra
	p.due = max(w.lastDue, n.k.Now().Add(delay))
	w.lastDue = p.due
	w.queue = append(w.queue, p)
	n.k.At(p.due, n, kernel.What(from), uint64(c.id))
}

// kick sends on what waited until a path was open.
func (n *Net) kick(p *path) {
	if !p.open() {
		return
	}
	for _, c := range p.conns {
		for side := range c.ways {
			if w := &c.ways[side]; w.path == p && len(w.queue) > 0 {
				n.k.After(n.cfg.MaxDelay, n, kernel.What(side), uint64(c.id))
			}
		}
	}
}

// Happen delivers what is due on one way of one connection.
func (n *Net) Happen(from kernel.What, id uint64) {
	c := n.conns[ConnID(id)]
	if c == nil {
		return
	}
	w := &c.ways[from]
	for len(w.queue) > 0 && w.queue[0].due <= n.k.Now() && w.path.open() {
		p := w.queue[0]
		w.queue[0] = packet{}
		w.queue = w.queue[1:]
		n.deliver(c, Side(from), p)
	}
	n.forget(c)
}

func (n *Net) deliver(c *conn, from Side, p packet) {
	side := from.other()
	to := c.peers[side]
	n.k.Trace.Event("net", packetNames[p.kind], uint64(c.id), uint64(from), uint64(len(p.data)))
	switch p.kind {
	case syn:
		h := c.hosts[Acceptor]
		l := h.peers[c.port]
		if l == nil {
			n.post(c, Acceptor, packet{kind: fin, why: Refused})
			return
		}
		c.peers[Acceptor] = l
		h.conns = remember(h.conns, &h.prune, c)
		l.Opened(c.id)
		n.post(c, Acceptor, packet{kind: synAck})
	case synAck:
		if to != nil {
			to.Opened(c.id)
		}
	case data:
		n.k.Trace.Bytes(p.data)
		switch {
		case to != nil:
			to.Received(c.id, p.data)
		case c.peers[from] != nil:
			n.post(c, side, packet{kind: fin, why: PeerIsGone})
		}
	case fin:
		if to != nil {
			c.peers[side] = nil
			to.Closed(c.id, p.why)
		}
	}
}

var packetNames = [...]string{"syn", "syn-ack", "data", "fin"}

// forget drops a connection that has no end and nothing on its way to one.
func (n *Net) forget(c *conn) {
	for _, p := range c.peers {
		if p != nil {
			return
		}
	}
	if len(c.ways[Dialer].queue) == 0 && len(c.ways[Acceptor].queue) == 0 {
		c.over = true
		delete(n.conns, c.id)
	}
}

func (n *Net) host(at Host) *host {
	h := n.hosts[at]
	if h == nil {
		h = &host{on: true}
		n.hosts[at] = h
	}
	return h
}

func (n *Net) path(from, to Host) *path {
	key := [2]Host{from, to}
	p := n.paths[key]
	if p == nil {
		p = &path{to: n.host(to)}
		n.paths[key] = p
		n.order = append(n.order, p)
	}
	return p
}
