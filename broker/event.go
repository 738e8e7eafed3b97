package broker

import (
	"fmt"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/job"
)

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
)

func (Request) event()    {}
func (JobDone) event()    {}
func (Wake) event()       {}
func (Shutdown) event()   {}
func (ConnClosed) event() {}
func (PeerReply) event()  {}
func (PeerDown) event()   {}

func (e Request) String() string {
	return fmt.Sprintf("request conn=%d seq=%d key=%d v%d bytes=%d",
		e.Caller.Conn, e.Caller.Seq, e.Body.Key(), e.Body.GetVersion(), e.Size)
}
func (e JobDone) String() string    { return fmt.Sprintf("done %s err=%v", e.Job, e.Err) }
func (Wake) String() string         { return "wake" }
func (Shutdown) String() string     { return "shutdown" }
func (e ConnClosed) String() string { return fmt.Sprintf("closed conn=%d", e.Conn) }
func (e PeerReply) String() string {
	return fmt.Sprintf("reply from=%d call=%d err=%v", e.From, e.Call, e.Err)
}
func (e PeerDown) String() string { return fmt.Sprintf("down peer=%d", e.Peer) }
