package partition

// What the cluster's metadata makes of a node's partitions: which it leads,
// which it follows, and what it keeps until somebody leads them.

import (
	"fmt"
	"slices"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

// Assignment is one partition that this node has a replica of, as an image of
// the metadata has it. What it points to belongs to the image.
type Assignment struct {
	Topic     Topic
	Partition *metadata.Partition
	// MinISR is how many in-sync replicas the partition must have so that what is
	// produced with acks=all is taken and committed. Kafka: min.insync.replicas.
	MinISR int
}

// BrokerInfo is what the table must know of a broker.
type BrokerInfo struct {
	Node   metadata.NodeID
	Epoch  metadata.BrokerEpoch
	Active bool   // neither fenced nor about to stop: it may be in sync (KIP-841)
	Rack   string // empty if it has none
	Host   string // where clients are told to connect to
	Port   int32
}

// BrokerState is a member of an ISR, and the registration that is meant.
//
// Source: KIP-903.
type BrokerState struct {
	Node  metadata.NodeID
	Epoch metadata.BrokerEpoch
}

// ISRProposal is what a leader asks the controller to make of a partition's
// in-sync replicas. What became of it is told by Table.ISRDecided.
//
// Source: KIP-497.
type ISRProposal struct {
	Log            storage.LogID
	LeaderEpoch    record.LeaderEpoch
	PartitionEpoch metadata.PartitionEpoch // of the state that is to be changed
	ISR            []BrokerState           // in the order of the replicas
	Recovered      bool                    // the leader has recovered from an unclean election
}

// Follow is whom a partition is to be fetched from, and from where on. It takes
// the place of what was said of the partition before; an answer to a fetch that
// was sent before it is of no use any more.
type Follow struct {
	Log              storage.LogID
	Leader           metadata.NodeID // NoNode: from nobody any more
	LeaderEpoch      record.LeaderEpoch
	Offset           record.Offset      // log end offset
	LastFetchedEpoch record.LeaderEpoch // of the record before Offset, or NoEpoch
	LogStart         record.Offset
	HighWatermark    record.Offset
	Paused           bool // not now; another Follow will come
}

// ProgressTo is how far one followed partition is on this node's disk, for its
// leader.
type ProgressTo struct {
	To          metadata.NodeID
	Log         storage.LogID
	LeaderEpoch record.LeaderEpoch
	Durable     record.Offset
}

// SetImage says what the cluster's metadata is. The table looks up there what it
// does not hold itself.
func (t *Table) SetImage(m metadata.Image) { t.image = m }

// SetBrokers says who this node is, under which registration, and which brokers
// there are, by id. It comes before the first Assign, and whenever something of
// it has changed.
func (t *Table) SetBrokers(self metadata.NodeID, epoch metadata.BrokerEpoch, brokers []BrokerInfo, at Moment, out *Out) {
	t.self, t.epoch, t.brokers = self, epoch, brokers
}

// Lease says until when this node may answer consumers for what it leads;
// clock.Never is for ever.
func (t *Table) Lease(until clock.Instant, at Moment, out *Out) { t.lease = until }

// Assign makes a partition what an image says: led, followed, or kept until it
// has a leader. rec is what was recovered of its log; it counts when the
// partition is assigned for the first time, and is nil if there was nothing. An
// assignment that is older than what the partition knows is ignored.
func (t *Table) Assign(a Assignment, rec *storage.RecoveredLog, at Moment, out *Out) {
	id := storage.LogID{Topic: a.Topic.ID, Partition: a.Partition.Index}
	p := t.partition(id)
	if p == nil {
		p = t.add(a.Topic, id, rec, at, out)
	}
	if a.Partition.LeaderEpoch <= p.replica.Epoch() {
		return
	}
	var ro replica.Out
	if a.Partition.Leader == t.self {
		p.replica.Lead(a.Partition.LeaderEpoch, &ro)
	} else {
		p.replica.Resign(replica.ErrNotLeader, &ro)
	}
	t.keep(ro.Done, at, out)
}

// add opens a partition.
func (t *Table) add(top Topic, id storage.LogID, rec *storage.RecoveredLog, at Moment, out *Out) *Partition {
	tp := t.topics[top.Name]
	if tp == nil {
		tp = &topic{Topic: top}
		t.topics[top.Name], t.ids[top.ID] = tp, tp
	}
	assert.That(tp.ID == top.ID, "partition: a topic's name is in use")
	if n := int(id.Partition) + 1 - len(tp.partitions); n > 0 {
		tp.partitions = append(slices.Grow(tp.partitions, n), make([]*Partition, n)...)
	}
	p := &Partition{log: id, topic: tp}
	tp.partitions[id.Partition] = p
	tp.open++
	if t.expireAt == clock.Never {
		t.expireAt = at.Now.Add(expireEvery)
	}
	if rec == nil {
		p.replica = *replica.New(0, 0, nil)
	} else {
		p.recover(rec, at, out)
	}
	return p
}

// Drop gives up a partition because of err, which is what its waiting requests
// are told. If remove is set the log is deleted: the metadata say that this node
// has no replica of it any more.
func (t *Table) Drop(id storage.LogID, remove bool, err error, at Moment, out *Out) {
	p := t.partition(id)
	if p == nil {
		return
	}
	tp := p.topic
	tp.partitions[id.Partition] = nil
	if tp.open--; tp.open == 0 {
		delete(t.topics, tp.Name)
		delete(t.ids, tp.ID)
	}
	var ro replica.Out
	p.replica.Resign(err, &ro)
	t.keep(ro.Done, at, out)
	waiting := p.waiting()
	p.parked, p.damage = nil, err
	for _, f := range waiting {
		t.serve(f, at, out)
	}
	if remove {
		out.Jobs = append(out.Jobs, job.Delete{Log: id})
	}
}

// find returns an open partition, or the error that says why there is none.
func (t *Table) find(name string, index int32) (*Partition, error) {
	if tp := t.topics[name]; tp != nil && index >= 0 && int(index) < len(tp.partitions) && tp.partitions[index] != nil {
		p := tp.partitions[index]
		return p, p.damage
	}
	if err := metadata.ValidateTopicName(name); err != nil {
		return nil, err
	}
	if top, ok := t.image.Topic(name); ok && index >= 0 && index < top.Partitions {
		return nil, fmt.Errorf("%w: this node has no replica of %s-%d", replica.ErrNotLeader, name, index)
	}
	return nil, fmt.Errorf("%w: %s-%d", metadata.ErrUnknownTopic, name, index)
}

// partition returns the open partition of a log, or nil.
func (t *Table) partition(id storage.LogID) *Partition {
	tp := t.ids[id.Topic]
	if tp == nil || int(id.Partition) >= len(tp.partitions) {
		return nil
	}
	return tp.partitions[id.Partition]
}
