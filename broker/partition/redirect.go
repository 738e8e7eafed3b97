package partition

import (
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/broker/session"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/record"
)

// Errors that mean that somebody else leads come with who that is (KIP-951), so
// that a client need not ask for the metadata first.

// misled reports whether err means that the client asks the wrong node.
func misled(err error) bool {
	return errors.Is(err, replica.ErrNotLeader) || errors.Is(err, replica.ErrFencedEpoch)
}

// leaderOf is who leads a partition, as far as this node knows.
func (t *Table) leaderOf(p *Partition, id metadata.TopicID, name string, index int32) (metadata.NodeID, record.LeaderEpoch) {
	if p != nil {
		return p.replica.Leader(), p.replica.Epoch()
	}
	if name != "" {
		top, ok := t.image.Topic(name)
		if !ok {
			return metadata.NoNode, record.NoEpoch
		}
		id = top.ID
	}
	if q, ok := t.image.Partition(id, index); ok {
		return q.Leader, q.LeaderEpoch
	}
	return metadata.NoNode, record.NoEpoch
}

// redirect says in a fetch's answer who leads, if that is what the client needs.
func (t *Table) redirect(v *sight, err error, e *session.Entry, version int16) {
	if version < leaderNamed || !misled(err) {
		return
	}
	leader, epoch := t.leaderOf(v.part, e.Topic().ID, e.Topic().Name, e.Index())
	if leader == metadata.NoNode || leader == t.node.Self {
		return
	}
	v.more = &wire.FetchMore{Diverging: wire.Divergence{Epoch: record.NoEpoch}, Leader: leader, LeaderEpoch: epoch, ReadReplica: metadata.NoNode}
}

// nodesOf is where brokers are.
func (t *Table) nodesOf(ids []metadata.NodeID) (nodes []wire.Node) {
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if b := t.broker(id); b != nil {
			nodes = append(nodes, wire.Node{ID: id, Host: b.Host, Port: b.Port, Rack: b.Rack})
		}
	}
	return nodes
}

// redirectProduce is redirect for an entry of a produce.
func (t *Table) redirectProduce(p *produce, entry *kmsg.ProduceResponseTopicPartition, name string, err error) {
	if p.resp.Version < leaderNamedProduce || !misled(err) {
		return
	}
	part, _ := t.find(name, entry.Partition)
	leader, epoch := t.leaderOf(part, metadata.TopicID{}, name, entry.Partition)
	if leader == metadata.NoNode || leader == t.node.Self {
		return
	}
	entry.CurrentLeader.LeaderID, entry.CurrentLeader.LeaderEpoch = int32(leader), int32(epoch)
	if slices.ContainsFunc(p.resp.Brokers, func(b kmsg.ProduceResponseBroker) bool { return b.NodeID == int32(leader) }) {
		return
	}
	if b := t.broker(leader); b != nil {
		n := kmsg.NewProduceResponseBroker()
		n.NodeID, n.Host, n.Port = int32(leader), b.Host, b.Port
		if b.Rack != "" {
			n.Rack = kmsg.StringPtr(b.Rack)
		}
		p.resp.Brokers = append(p.resp.Brokers, n)
	}
}

// leaderNamedProduce is the first version of Produce that names who leads.
const leaderNamedProduce = 10

// broker is a registered broker, or nil.
func (t *Table) broker(id metadata.NodeID) *BrokerInfo {
	i, ok := slices.BinarySearchFunc(t.brokers, id, func(b BrokerInfo, id metadata.NodeID) int { return int(b.Node) - int(id) })
	if !ok {
		return nil
	}
	return &t.brokers[i]
}
