// Package maelstrom runs a node under Maelstrom's kafka workload: JSON lines on
// standard input and output instead of sockets, the same broker behind them.
//
// Every node is a broker. One is a cluster of its own; several are one cluster,
// whose brokers talk to each other over Maelstrom's network (package mesh) and so
// feel its latency and its partitions. What clients ask of any node it asks of
// the broker that leads. Package harness runs nodes as Maelstrom does, without a
// JVM.
package maelstrom

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/pawlbroker/pawl/maelstrom/mesh"
	"github.com/pawlbroker/pawl/maelstrom/protocol"
)

const (
	// workTime is how long a request may take, from when it may have been sent.
	workTime = 4 * time.Second
	// replyTime is when nobody listens any more. Maelstrom's clients leave after
	// 5 seconds, and a node that answers one who has left is not heard again.
	replyTime = 4500 * time.Millisecond
)

// server is one node's life.
type server struct {
	cfg    Config
	acks   int16 // of what is sent; another than all is a fault, for tests
	logger *slog.Logger
	out    *outbox
	pauses pauses
	failed chan error    // the broker, or standard output, has ended by itself
	stop   chan struct{} // closed when the node ends

	// What init brings; the reader's own.
	named   bool
	cluster cluster
	service *service

	mu     sync.Mutex
	broker *instance // nil before init

	ctx      context.Context // of all requests
	requests sync.WaitGroup
}

// Serve runs a node until in ends. It returns an error if the node cannot go
// on; the process should then end with a non-zero status.
func Serve(cfg Config, in io.Reader, out io.Writer, logger *slog.Logger) error {
	return serve(cfg, acksAll, in, out, logger)
}

func serve(cfg Config, acks int16, in io.Reader, out io.Writer, logger *slog.Logger) error {
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{cfg: cfg, acks: acks, logger: logger, failed: make(chan error, 3), stop: make(chan struct{}), ctx: ctx}
	s.out = newOutbox(out, func(err error) { s.failed <- err })
	go s.pauses.run(s.stop)
	defer close(s.stop)

	ended := make(chan error, 1)
	go func() { ended <- s.read(in) }()
	select {
	case err := <-ended:
		cancel()
		err = errors.Join(err, s.end())
		s.requests.Wait()
		s.out.close()
		return err
	case err := <-s.failed:
		cancel()
		s.end()
		return err
	}
}

// end stops the broker, if there is one.
func (s *server) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broker == nil {
		return nil
	}
	return s.broker.close()
}

// read takes lines, of any length, until there are no more.
func (s *server) read(in io.Reader) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var m protocol.Message
		var h protocol.Header
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("a line that is not a message: %w", err)
		}
		if err := json.Unmarshal(m.Body, &h); err != nil {
			return fmt.Errorf("a message without a body: %w", err)
		}
		s.take(m, h)
	}
}

// take handles a message. A node that comes back is asked before it is told who
// it is; nobody gets an answer then.
func (s *server) take(m protocol.Message, h protocol.Header) {
	switch {
	case h.Type == protocol.Init:
		s.init(m, h)
	case !s.named || h.InReplyTo > 0:
	case h.Type == mesh.Type:
		var f mesh.Frame
		if err := json.Unmarshal(m.Body, &f); err != nil {
			s.logger.Error("message of a node", slog.String("node", m.Src), slog.Any("error", err))
			return
		}
		s.broker.receive(m.Src, f)
	case handlers[h.Type] == nil:
		s.refuse(m, h, protocol.NotSupported, fmt.Errorf("unknown request type %q", h.Type))
	default:
		s.requests.Go(func() { s.handle(m, h, handlers[h.Type]) })
	}
}

// init starts the broker. It is answered at once: Maelstrom tells the nodes who
// they are one by one, and none can serve before most can.
func (s *server) init(m protocol.Message, h protocol.Header) {
	if s.named {
		s.refuse(m, h, protocol.Abort, errors.New("the node has been told who it is"))
		return
	}
	var req protocol.InitRequest
	err := decode(m.Body, &req)
	if err == nil {
		s.cluster, err = newCluster(req.NodeID, req.NodeIDs)
	}
	var broker *instance
	if err == nil {
		broker, err = start(s.cfg, s.cluster, s.send, s.logger)
	}
	if err != nil {
		s.refuse(m, h, protocol.Crash, err)
		s.failed <- err
		return
	}
	s.mu.Lock()
	s.broker = broker
	s.mu.Unlock()
	s.named = true
	s.service = newService(broker.nodes, s.cluster.self.id, s.acks)
	go func() {
		if err := broker.wait(); err != nil {
			s.failed <- fmt.Errorf("broker: %w", err)
		}
	}()
	s.reply(m, h, time.Time{}, protocol.Header{Type: protocol.InitOK})
}

// send sends a message to another node.
func (s *server) send(to string, f mesh.Frame) {
	body, err := json.Marshal(f)
	if err == nil {
		err = s.out.put(protocol.Message{Src: s.cluster.self.name, Dest: to, Body: body}, time.Time{})
	}
	if err != nil {
		s.logger.Error("send", slog.String("to", to), slog.Any("error", err))
	}
}

// refuse answers with an error.
func (s *server) refuse(m protocol.Message, h protocol.Header, code protocol.Code, why error) {
	s.reply(m, h, time.Now().Add(replyTime), protocol.ErrorResponse{Header: protocol.Header{Type: protocol.ErrorType}, Code: code, Text: why.Error()})
}

// reply answers, unless it is too late by the time the answer is written.
func (s *server) reply(m protocol.Message, h protocol.Header, deadline time.Time, answer any) {
	body, err := addressed(h, answer)
	if err == nil {
		err = s.out.put(protocol.Message{Src: m.Dest, Dest: m.Src, Body: body}, deadline)
	}
	if err != nil {
		s.logger.Error("reply", slog.String("to", m.Src), slog.Any("error", err))
	}
}

// addressed encodes an answer as one to the request that has the header asked.
func addressed(asked protocol.Header, answer any) (json.RawMessage, error) {
	encoded, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &fields); err != nil {
		return nil, err
	}
	fields["in_reply_to"] = strconv.AppendInt(nil, int64(asked.MsgID), 10)
	return json.Marshal(fields)
}

// handler carries out one request. An error that matches errUnknown gets no
// definite answer.
type handler func(ctx context.Context, s *service, body json.RawMessage) (any, error)

// handlers are the requests that a node takes.
var handlers = map[string]handler{protocol.Send: send, protocol.Poll: poll, protocol.Commit: commit, protocol.List: list}

// handle answers a request. What is late is not answered at all.
func (s *server) handle(m protocol.Message, h protocol.Header, do handler) {
	arrived := s.pauses.arrival(time.Now())
	ctx, cancel := context.WithDeadline(s.ctx, arrived.Add(workTime))
	defer cancel()
	if ctx.Err() != nil {
		return // whoever asked has given up
	}
	answer, err := do(ctx, s.service, m.Body)
	if s.ctx.Err() != nil {
		return // the node ends
	}
	if err != nil {
		answer = protocol.ErrorResponse{Header: protocol.Header{Type: protocol.ErrorType}, Code: codeOf(err), Text: err.Error()}
	}
	s.reply(m, h, arrived.Add(replyTime), answer)
}

// codeOf is the error code that says what is known, and no more.
func codeOf(err error) protocol.Code {
	var malformed *malformedError
	switch {
	case errors.As(err, &malformed):
		return protocol.MalformedRequest
	case errors.Is(err, errUnknown):
		return protocol.Crash
	case errors.Is(err, errUnavailable):
		return protocol.TemporarilyUnavailable
	case errors.Is(err, errRefused):
		return protocol.Abort
	}
	return protocol.Crash
}

type malformedError struct{ err error }

func (e *malformedError) Error() string { return "malformed request: " + e.err.Error() }

func decode(body json.RawMessage, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return &malformedError{err}
	}
	return nil
}

func send(ctx context.Context, s *service, body json.RawMessage) (any, error) {
	var req protocol.SendRequest
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	offset, err := s.send(ctx, req.Key, req.Msg)
	return protocol.SendResponse{Header: protocol.Header{Type: protocol.SendOK}, Offset: offset}, err
}

func poll(ctx context.Context, s *service, body json.RawMessage) (any, error) {
	var req protocol.PollRequest
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	msgs, err := s.poll(ctx, req.Offsets)
	return protocol.PollResponse{Header: protocol.Header{Type: protocol.PollOK}, Msgs: msgs}, err
}

func commit(ctx context.Context, s *service, body json.RawMessage) (any, error) {
	var req protocol.CommitRequest
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	return protocol.Header{Type: protocol.CommitOK}, s.commit(ctx, req.Offsets)
}

func list(ctx context.Context, s *service, body json.RawMessage) (any, error) {
	var req protocol.ListRequest
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	offsets, err := s.list(ctx, req.Keys)
	return protocol.ListResponse{Header: protocol.Header{Type: protocol.ListOK}, Offsets: offsets}, err
}
