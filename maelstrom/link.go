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
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

var (
	// errNotSent says that nobody was asked.
	errNotSent = errors.New("not sent")
	// errNoAnswer says that a request was sent and its answer did not come in
	// time: whatever it asked for may have happened, or may yet.
	errNoAnswer = errors.New("no answer from the node")
)

// link is a client's connection to the node of this process. Requests and
// responses cross it in Kafka's wire form, so that a Maelstrom run exercises the
// codec that clients meet. It is the host's Network if the node is alone.
//
// Many goroutines use it at once; answers come back in any order.
type link struct {
	name string // of the node
	post func(...broker.Event)

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan wire.Response
}

func newLink(name string) *link { return &link{name: name, waiting: map[uint64]chan wire.Response{}} }

// open says where requests go. It comes before any.
func (l *link) open(post func(...broker.Event)) { l.post = post }

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

// request asks the node, which is the only one there is to ask, and waits for its
// answer. An error that matches errNoAnswer says nothing of what became of the
// request.
func (l *link) request(ctx context.Context, _ metadata.NodeID, req kmsg.Request) (kmsg.Response, error) {
	if err := setVersion(req); err != nil {
		return nil, err
	}
	l.mu.Lock()
	seq := l.next
	l.next++
	answered := make(chan wire.Response, 1)
	l.waiting[seq] = answered
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, seq)
		l.mu.Unlock()
	}()

	decoded, refusal, err := wire.Decode(requestFrame(int32(seq), req)[framePrefix:], maxDecompressed)
	switch {
	case err != nil:
		return nil, fmt.Errorf("decode request %d: %w", req.Key(), err)
	case refusal != nil:
		return decodeResponse(req, int32(seq), *refusal)
	}
	l.post(broker.Request{Caller: wire.Caller{Conn: localConn, Seq: seq}, Request: decoded, Host: l.name, Port: clientPort})
	select {
	case resp := <-answered:
		return decodeResponse(req, int32(seq), resp)
	case <-ctx.Done():
		return nil, errNoAnswer
	}
}

// setVersion makes a request one of the version that this client speaks.
func setVersion(req kmsg.Request) error {
	served, ok := wire.Served(req.Key())
	if !ok {
		return fmt.Errorf("%w: request %d is not served", errNotSent, req.Key())
	}
	req.SetVersion(min(served.Max, req.MaxVersion(), lastWithNames(req)))
	return nil
}

// requestFrame is a request as it goes over a connection.
func requestFrame(correlation int32, req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("maelstrom")).AppendRequest(nil, req, correlation)
}

// decodeResponse takes a response through its wire form.
func decodeResponse(req kmsg.Request, correlation int32, resp wire.Response) (kmsg.Response, error) {
	if resp.Body == nil {
		return nil, fmt.Errorf("%w: the connection was closed", errNoAnswer)
	}
	frame, err := encode(answer{correlation: correlation, response: resp})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return decodeAnswer(req, correlation, frame)
}

// decodeAnswer reads a response as it comes over a connection.
func decodeAnswer(req kmsg.Request, correlation int32, frame []byte) (kmsg.Response, error) {
	if len(frame) < responseHeader {
		return nil, fmt.Errorf("%w: a response of %d bytes", errNoAnswer, len(frame))
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

// lastWithNames is the last version of a request that calls topics by their
// names: from then on Fetch has ids (KIP-516), which this client does not learn.
func lastWithNames(req kmsg.Request) int16 {
	if _, ok := req.(*kmsg.FetchRequest); ok {
		return 12
	}
	return math.MaxInt16
}
