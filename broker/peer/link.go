package peer

import (
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/wire"
)

// queuedDown is how many one-way requests wait for a link that is down. They are
// out of date soon.
const queuedDown = 64

// link is one of the connections to another node.
//
// Invariant: every call that was given to it is in open, or was answered; those
// that are in queue too have not been written.
type link struct {
	c    *Carrier
	to   wire.Peer
	kind wire.Link

	mu          sync.Mutex
	some        sync.Cond    // the writer waits for it: something is queued, or its connection is not the link's any more
	conn        *net.TCPConn // nil while the link is down
	queue       []queued     // to be written, in order
	queuedBytes int          // of queue
	open        []openCall   // without an answer, in order; those from head on
	head        int
	correlation int32 // of the last call
}

// queued is a request that waits to be written.
type queued struct {
	correlation int32
	req         kmsg.Request
	size        int
}

// openCall is a call that waits for its answer.
type openCall struct {
	id          broker.CallID
	correlation int32
	req         kmsg.Request
	deadline    time.Time
}

func newLink(c *Carrier, to wire.Peer, kind wire.Link) *link {
	l := &link{c: c, to: to, kind: kind}
	l.some.L = &l.mu
	return l
}

// call queues a request, or answers it at once if the link is down or full.
func (l *link) call(id broker.CallID, req kmsg.Request) {
	size := sizeOf(req)
	l.mu.Lock()
	if wire.OneWay(req) {
		l.makeRoom(size)
		l.enqueue(queued{req: req, size: size})
		l.mu.Unlock()
		return
	}
	full := l.openLen() >= l.c.cfg.MaxOpen || l.queuedBytes+size > l.c.cfg.MaxQueued && l.queuedBytes > 0
	if l.conn == nil || full {
		l.mu.Unlock()
		l.c.post(gone(l.to.ID, id))
		return
	}
	l.correlation++
	call := openCall{id, l.correlation, req, time.Now().Add(l.c.timeoutOf(req))}
	if l.openLen() == 0 {
		l.open, l.head = l.open[:0], 0
		l.conn.SetReadDeadline(call.deadline) // a failure shows when it is read
	}
	l.open = append(l.open, call)
	l.enqueue(queued{call.correlation, req, size})
	l.mu.Unlock()
}

func (l *link) enqueue(q queued) {
	l.queue = append(l.queue, q)
	l.queuedBytes += q.size
	l.some.Signal()
}

// makeRoom drops the oldest one-way requests until size more bytes may be queued.
func (l *link) makeRoom(size int) {
	for l.queuedBytes+size > l.c.cfg.MaxQueued || l.conn == nil && len(l.queue) >= queuedDown {
		i := 0
		for i < len(l.queue) && !wire.OneWay(l.queue[i].req) {
			i++
		}
		if i == len(l.queue) {
			return
		}
		l.queuedBytes -= l.queue[i].size
		copy(l.queue[i:], l.queue[i+1:])
		l.queue[len(l.queue)-1] = queued{}
		l.queue = l.queue[:len(l.queue)-1]
	}
}

func (l *link) openLen() int { return len(l.open) - l.head }

func (l *link) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil
}

// hangUp breaks the link, which is then made anew.
func (l *link) hangUp() {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		l.down(conn)
	}
}

// up makes conn the link's connection.
func (l *link) up(conn *net.TCPConn) {
	l.mu.Lock()
	l.conn = conn
	l.mu.Unlock()
}

// down closes conn and, if it is the link's connection, answers every call that
// is open on it. One-way requests that were not written wait for the next.
func (l *link) down(conn *net.TCPConn) {
	conn.Close()
	l.mu.Lock()
	if l.conn != conn {
		l.mu.Unlock()
		return
	}
	l.conn = nil
	failed := make([]broker.Event, 0, l.openLen())
	for i := l.head; i < len(l.open); i++ {
		failed = append(failed, gone(l.to.ID, l.open[i].id))
	}
	clear(l.open)
	l.open, l.head = l.open[:0], 0
	kept := l.queue[:0]
	for _, q := range l.queue {
		if wire.OneWay(q.req) {
			kept = append(kept, q)
		} else {
			l.queuedBytes -= q.size
		}
	}
	clear(l.queue[len(kept):])
	l.queue = kept
	l.makeRoom(0)
	l.some.Broadcast()
	l.mu.Unlock()
	if len(failed) > 0 {
		l.c.post(failed...)
	}
}

// front is the call whose answer comes next over conn. It returns errOrder if
// there is none, and net.ErrClosed once conn is not the link's any more.
func (l *link) front(conn *net.TCPConn) (openCall, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.conn != conn:
		return openCall{}, net.ErrClosed
	case l.openLen() == 0:
		return openCall{}, errOrder
	}
	return l.open[l.head], nil
}

// answered takes the front call out, unless conn is not the link's any more and
// the call was answered therefore. The next call's time begins to count.
func (l *link) answered(conn *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != conn {
		return false
	}
	l.open[l.head] = openCall{}
	l.head++
	next := time.Time{}
	if l.openLen() > 0 {
		next = l.open[l.head].deadline
	}
	if l.head >= 64 && l.head*2 >= len(l.open) {
		n := copy(l.open, l.open[l.head:])
		clear(l.open[n:])
		l.open, l.head = l.open[:n], 0
	}
	conn.SetReadDeadline(next) // a failure shows when it is read
	return true
}

// take waits for requests to write to conn. It reports false once conn is not
// the link's any more.
func (l *link) take(conn *net.TCPConn, spare []queued) ([]queued, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && l.conn == conn {
		l.some.Wait()
	}
	if l.conn != conn {
		return nil, false
	}
	taken := l.queue
	l.queue, l.queuedBytes = spare[:0], 0
	return taken, true
}

// sizeOf is about how many bytes a request has that waits to be written.
func sizeOf(req kmsg.Request) int {
	const plain = 256
	switch r := req.(type) {
	case *kmsg.EnvelopeRequest:
		return plain + len(r.RequestData)
	case *wire.QuorumMessages:
		n := plain
		for _, m := range r.Messages {
			n += len(m)
		}
		return n
	case *wire.Progress:
		return plain + 32*len(r.Partitions)
	case *kmsg.FetchRequest:
		n := plain
		for i := range r.Topics {
			n += 32 + 48*len(r.Topics[i].Partitions)
		}
		return n
	}
	return plain
}
