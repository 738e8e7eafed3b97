package maelstrom

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/wire"
)

// errNoAnswer says that a request was posted and its answer did not come in
// time: whatever it asked for may have happened, or may yet.
var errNoAnswer = errors.New("no answer from the node")

// link is the one connection to the node of this process. Requests and
// responses cross it in Kafka's wire form, so that a Maelstrom run exercises the
// codec that clients meet. It is the host's Network.
//
// Many goroutines use it at once; answers come back in any order.
type link struct {
	post func(...broker.Event)

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan wire.Response
}

func newLink() *link { return &link{waiting: map[uint64]chan wire.Response{}} }

// Limits of the link, in bytes.
const (
	maxDecompressed = 16 << 20
	framePrefix     = 4
	responseHeader  = framePrefix + 4 // and the correlation id
)

// Reply implements broker.Network. It runs on the node's loop.
func (l *link) Reply(c wire.Caller, resp wire.Response) {
	l.mu.Lock()
	waiting := l.waiting[c.Seq]
	delete(l.waiting, c.Seq)
	l.mu.Unlock()
	if waiting != nil {
		waiting <- resp // has room for the one answer
	}
}

// Flush implements host.Network; answers are not held back.
func (l *link) Flush() {}

// request asks the node and waits for its answer. An error that matches
// errNoAnswer says nothing of what became of the request.
func (l *link) request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	served, ok := wire.Served(req.Key())
	if !ok {
		return nil, fmt.Errorf("request %d is not served", req.Key())
	}
	req.SetVersion(min(served.Max, req.MaxVersion(), lastWithNames(req)))

	l.mu.Lock()
	seq := l.next
	l.next++
	answer := make(chan wire.Response, 1)
	l.waiting[seq] = answer
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, seq)
		l.mu.Unlock()
	}()

	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("maelstrom")).AppendRequest(nil, req, int32(seq))
	decoded, refusal, err := wire.Decode(frame[framePrefix:], maxDecompressed)
	switch {
	case err != nil:
		return nil, fmt.Errorf("decode request %d: %w", req.Key(), err)
	case refusal != nil:
		return l.decode(req, int32(seq), *refusal)
	}
	l.post(broker.Request{Caller: wire.Caller{Conn: 1, Seq: seq}, Request: decoded, Host: "127.0.0.1", Port: 9092})
	select {
	case resp := <-answer:
		return l.decode(req, int32(seq), resp)
	case <-ctx.Done():
		return nil, errNoAnswer
	}
}

// decode takes a response through its wire form.
func (l *link) decode(req kmsg.Request, correlation int32, resp wire.Response) (kmsg.Response, error) {
	if resp.Body == nil {
		return nil, fmt.Errorf("%w: the connection was closed", errNoAnswer)
	}
	frame, err := encode(correlation, resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	if got := int32(binary.BigEndian.Uint32(frame[framePrefix:])); got != correlation {
		return nil, fmt.Errorf("%w: correlation id %d, want %d", errNoAnswer, got, correlation)
	}
	decoded := req.ResponseKind()
	body := frame[responseHeader:]
	if decoded.IsFlexible() && decoded.Key() != kmsg.ApiVersions.Int16() {
		body = body[1:] // no tags
	}
	if err := decoded.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: response %d: %w", errNoAnswer, req.Key(), err)
	}
	return decoded, nil
}

// encode returns a response as it would go over a connection, with the regions
// read into their holes.
func encode(correlation int32, body wire.Body) ([]byte, error) {
	var f wire.Frame
	if err := f.Append(correlation, body); err != nil {
		return nil, err
	}
	whole := make([]byte, 0, f.Size())
	at := 0
	for _, h := range f.Holes {
		whole = append(whole, f.Bytes[at:h.At]...)
		at = h.At
		hole := make([]byte, h.Region.Len)
		if _, err := h.Region.File.ReadAt(hole, h.Region.Pos); err != nil {
			return nil, fmt.Errorf("read region at %d: %w", h.Region.Pos, err)
		}
		whole = append(whole, hole...)
	}
	return append(whole, f.Bytes[at:]...), nil
}

// lastWithNames is the last version of a request that calls topics by their
// names: from then on Fetch has ids (KIP-516), which this client does not learn.
func lastWithNames(req kmsg.Request) int16 {
	if _, ok := req.(*kmsg.FetchRequest); ok {
		return 12
	}
	return math.MaxInt16
}
