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

	jepsen "github.com/jepsen-io/maelstrom/demo/go"

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

// maxLine is the longest line that Maelstrom's library reads, in bytes.
const maxLine = bufio.MaxScanTokenSize - 1

// server is one node's life. Maelstrom's library reads what clients and the
// network say and calls handlers; messages of other nodes, and lines that are too
// long for it, do not come to it.
type server struct {
	cfg    Config
	acks   int16 // of what is sent; another than all is a fault, for tests
	logger *slog.Logger
	node   *jepsen.Node
	out    *outbox
	pauses pauses
	failed chan error    // the broker, or standard output, has ended by itself
	stop   chan struct{} // closed when the node ends

	mu   sync.Mutex
	life *life // nil before init

	ctx  context.Context // of all requests
	long sync.WaitGroup  // requests that the library could not read
}

// life is what init brings.
type life struct {
	cluster cluster
	broker  *instance
	service *service
}

// Serve runs a node until in ends. It returns an error if the node cannot go
// on; the process should then end with a non-zero status.
func Serve(cfg Config, in io.Reader, out io.Writer, logger *slog.Logger) error {
	return serve(cfg, acksAll, in, out, logger)
}

func serve(cfg Config, acks int16, in io.Reader, out io.Writer, logger *slog.Logger) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := &server{cfg: cfg, acks: acks, logger: logger, node: jepsen.NewNode(), failed: make(chan error, 3), stop: make(chan struct{}), ctx: ctx}
	s.out = newOutbox(out, func(err error) { s.failed <- err })
	go s.pauses.run(s.stop)
	defer close(s.stop)

	known, feed := io.Pipe()
	s.node.Stdin, s.node.Stdout = known, s.out
	s.node.Handle(protocol.Init, s.init)
	for kind, do := range handlers {
		s.node.Handle(kind, func(m jepsen.Message) error { return s.handle(m, do) })
	}
	ended := make(chan error, 2)
	go func() { ended <- s.node.Run() }()
	go func() {
		ended <- s.read(in, feed)
		cancel() // of requests, for which the library waits
		feed.Close()
	}()
	select {
	case err := <-ended:
		err = errors.Join(err, <-ended, s.end())
		s.long.Wait()
		s.out.close()
		return err
	case err := <-s.failed:
		known.Close()
		s.end()
		return err
	}
}

// end stops the broker, if there is one.
func (s *server) end() error {
	if l := s.alive(); l != nil {
		return l.broker.close()
	}
	return nil
}

// alive is what init brought, or nil.
func (s *server) alive() *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

// read takes lines, of any length, until there are no more, and gives the library
// those that are for it. A node that comes back is asked before it is told who it
// is; nobody gets an answer then.
func (s *server) read(in io.Reader, library io.Writer) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
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
		alive := s.alive()
		do := handlers[h.Type]
		switch {
		case alive == nil && h.Type != protocol.Init, h.InReplyTo > 0:
		case alive != nil && h.Type == protocol.Init:
			s.refuse(m, protocol.Abort, errors.New("the node has been told who it is"))
		case h.Type == mesh.Type:
			var f mesh.Frame
			if err := json.Unmarshal(m.Body, &f); err != nil {
				s.logger.Error("message of a node", slog.String("node", m.Src), slog.Any("error", err))
				continue
			}
			alive.broker.receive(m.Src, f)
		case do == nil && h.Type != protocol.Init:
			s.refuse(m, protocol.NotSupported, fmt.Errorf("unknown request type %q", h.Type))
		case len(line) > maxLine:
			s.long.Go(func() { _ = s.handle(m, do) })
		default:
			if _, err := library.Write(line); err != nil {
				return nil // it has ended
			}
		}
	}
}

// init starts the broker. It is answered at once: Maelstrom tells the nodes who
// they are one by one, and none can serve before most can.
func (s *server) init(jepsen.Message) error {
	c, err := newCluster(s.node.ID(), s.node.NodeIDs())
	var broker *instance
	if err == nil {
		broker, err = start(s.cfg, c, s.send(c.self.name), s.logger)
	}
	if err != nil {
		s.failed <- err
		return jepsen.NewRPCError(jepsen.Crash, err.Error())
	}
	s.mu.Lock()
	s.life = &life{c, broker, newService(broker.nodes, c.self.id, s.acks)}
	s.mu.Unlock()
	go func() {
		if err := broker.wait(); err != nil {
			s.failed <- fmt.Errorf("broker: %w", err)
		}
	}()
	return nil
}

// send returns what sends messages of a node to others.
func (s *server) send(from string) func(to string, f mesh.Frame) {
	return func(to string, f mesh.Frame) {
		body, err := json.Marshal(f)
		if err == nil {
			err = s.out.put(jepsen.Message{Src: from, Dest: to, Body: body}, time.Time{})
		}
		if err != nil {
			s.logger.Error("send", slog.String("to", to), slog.Any("error", err))
		}
	}
}

// refuse answers with an error.
func (s *server) refuse(m jepsen.Message, code protocol.Code, why error) {
	s.reply(m, time.Now().Add(replyTime), protocol.ErrorResponse{Header: protocol.Header{Type: protocol.ErrorType}, Code: code, Text: why.Error()})
}

// reply answers, unless it is too late by the time the answer is written, which
// the library's Reply does not know.
func (s *server) reply(m jepsen.Message, deadline time.Time, answer any) {
	body, err := addressed(m, answer)
	if err == nil {
		err = s.out.put(jepsen.Message{Src: m.Dest, Dest: m.Src, Body: body}, deadline)
	}
	if err != nil {
		s.logger.Error("reply", slog.String("to", m.Src), slog.Any("error", err))
	}
}

// addressed encodes an answer to a request.
func addressed(m jepsen.Message, answer any) (json.RawMessage, error) {
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

// handler carries out one request. An error that matches errUnknown gets no
// definite answer.
type handler func(ctx context.Context, s *service, body json.RawMessage) (any, error)

// handlers are the requests that a node takes.
var handlers = map[string]handler{protocol.Send: send, protocol.Poll: poll, protocol.Commit: commit, protocol.List: list}

// handle answers a request. What is late is not answered at all.
func (s *server) handle(m jepsen.Message, do handler) error {
	arrived := s.pauses.arrival(time.Now())
	ctx, cancel := context.WithDeadline(s.ctx, arrived.Add(workTime))
	defer cancel()
	if ctx.Err() != nil {
		return nil // whoever asked has given up
	}
	answer, err := do(ctx, s.alive().service, m.Body)
	if s.ctx.Err() != nil {
		return nil // the node ends
	}
	if err != nil {
		answer = protocol.ErrorResponse{Header: protocol.Header{Type: protocol.ErrorType}, Code: codeOf(err), Text: err.Error()}
	}
	s.reply(m, arrived.Add(replyTime), answer)
	return nil
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
