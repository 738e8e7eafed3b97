package quorum

import (
	"fmt"
	"math"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Message is what one voter says to another. It never changes, so it may be
// handed over without a copy; between processes it travels as bytes.
type Message struct {
	From, To NodeID
	body     *raftpb.Message
}

// String describes the message, the same in every run.
func (m Message) String() string {
	return fmt.Sprintf("%d>%d %s", m.From, m.To, raft.DescribeMessage(m.body, nil))
}

// Marshal returns the message as bytes, the same in every run.
func (m Message) Marshal() []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.body)
	check(err)
	return b
}

// UnmarshalMessage reads a message. Bytes that are none give an error.
func UnmarshalMessage(b []byte) (Message, error) {
	body := new(raftpb.Message)
	if err := proto.Unmarshal(b, body); err != nil {
		return Message{}, fmt.Errorf("quorum message: %w", err)
	}
	if !isNode(body.GetFrom()) || !isNode(body.GetTo()) || raft.IsLocalMsg(body.GetType()) || body.GetType() == raftpb.MsgProp {
		return Message{}, fmt.Errorf("quorum message of type %v, from %d to %d: not one between nodes", body.GetType(), body.GetFrom(), body.GetTo())
	}
	return Message{From: nodeID(body.GetFrom()), To: nodeID(body.GetTo()), body: body}, nil
}

func isNode(id uint64) bool { return 0 < id && id <= math.MaxInt32+1 }
