package maelstrom

import (
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/maelstrom/mesh"
	"github.com/pawlbroker/pawl/storage"
)

// maxFrame is the longest request or response between nodes, in bytes.
const maxFrame = 64 << 20

// door is this node's end of a connection that another node opened: bytes to
// requests, and responses to bytes.
//
// Responses go out in the order of the requests, but to what another node's
// clients ask: there one that waits must not hold up the others, and whoever
// asked knows its answer by the correlation id.
type door struct {
	c      *carrier
	id     uint64 // as the broker knows it
	conn   *mesh.Conn
	client bool
	peer   metadata.NodeID // who has said hello, or wire.NoPeer
	split  *wire.Splitter
	order  wire.Order[bool] // of a broker's requests; whether it was forwarded
	asked  map[uint64]int32 // of clients: correlation ids
	next   uint64           // of clients: the next request's number
	over   bool
}

// answer is a response whose turn it is.
type answer struct {
	door        *door
	correlation int32
	forwarded   bool
	response    wire.Response
}

// accept takes a connection that another node opens.
func (r *carrier) accept(conn *mesh.Conn) mesh.Handler {
	r.last++
	d := &door{c: r, id: r.last, conn: conn, client: conn.Kind == kindClient, peer: wire.NoPeer,
		split: wire.NewSplitter(maxFrame), asked: map[uint64]int32{}}
	r.doors[d.id] = d
	return d
}

// Opened implements mesh.Handler.
func (d *door) Opened() {}

// Closed implements mesh.Handler.
func (d *door) Closed(err error) {
	d.c.log.Debug("node's connection closed", slog.String("node", d.conn.Peer), slog.Any("err", err))
	d.gone()
}

// gone forgets the connection.
func (d *door) gone() {
	if !d.over {
		d.over = true
		delete(d.c.doors, d.id)
		d.c.post(broker.ConnClosed{Conn: d.id})
	}
}

// drop ends the connection.
func (d *door) drop() {
	d.conn.Close()
	d.gone()
}

// Received implements mesh.Handler.
func (d *door) Received(p []byte) {
	d.split.Feed(p)
	for !d.over {
		frame, err := d.split.Next()
		if err == nil && frame == nil {
			return
		}
		if err == nil {
			err = d.take(frame)
		}
		if err != nil {
			d.c.log.Error("node sent a request that cannot be read", slog.String("node", d.conn.Peer), slog.Any("err", err))
			d.drop()
		}
	}
}

// take handles a request.
func (d *door) take(frame []byte) error {
	var req wire.Request
	var refusal *wire.Response
	var err error
	switch {
	case d.client:
		req, refusal, err = wire.Decode(frame, maxDecompressed)
	case d.peer == wire.NoPeer:
		return d.greet(frame)
	default:
		req, refusal, err = wire.DecodePeer(frame, d.peer, maxDecompressed)
	}
	if err != nil {
		return err
	}
	caller := wire.Caller{Conn: d.id, Seq: math.MaxUint64}
	if refusal != nil || !wire.OneWay(req.Body) {
		caller.Seq = d.expect(&req)
	}
	if refusal != nil {
		d.answer(caller.Seq, *refusal)
		return nil
	}
	at, port := d.c.local.name, int32(clientPort)
	if !d.client {
		port = peerPort
	}
	d.c.post(broker.Request{Caller: caller, Request: req, Host: at, Port: port})
	return nil
}

// expect takes note of a request.
func (d *door) expect(req *wire.Request) (seq uint64) {
	if !d.client {
		return d.order.Expect(req.Correlation, req.Forwarded)
	}
	d.next++
	d.asked[d.next] = req.Correlation
	return d.next
}

// answer has those responses sent whose turn has come.
func (d *door) answer(seq uint64, resp wire.Response) {
	if d.client {
		d.c.answers = append(d.c.answers, answer{d, d.asked[seq], false, resp})
		delete(d.asked, seq)
	} else {
		d.order.Answer(seq, resp)
		for d.order.Ready() {
			next, _ := d.order.Pop()
			d.c.answers = append(d.c.answers, answer{d, next.Correlation, next.Tag, next.Response})
		}
	}
	d.c.some.Signal()
}

// greet answers another broker's hello, which is the first frame of a link.
func (d *door) greet(frame []byte) error {
	hello, correlation, err := wire.DecodeHello(frame)
	if err != nil {
		return err
	}
	answer := &wire.PeerHelloResponse{PeerHello: d.c.self}
	if hello.ClusterID != d.c.self.ClusterID || hello.Node == d.c.self.Node {
		answer.Refused = fmt.Sprintf("node %d of cluster %q is none of ours", hello.Node, hello.ClusterID)
	} else {
		d.peer = hello.Node
	}
	seq := d.order.Expect(correlation, false)
	d.answer(seq, wire.Response{Body: answer, Close: answer.Refused != ""})
	return nil
}

// Reply implements broker.Network.
func (r *carrier) Reply(to wire.Caller, resp wire.Response) {
	if to.Conn == localConn {
		r.local.Reply(to, resp)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.doors[to.Conn]; d != nil {
		d.answer(to.Seq, resp)
	}
}

// Flush implements host.Network; answers are not held back.
func (r *carrier) Flush() {}

// sendAnswers sends answers until the carrier is closed. It reads files, and so
// does not hold the mutex while it encodes.
func (r *carrier) sendAnswers() {
	for {
		r.mu.Lock()
		for len(r.answers) == 0 && !r.over {
			r.some.Wait()
		}
		answers := r.answers
		r.answers = nil
		over := r.over
		r.mu.Unlock()
		if over {
			return
		}
		for _, a := range answers {
			r.sendAnswer(a)
		}
	}
}

func (r *carrier) sendAnswer(a answer) {
	var bytes []byte
	var err error
	if a.response.Body != nil || a.forwarded {
		bytes, err = encode(a)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch d := a.door; {
	case d.over || r.over:
	case err != nil:
		r.log.Error("answer to a node", slog.String("node", d.conn.Peer), slog.Any("err", err))
		if e := (*storage.RegionError)(nil); errors.As(err, &e) {
			r.post(broker.ReadFailed{RegionError: e})
		}
		d.drop()
	default:
		d.conn.Send(bytes)
		if a.response.Close {
			d.drop()
		}
	}
}

// encode returns a response as it would go over a connection, with the regions
// read into their holes.
func encode(a answer) ([]byte, error) {
	var f wire.Frame
	var err error
	if a.forwarded {
		err = f.AppendForwarded(a.correlation, a.response)
	} else {
		err = f.Append(a.correlation, a.response.Body)
	}
	if err != nil {
		return nil, err
	}
	whole := make([]byte, 0, f.Size())
	at := 0
	for _, h := range f.Holes {
		whole = append(whole, f.Bytes[at:h.At]...)
		at = h.At
		hole := make([]byte, h.Region.Len)
		if _, err := h.Region.File.ReadAt(hole, h.Region.Pos); err != nil {
			return nil, &storage.RegionError{Region: h.Region, Err: err}
		}
		whole = append(whole, hole...)
	}
	return append(whole, f.Bytes[at:]...), nil
}
