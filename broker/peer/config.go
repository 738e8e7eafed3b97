package peer

import (
	"errors"
	"fmt"
	"time"
)

// Config is how a node keeps its links to others.
type Config struct {
	// DialTimeout is how long a connection may take to be made.
	DialTimeout time.Duration
	// CallTimeout is how long a call may be without an answer, on top of what a
	// Fetch asks to wait. Then the link is broken. Kafka: request.timeout.ms.
	CallTimeout time.Duration
	// MinBackoff and MaxBackoff are how long a link waits before it is made again
	// once that failed, at first and at most. Kafka: reconnect.backoff.ms and
	// reconnect.backoff.max.ms.
	MinBackoff, MaxBackoff time.Duration
	// RefusedBackoff is how long it waits after the other node would not have it.
	RefusedBackoff time.Duration
	// TwinBackoff is how long it waits before it asks again whether another process
	// has this node's id: longer than one that died counts as heard.
	TwinBackoff time.Duration
	// MaxOpen is how many calls of one link may be without an answer; more fail
	// at once.
	MaxOpen int
	// MaxQueued is how many bytes of requests may wait to be written to one link.
	// Above it calls fail at once, and one-way requests make room by dropping the
	// oldest.
	MaxQueued int
	// MaxResponse is the longest response, in bytes.
	MaxResponse int
}

// DefaultConfig suits nodes of one data center.
func DefaultConfig() Config {
	return Config{
		DialTimeout:    2 * time.Second,
		CallTimeout:    10 * time.Second,
		MinBackoff:     20 * time.Millisecond,
		MaxBackoff:     500 * time.Millisecond,
		RefusedBackoff: 5 * time.Second,
		TwinBackoff:    4 * time.Second,
		MaxOpen:        8 << 10,
		MaxQueued:      64 << 20,
		MaxResponse:    256 << 20,
	}
}

// ErrConfig says a configuration cannot work.
var ErrConfig = errors.New("peer configuration")

// Validate returns ErrConfig if links could not work like that.
func (c Config) Validate() error {
	for _, v := range []struct {
		name  string
		value int64
	}{
		{"DialTimeout", int64(c.DialTimeout)},
		{"CallTimeout", int64(c.CallTimeout)},
		{"MinBackoff", int64(c.MinBackoff)},
		{"MaxBackoff", int64(c.MaxBackoff)},
		{"RefusedBackoff", int64(c.RefusedBackoff)},
		{"TwinBackoff", int64(c.TwinBackoff)},
		{"MaxOpen", int64(c.MaxOpen)},
		{"MaxQueued", int64(c.MaxQueued)},
		{"MaxResponse", int64(c.MaxResponse)},
	} {
		if v.value <= 0 {
			return fmt.Errorf("%w: %s is %d, must be positive", ErrConfig, v.name, v.value)
		}
	}
	return nil
}
