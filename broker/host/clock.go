package host

import (
	"time"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/storage/record"
)

// wallClock is the Env's clock: the machine's, read once before each Step.
type wallClock struct {
	start time.Time
	now   clock.Instant
	wall  record.Timestamp
}

func newClock() wallClock { return wallClock{start: time.Now()} }

// fix reads the machine's clocks. One reading gives both times.
func (c *wallClock) fix() clock.Instant {
	t := time.Now()
	c.now = clock.Instant(t.Sub(c.start)) // monotonic
	c.wall = record.Timestamp(t.UnixMilli())
	return c.now
}

func (c *wallClock) Now() clock.Instant     { return c.now }
func (c *wallClock) Wall() record.Timestamp { return c.wall }
