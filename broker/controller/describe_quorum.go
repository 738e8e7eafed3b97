package controller

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/record"
)

// Quorum is what a node knows of those that keep the metadata log. Only the
// active controller knows how far the others are.
type Quorum struct {
	Leading   bool  // this node is the active controller
	Term      int32 // that it leads; Kafka: leader epoch
	Committed metadata.Offset
	Members   []QuorumMember // by node
}

// QuorumMember is one node's part in the quorum.
type QuorumMember struct {
	Node metadata.NodeID
	// Incarnation is drawn with each data directory, and never 0.
	Incarnation uint32
	Voter       bool
	Match       metadata.Offset // the last offset that it is known to have
	// Heard is when it was last heard of, and CaughtUp when it last had all
	// there was; -1 for never, or unknown.
	Heard, CaughtUp record.Timestamp
}

// Directory is a member's directory id, by which KIP-853 tells the voter with a
// disk from the one of the same id with another. It is never one of those that
// Kafka keeps for itself, nor begins with a dash.
func (m *QuorumMember) Directory() (id [16]byte) {
	binary.BigEndian.PutUint32(id[:], m.Incarnation)
	return id
}

// ClusterMetadata is the name by which clients ask for the metadata log.
const ClusterMetadata = "__cluster_metadata"

// DescribeQuorum
//
// Behavior:
//   - Only the active controller knows the answer; another node says
//     NOT_LEADER_OR_FOLLOWER, and its host sends the request on. While there is
//     none, any broker says that, leader -1, and what it knows: when it heard of
//     each voter, but not how far they are.
//   - Only partition 0 of __cluster_metadata exists.
//   - Offsets are one past what is meant, as everywhere: the high watermark is
//     the first that is not committed.
//   - Observers are the nodes that follow the log and do not vote.
//
// Versions:
//   - v1 adds times (KIP-836), v2 directory ids, messages and the addresses of
//     nodes (KIP-853).

// DescribeQuorum answers a DescribeQuorum request.
func (v *View) DescribeQuorum(req *kmsg.DescribeQuorumRequest) *kmsg.DescribeQuorumResponse {
	resp := kmsg.NewPtrDescribeQuorumResponse()
	resp.Version = req.Version
	resp.Topics = []kmsg.DescribeQuorumResponseTopic{}
	for i := range req.Topics {
		t := kmsg.NewDescribeQuorumResponseTopic()
		t.Topic = req.Topics[i].Topic
		unknown := fmt.Errorf("%w: %s; the metadata log is %s-0", metadata.ErrUnknownTopic, t.Topic, ClusterMetadata)
		for _, p := range req.Topics[i].Partitions {
			t.Partitions = append(t.Partitions, v.describeQuorum(t.Topic, p.Partition, unknown))
		}
		resp.Topics = append(resp.Topics, t)
	}
	if v.knowsQuorum() {
		resp.Nodes = v.quorumNodes()
	}
	return resp
}

func (v *View) describeQuorum(topic string, partition int32, unknown error) kmsg.DescribeQuorumResponseTopicPartition {
	dp := kmsg.NewDescribeQuorumResponseTopicPartition()
	dp.Partition = partition
	dp.LeaderID, dp.LeaderEpoch, dp.HighWatermark = int32(metadata.NoNode), -1, -1
	var err error
	switch {
	case topic != ClusterMetadata || partition != 0:
		err = unknown
	case !v.knowsQuorum():
		err = fmt.Errorf("%w: this is node %d", metadata.ErrNotQuorumLeader, v.Self)
	}
	if err != nil {
		dp.ErrorCode, dp.ErrorMessage = wire.Code(err), wire.Message(err)
		return dp
	}
	dp.LeaderID, dp.LeaderEpoch, dp.HighWatermark = int32(v.Controller), v.Quorum.Term, int64(v.Quorum.Committed)+1
	for i := range v.Quorum.Members {
		m := &v.Quorum.Members[i]
		s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		s.ReplicaID, s.ReplicaDirectoryID = int32(m.Node), m.Directory()
		if s.LogEndOffset = int64(m.Match) + 1; !v.Quorum.Leading && m.Node != v.Self {
			s.LogEndOffset = -1
		}
		s.LastFetchTimestamp, s.LastCaughtUpTimestamp = int64(m.Heard), int64(m.CaughtUp)
		if m.Voter {
			dp.CurrentVoters = append(dp.CurrentVoters, s)
		} else {
			dp.Observers = append(dp.Observers, s)
		}
	}
	return dp
}

// knowsQuorum reports whether this broker can say how the quorum is: nobody knows
// more.
func (v *View) knowsQuorum() bool { return v.Quorum.Leading || v.Controller == metadata.NoNode }

// quorumNodes is where members of the quorum reach each other, as far as they
// have registered.
func (v *View) quorumNodes() []kmsg.DescribeQuorumResponseNode {
	var list []kmsg.DescribeQuorumResponseNode
	for i := range v.Quorum.Members {
		b, ok := v.Image.Broker(v.Quorum.Members[i].Node)
		if !ok || b.PeerHost == "" || len(list) > 0 && list[len(list)-1].NodeID == int32(b.Node) {
			continue
		}
		n := kmsg.NewDescribeQuorumResponseNode()
		n.NodeID = int32(b.Node)
		l := kmsg.NewDescribeQuorumResponseNodeListener()
		l.Name, l.Host, l.Port = "PEER", b.PeerHost, uint16(b.PeerPort)
		n.Listeners = append(n.Listeners, l)
		list = append(list, n)
	}
	return list
}
