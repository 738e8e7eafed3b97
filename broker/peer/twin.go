package peer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// twin is another process that is connected under this node's id.
type twin struct {
	mu     sync.Mutex
	at     string          // where it is, or empty
	by     metadata.NodeID // who said so last
	saidAt time.Time
}

// doubt asks again and again, from TwinBackoff on, whether there is another
// process under this node's id, if the other side said so when the link was made.
// Mostly that was this node's own past, which is not heard any more then. What it
// returns ends it.
func (l *link) doubt(ctx context.Context, told string) (end func()) {
	if l.kind != wire.LinkControl {
		return func() {}
	}
	if told == "" {
		l.c.twin.is(l, "")
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		for told != "" && ctx.Err() == nil {
			rest(ctx, l.c.cfg.TwinBackoff)
			conn, still, err := l.dial(ctx)
			if err != nil {
				continue
			}
			conn.Close()
			told = still
			l.c.twin.is(l, told)
		}
	})
	return func() {
		cancel()
		asking.Wait()
	}
}

// is takes note of where the twin is, if there is one, and says so, once in a
// while and whatever the number of links.
func (t *twin) is(l *link, at string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at != "" || t.by == l.to.ID { // others may not have heard it
		t.at, t.by = at, l.to.ID
	}
	if at == "" || time.Since(t.saidAt) < repeatAfter {
		return
	}
	t.saidAt = time.Now()
	l.c.log.Error("another process is in the cluster under this node's id: stop it, or give this one a --node-id of its own",
		slog.Int("node", int(l.c.self.Node)), slog.String("held_by", at), slog.String("told_by", l.to.String()), slog.String("err", "DUPLICATE_BROKER_REGISTRATION"))
}

// Twin is where another process is that has this node's id, as far as others said
// last; or empty.
func (c *Carrier) Twin() string {
	c.twin.mu.Lock()
	defer c.twin.mu.Unlock()
	return c.twin.at
}
