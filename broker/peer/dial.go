package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/wire"
)

// errRefused says the other side is not the node that was looked for, or would
// not have this one.
var errRefused = errors.New("node refused")

const (
	// settled is how long a connection must have lived for the next one to be
	// made without a pause.
	settled = time.Second
	// repeatAfter is how long a node is out of reach before that is said again.
	repeatAfter = time.Minute
)

// run keeps the link up until ctx ends.
func (l *link) run(ctx context.Context) {
	var said trouble
	backoff := time.Duration(0)
	for ctx.Err() == nil {
		conn, twin, err := l.dial(ctx)
		if err == nil {
			begun := time.Now()
			l.up(conn)
			said.over(l)
			doubts := l.doubt(ctx, twin)
			err = l.serve(ctx, conn)
			doubts()
			if time.Since(begun) >= settled {
				backoff = 0
			}
			if ctx.Err() == nil {
				l.c.log.Debug("link is down", l.attr(), slog.String("link", l.kind.String()), slog.Any("err", err))
				if isReset(err) {
					l.c.post(broker.PeerDown{Peer: l.to.ID})
				}
			}
		} else if ctx.Err() == nil {
			said.about(l, err)
			// Only one link says so: a process that is gone refuses all of them.
			if l.kind == wire.LinkControl && (errors.Is(err, syscall.ECONNREFUSED) || isReset(err)) {
				l.c.post(broker.PeerDown{Peer: l.to.ID})
			}
		}
		pause := backoff
		backoff = min(max(2*backoff, l.c.cfg.MinBackoff), l.c.cfg.MaxBackoff)
		if errors.Is(err, errRefused) {
			pause = l.c.cfg.RefusedBackoff
		}
		if pause > 0 {
			rest(ctx, pause/2+rand.N(pause/2+1))
		}
	}
}

// isReset reports whether the other side's kernel knows nothing of the
// connection.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// rest waits for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// dial makes a connection and introduces the node. twin is where the other side
// heard another process of this node's id; mostly empty.
func (l *link) dial(ctx context.Context) (_ *net.TCPConn, twin string, _ error) {
	d := net.Dialer{Timeout: l.c.cfg.DialTimeout, KeepAliveConfig: keepAlive, ControlContext: tune}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(l.to.Host, strconv.Itoa(int(l.to.Port))))
	if err != nil {
		return nil, "", err
	}
	conn := c.(*net.TCPConn)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	twin, err = l.greet(conn)
	if err != nil {
		conn.Close()
		return nil, "", err
	}
	return conn, twin, nil
}

// greet says hello and reads the answer.
func (l *link) greet(conn *net.TCPConn) (twin string, err error) {
	if err := conn.SetDeadline(time.Now().Add(l.c.cfg.CallTimeout)); err != nil {
		return "", err
	}
	hello := l.c.self
	if _, err := conn.Write(wire.AppendRequest(nil, 0, clientID, &hello)); err != nil {
		return "", err
	}
	frame, err := readFrame(conn, wire.MaxHelloFrame, nil)
	if err != nil {
		return "", err
	}
	resp, err := wire.DecodeResponse(&hello, frame)
	if err != nil {
		return "", fmt.Errorf("%w: what listens at %s is no node: %w", errRefused, conn.RemoteAddr(), err)
	}
	r := resp.(*wire.PeerHelloResponse)
	switch {
	case r.Refused != "":
		return "", fmt.Errorf("%w: %s", errRefused, r.Refused)
	case r.ClusterID != l.c.self.ClusterID:
		return "", fmt.Errorf("%w: at %s is a node of cluster %q, not %q", errRefused, conn.RemoteAddr(), r.ClusterID, l.c.self.ClusterID)
	case r.Node != l.to.ID:
		return "", fmt.Errorf("%w: at %s is node %d, not %d", errRefused, conn.RemoteAddr(), r.Node, l.to.ID)
	}
	return r.Twin, conn.SetDeadline(time.Time{})
}

// clientID is how nodes call themselves in requests.
const clientID = "pawl"

// readFrame reads a response. progress, if not nil, is called before each piece
// of a long one.
func readFrame(r io.Reader, most int, progress func()) ([]byte, error) {
	var prefix [wire.PrefixSize]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}
	size, err := wire.ResponseSize(prefix[:], most)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	return readBody(r, size, progress)
}

func (l *link) attr() slog.Attr { return slog.Int("peer", int(l.to.ID)) }

// trouble is what was said of a node that cannot be reached.
type trouble struct {
	text string
	at   time.Time
}

// about says that a link cannot be made: once, and again after a while or when
// the reason is another. The control link speaks for all, unless only another is
// in trouble.
func (t *trouble) about(l *link, err error) {
	text := err.Error()
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		text = op.Err.Error() // without the port it came from, which differs each time
	}
	if text == t.text && time.Since(t.at) < repeatAfter {
		return
	}
	t.text, t.at = text, time.Now()
	if l.kind != wire.LinkControl {
		l.c.log.Debug("node cannot be reached", l.attr(), slog.String("link", l.kind.String()), slog.String("address", l.to.String()), slog.Any("err", err))
		return
	}
	l.c.log.Warn("node cannot be reached", l.attr(), slog.String("address", l.to.String()), slog.Any("err", err))
}

// over says that the link was made.
func (t *trouble) over(l *link) {
	*t = trouble{}
	if l.kind == wire.LinkControl {
		l.c.log.Info("node is connected", l.attr(), slog.String("address", l.to.String()))
	}
}
