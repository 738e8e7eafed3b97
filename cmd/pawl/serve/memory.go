package serve

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/pawlbroker/pawl/broker/standalone"
)

const (
	// gcPercent lets garbage grow to four times what is in use. Most garbage is
	// the frames of produce requests, large and short-lived: collecting them less
	// often is a third of the CPU of a produce of 1 MiB.
	gcPercent = 400
	// memoryBeside is what a broker may use beside its requests before it collects
	// more often, in bytes.
	memoryBeside = 512 << 20
	// idleAfter is how long a broker does nothing before it gives memory back.
	idleAfter = 10 * time.Second
)

// tuneMemory sets how eagerly memory is collected, unless the environment does.
func tuneMemory(requests int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(requests + memoryBeside)
	}
}

// giveBack returns memory to the operating system whenever the broker has come
// to rest, until ctx ends.
func giveBack(ctx context.Context, b *standalone.Broker) {
	tick := time.NewTicker(idleAfter)
	defer tick.Stop()
	last, rested := b.Status(), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := b.Status()
		idle := now == last
		if idle && !rested {
			debug.FreeOSMemory()
		}
		last, rested = now, idle
	}
}
