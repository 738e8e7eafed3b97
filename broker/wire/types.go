// Package wire turns bytes into requests and responses into bytes. It is pure:
// the same code runs behind sockets, in the simulator and in tests.
//
// Requests and responses are kmsg's; only the Fetch response is our own,
// because it has holes for regions of files that are sent without being read.
// All of Kafka's error codes are here, in one table (errors.go), and all the
// versions that pawl speaks (apis.go).
package wire

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// Caller names one request on one client connection. A host never uses a pair
// twice in its life.
type Caller struct {
	Conn uint64
	Seq  uint64 // position of the request on its connection, from 0
}

// Request is one decoded request. What is inside has been checked as far as
// that is possible without knowing the node's state.
type Request struct {
	Correlation int32
	ClientID    string
	Body        kmsg.Request // version set; Body.Key() says what it is
	Size        int64        // bytes of the frame, which Body's slices share
	// Produce has the record batches of a Produce request, one element for each
	// partition of Body in order; nil for every other request.
	Produce []ProduceEntry
	// Peer is the node that sent the request, or NoPeer.
	Peer metadata.NodeID
	// Forwarded says that a client sent the request to Peer, and Peer sent it on
	// to the active controller (KIP-590).
	Forwarded bool
}

// ProduceEntry is what one partition of a Produce request carries: a batch that
// is whole and true to its header (length, CRC, codec, every record), or the
// reason to refuse it.
type ProduceEntry struct {
	Batch record.Batch
	Facts record.Facts
	Err   error
}

// Body is a kmsg.Response or a *FetchResponse.
type Body interface{ Key() int16 }

// Response answers a request. The zero Response sends nothing (acks=0).
type Response struct {
	Body  Body
	Close bool // close the connection once everything before is sent
	// InUse says that the request's bytes may be read even after this is sent: a
	// batch of it is on its way to the disk and nobody waits for it any more.
	InUse bool
	// Err refuses a forwarded request as a whole: the forwarding node is to ask
	// another controller.
	Err error
	// Offset is the position in the metadata log at which the answer to a
	// forwarded request is true.
	Offset metadata.Offset
}

// Reply is the answer to one request.
type Reply struct {
	Caller   Caller
	Response Response
}

// FetchResponse answers a Fetch request.
type FetchResponse struct {
	Version   int16
	ErrorCode int16
	SessionID int32
	Topics    []FetchTopic
	// Nodes are the leaders that partitions name in their More (KIP-951, from
	// version 16).
	Nodes []Node
}

// Node is a broker and where clients connect to it.
type Node struct {
	ID   metadata.NodeID
	Host string
	Port int32
	Rack string // empty if it has none
}

// FetchTopic is one topic of a FetchResponse.
type FetchTopic struct {
	Topic      string   // below version 13
	TopicID    [16]byte // from version 13
	Partitions []FetchPartition
}

// FetchPartition is one partition of a FetchResponse.
type FetchPartition struct {
	Partition        int32
	ErrorCode        int16
	HighWatermark    record.Offset
	LastStableOffset record.Offset
	LogStartOffset   record.Offset
	Records          storage.Region // whole batches; may be empty
	More             *FetchMore     // what few answers say; usually nil
}

// FetchMore is what the answer for a partition says beside records.
type FetchMore struct {
	Diverging   Divergence         // from version 12; its epoch is NoEpoch if there is none
	Leader      metadata.NodeID    // who leads in fact (KIP-951, from version 12); NoNode if not said
	LeaderEpoch record.LeaderEpoch // of Leader
	ReadReplica metadata.NodeID    // where to fetch from instead (KIP-392, from version 11); NoNode if here
}

// Key is 1, Fetch.
func (*FetchResponse) Key() int16 { return int16(kmsg.Fetch) }
