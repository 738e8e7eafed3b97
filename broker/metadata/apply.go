package metadata

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/btree"
)

// Delta is what changed from one image to the next. Something that came and
// went in between is not in it.
type Delta struct {
	Created    []*Topic     // in the order of their records; as they are in the later image
	Deleted    []*Topic     // as they were in the earlier image
	Configured []*Topic     // existed and have another configuration
	Partitions []*Partition // new or changed, those of created topics included, by topic and index
	Brokers    []NodeID     // registered or unregistered, by id
}

// Apply returns the image that follows m when records, which end at offset, are
// applied to it in order, and what changed. Its cost grows with the records,
// not with the image. A record that contradicts the image gives an
// ErrInapplicable that names it; what the controller decided on m never does.
func Apply(m Image, offset Offset, records []Record) (Image, Delta, error) {
	next := m.clone()
	next.offset = offset
	for i, r := range records {
		if err := next.apply(r); err != nil {
			return Image{}, Delta{}, fmt.Errorf("%w: record %d of %d (%v): %w", ErrInapplicable, i+1, len(records), r, err)
		}
	}
	return next, difference(m, next, records), nil
}

func (m Image) clone() Image {
	m.byName = cloneTree(m.byName, byName)
	m.byID = cloneTree(m.byID, byID)
	m.byFolded = cloneTree(m.byFolded, byFold)
	m.partitions = cloneTree(m.partitions, byPartition)
	m.brokers = cloneTree(m.brokers, byNode)
	m.deleted = cloneTree(m.deleted, bySeq)
	m.deletedIDs = cloneTree(m.deletedIDs, lessID)
	return m
}

func cloneTree[T any](t *btree.BTreeG[T], less btree.LessFunc[T]) *btree.BTreeG[T] {
	if t == nil {
		return btree.NewG(32, less)
	}
	return t.Clone()
}

// apply changes m, which is nobody else's yet, by one record.
func (m *Image) apply(r Record) error {
	switch r := r.(type) {
	case *RegisterBroker:
		return m.registerBroker(r)
	case *UnregisterBroker:
		return m.unregisterBroker(r)
	case *AddTopic:
		return m.addTopic(r)
	case *RemoveTopic:
		return m.removeTopic(r)
	case *Partition:
		return m.setPartition(r)
	case *ConfigureTopic:
		return m.setTopicConfig(r)
	case *ProducerIDs:
		if r.Next < m.nextProducerID {
			return fmt.Errorf("ids below %d are given away already", m.nextProducerID)
		}
		if m.nextProducerID > 0 {
			m.remove(&ProducerIDs{m.nextProducerID})
		}
		m.nextProducerID = r.Next
		if r.Next > 0 {
			m.add(r)
		}
	case *DeletedTopic:
		if _, ok := m.TopicByID(r.ID); ok {
			return fmt.Errorf("the topic exists")
		}
		m.bury(r.ID)
	case *BrokerEpochs:
		if r.Next < m.nextEpoch {
			return fmt.Errorf("epochs below %d are given away already", m.nextEpoch)
		}
		m.setNextEpoch(r.Next)
	}
	return nil
}

func (m *Image) registerBroker(r *RegisterBroker) error {
	old, again := m.Broker(r.Node)
	if again && r.Epoch <= old.Epoch {
		return fmt.Errorf("broker has epoch %d", old.Epoch)
	}
	if r.Epoch < 0 || r.Node < 0 {
		return fmt.Errorf("epochs and ids are not negative")
	}
	if again {
		m.remove(old)
	}
	m.brokers.ReplaceOrInsert(r)
	m.add(r)
	m.setNextEpoch(max(m.nextEpoch, r.Epoch+1))
	return nil
}

func (m *Image) setNextEpoch(next BrokerEpoch) {
	if m.nextEpoch > 0 {
		m.remove(&BrokerEpochs{m.nextEpoch})
	}
	m.nextEpoch = next
	if next > 0 {
		m.add(&BrokerEpochs{next})
	}
}

func (m *Image) unregisterBroker(r *UnregisterBroker) error {
	old, ok := m.brokers.Delete(&Broker{Node: r.Node})
	if !ok {
		return fmt.Errorf("no such broker")
	}
	m.remove(old)
	return nil
}

func (m *Image) addTopic(r *AddTopic) error {
	if err := ValidateTopicName(r.Name); err != nil {
		return err
	}
	if _, ok := m.Topic(r.Name); ok {
		return ErrTopicExists
	}
	if other, ok := m.Collides(r.Name); ok {
		return fmt.Errorf("%w: it collides with %s", ErrInvalidTopic, other)
	}
	if _, ok := m.TopicByID(r.ID); ok || m.Deleted(r.ID) || r.ID == (TopicID{}) {
		return fmt.Errorf("the id is zero or was used before")
	}
	if !slices.IsSortedFunc(r.Configs, compareConfig) || hasTwins(r.Configs) {
		return fmt.Errorf("configurations are not in order")
	}
	t := &Topic{ID: r.ID, Name: r.Name, Configs: r.Configs}
	m.byName.ReplaceOrInsert(t)
	m.byID.ReplaceOrInsert(t)
	m.byFolded.ReplaceOrInsert(foldedName{folded(t.Name), t.Name})
	m.add(r)
	return nil
}

func (m *Image) removeTopic(r *RemoveTopic) error {
	t, ok := m.byID.Delete(&Topic{ID: r.ID})
	if !ok {
		return ErrUnknownTopicID
	}
	m.byName.Delete(t)
	m.byFolded.Delete(foldedName{folded: folded(t.Name)})
	m.remove(t.record())
	for i := range t.Partitions {
		p, _ := m.partitions.Delete(&Partition{Topic: t.ID, Index: i})
		m.remove(p)
	}
	m.bury(t.ID)
	return nil
}

// bury remembers that a topic was deleted, and forgets the one deleted the
// longest ago when there are too many.
func (m *Image) bury(id TopicID) {
	if m.Deleted(id) {
		return
	}
	m.deleted.ReplaceOrInsert(tombstone{m.deletions, id})
	m.deletedIDs.ReplaceOrInsert(id)
	m.deletions++
	m.add(&DeletedTopic{id})
	if m.deleted.Len() > MaxDeleted {
		oldest, _ := m.deleted.DeleteMin()
		m.deletedIDs.Delete(oldest.id)
		m.remove(&DeletedTopic{oldest.id})
	}
}

func (m *Image) setPartition(r *Partition) error {
	if err := r.valid(); err != nil {
		return err
	}
	t, ok := m.TopicByID(r.Topic)
	if !ok {
		return ErrUnknownTopicID
	}
	old, ok := m.Partition(r.Topic, r.Index)
	switch {
	case ok && (r.LeaderEpoch < old.LeaderEpoch || r.Epoch <= old.Epoch):
		return fmt.Errorf("it has leader epoch %d and partition epoch %d", old.LeaderEpoch, old.Epoch)
	case ok:
		m.remove(old)
	case r.Index != t.Partitions:
		return fmt.Errorf("the topic has %d partitions", t.Partitions)
	default:
		m.replaceTopic(&Topic{t.ID, t.Name, t.Partitions + 1, t.Configs})
	}
	m.partitions.ReplaceOrInsert(r)
	m.add(r)
	return nil
}

// valid checks what can be seen of a partition alone.
func (p *Partition) valid() error {
	switch {
	case p.Index < 0 || p.LeaderEpoch < 0 || p.Epoch < 0:
		return fmt.Errorf("indexes and epochs are not negative")
	case len(p.Replicas) == 0:
		return fmt.Errorf("it has no replicas")
	case p.Leader != NoNode && !slices.Contains(p.ISR, p.Leader):
		return fmt.Errorf("the leader is not in sync")
	}
	for i, n := range p.Replicas {
		if n < 0 || slices.Contains(p.Replicas[:i], n) {
			return fmt.Errorf("replica %d is negative or named twice", n)
		}
	}
	for i, n := range p.ISR {
		if !slices.Contains(p.Replicas, n) || slices.Contains(p.ISR[:i], n) {
			return fmt.Errorf("in-sync replica %d is not a replica or named twice", n)
		}
	}
	return nil
}

func (m *Image) setTopicConfig(r *ConfigureTopic) error {
	t, ok := m.TopicByID(r.Topic)
	if !ok {
		return ErrUnknownTopicID
	}
	i, found := slices.BinarySearchFunc(t.Configs, Config{Name: r.Name}, compareConfig)
	configs := slices.Clone(t.Configs)
	switch {
	case r.Unset && found:
		configs = slices.Delete(configs, i, i+1)
	case r.Unset:
		return nil
	case found:
		configs[i].Value = r.Value
	default:
		configs = slices.Insert(configs, i, Config{r.Name, r.Value})
	}
	changed := &Topic{t.ID, t.Name, t.Partitions, configs}
	m.replaceTopic(changed)
	m.remove(t.record())
	m.add(changed.record())
	return nil
}

func (m *Image) replaceTopic(t *Topic) {
	m.byName.ReplaceOrInsert(t)
	m.byID.ReplaceOrInsert(t)
}

func compareConfig(a, b Config) int { return strings.Compare(a.Name, b.Name) }

func hasTwins(sorted []Config) bool {
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Name == sorted[i-1].Name {
			return true
		}
	}
	return false
}

// difference is what records changed from m to next. It looks only at what they
// name.
func difference(m, next Image, records []Record) Delta {
	var d Delta
	seen := map[TopicID]bool{}
	topic := func(id TopicID) {
		if seen[id] {
			return
		}
		seen[id] = true
		before, was := m.TopicByID(id)
		after, is := next.TopicByID(id)
		switch {
		case was && !is:
			d.Deleted = append(d.Deleted, before)
		case is && !was:
			d.Created = append(d.Created, after)
		case is && was && !slices.Equal(before.Configs, after.Configs):
			d.Configured = append(d.Configured, after)
		}
	}
	for _, r := range records {
		switch r := r.(type) {
		case *RegisterBroker:
			d.Brokers = append(d.Brokers, r.Node)
		case *UnregisterBroker:
			d.Brokers = append(d.Brokers, r.Node)
		case *AddTopic:
			topic(r.ID)
		case *RemoveTopic:
			topic(r.ID)
		case *ConfigureTopic:
			topic(r.Topic)
		case *Partition:
			if p, ok := next.Partition(r.Topic, r.Index); ok {
				d.Partitions = append(d.Partitions, p)
			}
		}
	}
	slices.Sort(d.Brokers)
	d.Brokers = slices.Compact(d.Brokers)
	slices.SortStableFunc(d.Partitions, comparePartition)
	d.Partitions = slices.Compact(d.Partitions)
	return d
}
