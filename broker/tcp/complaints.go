package tcp

import (
	"log/slog"
	"sync"
	"time"
)

// complaintEvery is how often a complaint of one kind is logged.
const complaintEvery = time.Second

// complaints logs what clients do wrong: one line a second for each kind, with
// the number of those that were left out, so that no client can fill a disk.
type complaints struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[string]*kind // by message, of which there are a few constants
}

type kind struct {
	last time.Time
	more int // not logged since
}

func (c *complaints) about(msg string, attrs ...any) {
	c.mu.Lock()
	k := c.kinds[msg]
	if k == nil {
		k = &kind{}
		if c.kinds == nil {
			c.kinds = map[string]*kind{}
		}
		c.kinds[msg] = k
	}
	now := time.Now()
	if now.Sub(k.last) < complaintEvery {
		k.more++
		c.mu.Unlock()
		return
	}
	more := k.more
	k.last, k.more = now, 0
	c.mu.Unlock()
	if more > 0 {
		attrs = append(attrs, slog.Int("more_since_last", more))
	}
	c.log.Warn(msg, attrs...)
}
