package broker

import (
	"log/slog"
	"math/rand/v2"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

// Env is everything a node may ask of the world. A host supplies it: real
// goroutines, sockets and files in production, a seeded simulation in tests.
//
// No method blocks, and none calls back into the node: answers arrive later,
// as events.
type Env struct {
	Clock   Clock
	Disk    Disk
	Network Network
	Rand    *rand.Rand // seeded PCG; by the operating system in production
	Log     Logger
	// Stop ends the node for good: nothing may be stepped after it. The reason
	// is nil after a clean shutdown that was asked for.
	Stop func(reason error)
}

// Clock tells the time of the event being handled. It does not move during a
// Step.
type Clock interface {
	Now() clock.Instant     // monotonic
	Wall() record.Timestamp // may jump either way
}

// Disk runs jobs.
type Disk interface {
	// Submit queues a job. Its result comes back as a JobDone event; results
	// of one lane come back in the order the jobs were submitted, except for
	// the lane of reads.
	Submit(job.Job)
}

// Network carries answers.
type Network interface {
	// Reply answers a client. The host puts replies of one connection in the
	// order of their requests. If the connection is gone it does nothing.
	Reply(Caller, wire.Response)
}

// Logger takes a line for the operator: a constant message and typed
// attributes.
type Logger interface {
	Log(level slog.Level, msg string, attrs ...slog.Attr)
}
