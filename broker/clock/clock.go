// Package clock has the broker's units of time. Time reaches the core only as
// values of these types; nothing in the core can ask for it.
package clock

import "time"

// Instant is a monotonic time in nanoseconds since the node started. Instants
// of two nodes cannot be compared.
type Instant int64

// Never is later than every Instant.
const Never Instant = 1<<63 - 1

// Add returns the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns how much later t is than u.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }
