// Package mesh makes connections between nodes of messages that may be late,
// overtake each other or get lost, as Maelstrom's are.
//
// What is sent over a connection arrives in order and whole, or the connection
// breaks, and both ends hear of it: at once if a message is missing for too long,
// or if the other process is another one, and after a while of silence. Nothing
// is sent again; whoever needs a connection opens another, which is never taken
// for the one before.
//
// It is a function of its inputs: it knows no time but what it is told, starts no
// goroutines, and is not safe for concurrent use.
package mesh

import (
	"errors"
	"slices"
	"time"
)

// Type is the type of the messages' bodies.
const Type = "pawl_conn"

// What a frame is.
type What string

// The kinds of frame.
const (
	Open   What = "open"   // begins a connection
	Opened What = "opened" // accepts it
	Data   What = "data"
	Alive  What = "alive" // the sender lives, and has sent so much
	Close  What = "close" // the connection is over, or unknown
)

// Frame is the body of one message.
type Frame struct {
	Type string `json:"type"`
	What What   `json:"what"`
	// Life is the process that opened the connection, and Conn which of its
	// connections it is; no two are the same.
	Life string `json:"life"`
	Conn uint64 `json:"conn"`
	Back bool   `json:"back,omitempty"` // to who opened it
	By   string `json:"by"`             // the process that wrote the frame
	Kind int    `json:"kind,omitempty"` // of an Open
	// Seq is which Data frame it is, from 0; of an Alive, how many there were.
	Seq  uint64 `json:"seq,omitempty"`
	Data []byte `json:"data,omitempty"`
}

var (
	// ErrReset says the other node's process is not the one that it was.
	ErrReset = errors.New("connection reset: the other process is another one")
	// ErrClosed says the other end closed the connection.
	ErrClosed = errors.New("connection closed by the other end")
	// ErrGap says something that was sent has not arrived.
	ErrGap = errors.New("a message is missing")
	// ErrSilent says nothing arrives.
	ErrSilent = errors.New("the other end is silent")
)

// Config is when a connection breaks.
type Config struct {
	OpenTime   time.Duration // until it is accepted, at most
	AliveEvery time.Duration // at least something is sent
	SilentTime time.Duration // without anything from the other end
	GapTime    time.Duration // until a message that was overtaken is there
	MaxEarly   int           // messages that wait for one that was overtaken
	MaxData    int           // bytes in one message; more is split
}

// DefaultConfig keeps messages far below the 64 KiB that readers of lines take.
func DefaultConfig() Config {
	return Config{
		OpenTime: time.Second, AliveEvery: 500 * time.Millisecond, SilentTime: 3 * time.Second,
		GapTime: time.Second, MaxEarly: 4096, MaxData: 24 << 10,
	}
}

// Handler is one end's user. Its methods may use the connection, and others.
type Handler interface {
	Opened()           // the other node has accepted; only whoever opened is told
	Received(p []byte) // the next bytes
	Closed(err error)  // it broke, or the other end closed it; nothing comes after
}

// Mesh is a node's connections.
type Mesh struct {
	cfg    Config
	life   string
	send   func(to string, f Frame)
	accept func(c *Conn) Handler
	now    time.Time
	last   uint64
	conns  []*Conn
}

// New returns a mesh without connections. life names this process, as no other
// was or will be named. send takes messages; accept takes connections that others
// open. Neither may call the mesh back.
func New(cfg Config, life string, send func(to string, f Frame), accept func(c *Conn) Handler) *Mesh {
	return &Mesh{cfg: cfg, life: life, send: send, accept: accept}
}

// Conn is one end of a connection.
//
// Invariant: bytes of the Data frames below received were handed on; those in
// early are above it.
type Conn struct {
	// Peer is the other node, and Kind what it was opened for.
	Peer string
	Kind int

	m       *Mesh
	life    string
	number  uint64
	dialed  bool
	handler Handler
	by      string // the process at the other end, once it is known
	over    bool

	sent     uint64 // Data frames
	received uint64
	said     uint64 // how many there are, as far as is known
	early    map[uint64][]byte
	gapSince time.Time // zero if received is said
	heard    time.Time
	spoke    time.Time
}

// Dial opens a connection.
func (m *Mesh) Dial(now time.Time, to string, kind int, h Handler) *Conn {
	m.now = now
	m.last++
	c := m.add(&Conn{Peer: to, Kind: kind, life: m.life, number: m.last, dialed: true, handler: h})
	c.write(Frame{What: Open, Kind: kind})
	return c
}

func (m *Mesh) add(c *Conn) *Conn {
	c.m, c.heard, c.early = m, m.now, map[uint64][]byte{}
	m.conns = append(m.conns, c)
	return c
}

// Receive takes a message.
func (m *Mesh) Receive(now time.Time, from string, f Frame) {
	m.now = now
	c := m.find(from, f)
	switch {
	case c != nil:
		c.receive(f)
	case f.What == Open && !f.Back && m.isNewest(from, f):
		m.opened(from, f)
	case f.What != Close:
		m.send(from, Frame{Type: Type, What: Close, Life: f.Life, Conn: f.Conn, Back: !f.Back, By: m.life})
	}
}

func (m *Mesh) find(from string, f Frame) *Conn {
	i := slices.IndexFunc(m.conns, func(c *Conn) bool {
		return c.Peer == from && c.dialed == f.Back && c.life == f.Life && c.number == f.Conn
	})
	if i < 0 {
		return nil
	}
	return m.conns[i]
}

// isNewest reports whether an Open is not one that a later Open of the same
// process has overtaken.
func (m *Mesh) isNewest(from string, f Frame) bool {
	return !slices.ContainsFunc(m.conns, func(c *Conn) bool {
		return !c.dialed && c.Peer == from && c.Kind == f.Kind && c.life == f.Life && c.number > f.Conn
	})
}

// opened accepts a connection. A node opens another of a kind only once it has
// given up the one before.
func (m *Mesh) opened(from string, f Frame) {
	for _, c := range slices.Clone(m.conns) {
		if !c.over && !c.dialed && c.Peer == from && c.Kind == f.Kind {
			c.end(ErrClosed)
		}
	}
	c := m.add(&Conn{Peer: from, Kind: f.Kind, life: f.Life, number: f.Conn, by: f.By})
	c.handler = m.accept(c)
	c.write(Frame{What: Opened})
}

// Tick breaks connections that have waited for too long, and says of the others
// that they live.
func (m *Mesh) Tick(now time.Time) {
	m.now = now
	for _, c := range slices.Clone(m.conns) {
		silence := now.Sub(c.heard)
		switch {
		case c.over:
		case c.by == "" && silence > m.cfg.OpenTime, silence > m.cfg.SilentTime:
			c.fail(ErrSilent)
		case !c.gapSince.IsZero() && now.Sub(c.gapSince) > m.cfg.GapTime:
			c.fail(ErrGap)
		case c.by != "" && now.Sub(c.spoke) >= m.cfg.AliveEvery:
			c.write(Frame{What: Alive, Seq: c.sent})
		}
	}
}

// receive takes a frame of the connection.
func (c *Conn) receive(f Frame) {
	if c.by != "" && f.By != c.by {
		if f.What == Close {
			c.end(ErrReset)
		}
		return
	}
	c.heard = c.m.now
	switch f.What {
	case Opened:
		if c.by == "" {
			c.by = f.By
			c.handler.Opened()
		}
	case Close:
		c.end(ErrClosed)
	case Alive:
		c.said = max(c.said, f.Seq)
	case Data:
		c.said = max(c.said, f.Seq+1)
		if f.Seq >= c.received {
			c.early[f.Seq] = f.Data
		}
		c.handOn()
	}
	switch {
	case c.over:
	case len(c.early) > c.m.cfg.MaxEarly:
		c.fail(ErrGap)
	case c.received == c.said:
		c.gapSince = time.Time{}
	case c.gapSince.IsZero():
		c.gapSince = c.m.now
	}
}

// handOn hands on what is next.
func (c *Conn) handOn() {
	for !c.over {
		p, ok := c.early[c.received]
		if !ok {
			return
		}
		delete(c.early, c.received)
		c.received++
		c.gapSince = time.Time{} // of the one that is missing now, if one is
		c.handler.Received(p)
	}
}

// Send sends bytes, in several messages if they are many. It does nothing once
// the connection is over.
func (c *Conn) Send(p []byte) {
	for len(p) > 0 && !c.over {
		n := min(len(p), c.m.cfg.MaxData)
		c.write(Frame{What: Data, Seq: c.sent, Data: p[:n:n]})
		c.sent++
		p = p[n:]
	}
}

// Close ends the connection. Its handler is not told.
func (c *Conn) Close() {
	if !c.over {
		c.write(Frame{What: Close})
		c.remove()
	}
}

// fail ends the connection at both ends.
func (c *Conn) fail(err error) {
	c.write(Frame{What: Close})
	c.end(err)
}

func (c *Conn) end(err error) {
	c.remove()
	c.handler.Closed(err)
}

func (c *Conn) remove() {
	c.over, c.early = true, nil
	c.m.conns = slices.DeleteFunc(c.m.conns, func(o *Conn) bool { return o == c })
}

func (c *Conn) write(f Frame) {
	f.Type, f.Life, f.Conn, f.Back, f.By = Type, c.life, c.number, !c.dialed, c.m.life
	c.spoke = c.m.now
	c.m.send(c.Peer, f)
}
