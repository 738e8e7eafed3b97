package wire

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/record"
)

// ErrPeerGone says that a call to another node has no answer: the connection
// could not be made, or it broke. The other node may have handled the request.
var ErrPeerGone = errors.New("peer is gone")

// NoPeer is the peer of a request that a client sent.
const NoPeer metadata.NodeID = -1

// Peer is another node and where it listens for nodes.
type Peer struct {
	ID   metadata.NodeID
	Host string
	Port int32
}

func (p Peer) String() string { return fmt.Sprintf("%d@%s:%d", p.ID, p.Host, p.Port) }

// Link is one of the connections that a node has to another. There are several
// so that much of one kind never delays the others.
type Link uint8

const (
	// LinkControl carries what keeps the cluster together: short, and never
	// waiting for anything.
	LinkControl Link = iota
	// LinkFetch carries Fetch. Its answers may wait.
	LinkFetch
	// LinkForward carries clients' requests to the active controller.
	LinkForward
)

// Links is how many links there are.
const Links = 3

func (l Link) String() string { return [...]string{"control", "fetch", "forward"}[l] }

// LinkOf returns the link that a request to another node goes over.
func LinkOf(req kmsg.Request) Link {
	switch req.(type) {
	case *kmsg.FetchRequest:
		return LinkFetch
	case *QuorumMessages, *Progress, *PeerHello, *kmsg.BrokerRegistrationRequest, *kmsg.BrokerHeartbeatRequest, *kmsg.AlterPartitionRequest:
		return LinkControl
	}
	return LinkForward
}

// OneWay reports whether a request to another node has no answer.
func OneWay(req kmsg.Request) bool {
	switch req.(type) {
	case *QuorumMessages, *Progress:
		return true
	}
	return false
}

// Fetched is a leader's answer to a follower's Fetch, with its records cut into
// batches that are whole and true to their headers.
type Fetched struct {
	ErrorCode  int16
	SessionID  int32
	Partitions []FetchedPartition
	Size       int64 // bytes of the frame, which the batches share
}

// FetchedPartition is one partition of a Fetched.
type FetchedPartition struct {
	Topic         metadata.TopicID
	Index         int32
	Err           error // the leader's error, or nil
	HighWatermark record.Offset
	LogStart      record.Offset
	Diverging     Divergence
	// Leader and LeaderEpoch are whom the answer names as the leader (KIP-951);
	// -1 if it names none.
	Leader      metadata.NodeID
	LeaderEpoch record.LeaderEpoch
	Batches     []record.Batch
	Bad         error // what is behind Batches is damaged, or nil
}

// Divergence says where a follower's log stops being the leader's: Epoch is the
// largest epoch of the leader's log that is at most the follower's last, and End
// where it ends there (KIP-595). The epoch is -1 if the logs agree.
type Divergence struct {
	Epoch record.LeaderEpoch
	End   record.Offset
}
