// Package forward takes requests to the active controller, whichever node that
// is, and waits with the answers until this node's own image has what they say:
// a client that asks one broker reads what it wrote.
//
// A request goes to one controller at a time. When that answers that it is not
// the controller, the next one that is known is asked. When its connection
// breaks, nobody knows whether it handled the request, and asking again might
// do it twice: whoever asked is told that there is no answer.
//
// Source: KIP-590.
package forward

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// Config of a Table.
type Config struct {
	// Timeout is how long a request waits for a controller to be elected, unless
	// it has a shorter time limit of its own.
	Timeout time.Duration
	// Glance is how long a DescribeQuorum does, which can be answered without.
	Glance time.Duration
	// RetryAfter is how long a request waits that was sent to a node that is not
	// the controller.
	RetryAfter time.Duration
}

// DefaultConfig waits as long as Kafka's clients do for one request.
func DefaultConfig() Config {
	return Config{Timeout: 25 * time.Second, Glance: 2 * time.Second, RetryAfter: 20 * time.Millisecond}
}

// Asker is who waits for an answer; what is in it is not this package's
// business.
type Asker any

// Out is what a call decided.
type Out struct {
	Calls   []Call
	Answers []Answer
}

// Call is a request to the active controller.
type Call struct {
	To    metadata.NodeID
	Seq   uint64 // comes back with the answer
	Req   kmsg.Request
	Inner *wire.Request // what Req is the Envelope of; nil if it is none
}

// Answer is an answer that came, and is true here. Err matches
// metadata.ErrNotController if there was no controller in time, and
// wire.ErrPeerGone if nobody knows what became of the request.
type Answer struct {
	Asker    Asker
	Response kmsg.Response
	Err      error
}

// waiting is one request.
//
// It waits for a controller (seq 0), for an answer, or, when that is there, for
// the image.
type waiting struct {
	asker    Asker
	request  kmsg.Request  // as it is sent
	inner    *wire.Request // if request is its Envelope
	giveUp   clock.Instant // if there is no controller
	deadline clock.Instant // if the image does not come as far as the answer
	seq      uint64
	retryAt  clock.Instant
	answer   Answer
	until    metadata.Offset // when answered
	answered bool
}

// Table is the requests that wait.
type Table struct {
	cfg        Config
	controller metadata.NodeID
	applied    metadata.Offset
	seq        uint64
	waiting    []*waiting // oldest first
}

// New returns an empty table.
func New(cfg Config) *Table { return &Table{cfg: cfg, controller: metadata.NoNode} }

// Request sends a client's request on.
func (t *Table) Request(r *wire.Request, asker Asker, now clock.Instant, out *Out) {
	w := &waiting{asker: asker, request: wire.Envelope(r), inner: r, deadline: now.Add(t.cfg.Timeout)}
	w.giveUp = now.Add(t.patience(r.Body))
	t.send(w, out)
}

// Ask sends a request of this broker's own.
func (t *Table) Ask(req kmsg.Request, asker Asker, now clock.Instant, out *Out) {
	w := &waiting{asker: asker, request: req, deadline: now.Add(t.cfg.Timeout)}
	w.giveUp = w.deadline
	t.send(w, out)
}

// patience is how long a client's request waits for a controller.
func (t *Table) patience(req kmsg.Request) time.Duration {
	if r, ok := req.(kmsg.TimeoutRequest); ok {
		return min(max(time.Duration(r.Timeout())*time.Millisecond, 0), t.cfg.Timeout)
	}
	if _, ok := req.(*kmsg.DescribeQuorumRequest); ok {
		return t.cfg.Glance
	}
	return t.cfg.Timeout
}

func (t *Table) send(w *waiting, out *Out) {
	t.waiting = append(t.waiting, w)
	t.try(w, out)
}

func (t *Table) try(w *waiting, out *Out) {
	if t.controller == metadata.NoNode {
		w.retryAt = w.giveUp // or sooner, when there is one
		return
	}
	t.seq++
	w.seq, w.retryAt = t.seq, clock.Never
	out.Calls = append(out.Calls, Call{t.controller, w.seq, w.request, w.inner})
}

// Leader says who the active controller is.
func (t *Table) Leader(node metadata.NodeID, out *Out) {
	t.controller = node
	for _, w := range t.waiting {
		if w.seq == 0 && !w.answered {
			t.try(w, out)
		}
	}
}

// Answer takes what came of a call.
func (t *Table) Answer(seq uint64, resp any, err error, now clock.Instant, out *Out) {
	i := slices.IndexFunc(t.waiting, func(w *waiting) bool { return w.seq == seq })
	if i < 0 {
		return
	}
	w := t.waiting[i]
	w.seq = 0
	response, _ := resp.(kmsg.Response)
	if e, ok := response.(*kmsg.EnvelopeResponse); ok && w.inner != nil {
		response, w.until, err = wire.Unwrap(e, w.inner.Body)
	}
	if (err == nil && notController(response)) || code(err) == code(metadata.ErrNotController) {
		w.retryAt = min(now.Add(t.cfg.RetryAfter), w.giveUp)
		return
	}
	w.answered, w.answer, w.retryAt = true, Answer{w.asker, response, err}, w.deadline
	t.deliver(out)
}

func code(err error) int16 {
	if err == nil {
		return 0
	}
	return wire.Code(err)
}

// notController reports whether an answer to a request of this broker's own
// says that it went to the wrong node.
func notController(resp kmsg.Response) bool {
	r, ok := resp.(*kmsg.AllocateProducerIDsResponse)
	return ok && r.ErrorCode == wire.Code(metadata.ErrNotController)
}

// Applied says how far the image has come.
func (t *Table) Applied(applied metadata.Offset, out *Out) {
	t.applied = applied
	t.deliver(out)
}

// deliver hands out the answers that are true here.
func (t *Table) deliver(out *Out) {
	t.waiting = slices.DeleteFunc(t.waiting, func(w *waiting) bool {
		if !w.answered || w.until > t.applied {
			return false
		}
		out.Answers = append(out.Answers, w.answer)
		return true
	})
}

// NextWake is when Wake wants to be called.
func (t *Table) NextWake() clock.Instant {
	next := clock.Never
	for _, w := range t.waiting {
		if w.seq == 0 {
			next = min(next, w.retryAt)
		}
	}
	return next
}

// Wake says what time it is.
func (t *Table) Wake(now clock.Instant, out *Out) {
	for _, w := range t.waiting {
		switch {
		case w.seq != 0 || now < w.retryAt:
		case w.answered:
			w.until = 0 // the image is far behind; the answer is true all the same
		case now >= w.giveUp:
			w.answered, w.answer = true, Answer{Asker: w.asker, Err: metadata.ErrNotController}
		default:
			t.try(w, out)
		}
	}
	t.deliver(out)
}
