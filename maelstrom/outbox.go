package maelstrom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	jepsen "github.com/jepsen-io/maelstrom/demo/go"
)

// outbox is what the node has to say. It has no bound, so that nobody who puts
// something in waits for a reader that is slow, or stopped.
type outbox struct {
	mu     sync.Mutex
	some   sync.Cond
	lines  []outLine
	closed bool
	begun  []byte        // a line of the library's
	ended  chan struct{} // closed once nothing is written any more
}

// outLine is one message. One that is not written by its time is dropped.
type outLine struct {
	text  []byte
	until time.Time // zero for never too late
}

// newOutbox returns an outbox that writes to out. failed is called, once, with an
// error of out; nothing is written from then on.
func newOutbox(out io.Writer, failed func(error)) *outbox {
	o := &outbox{ended: make(chan struct{})}
	o.some.L = &o.mu
	go func() {
		defer close(o.ended)
		if err := o.write(out); err != nil {
			failed(fmt.Errorf("write a message: %w", err))
		}
	}()
	return o
}

// put adds a message. It does nothing once the outbox is closed.
func (o *outbox) put(m jepsen.Message, until time.Time) error {
	text, err := json.Marshal(m)
	if err == nil {
		o.add(outLine{append(text, '\n'), until})
	}
	return err
}

func (o *outbox) add(l outLine) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.lines = append(o.lines, l)
		o.some.Signal()
	}
}

// Write is for the library, which writes a line in two pieces, the second of
// which ends it, and one line at a time. It is never too late for one.
func (o *outbox) Write(p []byte) (int, error) {
	o.begun = append(o.begun, p...)
	if bytes.HasSuffix(p, []byte("\n")) {
		o.add(outLine{text: o.begun})
		o.begun = nil
	}
	return len(p), nil
}

// close writes what is left and returns when that is done.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.some.Signal()
	o.mu.Unlock()
	<-o.ended
}

func (o *outbox) write(out io.Writer) error {
	for {
		lines := o.take()
		if lines == nil {
			return nil
		}
		for _, l := range lines {
			if !l.until.IsZero() && time.Now().After(l.until) {
				continue
			}
			if _, err := out.Write(l.text); err != nil {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.closed, o.lines = true, nil
				return err
			}
		}
	}
}

// take waits for lines. It returns nil once the outbox is closed and empty.
func (o *outbox) take() []outLine {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.lines) == 0 && !o.closed {
		o.some.Wait()
	}
	lines := o.lines
	o.lines = nil
	return lines
}
