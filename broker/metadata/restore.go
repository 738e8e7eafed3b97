package metadata

import "slices"

// Restore returns the image that a snapshot's records come to, at offset, and
// what is different in it from m, whose place it takes and which is an earlier
// one of the same history. Its cost grows with both images.
func Restore(m Image, offset Offset, records []Record) (Image, Delta, error) {
	next, _, err := Apply(Image{}, offset, records)
	if err != nil {
		return Image{}, Delta{}, err
	}
	// What went is not in the records.
	changed := slices.Clone(records)
	for t := range m.Topics() {
		if _, ok := next.TopicByID(t.ID); !ok {
			changed = append(changed, &RemoveTopic{t.ID})
		}
	}
	for b := range m.Brokers() {
		if _, ok := next.Broker(b.Node); !ok {
			changed = append(changed, &UnregisterBroker{b.Node})
		}
	}
	for c := range all(m.brokerConfigs) {
		changed = append(changed, &ConfigureBroker{Node: c.node})
	}
	d := difference(m, next, changed)
	// And much of what is in them is as it was.
	d.Partitions = slices.DeleteFunc(d.Partitions, func(p *Partition) bool {
		old, ok := m.Partition(p.Topic, p.Index)
		return ok && old.Epoch == p.Epoch
	})
	d.Brokers = slices.DeleteFunc(d.Brokers, func(n NodeID) bool {
		was, ok := m.Broker(n)
		is, still := next.Broker(n)
		return ok && still && hash(was) == hash(is)
	})
	d.BrokerConfigs = slices.DeleteFunc(d.BrokerConfigs, func(n NodeID) bool {
		return slices.Equal(m.BrokerConfigs(n), next.BrokerConfigs(n))
	})
	return next, d, nil
}
