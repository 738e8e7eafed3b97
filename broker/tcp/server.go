// Package tcp is a node's door, for clients and on another listener for other
// nodes: it listens, reads and checks requests, and sends responses, regions of
// files straight from the kernel's cache. What a node asks of others is
// broker/peer's.
//
// A connection has two goroutines. The reader takes memory from the budget,
// reads a request, decodes and checks it, and posts it; it stops while the
// connection has too many requests open, so TCP holds the client back. The
// writer sends what has been answered, in order, as much at once as there is.
// Neither knows what a request means.
package tcp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/wire"
)

// ErrClosed says the server was shut down or closed.
var ErrClosed = errors.New("server closed")

// Server is the connections of one node. It is the node's Network.
type Server struct {
	cfg        Config
	log        *slog.Logger
	complaints complaints
	post       func(...broker.Event)
	small      *budget // what small requests take before they are read, wire.Cost
	frames     *budget // what other requests take before they are read, wire.Cost
	growth     *budget // and before they are decoded, wire.Growth; always taken after those
	pool       framePool
	decoders   chan struct{} // one for each processor: bounds what decompression takes
	closing    atomic.Bool   // no client's request is read any more
	ended      atomic.Bool   // nor another node's
	workers    sync.WaitGroup

	mu        sync.Mutex
	listeners map[net.Listener]*atomic.Bool // and what ends each: closing or ended
	conns     map[uint64]*conn              // the open ones, and those closed whose Produces the node still holds
	open      int                           // of conns, clients' ones
	peers     int                           // of conns, other nodes'
	lastConn  uint64
	changed   sync.Cond // open or listeners became fewer

	replies []reply // since the last Flush; the loop's
	touched []*conn // likewise
}

// smallCost is the most that a small request costs. Small requests have a budget
// of their own, so that a few big ones which are announced and do not arrive
// hold back nobody but other big ones.
const smallCost = 256 << 10 // bytes

// held is what a request has taken of the budgets.
type held struct{ small, frame, growth int64 }

func (h *held) add(o held) {
	h.small, h.frame, h.growth = h.small+o.small, h.frame+o.frame, h.growth+o.growth
}

func (s *Server) give(h held) {
	s.small.give(h.small)
	s.frames.give(h.frame)
	s.growth.give(h.growth)
}

type reply struct {
	caller wire.Caller
	resp   wire.Response
}

// New returns a server that reads nothing yet.
func New(cfg Config, log *slog.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, log: log, complaints: complaints{log: log},
		frames:    newBudget(cfg.RequestMemory - cfg.RequestMemory/2),
		growth:    newBudget(cfg.RequestMemory/2 - cfg.RequestMemory/8),
		small:     newBudget(cfg.RequestMemory / 8),
		decoders:  make(chan struct{}, runtime.GOMAXPROCS(0)),
		listeners: map[net.Listener]*atomic.Bool{},
		conns:     map[uint64]*conn{},
	}
	s.changed.L = &s.mu
	return s, nil
}

// Serve accepts clients' connections of l, which it closes, and gives their
// requests to post until the server is shut down or closed; then it returns
// ErrClosed. post must not block. It may be called for several listeners, with
// one post.
func (s *Server) Serve(l *net.TCPListener, post func(...broker.Event)) error {
	return s.serve(l, post, &s.closing, nil)
}

// ServePeers is Serve for connections of other nodes, which introduce themselves
// to self. They are served until the server is closed, a shutdown included: who
// hands over what it has needs them.
func (s *Server) ServePeers(l *net.TCPListener, self wire.PeerHello, post func(...broker.Event)) error {
	return s.serve(l, post, &s.ended, &self)
}

func (s *Server) serve(l *net.TCPListener, post func(...broker.Event), end *atomic.Bool, self *wire.PeerHello) error {
	defer l.Close()
	s.mu.Lock()
	if end.Load() {
		s.mu.Unlock()
		return ErrClosed
	}
	if s.post == nil { // readers of another listener may be using it
		s.post = post
	}
	s.listeners[l] = end
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		s.changed.Broadcast()
	}()
	for {
		c, err := l.AcceptTCP()
		switch {
		case end.Load():
			if err == nil {
				c.Close()
			}
			return ErrClosed
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // too many open files, or the client is gone already
			s.complaints.about("accept failed", slog.Any("err", err))
			time.Sleep(acceptPause)
		default:
			s.admit(c, end, self)
		}
	}
}

// acceptPause is how long to wait until there may be file descriptors again.
const acceptPause = 10 * time.Millisecond

// maxPeers is how many connections there may be on the listener for nodes: a
// node has wire.Links of them.
const maxPeers = 1024

func (s *Server) admit(tcp *net.TCPConn, end *atomic.Bool, self *wire.PeerHello) {
	s.mu.Lock()
	if end.Load() {
		s.mu.Unlock()
		tcp.Close()
		return
	}
	count, most := &s.open, s.cfg.MaxConnections
	if self != nil {
		count, most = &s.peers, maxPeers
	}
	if *count >= most {
		s.mu.Unlock()
		tcp.Close()
		s.complaints.about("connection refused: too many", slog.Int("max_connections", most))
		return
	}
	s.lastConn++
	c, err := newConn(s, s.lastConn, tcp, end, self)
	if err != nil {
		s.mu.Unlock()
		tcp.Close()
		return
	}
	s.conns[c.id] = c
	*count++
	s.workers.Add(2)
	s.mu.Unlock()
	go c.read()
	go c.write()
}

// Reply takes the answer to a request. Only the loop calls it and Flush.
func (s *Server) Reply(to wire.Caller, resp wire.Response) {
	s.replies = append(s.replies, reply{to, resp})
}

// Flush hands the answers to their connections: each is locked and woken once,
// however many are its.
func (s *Server) Flush() {
	if len(s.replies) == 0 {
		return
	}
	s.mu.Lock()
	for _, r := range s.replies {
		c := s.conns[r.caller.Conn]
		if c == nil {
			continue
		}
		if len(c.replies) == 0 {
			s.touched = append(s.touched, c)
		}
		c.replies = append(c.replies, r)
	}
	s.mu.Unlock()
	for _, c := range s.touched {
		c.answer(c.replies)
		clear(c.replies)
		c.replies = c.replies[:0]
	}
	clear(s.touched)
	clear(s.replies)
	s.touched, s.replies = s.touched[:0], s.replies[:0]
}

// closed takes note that a connection is.
func (s *Server) closed(c *conn, stuck bool) {
	s.mu.Lock()
	if c.self == nil {
		s.open--
	} else {
		s.peers--
	}
	if !stuck {
		delete(s.conns, c.id)
	}
	s.mu.Unlock()
	s.changed.Broadcast()
}

// forget drops a closed connection whose last Produce was answered.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c.id)
	s.mu.Unlock()
}

// Shutdown stops listening to clients and reading from them, lets what was read
// be answered, and closes their connections. When ctx ends it closes those that
// are left and returns its error. The node must go on answering meanwhile.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopReading(&s.closing)
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock() // so that the wait below cannot miss it
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	for s.open > 0 && ctx.Err() == nil {
		s.changed.Wait()
	}
	left := s.open
	s.mu.Unlock()
	for _, c := range s.stopReading(&s.closing) {
		c.close()
	}
	if left > 0 {
		return ctx.Err()
	}
	return nil
}

// Close stops listening, closes every connection at once and waits for their
// goroutines.
func (s *Server) Close() {
	for _, end := range []*atomic.Bool{&s.closing, &s.ended} {
		for _, c := range s.stopReading(end) {
			c.close()
		}
	}
	s.workers.Wait()
}

// stopReading closes the listeners that end ends, and makes the readers of their
// connections stop. It returns the connections.
func (s *Server) stopReading(end *atomic.Bool) []*conn {
	s.mu.Lock()
	end.Store(true)
	conns := make([]*conn, 0, len(s.conns))
	for l, ended := range s.listeners {
		if ended == end {
			l.Close()
		}
	}
	for _, c := range s.conns {
		if c.end == end {
			conns = append(conns, c)
		}
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.interrupt()
	}
	return conns
}
