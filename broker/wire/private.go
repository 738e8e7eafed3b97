package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/record"
)

// The APIs that only pawl's nodes speak, with each other. They have one version,
// 0, and are not advertised.
const (
	keyPeerHello      kmsg.Key = 30000
	keyQuorumMessages kmsg.Key = 30001
	keyProgress       kmsg.Key = 30002
)

type (
	// PeerHello is the first frame on every connection between nodes. The answer
	// is the other node's.
	PeerHello struct {
		private
		ClusterID   string
		Node        metadata.NodeID
		Incarnation metadata.IncarnationID
		Version     string // of pawl
		Address     string // where the node listens for nodes, host:port, or empty
		Refused     string // in an answer: why the connection is closed, or empty
		// Twin is, in an answer, where another process is that said hello as the same
		// node and was heard a moment ago; or empty.
		Twin string
	}

	// QuorumMessages carries messages of the metadata quorum.
	QuorumMessages struct {
		private
		From metadata.NodeID
		// Address is where From listens for nodes, host:port, for a node that has
		// just joined and knows nobody but the configured controllers.
		Address  string
		Messages [][]byte
	}

	// Progress tells a leader how far followed partitions are on the sender's
	// disk, and where they begin there.
	Progress struct {
		private
		Node        metadata.NodeID
		BrokerEpoch metadata.BrokerEpoch
		Partitions  []ProgressPartition
	}

	// ProgressPartition is one partition of a Progress.
	ProgressPartition struct {
		Topic       metadata.TopicID
		Index       int32
		LeaderEpoch record.LeaderEpoch
		Durable     record.Offset // log end on disk, as far as it agrees with the leader's log
		LogStart    record.Offset
	}
)

// private is what requests of pawl's own have in common.
type private struct{}

func (private) MaxVersion() int16  { return 0 }
func (private) SetVersion(int16)   {}
func (private) GetVersion() int16  { return 0 }
func (private) IsFlexible() bool   { return false }
func (p *PeerHello) Key() int16    { return keyPeerHello.Int16() }
func (*QuorumMessages) Key() int16 { return keyQuorumMessages.Int16() }
func (*Progress) Key() int16       { return keyProgress.Int16() }

// ResponseKind implements kmsg.Request.
func (*PeerHello) ResponseKind() kmsg.Response { return &PeerHelloResponse{} }

// ResponseKind implements kmsg.Request. There is no response.
func (*QuorumMessages) ResponseKind() kmsg.Response { return nil }

// ResponseKind implements kmsg.Request. There is no response.
func (*Progress) ResponseKind() kmsg.Response { return nil }

// PeerHelloResponse answers a PeerHello.
type PeerHelloResponse struct{ PeerHello }

// RequestKind implements kmsg.Response.
func (*PeerHelloResponse) RequestKind() kmsg.Request { return &PeerHello{} }

// AppendTo implements kmsg.Request.
func (p *PeerHello) AppendTo(b []byte) []byte {
	b = kbin.AppendString(b, p.ClusterID)
	b = kbin.AppendInt32(b, int32(p.Node))
	b = append(b, p.Incarnation[:]...)
	b = kbin.AppendString(b, p.Version)
	b = kbin.AppendString(b, p.Address)
	b = kbin.AppendString(b, p.Refused)
	return kbin.AppendString(b, p.Twin)
}

// ReadFrom implements kmsg.Request.
func (p *PeerHello) ReadFrom(src []byte) error {
	r := kbin.Reader{Src: src}
	p.ClusterID = r.String()
	p.Node = metadata.NodeID(r.Int32())
	p.Incarnation = r.Uuid()
	p.Version, p.Address = r.String(), r.String()
	p.Refused, p.Twin = r.String(), r.String()
	return r.Complete()
}

// AppendTo implements kmsg.Request.
func (q *QuorumMessages) AppendTo(b []byte) []byte {
	b = kbin.AppendInt32(b, int32(q.From))
	b = kbin.AppendString(b, q.Address)
	b = kbin.AppendArrayLen(b, len(q.Messages))
	for _, m := range q.Messages {
		b = kbin.AppendBytes(b, m)
	}
	return b
}

// ReadFrom implements kmsg.Request. The messages share src's bytes.
func (q *QuorumMessages) ReadFrom(src []byte) error {
	r := kbin.Reader{Src: src}
	q.From = metadata.NodeID(r.Int32())
	q.Address = r.String()
	n := r.ArrayLen()
	if err := bounded(&r, n, 4); err != nil {
		return err
	}
	q.Messages = make([][]byte, n)
	for i := range q.Messages {
		q.Messages[i] = r.Bytes()
	}
	return r.Complete()
}

const progressPartitionSize = 16 + 4 + 4 + 8 + 8

// AppendTo implements kmsg.Request.
func (p *Progress) AppendTo(b []byte) []byte {
	b = kbin.AppendInt32(b, int32(p.Node))
	b = kbin.AppendInt64(b, int64(p.BrokerEpoch))
	b = kbin.AppendArrayLen(b, len(p.Partitions))
	for i := range p.Partitions {
		q := &p.Partitions[i]
		b = append(b, q.Topic[:]...)
		b = kbin.AppendInt32(b, q.Index)
		b = kbin.AppendInt32(b, int32(q.LeaderEpoch))
		b = kbin.AppendInt64(b, int64(q.Durable))
		b = kbin.AppendInt64(b, int64(q.LogStart))
	}
	return b
}

// ReadFrom implements kmsg.Request.
func (p *Progress) ReadFrom(src []byte) error {
	r := kbin.Reader{Src: src}
	p.Node = metadata.NodeID(r.Int32())
	p.BrokerEpoch = metadata.BrokerEpoch(r.Int64())
	n := r.ArrayLen()
	if err := bounded(&r, n, progressPartitionSize); err != nil {
		return err
	}
	p.Partitions = make([]ProgressPartition, n)
	for i := range p.Partitions {
		q := &p.Partitions[i]
		q.Topic = r.Uuid()
		q.Index = r.Int32()
		q.LeaderEpoch = record.LeaderEpoch(r.Int32())
		q.Durable = record.Offset(r.Int64())
		q.LogStart = record.Offset(r.Int64())
	}
	return r.Complete()
}

// bounded reports an error unless n elements of at least size bytes can be in
// what is left.
func bounded(r *kbin.Reader, n int32, size int) error {
	if err := r.Complete(); err != nil {
		return err
	}
	if n < 0 || int64(n)*int64(size) > int64(len(r.Src)) {
		return fmt.Errorf("%d elements in %d bytes", n, len(r.Src))
	}
	return nil
}
