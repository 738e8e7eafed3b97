package broker

import (
	"log/slog"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
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
	Peers   Peers      // nil if the node is alone
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

// Peers carries requests to other nodes. What they ask in return comes as
// Request events with a Peer, and is answered through the Network.
type Peers interface {
	// SetPeers says whom there is to call, and where. Connections to nodes that
	// are not named are closed.
	SetPeers([]wire.Peer)
	// Call sends a request. Exactly one PeerReply comes back, unless the request
	// is one-way: then none does, and the request may be lost.
	Call(to metadata.NodeID, id CallID, req kmsg.Request)
	// Hangup closes a link. Its open calls are answered with wire.ErrPeerGone.
	Hangup(to metadata.NodeID, link wire.Link)
}

// CallID names one call to another node. The node never uses one twice.
type CallID uint64

// Logger takes a line for the operator: a constant message and typed
// attributes.
type Logger interface {
	Log(level slog.Level, msg string, attrs ...slog.Attr)
}
