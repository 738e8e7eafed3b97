package maelstrom

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/maelstrom/mesh"
)

// remote asks another node's broker as a client does.
type remote struct {
	c  *carrier
	to member

	conn    *mesh.Conn // nil while it is down
	open    bool
	dialAt  time.Time // while it is down
	in      []byte
	last    int32                 // correlation id
	waiting map[int32]chan []byte // each has room for the one answer; closed if there is none
}

// request asks a broker: this node's, or another's. An error matches errNotSent
// if it was certainly not asked, or else errNoAnswer.
func (r *carrier) request(ctx context.Context, to metadata.NodeID, req kmsg.Request) (kmsg.Response, error) {
	if to == r.self.Node {
		return r.local.request(ctx, to, req)
	}
	if err := setVersion(req); err != nil {
		return nil, err
	}
	r.mu.Lock()
	m := r.remotes[to]
	if m == nil || !m.open || r.over {
		r.mu.Unlock()
		return nil, fmt.Errorf("%w: node %d is not connected", errNotSent, to)
	}
	m.last++
	correlation, answer := m.last, make(chan []byte, 1)
	m.waiting[correlation] = answer
	m.conn.Send(requestFrame(correlation, req))
	r.mu.Unlock()
	select {
	case frame, ok := <-answer:
		if !ok {
			return nil, fmt.Errorf("%w: the connection to node %d broke", errNoAnswer, to)
		}
		return decodeAnswer(req, correlation, frame)
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(m.waiting, correlation)
		return nil, errNoAnswer
	}
}

func (m *remote) tick(now time.Time) {
	if m.conn == nil && !now.Before(m.dialAt) {
		m.conn = m.c.mesh.Dial(now, m.to.name, kindClient, m)
	}
}

// Opened implements mesh.Handler.
func (m *remote) Opened() { m.open = true }

// Received implements mesh.Handler.
func (m *remote) Received(p []byte) {
	m.in = append(m.in, p...)
	for len(m.in) >= wire.PrefixSize {
		size, err := wire.ResponseSize(m.in, maxFrame)
		if err != nil {
			m.down()
			return
		}
		end := wire.PrefixSize + size
		if len(m.in) < end {
			return
		}
		frame := m.in[:end:end]
		m.in = m.in[end:]
		correlation := wire.Correlation(frame[wire.PrefixSize:])
		if answer := m.waiting[correlation]; answer != nil {
			delete(m.waiting, correlation)
			answer <- frame
		}
	}
}

// Closed implements mesh.Handler.
func (m *remote) Closed(error) {
	m.conn = nil
	m.down()
}

// down ends the connection. Whoever waits has no answer.
func (m *remote) down() {
	if m.conn != nil {
		m.conn.Close()
	}
	m.conn, m.open, m.in = nil, false, nil
	m.dialAt = time.Now().Add(minBackoff)
	for correlation, answer := range m.waiting {
		delete(m.waiting, correlation)
		close(answer)
	}
}
