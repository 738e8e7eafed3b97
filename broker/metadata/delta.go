package metadata

import (
	"slices"
)

// Delta is what changed from one image to the next. Something that came and
// went in between is not in it.
type Delta struct {
	Created    []*Topic     // in the order of their records; as they are in the later image
	Deleted    []*Topic     // as they were in the earlier image
	Configured []*Topic     // existed and have another configuration
	Partitions []*Partition // new or changed, those of created topics included, by topic and index
	Brokers    []NodeID     // registered, changed or unregistered, by id
	// BrokerConfigs are the brokers, EveryBroker and OwnFile among them, that
	// were configured, by id.
	BrokerConfigs []NodeID
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
		case *BrokerChange:
			d.Brokers = append(d.Brokers, r.Node)
		case *UnregisterBroker:
			d.Brokers = append(d.Brokers, r.Node)
		case *ConfigureBroker:
			d.BrokerConfigs = append(d.BrokerConfigs, r.Node)
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
	slices.Sort(d.BrokerConfigs)
	d.BrokerConfigs = slices.Compact(d.BrokerConfigs)
	slices.SortStableFunc(d.Partitions, comparePartition)
	d.Partitions = slices.Compact(d.Partitions)
	return d
}
