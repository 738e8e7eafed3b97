package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/pawlbroker/pawl/maelstrom/checker"
	"github.com/pawlbroker/pawl/maelstrom/protocol"
)

// errUnknown is the outcome of a request that may have happened.
var errUnknown = errors.New("outcome unknown")

// errDefinite is the outcome of a request that certainly did not happen.
var errDefinite = errors.New("refused")

// client is one life of one of the workload's clients. It has one request in
// flight at a time.
type client struct {
	run     *run
	name    string
	process int
	node    string
	inbox   <-chan protocol.Message
	msgID   int
	asked   time.Time        // when its last request was sent
	next    map[string]int64 // the keys it was assigned, and from where to poll
}

func (r *run) newClient(process int, node string) *client {
	name := "c" + strconv.Itoa(int(r.clientNumber.Add(1)))
	return &client{run: r, name: name, process: process, node: node,
		inbox: r.net.join(name), next: map[string]int64{}}
}

func (c *client) close() { c.run.net.leave(c.name, c.asked) }

// call sends a request and decodes its answer, which must be of type want. The
// error is errDefinite, or errUnknown, or the run's end.
func (c *client) call(request any, header *protocol.Header, want string, answer any, timeout time.Duration) error {
	c.msgID++
	header.MsgID = c.msgID
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode %s: %w", header.Type, err)
	}
	c.asked = time.Now()
	c.run.net.send(protocol.Message{Src: c.name, Dest: c.node, Body: body})
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case m := <-c.inbox:
			var h protocol.Header
			if err := json.Unmarshal(m.Body, &h); err != nil || h.InReplyTo != c.msgID {
				continue // the answer to a request that was given up
			}
			return c.decode(h, m.Body, want, answer)
		case <-timer.C:
			return fmt.Errorf("%w: no answer", errUnknown)
		case <-c.run.stop:
			return fmt.Errorf("%w: the run ends", errUnknown)
		}
	}
}

func (c *client) decode(h protocol.Header, body []byte, want string, answer any) error {
	if h.Type == protocol.ErrorType {
		var e protocol.ErrorResponse
		if err := protocol.Strict(body, &e); err != nil {
			return c.malformed(body, err)
		}
		if e.Code.Definite() {
			return fmt.Errorf("%w: code %d: %s", errDefinite, e.Code, e.Text)
		}
		return fmt.Errorf("%w: code %d: %s", errUnknown, e.Code, e.Text)
	}
	if h.Type != want {
		return c.malformed(body, fmt.Errorf("type %s, want %s", h.Type, want))
	}
	if err := protocol.Strict(body, answer); err != nil {
		return c.malformed(body, err)
	}
	return nil
}

// malformed counts an answer that breaks the schema; the outcome is unknown.
func (c *client) malformed(body []byte, err error) error {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	c.run.malformed = append(c.run.malformed, fmt.Sprintf("%s: %v", body, err))
	return fmt.Errorf("%w: malformed answer: %v", errUnknown, err)
}

func outcome(err error) checker.Outcome {
	switch {
	case err == nil:
		return checker.OK
	case errors.Is(err, errDefinite):
		return checker.Fail
	}
	return checker.Info
}

// begin and end bracket an operation.
func (c *client) begin(kind checker.Kind) checker.Op {
	return checker.Op{Process: c.process, Kind: kind, Invoked: c.run.now()}
}

func (c *client) end(op checker.Op, err error) checker.Outcome {
	op.Ended = c.run.now()
	op.Outcome = outcome(err)
	if err != nil {
		op.Error = err.Error()
	}
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	c.run.history.Ops = append(c.run.history.Ops, op)
	return op.Outcome
}

func (c *client) send() checker.Outcome {
	op := c.begin(checker.Send)
	op.Key, op.Value = c.run.keys.write()
	var answer protocol.SendResponse
	request := protocol.SendRequest{Header: protocol.Header{Type: protocol.Send}, Key: op.Key,
		Msg: strconv.AppendInt(nil, op.Value, 10)}
	err := c.call(&request, &request.Header, protocol.SendOK, &answer, c.run.cfg.RPCTimeout)
	if err == nil {
		op.Offset = answer.Offset
		c.run.keys.written(op.Key, op.Offset)
	}
	return c.end(op, err)
}

// poll polls and, if anything came, commits it. The client has moved on before
// it commits.
func (c *client) poll() checker.Outcome {
	op := c.begin(checker.Poll)
	op.Asked = maps.Clone(c.next)
	var answer protocol.PollResponse
	request := protocol.PollRequest{Header: protocol.Header{Type: protocol.Poll}, Offsets: op.Asked}
	err := c.call(&request, &request.Header, protocol.PollOK, &answer, c.run.cfg.RPCTimeout)
	if err != nil {
		return c.end(op, err)
	}
	op.Reads = map[string][]checker.Read{}
	processed := map[string]int64{}
	for key, entries := range answer.Msgs {
		for _, e := range entries {
			value, err := strconv.ParseInt(string(e.Msg), 10, 64)
			if err != nil {
				return c.end(op, c.malformed(e.Msg, err))
			}
			op.Reads[key] = append(op.Reads[key], checker.Read{Offset: e.Offset, Value: value})
			processed[key] = e.Offset
		}
	}
	for key, last := range processed {
		c.next[key] = last + 1
	}
	if len(processed) > 0 {
		err = c.commit(processed)
	}
	if err == nil {
		for key, last := range processed {
			c.run.keys.polled(key, last)
		}
	} else {
		op.Reads = nil // what was read counts only if the whole operation is ok
	}
	return c.end(op, err)
}

func (c *client) commit(offsets map[string]int64) error {
	commit := checker.Commit{Offsets: offsets, Invoked: c.run.now()}
	var answer protocol.Header
	request := protocol.CommitRequest{Header: protocol.Header{Type: protocol.Commit}, Offsets: offsets}
	err := c.call(&request, &request.Header, protocol.CommitOK, &answer, c.run.cfg.RPCTimeout)
	commit.Ended, commit.OK = c.run.now(), err == nil
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	c.run.history.Commits = append(c.run.history.Commits, commit)
	return err
}

// list asks for committed offsets.
func (c *client) list(keys []string) error {
	list := checker.List{Keys: keys, Invoked: c.run.now()}
	var answer protocol.ListResponse
	request := protocol.ListRequest{Header: protocol.Header{Type: protocol.List}, Keys: keys}
	if err := c.call(&request, &request.Header, protocol.ListOK, &answer, c.run.cfg.RPCTimeout); err != nil {
		return err
	}
	list.Ended, list.Offsets = c.run.now(), answer.Offsets
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	c.run.history.Lists = append(c.run.history.Lists, list)
	return nil
}

// assign takes a new set of keys. Those the client had it goes on with; fresh
// ones it polls from the beginning, as Maelstrom's client does. It may be tried
// again, so that an unknown outcome is none.
func (c *client) assign(keys []string) checker.Outcome {
	op := c.begin(checker.Assign)
	op.Keys = keys
	err := c.list(keys)
	if err == nil {
		next := map[string]int64{}
		for _, key := range keys {
			next[key] = c.next[key]
		}
		c.next = next
	} else if !errors.Is(err, errDefinite) {
		err = fmt.Errorf("%w: %v", errDefinite, err)
	}
	return c.end(op, err)
}

// rewind takes all keys, from the beginning. It sends nothing.
func (c *client) rewind(keys []string) {
	op := c.begin(checker.Assign)
	op.Keys = slices.Clone(keys)
	c.next = map[string]int64{}
	for _, key := range keys {
		c.next[key] = 0
	}
	c.end(op, nil)
}

// crash ends this life.
func (c *client) crash() {
	c.end(c.begin(checker.Crash), errUnknown)
	c.close()
}
