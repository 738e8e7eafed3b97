// Package maelstrom runs a node under Maelstrom's kafka workload: JSON lines on
// standard input and output instead of sockets, the same broker behind them.
//
// The first of the nodes is the broker; the others forward what clients ask of
// them to it, over Maelstrom's network, and so feel its partitions. Package
// harness runs nodes as Maelstrom does, without a JVM.
package maelstrom

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"time"

	jepsen "github.com/jepsen-io/maelstrom/demo/go"

	"github.com/pawlbroker/pawl/maelstrom/protocol"
)

const (
	// workTime is how long a request may take, from when it may have been sent.
	workTime = 4 * time.Second
	// replyTime is when nobody listens any more. Maelstrom's clients leave after
	// 5 seconds, and a node that answers one who has left is not heard again.
	replyTime = 4500 * time.Millisecond
	// startTime is how long a node may take to recover. Maelstrom waits for 10
	// seconds.
	startTime = 9 * time.Second
	// maxLine is the longest line that the protocol library reads, in bytes.
	maxLine = bufio.MaxScanTokenSize - 1
)

// server is one node's life.
type server struct {
	cfg     Config
	logger  *slog.Logger
	node    *jepsen.Node
	pauses  pauses
	service *service // of the first node, after init
	broker  *instance
	failed  chan error    // the broker has ended by itself, or did not start
	named   chan struct{} // closed once the node knows who it is
	ready   chan struct{} // closed once it serves
	stop    chan struct{}
}

// Serve runs a node until in ends. It returns an error if the node cannot go
// on; the process should then end with a non-zero status.
func Serve(cfg Config, in io.Reader, out io.Writer, logger *slog.Logger) error {
	s := &server{cfg: cfg, logger: logger, node: jepsen.NewNode(), failed: make(chan error, 2),
		named: make(chan struct{}), ready: make(chan struct{}), stop: make(chan struct{})}
	defer close(s.stop)
	go s.pauses.run(s.stop)

	known, feed := io.Pipe()
	s.node.Stdin, s.node.Stdout = known, out
	s.node.Handle(protocol.Init, s.init)
	s.handle(protocol.Send, s.send)
	s.handle(protocol.Poll, s.poll)
	s.handle(protocol.Commit, s.commit)
	s.handle(protocol.List, s.list)

	ended := make(chan error, 2)
	go func() { feed.CloseWithError(s.filter(in, feed)) }()
	go func() { ended <- s.node.Run() }()
	select {
	case err := <-ended:
		known.Close()
		if s.broker != nil {
			err = errors.Join(err, s.broker.close())
		}
		return err
	case err := <-s.failed:
		known.Close()
		return fmt.Errorf("broker: %w", err)
	}
}

// filter passes on the lines that the protocol library can take, and answers
// the others. Nothing is passed on before the node serves, but init: a node that
// comes back is asked before it is told who it is.
func (s *server) filter(in io.Reader, out io.Writer) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return err
		}
		var m jepsen.Message
		var h protocol.Header
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("a line that is not a message: %w", err)
		}
		if err := json.Unmarshal(m.Body, &h); err != nil {
			return fmt.Errorf("a message without a body: %w", err)
		}
		pass := h.Type == protocol.Init || isClosed(s.ready)
		switch {
		case pass && len(line) <= maxLine && (h.InReplyTo > 0 || slices.Contains(served, h.Type)):
			if _, err := out.Write(line); err != nil {
				return err
			}
		case !isClosed(s.named) || h.InReplyTo > 0:
		case !slices.Contains(served, h.Type):
			s.refuse(m, protocol.NotSupported, fmt.Errorf("unknown request type %q", h.Type))
		case h.Type == protocol.Commit: // never a definite error
			s.refuse(m, protocol.Crash, errUnknown)
		case !pass:
			s.refuse(m, protocol.TemporarilyUnavailable, fmt.Errorf("%w: the node is starting", errUnavailable))
		default:
			s.refuse(m, protocol.Abort, fmt.Errorf("request of %d bytes, at most %d are read", len(line), maxLine))
		}
	}
}

// served are the types of request that a node takes.
var served = []string{protocol.Init, protocol.Send, protocol.Poll, protocol.Commit, protocol.List}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// refuse answers with an error.
func (s *server) refuse(m jepsen.Message, code protocol.Code, why error) {
	s.reply(m, time.Now().Add(replyTime), protocol.ErrorResponse{Header: protocol.Header{Type: protocol.ErrorType}, Code: code, Text: why.Error()})
}

// reply answers, unless it is too late by the time the answer is ready to be
// written.
func (s *server) reply(m jepsen.Message, deadline time.Time, answer any) {
	body, err := s.addressed(m, answer)
	if err == nil && !time.Now().After(deadline) {
		err = s.node.Send(m.Src, body)
	}
	if err != nil {
		s.logger.Error("reply", slog.String("to", m.Src), slog.Any("error", err))
	}
}

// addressed encodes an answer as one to m. The protocol library does so by way
// of a map of all there is in it, which a large answer has no time for.
func (s *server) addressed(m jepsen.Message, answer any) (json.RawMessage, error) {
	var asked protocol.Header
	if err := json.Unmarshal(m.Body, &asked); err != nil {
		return nil, err
	}
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

// init starts the broker, if this node is the one that has it.
func (s *server) init(jepsen.Message) error {
	close(s.named)
	if s.node.ID() != s.leader() {
		close(s.ready)
		return nil
	}
	link := newLink()
	broker, err := start(s.cfg, s.node.ID(), link, s.logger)
	if err != nil {
		s.failed <- err
		return err
	}
	s.broker = broker
	go func() {
		if err := broker.wait(); err != nil {
			s.failed <- err
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	s.service = newService(link)
	if err := s.service.load(ctx); err != nil {
		err = fmt.Errorf("load committed offsets: %w", err)
		s.failed <- err
		return err
	}
	close(s.ready)
	return nil
}

// leader is the node that has the broker.
func (s *server) leader() string { return s.node.NodeIDs()[0] }

// handler carries out one request. An error that matches errUnknown gets no
// definite answer.
type handler func(ctx context.Context, body json.RawMessage) (any, error)

// handle answers requests of one type: here, or by asking the node that has the
// broker. What is late is not answered at all.
func (s *server) handle(kind string, do handler) {
	s.node.Handle(kind, func(m jepsen.Message) error {
		arrived := s.pauses.arrival(time.Now())
		ctx, cancel := context.WithDeadline(context.Background(), arrived.Add(workTime))
		defer cancel()
		var answer any
		var err error
		switch {
		case ctx.Err() != nil:
			return nil // whoever asked has given up
		case s.node.ID() != s.leader():
			answer, err = s.forward(ctx, m)
		default:
			answer, err = do(ctx, m.Body)
		}
		if err != nil {
			answer = protocol.ErrorResponse{Header: protocol.Header{Type: protocol.ErrorType}, Code: codeOf(err), Text: err.Error()}
		}
		s.reply(m, arrived.Add(replyTime), answer)
		return nil
	})
}

// codeOf is the error code that says what is known, and no more.
func codeOf(err error) protocol.Code {
	var malformed *malformedError
	var told *jepsen.RPCError
	switch {
	case errors.As(err, &told):
		return protocol.Code(told.Code)
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

// forward asks the node that has the broker.
func (s *server) forward(ctx context.Context, m jepsen.Message) (any, error) {
	answer := make(chan jepsen.Message, 1)
	if err := s.node.RPC(s.leader(), m.Body, func(m jepsen.Message) error {
		answer <- m
		return nil
	}); err != nil {
		return nil, fmt.Errorf("%w: forward: %w", errUnknown, err)
	}
	select {
	case m := <-answer:
		var h protocol.Header
		if err := json.Unmarshal(m.Body, &h); err == nil && h.Type == protocol.ErrorType {
			return nil, m.RPCError()
		}
		return m.Body, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %s does not answer", errUnknown, s.leader())
	}
}

type malformedError struct{ err error }

func (e *malformedError) Error() string { return "malformed request: " + e.err.Error() }

func decode(body json.RawMessage, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return &malformedError{err}
	}
	return nil
}

func (s *server) send(ctx context.Context, body json.RawMessage) (any, error) {
	var req protocol.SendRequest
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	offset, err := s.service.send(ctx, req.Key, req.Msg)
	return protocol.SendResponse{Header: protocol.Header{Type: protocol.SendOK}, Offset: offset}, err
}

func (s *server) poll(ctx context.Context, body json.RawMessage) (any, error) {
	var req protocol.PollRequest
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	msgs, err := s.service.poll(ctx, req.Offsets)
	return protocol.PollResponse{Header: protocol.Header{Type: protocol.PollOK}, Msgs: msgs}, err
}

func (s *server) commit(ctx context.Context, body json.RawMessage) (any, error) {
	var req protocol.CommitRequest
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	return protocol.Header{Type: protocol.CommitOK}, s.service.commit(ctx, req.Offsets)
}

func (s *server) list(_ context.Context, body json.RawMessage) (any, error) {
	var req protocol.ListRequest
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	return protocol.ListResponse{Header: protocol.Header{Type: protocol.ListOK}, Offsets: s.service.list(req.Keys)}, nil
}
