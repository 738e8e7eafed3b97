package metadata

import (
	"bytes"
	"cmp"
	"iter"
	"strconv"
	"strings"

	"github.com/google/btree"

	"github.com/pawlbroker/pawl/storage/record"
)

// MaxDeleted is how many deleted topics an image remembers. Logs of topics that
// were deleted before those stay on disk, which wastes space and loses nothing.
const MaxDeleted = 10_000

// Topic is one topic of an image.
type Topic struct {
	ID         TopicID
	Name       string
	Partitions int32    // numbered from 0
	Configs    []Config // that differ from the broker's, by name
}

// Broker is one registered broker.
type Broker = RegisterBroker

// Image is what the cluster knows about itself at one offset of the metadata
// log. It never changes; Apply makes another, which shares with the first what
// is the same in both. The zero Image knows nothing.
//
// Pointers that an image gives out belong to it and must not be written
// through. Apply counts as a use of the image it starts from, so only one
// goroutine may hold images that come from one another.
type Image struct {
	offset         Offset
	byName         *btree.BTreeG[*Topic]
	byID           *btree.BTreeG[*Topic]
	byFolded       *btree.BTreeG[foldedName]
	partitions     *btree.BTreeG[*Partition] // by topic, then index
	hosted         *btree.BTreeG[replica]    // each partition under each of its replicas
	leaderless     *btree.BTreeG[*Partition] // of partitions
	reassigning    *btree.BTreeG[*Partition] // of partitions
	brokers        *btree.BTreeG[*Broker]
	brokerConfigs  *btree.BTreeG[brokerConfig]
	deleted        *btree.BTreeG[tombstone] // by seq: the order of deletion
	deletedIDs     *btree.BTreeG[TopicID]
	deletions      uint64 // seq of the next tombstone
	nextProducerID record.ProducerID
	nextEpoch      BrokerEpoch
	sum            uint64 // of the hashes of everything in it; see hash.go
}

type tombstone struct {
	seq uint64
	id  TopicID
}

// replica is a partition under the id of a node that has a replica of it.
type replica struct {
	node  NodeID
	topic TopicID
	index int32
}

// brokerConfig is a configuration of a broker, or of what EveryBroker and
// OwnFile stand for.
type brokerConfig struct {
	node        NodeID
	name, value string
}

type foldedName struct{ folded, name string }

// Offset is the offset of the last record in the image.
func (m Image) Offset() Offset { return m.offset }

// At returns the image with another offset: for one that was made from a
// snapshot, or when what lay between had no records.
func (m Image) At(offset Offset) Image {
	m.offset = offset
	return m
}

// Topic finds a topic by name.
func (m Image) Topic(name string) (*Topic, bool) { return get(m.byName, &Topic{Name: name}) }

// TopicByID finds a topic by id.
func (m Image) TopicByID(id TopicID) (*Topic, bool) { return get(m.byID, &Topic{ID: id}) }

// Topics runs over all topics by name.
func (m Image) Topics() iter.Seq[*Topic] { return all(m.byName) }

// TopicCount is how many topics there are.
func (m Image) TopicCount() int { return count(m.byName) }

// Collides returns a topic whose name differs from name in nothing but '.' and
// '_', if there is one.
func (m Image) Collides(name string) (other string, ok bool) {
	f, ok := get(m.byFolded, foldedName{folded: folded(name)})
	return f.name, ok && f.name != name
}

// Partition finds one partition.
func (m Image) Partition(id TopicID, index int32) (*Partition, bool) {
	return get(m.partitions, &Partition{Topic: id, Index: index})
}

// Partitions runs over the partitions of a topic by index.
func (m Image) Partitions(id TopicID) iter.Seq[*Partition] {
	return func(yield func(*Partition) bool) {
		if m.partitions == nil {
			return
		}
		m.partitions.AscendGreaterOrEqual(&Partition{Topic: id}, func(p *Partition) bool {
			return p.Topic == id && yield(p)
		})
	}
}

// PartitionCount is how many partitions all topics have together.
func (m Image) PartitionCount() int { return count(m.partitions) }

// PartitionsOf runs over the partitions that a node has a replica of, by topic
// and index.
func (m Image) PartitionsOf(node NodeID) iter.Seq[*Partition] {
	return func(yield func(*Partition) bool) {
		if m.hosted == nil {
			return
		}
		m.hosted.AscendGreaterOrEqual(replica{node: node}, func(r replica) bool {
			if r.node != node {
				return false
			}
			p, _ := m.Partition(r.topic, r.index)
			return yield(p)
		})
	}
}

// Leaderless runs over the partitions without a leader, by topic and index.
func (m Image) Leaderless() iter.Seq[*Partition] { return all(m.leaderless) }

// LeaderlessCount is how many partitions have no leader. Kafka:
// OfflinePartitionsCount.
func (m Image) LeaderlessCount() int { return count(m.leaderless) }

// Reassigning runs over the partitions with a reassignment under way, by topic
// and index.
func (m Image) Reassigning() iter.Seq[*Partition] { return all(m.reassigning) }

// ReassigningCount is how many partitions have a reassignment under way.
func (m Image) ReassigningCount() int { return count(m.reassigning) }

// MinISR is min.insync.replicas of a topic: its own, else that of all brokers
// (it cannot differ from one to another), else what the active controller's own
// configuration says.
func (m Image) MinISR(t *Topic) int {
	const name = "min.insync.replicas"
	value, ok := find(t.Configs, name)
	for _, node := range [...]NodeID{EveryBroker, OwnFile} {
		if !ok {
			value, ok = m.BrokerConfig(node, name)
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 32)
	if err != nil {
		return 1
	}
	return max(1, int(n))
}

// EffectiveMinISR is how many in-sync replicas a partition must have, so that
// what it is given is committed: no more than it has replicas, as in Kafka,
// those not counted that a reassignment is bringing in, and at least one.
func (m Image) EffectiveMinISR(p *Partition) int {
	t, ok := m.TopicByID(p.Topic)
	if !ok {
		return 1
	}
	return max(1, min(m.MinISR(t), len(p.Replicas)-len(p.Adding)))
}

// BrokerConfig is one configuration that somebody set for a broker, or for
// EveryBroker or OwnFile.
func (m Image) BrokerConfig(node NodeID, name string) (value string, ok bool) {
	c, ok := get(m.brokerConfigs, brokerConfig{node: node, name: name})
	return c.value, ok
}

// BrokerConfigs are the configurations that somebody set for a broker, or for
// EveryBroker or OwnFile, by name.
func (m Image) BrokerConfigs(node NodeID) []Config {
	var configs []Config
	if m.brokerConfigs != nil {
		m.brokerConfigs.AscendGreaterOrEqual(brokerConfig{node: node}, func(c brokerConfig) bool {
			if c.node == node {
				configs = append(configs, Config{c.name, c.value})
			}
			return c.node == node
		})
	}
	return configs
}

// Broker finds a broker by its node's id.
func (m Image) Broker(node NodeID) (*Broker, bool) { return get(m.brokers, &Broker{Node: node}) }

// Brokers runs over all brokers by id.
func (m Image) Brokers() iter.Seq[*Broker] { return all(m.brokers) }

// BrokerCount is how many brokers there are.
func (m Image) BrokerCount() int { return count(m.brokers) }

// ChangedAt is an offset that an image must have so that it knows the broker as
// it is here. It is not much later than the first such offset: of a broker that
// came in a snapshot it is the snapshot's.
func (r *RegisterBroker) ChangedAt() Offset { return r.at }

// Active reports whether the broker may lead and be in sync: it is neither
// fenced nor about to stop (KIP-841).
func (r *RegisterBroker) Active() bool { return !r.Fenced && !r.InShutdown }

// NextProducerID is the first producer id that was never given away.
func (m Image) NextProducerID() record.ProducerID { return m.nextProducerID }

// NextBrokerEpoch is the first broker epoch that was never given away.
func (m Image) NextBrokerEpoch() BrokerEpoch { return m.nextEpoch }

// Deleted reports whether a topic of that id existed and was deleted. Only
// then may its logs be removed: an image that does not know a topic may be an
// old one. It forgets all but the latest MaxDeleted.
func (m Image) Deleted(id TopicID) bool {
	_, ok := get(m.deletedIDs, id)
	return ok
}

// Records returns records that make this image out of the zero Image, but for
// its offset.
func (m Image) Records() []Record {
	records := make([]Record, 0, 2+m.BrokerCount()+m.TopicCount()+m.PartitionCount()+count(m.brokerConfigs)+count(m.deleted))
	for b := range m.Brokers() {
		records = append(records, b)
	}
	for t := range m.Topics() {
		records = append(records, &AddTopic{t.ID, t.Name, t.Configs})
		for p := range m.Partitions(t.ID) {
			records = append(records, p)
		}
	}
	for c := range all(m.brokerConfigs) {
		records = append(records, &ConfigureBroker{Node: c.node, Name: c.name, Value: c.value})
	}
	for d := range all(m.deleted) {
		records = append(records, &DeletedTopic{d.id})
	}
	if m.nextProducerID > 0 {
		records = append(records, &ProducerIDs{m.nextProducerID})
	}
	if m.nextEpoch > 0 {
		records = append(records, &BrokerEpochs{m.nextEpoch})
	}
	return records
}

func byName(a, b *Topic) bool     { return a.Name < b.Name }
func byID(a, b *Topic) bool       { return lessID(a.ID, b.ID) }
func byNode(a, b *Broker) bool    { return a.Node < b.Node }
func bySeq(a, b tombstone) bool   { return a.seq < b.seq }
func lessID(a, b TopicID) bool    { return compareID(a, b) < 0 }
func compareID(a, b TopicID) int  { return bytes.Compare(a[:], b[:]) }
func byFold(a, b foldedName) bool { return a.folded < b.folded }

func byReplica(a, b replica) bool {
	return cmp.Or(cmp.Compare(a.node, b.node), compareID(a.topic, b.topic), cmp.Compare(a.index, b.index)) < 0
}
func byNodeAndName(a, b brokerConfig) bool {
	return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.name, b.name)) < 0
}

func byPartition(a, b *Partition) bool { return comparePartition(a, b) < 0 }

func comparePartition(a, b *Partition) int {
	return cmp.Or(compareID(a.Topic, b.Topic), cmp.Compare(a.Index, b.Index))
}

func get[T any](t *btree.BTreeG[T], key T) (v T, ok bool) {
	if t == nil {
		return v, false
	}
	return t.Get(key)
}

func count[T any](t *btree.BTreeG[T]) int {
	if t == nil {
		return 0
	}
	return t.Len()
}

func all[T any](t *btree.BTreeG[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		if t != nil {
			t.Ascend(yield)
		}
	}
}
