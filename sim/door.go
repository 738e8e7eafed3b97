package sim

import (
	"errors"
	"io"
	"math"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/sim/simnet"
	"github.com/pawlbroker/pawl/storage"
)

const (
	maxFrame        = 8 << 20
	maxDecompressed = 16 << 20

	clientPort = 9092
	peerPort   = 9093
)

// door is the node's end of the connections to it, from clients or from other
// nodes: bytes to requests, and responses, in the order of their requests, to
// bytes. It has the part of broker/tcp.
type door struct {
	m     *machine
	port  simnet.Port
	conns map[simnet.ConnID]*nodeConn
}

type nodeConn struct {
	split    *wire.Splitter
	order    wire.Order[asked]
	flushing bool
	peer     metadata.NodeID // who has said hello, or wire.NoPeer
}

// asked is what is remembered of a request until it is answered.
type asked struct {
	frame     []byte
	forwarded bool
}

// Opened implements simnet.Peer.
func (d *door) Opened(c simnet.ConnID) { d.m.arrive(arrival{to: d, conn: c, kind: opened}) }

// Received implements simnet.Peer.
func (d *door) Received(c simnet.ConnID, p []byte) {
	d.m.arrive(arrival{to: d, conn: c, kind: received, data: p})
}

// Closed implements simnet.Peer.
func (d *door) Closed(c simnet.ConnID, why simnet.Reason) {
	d.m.arrive(arrival{to: d, conn: c, kind: closed, why: why})
}

func (d *door) handle(a arrival) {
	switch a.kind {
	case opened:
		if d.conns == nil {
			d.conns = map[simnet.ConnID]*nodeConn{}
		}
		d.conns[a.conn] = &nodeConn{split: wire.NewSplitter(maxFrame), peer: wire.NoPeer}
	case received:
		if c := d.conns[a.conn]; c != nil {
			c.split.Feed(a.data)
			d.requests(a.conn, c)
		}
	case closed:
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
	d.m.w.net.Close(id, simnet.Acceptor)
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
		if d.port == simnet.PeerPort && c.peer == wire.NoPeer && err == nil {
			d.greet(id, c, frame)
			continue
		}
		var req wire.Request
		var answer *wire.Response
		if err == nil {
			d.m.guard(func() {
				if c.peer == wire.NoPeer {
					req, answer, err = wire.Decode(frame, maxDecompressed)
				} else {
					req, answer, err = wire.DecodePeer(frame, c.peer, maxDecompressed)
				}
			})
		}
		if d.m.node == nil {
			return
		}
		if err != nil {
			d.m.w.check.Violate("requests can be decoded", "%v", err)
			d.drop(id)
			return
		}
		caller := broker.Caller{Conn: uint64(id), Seq: math.MaxUint64}
		if answer != nil || !wire.OneWay(req.Body) {
			caller.Seq = c.order.Expect(req.Correlation, asked{frame, req.Forwarded})
		}
		if answer != nil {
			d.m.Reply(caller, *answer)
			continue
		}
		host, port := "sim", int32(clientPort)
		if c.peer != wire.NoPeer {
			host, port = d.m.who, peerPort
		}
		d.m.step(broker.Request{Caller: caller, Request: req, Host: host, Port: port})
	}
}

// greet answers another node's hello, which is the first frame of a connection.
func (d *door) greet(id simnet.ConnID, c *nodeConn, frame []byte) {
	hello, correlation, err := wire.DecodeHello(frame)
	if err != nil {
		d.m.w.check.Violate("requests can be decoded", "%v", err)
		d.drop(id)
		return
	}
	answer := &wire.PeerHelloResponse{PeerHello: d.m.hello()}
	switch {
	case hello.ClusterID != clusterID:
		answer.Refused = "another cluster"
	case hello.Node == d.m.nodeID():
		answer.Refused = "this is the node itself"
	}
	var f wire.Frame
	d.m.guard(func() { err = f.Append(correlation, answer) })
	if d.m.node == nil || err != nil {
		return
	}
	d.m.w.net.Send(id, simnet.Acceptor, f.Bytes)
	if answer.Refused != "" {
		d.drop(id)
		return
	}
	c.peer = hello.Node
}

// Reply implements broker.Network. What is replied is sent later: the node goes
// on meanwhile, and files may be changed under a region.
func (m *machine) Reply(to broker.Caller, r wire.Response) {
	id := simnet.ConnID(to.Conn)
	d := &m.front
	c := d.conns[id]
	if c == nil {
		d = &m.back
		if c = d.conns[id]; c == nil {
			return
		}
	}
	if to.Seq == math.MaxUint64 {
		m.w.check.Violate("what is one-way is not answered", "an answer to node %d", c.peer)
		return
	}
	c.order.Answer(to.Seq, r)
	if !c.flushing {
		c.flushing = true
		what := whatFlush
		if d == &m.back {
			what = whatFlushPeer
		}
		m.after(kernel.Skewed(m.disks, 0, 2*time.Millisecond), what, to.Conn)
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
		if ready.Response.Body != nil || ready.Tag.forwarded {
			p, err := d.encode(ready)
			switch {
			case d.m.disk.Crashed():
				d.m.powerOff()
				return
			case d.m.node == nil:
				return
			case err != nil:
				d.m.w.count("region could not be read")
				d.m.w.k.Trace.Say(d.m.who, err.Error())
				if e := (*storage.RegionError)(nil); errors.As(err, &e) {
					d.m.w.check.ReadErrors = true
					d.m.step(broker.ReadFailed{RegionError: e})
				}
				d.drop(id)
				return
			}
			d.m.w.net.Send(id, simnet.Acceptor, p)
		}
		if !ready.Response.InUse && c.peer == wire.NoPeer {
			spoil(ready.Tag.frame)
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
func (d *door) encode(r wire.Ready[asked]) (p []byte, err error) {
	var f wire.Frame
	d.m.guard(func() {
		if r.Tag.forwarded {
			err = f.AppendForwarded(r.Correlation, r.Response)
		} else {
			err = f.Append(r.Correlation, r.Response.Body)
		}
	})
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
		switch {
		case int64(n) == h.Region.Len:
		case err == nil || errors.Is(err, io.EOF): // it was cut meanwhile
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, &storage.RegionError{Region: h.Region, Err: err}
		}
	}
	return append(p, f.Bytes[at:]...), nil
}
