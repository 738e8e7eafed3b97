package partition

// What the cluster's metadata make of a node's partitions: which it leads,
// which it follows, and what it keeps until somebody leads them.

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/producer"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
)

// Assignment is one partition that this node has a replica of, as an image of
// the metadata has it. What it points to belongs to the image.
type Assignment struct {
	Topic     Topic
	Partition *metadata.Partition
	// MinISR is how many in-sync replicas the partition must have so that what is
	// produced with acks=all is taken and committed. Kafka: min.insync.replicas.
	// What is more than there are replicas counts as that many.
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

// SetImage says what the cluster's metadata is. The table looks up there what it
// does not hold itself.
func (t *Table) SetImage(m metadata.Image) { t.image = m }

// SetBrokers says who this node is, under which registration, and which brokers
// there are, by id. It comes before the first Assign, and whenever something of
// it has changed.
func (t *Table) SetBrokers(self metadata.NodeID, epoch metadata.BrokerEpoch, brokers []BrokerInfo, at Moment, out *Out) {
	again := t.node.Self == self && t.node.Epoch != epoch
	t.brokers = brokers
	t.node.Self, t.node.Epoch, t.node.Brokers = self, epoch, make([]replica.Broker, len(brokers))
	for i := range brokers {
		b := &brokers[i]
		t.node.Brokers[i] = replica.Broker{ID: b.Node, Epoch: b.Epoch, Active: b.Active}
	}
	// Only where a replica is missing can it matter who may be in sync.
	for _, p := range slices.Clone(t.short) {
		t.review(p, at, out)
	}
	if again {
		for _, p := range t.sorted() {
			p.replica.Forget()
			t.report(p, at, out)
		}
	}
}

// Assign makes a partition what an image says: led, followed, or kept until it
// has a leader. rec is what was recovered of its log; it counts when the
// partition is assigned for the first time, and is nil if there was nothing. An
// assignment that is older than what the partition knows is ignored.
func (t *Table) Assign(a Assignment, rec *storage.RecoveredLog, at Moment, out *Out) {
	id := storage.LogID{Topic: a.Topic.ID, Partition: a.Partition.Index}
	p := t.partition(id)
	open := p != nil
	if !open {
		p = t.add(a.Topic, id, rec, at, out)
	}
	was := p.marks()
	mp := a.Partition
	if mp.LeaderEpoch >= p.replica.Epoch() && mp.Epoch >= p.replica.PartitionEpoch() {
		p.spare = !slices.Contains(mp.ISR, t.node.Self) && !slices.Contains(mp.ELR, t.node.Self) && mp.Leader != t.node.Self
	}
	var ro replica.Out
	p.replica.Assigned(&replica.Term{
		Leader: mp.Leader, LeaderEpoch: mp.LeaderEpoch, Epoch: mp.Epoch, Replicas: mp.Replicas, ISR: mp.ISR, ELR: mp.ELR,
		MinISR: max(1, min(a.MinISR, len(mp.Replicas)-len(mp.Adding))), Recovering: mp.Recovering,
	}, &t.node, at.Now, &ro)
	if open && p.damage != nil && !p.spare {
		// The leader may have let it in again, or the controller made it an heir,
		// before they heard of it.
		out.Damaged = append(out.Damaged, id)
	}
	t.moved(p, was, &ro, at, out)
	t.follow(p, at, out)
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
		tp.partitions = append(tp.partitions, make([]*Partition, n)...)
	}
	p := &Partition{index: id.Partition, topic: tp, shortAt: -1, reviewAt: clock.Never}
	tp.partitions[id.Partition] = p
	tp.open++
	if t.expireAt == clock.Never {
		t.expireAt = at.Now.Add(expireEvery)
	}
	if rec == nil {
		p.replica = *replica.New(0, 0, 0, nil)
	} else {
		t.recover(p, rec, at, out)
	}
	return p
}

// Drop gives up a partition because of err, which is what its waiting requests
// are told. If remove is set the log is deleted: the metadata say that this node
// has no replica of it any more. Else it stays as it is, and must not be assigned
// again by this process.
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
	if n := p.replica.InFlight() + t.deletions.forget(p); n > 0 {
		t.leaving[id] += n
	}
	var ro replica.Out
	p.replica.Resign(err, &ro)
	t.keep(ro.Done, out)
	t.note(p)
	t.follow(p, at, out)
	p.damage = err
	t.news(p, false, at, out)
	p.watch.Clear()
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

// findByID is find for a topic that is named by its id.
func (t *Table) findByID(id metadata.TopicID, index int32) (*Partition, error) {
	if p := t.partition(storage.LogID{Topic: id, Partition: index}); p != nil {
		return p, p.damage
	}
	top, ok := t.image.TopicByID(id)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: %s", metadata.ErrUnknownTopicID, id)
	case index >= 0 && index < top.Partitions:
		return nil, fmt.Errorf("%w: this node has no replica of %s-%d", replica.ErrNotLeader, top.Name, index)
	}
	return nil, fmt.Errorf("%w: %s-%d", metadata.ErrUnknownTopic, top.Name, index)
}

// partition returns the open partition of a log, or nil.
func (t *Table) partition(id storage.LogID) *Partition {
	tp := t.ids[id.Topic]
	if tp == nil || id.Partition < 0 || int(id.Partition) >= len(tp.partitions) {
		return nil
	}
	return tp.partitions[id.Partition]
}

// attrs name the partition in a line.
func (p *Partition) attrs() []slog.Attr {
	return []slog.Attr{slog.String("topic", p.topic.Name), slog.Int("partition", int(p.index))}
}

func batchOf(b storage.BatchInfo) producer.Batch {
	return producer.Batch{
		ID: b.ProducerID, Epoch: b.ProducerEpoch, First: b.BaseSequence,
		Last: b.BaseSequence.Add(int32(b.LastOffset - b.BaseOffset)), Base: b.BaseOffset, Next: b.LastOffset + 1,
	}
}
