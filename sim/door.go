package sim

import (
	"fmt"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/sim/simnet"
)

const (
	maxFrame        = 8 << 20
	maxDecompressed = 16 << 20
)

// door is the node's end of its connections: bytes to requests, and responses,
// in the order of their requests, to bytes. It has the part of broker/tcp.
type door struct {
	m     *machine
	conns map[simnet.ConnID]*nodeConn
	held  []arrival // while the process is paused
}

type nodeConn struct {
	split    *wire.Splitter
	order    wire.Order[[]byte] // with the frame of each request
	flushing bool
}

// arrival is what the network brought to a process that does not run.
type arrival struct {
	conn simnet.ConnID
	kind byte // 'o'pened, 'd'ata, 'c'losed
	data []byte
}

// Opened implements simnet.Peer.
func (d *door) Opened(c simnet.ConnID) { d.arrive(arrival{conn: c, kind: 'o'}) }

// Received implements simnet.Peer.
func (d *door) Received(c simnet.ConnID, p []byte) { d.arrive(arrival{conn: c, kind: 'd', data: p}) }

// Closed implements simnet.Peer.
func (d *door) Closed(c simnet.ConnID, _ simnet.Reason) { d.arrive(arrival{conn: c, kind: 'c'}) }

func (d *door) arrive(a arrival) {
	if d.m.paused() || len(d.held) > 0 {
		d.held = append(d.held, a)
		return
	}
	d.handle(a)
}

// resume handles what was held back.
func (d *door) resume() {
	if d.m.paused() {
		return
	}
	held := d.held
	d.held = nil
	for _, a := range held {
		if d.m.node == nil {
			return
		}
		d.handle(a)
	}
}

func (d *door) handle(a arrival) {
	switch a.kind {
	case 'o':
		if d.conns == nil {
			d.conns = map[simnet.ConnID]*nodeConn{}
		}
		d.conns[a.conn] = &nodeConn{split: wire.NewSplitter(maxFrame)}
	case 'd':
		if c := d.conns[a.conn]; c != nil {
			c.split.Feed(a.data)
			d.requests(a.conn, c)
		}
	case 'c':
		d.gone(a.conn)
	}
}

// gone forgets a connection and tells the node.
func (d *door) gone(id simnet.ConnID) {
	if d.conns[id] == nil {
		return
	}
	delete(d.conns, id)
	d.m.step(broker.ConnClosed{Conn: uint64(id)})
}

// drop ends a connection.
func (d *door) drop(id simnet.ConnID) {
	d.m.w.net.Close(id, simnet.Node)
	d.gone(id)
}

// requests hands every whole request to the node.
func (d *door) requests(id simnet.ConnID, c *nodeConn) {
	life := d.m.life
	for d.m.life == life && d.conns[id] == c {
		frame, err := c.split.Next()
		if err == nil && frame == nil {
			return
		}
		var req wire.Request
		var answer *wire.Response
		if err == nil {
			d.m.guard(func() { req, answer, err = wire.Decode(frame, maxDecompressed) })
		}
		if d.m.node == nil {
			return
		}
		if err != nil {
			d.m.w.check.Violate("requests can be decoded", "%v", err)
			d.drop(id)
			return
		}
		seq := c.order.Expect(req.Correlation, frame)
		caller := broker.Caller{Conn: uint64(id), Seq: seq}
		if answer != nil {
			d.m.Reply(caller, *answer)
			continue
		}
		d.m.step(broker.Request{Caller: caller, Request: req, Host: "sim", Port: 9092})
	}
}

// Reply implements broker.Network. What is replied is sent later: the node goes
// on meanwhile, and files may be changed under a region.
func (m *machine) Reply(to broker.Caller, r wire.Response) {
	c := m.door.conns[simnet.ConnID(to.Conn)]
	if c == nil {
		return
	}
	c.order.Answer(to.Seq, r)
	if !c.flushing {
		c.flushing = true
		m.after(kernel.Skewed(m.disks, 0, 2*time.Millisecond), whatFlush, to.Conn)
	}
}

// flush sends the responses whose turn it is.
func (d *door) flush(conn uint64) {
	id := simnet.ConnID(conn)
	c := d.conns[id]
	if c == nil {
		return
	}
	c.flushing = false
	for c.order.Ready() {
		ready, _ := c.order.Pop()
		if ready.Response.Body != nil {
			p, err := d.encode(ready.Correlation, ready.Response.Body)
			switch {
			case d.m.disk.Crashed():
				d.m.powerOff()
				return
			case d.m.node == nil:
				return
			case err != nil:
				d.m.w.count("region could not be read")
				d.m.w.k.Trace.Say(d.m.who, err.Error())
				d.drop(id)
				return
			}
			d.m.w.net.Send(id, simnet.Node, p)
		}
		if !ready.Response.InUse {
			spoil(ready.Tag)
		}
		if ready.Response.Close {
			d.drop(id)
			return
		}
	}
}

// spoil overwrites a frame that broker/tcp would use for another request.
// Whoever still reads it stores or sends what no client wrote.
func spoil(frame []byte) {
	for i := range frame {
		frame[i] = 0xdb
	}
}

// encode makes the bytes of one response, reading regions as sendfile would.
func (d *door) encode(correlation int32, body wire.Body) (p []byte, err error) {
	var f wire.Frame
	d.m.guard(func() { err = f.Append(correlation, body) })
	if err != nil || d.m.node == nil {
		return nil, err
	}
	if len(f.Holes) == 0 {
		return f.Bytes, nil
	}
	if d.m.disk.Drops() > d.m.drops {
		d.m.w.check.Dropped = true // the node is about to hear of it, and to stop
		d.m.w.count("region sent after a failed sync")
	}
	p = make([]byte, 0, f.Size())
	at := 0
	for _, h := range f.Holes {
		p = append(p, f.Bytes[at:h.At]...)
		at = h.At
		start := len(p)
		p = p[:start+int(h.Region.Len)]
		n, err := h.Region.File.ReadAt(p[start:], h.Region.Pos)
		if int64(n) < h.Region.Len {
			return nil, fmt.Errorf("region of %d bytes at %d: read %d: %w", h.Region.Len, h.Region.Pos, n, err)
		}
	}
	return append(p, f.Bytes[at:]...), nil
}
