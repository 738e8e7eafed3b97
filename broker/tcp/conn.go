package tcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// readBuffer is what a connection reads ahead. Bodies that do not fit go
// straight into their frame.
const readBuffer = 8 << 10 // bytes

// postAtMost bounds how many pipelined requests are posted at once.
const postAtMost = 64

var (
	// errIdle says a client was silent for too long.
	errIdle = errors.New("idle")
	// errSlow says a request did not arrive in time.
	errSlow = errors.New("request took too long to arrive")
	// errGone says the connection was closed from this side.
	errGone = errors.New("closed")
)

// conn is one connection.
type conn struct {
	s    *Server
	id   uint64
	tcp  *net.TCPConn
	raw  syscall.RawConn
	host string // where the client reached us
	port int32
	gone chan struct{}   // closed with the connection
	end  *atomic.Bool    // no request of it is read any more
	self *wire.PeerHello // whom another node reached; nil for a client's connection
	peer metadata.NodeID // which node that is, once it said so; the reader's own

	met   *wire.PeerHello // what that node said, once it is let in; the server's
	heard atomic.Int64    // when it was heard last: nanoseconds since 1970

	replies []reply // between Reply and Flush; the loop's

	mu      sync.Mutex
	order   wire.Order[request]
	closed  bool
	writing bool            // the writer has popped responses and not sent them
	stuck   map[uint64]held // once closed: what Produces without an answer hold
	some    sync.Cond       // the writer waits for it: something is ready, or closed
	room    sync.Cond       // the reader waits for it: fewer are open, or closed

	// The reader's own.
	in       *bufio.Reader
	deadline time.Time // of reads, as set
	greeted  bool
	events   []broker.Event // not posted yet
}

// request is what is remembered of a request until its response is sent.
type request struct {
	held      held
	produce   bool
	forwarded bool
	frame     []byte // of a large Produce, for reuse; else nil
}

func newConn(s *Server, id uint64, tcp *net.TCPConn, end *atomic.Bool, self *wire.PeerHello) (*conn, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &conn{
		s: s, id: id, tcp: tcp, raw: raw, gone: make(chan struct{}), in: bufio.NewReaderSize(tcp, readBuffer),
		end: end, self: self, peer: wire.NoPeer,
	}
	if addr, ok := tcp.LocalAddr().(*net.TCPAddr); ok {
		c.host, c.port = addr.IP.String(), int32(addr.Port)
	}
	c.some.L, c.room.L = &c.mu, &c.mu
	return c, nil
}

// close closes the connection, once. The memory of its requests is free again,
// except that of Produces which the node has not answered: their batches may be
// on their way to the disk.
func (c *conn) close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	c.stuck = map[uint64]held{}
	var free held
	c.order.All(func(seq uint64, r request, answered bool) {
		if r.produce && !answered {
			c.stuck[seq] = r.held
		} else {
			free.add(r.held)
		}
	})
	stuck := len(c.stuck) > 0
	c.some.Broadcast()
	c.room.Broadcast()
	close(c.gone)
	c.tcp.Close()
	c.s.closed(c, stuck)
	c.mu.Unlock()
	c.s.give(free)
}

// interrupt makes the reader stop waiting for the client. The server is
// closing.
func (c *conn) interrupt() { c.tcp.SetReadDeadline(time.Unix(1, 0)) }

// answer takes answers from the node.
func (c *conn) answer(replies []reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		for i := range replies {
			c.order.Answer(replies[i].caller.Seq, replies[i].resp)
		}
		if c.order.Ready() {
			c.some.Signal()
		}
		return
	}
	for i := range replies {
		seq := replies[i].caller.Seq
		if held, ok := c.stuck[seq]; ok {
			delete(c.stuck, seq)
			c.s.give(held)
			if len(c.stuck) == 0 {
				c.s.forget(c)
			}
		}
	}
}

// read is the reader goroutine.
func (c *conn) read() {
	defer c.s.workers.Done()
	readAll := c.readAll
	if c.self != nil {
		readAll = c.readPeer
	}
	err := readAll()
	if c.end.Load() && !errors.Is(err, errGone) {
		c.postAll()
		c.waitAnswered()
	}
	c.close()
	c.events = append(c.events, broker.ConnClosed{Conn: c.id})
	c.postAll()
	c.report(err)
}

// report logs why the connection was closed, if that is worth a line.
func (c *conn) report(err error) {
	from := slog.String("client", c.tcp.RemoteAddr().String())
	if c.self != nil {
		c.reportPeer(err)
		return
	}
	switch why := slog.Any("err", err); {
	case errors.Is(err, wire.ErrForeign):
		c.s.complaints.about("client does not speak Kafka's protocol", from, why)
	case errors.Is(err, wire.ErrFrameSize), errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrUnsupportedVersion):
		c.s.complaints.about("client sent a request that cannot be read", from, why)
	case errors.Is(err, errSlow):
		c.s.complaints.about("client did not finish a request", from, why)
	default:
		c.s.log.Debug("connection closed", from, why)
	}
}

// readAll reads requests until there is a reason not to.
func (c *conn) readAll() error {
	for {
		if !c.waitRoom() {
			return errGone
		}
		frame, has, err := c.readFrame()
		if err != nil {
			return err
		}
		if err := c.decode(frame, has); err != nil {
			return err
		}
	}
}

// waitRoom waits until the connection may have one more request open, and
// reports false once it is closed.
func (c *conn) waitRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.order.Len() >= c.s.cfg.InFlight && !c.closed {
		c.postAll() // it cannot be answered before it is posted
		for c.order.Len() >= c.s.cfg.InFlight && !c.closed {
			c.room.Wait()
		}
	}
	return !c.closed
}

// waitAnswered waits until every request was answered and sent.
func (c *conn) waitAnswered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for (c.order.Len() > 0 || c.writing) && !c.closed {
		c.room.Wait()
	}
}

// readFrame reads the next request. Memory for it is taken from the budget
// before any is made; has is how much.
func (c *conn) readFrame() (frame []byte, has held, err error) {
	if c.in.Buffered() == 0 {
		if err := c.waitIdle(); err != nil {
			return nil, held{}, err
		}
	}
	prefix, err := c.peek(wire.PrefixSize)
	if err != nil {
		return nil, held{}, err
	}
	if !c.greeted {
		if err := wire.Hello(prefix); err != nil {
			return nil, held{}, err
		}
		c.greeted = true
	}
	size, err := wire.FrameSize(prefix, c.s.cfg.MaxRequestBytes)
	if err != nil {
		return nil, held{}, err
	}
	header, err := c.peek(wire.PrefixSize + wire.CostHeader)
	if err != nil {
		return nil, held{}, err
	}
	cost, err := wire.Cost(header[wire.PrefixSize:], size)
	if err != nil {
		return nil, held{}, err
	}
	if cost <= smallCost {
		has.small, err = c.take(c.s.small, cost)
	} else {
		has.frame, err = c.take(c.s.frames, cost)
	}
	if err != nil {
		return nil, held{}, err
	}
	c.in.Discard(wire.PrefixSize)
	frame = c.s.pool.get(size)
	if c.in.Buffered() < size {
		if err := c.expectBytes(size); err != nil {
			c.s.give(has)
			return nil, held{}, err
		}
	}
	if _, err := io.ReadFull(c.in, frame); err != nil {
		c.s.give(has)
		return nil, held{}, c.late(err)
	}
	return frame, has, nil
}

// peek returns the next n bytes of a request that has begun.
func (c *conn) peek(n int) ([]byte, error) {
	if c.in.Buffered() < n {
		if err := c.expectBytes(n); err != nil {
			return nil, err
		}
	}
	p, err := c.in.Peek(n)
	return p, c.late(err)
}

func (c *conn) late(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errSlow
	}
	return err
}

// waitIdle waits for the first byte of a request.
func (c *conn) waitIdle() error {
	c.postAll()
	for {
		// To set a deadline costs as much as to decode a small request, so the one
		// that is there serves until an eighth of the time is used up.
		idle := c.s.cfg.IdleTimeout
		now := time.Now()
		if left := c.deadline.Sub(now); left < idle-idle/8 || left > idle {
			if err := c.readBy(now.Add(idle)); err != nil {
				return err
			}
		}
		_, err := c.in.Peek(1)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		c.mu.Lock()
		waits := c.order.Len() > 0 || c.writing
		c.mu.Unlock()
		if c.end.Load() || !waits { // who waits for an answer is not idle
			return errIdle
		}
	}
}

// expectBytes gives the client the time for n bytes.
func (c *conn) expectBytes(n int) error {
	c.postAll()
	slack := time.Duration(int64(n)/c.s.cfg.MinBytesPerSecond) * time.Second
	return c.readBy(time.Now().Add(c.s.cfg.FrameTimeout + slack))
}

func (c *conn) readBy(t time.Time) error {
	c.deadline = t
	if err := c.tcp.SetReadDeadline(t); err != nil {
		return err
	}
	if c.end.Load() { // after the deadline was set: interrupt came before or comes after
		return errIdle
	}
	return nil
}

// take takes n bytes of b, or all of it if it has no more, and says how many.
func (c *conn) take(b *budget, n int64) (int64, error) {
	n = b.clip(n)
	if b.try(n) {
		return n, nil
	}
	c.postAll()
	if !b.take(n, c.gone) {
		return 0, errGone
	}
	return n, nil
}

// decode makes a frame, for which has was taken, an event or an answer at once.
func (c *conn) decode(frame []byte, has held) error {
	growth, err := wire.Growth(frame)
	if err == nil && growth > 0 {
		has.growth, err = c.take(c.s.growth, growth)
	}
	if err != nil {
		c.s.give(has)
		return err
	}
	produce := isProduce(frame)
	req, answer, err := c.decodeFrame(frame, produce)
	if err != nil {
		c.s.give(has)
		return err
	}
	size, growth := req.Held()
	keeps := held{min(size, has.small), min(size, has.frame), min(growth, has.growth)}
	c.s.give(held{has.small - keeps.small, has.frame - keeps.frame, has.growth - keeps.growth})

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.s.give(keeps)
		return errGone
	}
	tag := request{held: keeps, produce: produce}
	if produce {
		tag.frame = frame
	}
	seq := c.order.Expect(req.Correlation, tag)
	if answer != nil {
		c.order.Answer(seq, *answer)
		c.some.Signal()
		return nil
	}
	c.events = append(c.events, broker.Request{
		Caller: wire.Caller{Conn: c.id, Seq: seq}, Request: req, Host: c.host, Port: c.port,
	})
	if len(c.events) >= postAtMost {
		c.postAll()
	}
	return nil
}

func (c *conn) decodeFrame(frame []byte, produce bool) (req wire.Request, answer *wire.Response, err error) {
	defer func() {
		if v := recover(); v != nil { // a client must not be able to stop the node
			c.s.log.Error("decoder panicked", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
			err = fmt.Errorf("%w: panic", wire.ErrMalformed)
		}
	}()
	if produce {
		c.s.decoders <- struct{}{}
		defer func() { <-c.s.decoders }()
	}
	return wire.Decode(frame, c.s.cfg.MaxDecompressed)
}

// isProduce looks at the frame's key.
func isProduce(frame []byte) bool {
	return frame[0] == 0 && frame[1] == byte(kmsg.Produce)
}

// postAll posts what was decoded. It is called before anything that may wait.
func (c *conn) postAll() {
	if len(c.events) > 0 {
		c.s.post(c.events...)
		clear(c.events)
		c.events = c.events[:0]
	}
}
