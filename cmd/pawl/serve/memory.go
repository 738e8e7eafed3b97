package serve

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/pawlbroker/pawl/broker/standalone"
)

const (
	// busyGCPercent lets garbage grow to four times what is in use while much is
	// written. Most garbage are then the frames of produce requests, large and
	// short-lived: collecting them less often is a third of the CPU of a produce of
	// 1 MiB. Else small garbage would lie between what stays, and hold its pages.
	busyGCPercent, gcPercent = 400, 100
	// busyBytes is how much is written in memoryEvery when that is much.
	busyBytes = 4 << 20
	// memoryBeside is what a broker may use beside its requests before it collects
	// more often, in bytes.
	memoryBeside = 512 << 20
	// memoryEvery is how often a broker looks at what it does.
	memoryEvery = 500 * time.Millisecond
	// idleAfter is how long a broker does nothing before it gives memory back.
	idleAfter = 10 * time.Second
)

// limitMemory sets when memory is collected at all costs, unless the environment
// does. Requests may take so many bytes.
func limitMemory(requests int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(requests + memoryBeside)
	}
}

// tuneMemory sets how eagerly memory is collected, unless the environment does,
// and returns memory to the operating system whenever the broker has come to
// rest, until ctx ends.
func tuneMemory(ctx context.Context, b *standalone.Broker) {
	collect := func(int) {}
	if os.Getenv("GOGC") == "" {
		collect = func(percent int) { debug.SetGCPercent(percent) }
	}
	percent := gcPercent
	collect(percent)
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	last, rest := b.Status(), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := b.Status()
		want := gcPercent
		if now.Disk.BytesWritten-last.Disk.BytesWritten >= busyBytes {
			want = busyGCPercent
		}
		if want != percent {
			percent = want
			collect(percent)
		}
		if now != last {
			rest = 0
		} else if rest += memoryEvery; rest == idleAfter {
			debug.FreeOSMemory()
		}
		last = now
	}
}
