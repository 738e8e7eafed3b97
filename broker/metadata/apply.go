package metadata

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/btree"
)

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
	m.hosted = cloneTree(m.hosted, byReplica)
	m.leaderless = cloneTree(m.leaderless, byPartition)
	m.reassigning = cloneTree(m.reassigning, byPartition)
	m.brokers = cloneTree(m.brokers, byNode)
	m.brokerConfigs = cloneTree(m.brokerConfigs, byNodeAndName)
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
	case *BrokerChange:
		return m.changeBroker(r)
	case *UnregisterBroker:
		return m.unregisterBroker(r)
	case *ConfigureBroker:
		return m.configureBroker(r)
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
	amends := again && r.Epoch == old.Epoch && r.Incarnation == old.Incarnation
	if again && r.Epoch <= old.Epoch && !amends {
		return fmt.Errorf("broker has epoch %d", old.Epoch)
	}
	if r.Epoch < 0 || r.Node < 0 {
		return fmt.Errorf("epochs and ids are not negative")
	}
	if again {
		m.remove(old)
	}
	b := *r
	b.at = m.offset
	m.brokers.ReplaceOrInsert(&b)
	m.add(&b)
	m.setNextEpoch(max(m.nextEpoch, r.Epoch+1))
	return nil
}

func (m *Image) changeBroker(r *BrokerChange) error {
	old, ok := m.Broker(r.Node)
	if !ok || old.Epoch != r.Epoch {
		return fmt.Errorf("there is no such registration")
	}
	b := *old
	b.Fenced, b.InShutdown, b.at = r.Fenced, r.InShutdown, m.offset
	m.brokers.ReplaceOrInsert(&b)
	m.remove(old)
	m.add(&b)
	return nil
}

func (m *Image) configureBroker(r *ConfigureBroker) error {
	if r.Node < OwnFile || r.Name == "" {
		return fmt.Errorf("there is no such broker or no such configuration")
	}
	old, found := m.brokerConfigs.Delete(brokerConfig{node: r.Node, name: r.Name})
	if found {
		m.remove(&ConfigureBroker{Node: r.Node, Name: r.Name, Value: old.value})
	}
	if !r.Unset {
		m.brokerConfigs.ReplaceOrInsert(brokerConfig{r.Node, r.Name, r.Value})
		m.add(&ConfigureBroker{Node: r.Node, Name: r.Name, Value: r.Value})
	}
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
		m.index(p, nil)
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
		m.index(old, r)
		m.remove(old)
	case r.Index != t.Partitions:
		return fmt.Errorf("the topic has %d partitions", t.Partitions)
	default:
		m.index(nil, r)
		m.replaceTopic(&Topic{t.ID, t.Name, t.Partitions + 1, t.Configs})
	}
	m.partitions.ReplaceOrInsert(r)
	m.add(r)
	return nil
}

// index keeps a partition findable that was before and is after. One of them
// may be nil, for none.
func (m *Image) index(before, after *Partition) {
	var was, is Partition
	if before != nil {
		was = *before
	}
	if after != nil {
		is = *after
	}
	for _, n := range was.Replicas {
		if !slices.Contains(is.Replicas, n) {
			m.hosted.Delete(replica{n, was.Topic, was.Index})
		}
	}
	for _, n := range is.Replicas {
		if !slices.Contains(was.Replicas, n) {
			m.hosted.ReplaceOrInsert(replica{n, is.Topic, is.Index})
		}
	}
	list := func(t *btree.BTreeG[*Partition], listed func(*Partition) bool) {
		switch {
		case after != nil && listed(after):
			t.ReplaceOrInsert(after)
		case before != nil && listed(before):
			t.Delete(before)
		}
	}
	list(m.leaderless, func(p *Partition) bool { return p.Leader == NoNode })
	list(m.reassigning, (*Partition).Reassigning)
}

// Reassigning reports whether the partition is being given other replicas.
func (p *Partition) Reassigning() bool { return len(p.Adding)+len(p.Removing) > 0 }

// valid checks what can be seen of a partition alone.
func (p *Partition) valid() error {
	switch {
	case p.Index < 0 || p.LeaderEpoch < 0 || p.Epoch < 0:
		return fmt.Errorf("indexes and epochs are not negative")
	case len(p.Replicas) == 0:
		return fmt.Errorf("it has no replicas")
	case p.Leader != NoNode && !slices.Contains(p.ISR, p.Leader):
		return fmt.Errorf("the leader is not in sync")
	case p.Recovering && len(p.ISR) > 1:
		return fmt.Errorf("others are in sync with a leader that has not recovered")
	}
	for i, n := range p.Replicas {
		if n < 0 || slices.Contains(p.Replicas[:i], n) {
			return fmt.Errorf("replica %d is negative or named twice", n)
		}
	}
	for _, list := range [...]struct {
		what         string
		nodes, apart []NodeID
	}{
		{"in-sync replica", p.ISR, nil},
		{"eligible leader replica", p.ELR, p.ISR},
		{"last known leader", p.LastKnownELR, nil},
		{"replica to add", p.Adding, nil},
		{"replica to remove", p.Removing, nil},
	} {
		for i, n := range list.nodes {
			if !slices.Contains(p.Replicas, n) || slices.Contains(list.nodes[:i], n) || slices.Contains(list.apart, n) {
				return fmt.Errorf("%s %d is not a replica or named twice", list.what, n)
			}
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
