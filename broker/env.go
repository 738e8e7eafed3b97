package broker

import (
	"fmt"
	"log/slog"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
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
	// Applied, unless it is nil, is told of every change of the metadata, change by
	// change, before the node acts on it.
	Applied func(metadata.Delta)
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

// Event is something that happened to a node. Exactly these types are events.
type Event interface {
	event()
	fmt.Stringer
}

// Caller names one request on one client connection.
type Caller = wire.Caller

type (
	// Request is a decoded client request.
	Request struct {
		Caller Caller
		wire.Request
		// Host and Port are where the client reached this node; what it is told
		// to connect to, unless the node was given an address to advertise.
		Host string
		Port int32
	}
	// JobDone is the result of a disk job.
	JobDone struct{ job.Result }
	// Wake says the deadline from NextWake has come.
	Wake struct{}
	// Shutdown asks the node to finish what is in flight, sync, leave the clean
	// mark and stop.
	Shutdown struct{}
	// ConnClosed says a client connection is gone; its parked requests can be
	// dropped.
	ConnClosed struct{ Conn uint64 }
	// PeerReply answers a call. Response is a kmsg.Response, or a *wire.Fetched
	// if the call was a Fetch, or nil if there is an Err, which matches
	// wire.ErrPeerGone.
	PeerReply struct {
		From     metadata.NodeID
		Call     CallID
		Response any
		Err      error
	}
	// PeerDown says a connection to another node was refused or reset, as
	// happens when its process ends. It is a hint; silence never leads to it.
	PeerDown struct{ Peer metadata.NodeID }
	// ReadFailed says that a region of a log could not be read when it was to be
	// sent; the connection it was for is closed.
	ReadFailed struct{ *storage.RegionError }
)

func (Request) event()    {}
func (JobDone) event()    {}
func (Wake) event()       {}
func (Shutdown) event()   {}
func (ConnClosed) event() {}
func (PeerReply) event()  {}
func (PeerDown) event()   {}
func (ReadFailed) event() {}

func (e Request) String() string {
	return fmt.Sprintf("request conn=%d seq=%d key=%d v%d bytes=%d",
		e.Caller.Conn, e.Caller.Seq, e.Body.Key(), e.Body.GetVersion(), e.Size)
}
func (e JobDone) String() string {
	if e.Early {
		return fmt.Sprintf("shown %s", e.Job)
	}
	return fmt.Sprintf("done %s err=%v", e.Job, e.Err)
}
func (Wake) String() string         { return "wake" }
func (Shutdown) String() string     { return "shutdown" }
func (e ConnClosed) String() string { return fmt.Sprintf("closed conn=%d", e.Conn) }
func (e PeerReply) String() string {
	return fmt.Sprintf("reply from=%d call=%d err=%v", e.From, e.Call, e.Err)
}
func (e PeerDown) String() string   { return fmt.Sprintf("down peer=%d", e.Peer) }
func (e ReadFailed) String() string { return e.Error() }
