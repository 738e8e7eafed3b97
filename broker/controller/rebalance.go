package controller

import (
	"slices"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// rebalanceAtOnce is how many leaders change in one go, as in Kafka.
const rebalanceAtOnce = 1000

// Rebalance decides about partitions that are led by another replica than the
// first: they are given to that if it lacks nothing. It reports whether there
// are more than change at once. Kafka: auto.leader.rebalance.enable.
func (c *Controller) Rebalance(m metadata.Image) (res Result, more bool) {
	s := c.sequence(m)
	for t := range m.Topics() {
		for p := range m.Partitions(t.ID) {
			if p.Leader == metadata.NoNode || p.Leader == p.Replicas[0] || !slices.Contains(p.ISR, p.Replicas[0]) {
				continue
			}
			if len(s.records) == rebalanceAtOnce {
				return s.result(nil), true
			}
			s.alter(p, *p, preferred)
		}
	}
	return s.result(nil), false
}

// Mend decides about partitions without a leader that can have one: because the
// controller before this one was gone before it had them elected, or because
// their topic allows unclean elections since.
func (c *Controller) Mend(m metadata.Image) Result {
	s := c.sequence(m)
	for p := range m.Leaderless() {
		s.alter(p, *p, online)
	}
	return s.result(nil)
}

// Adopt decides about what a controller has in its own configuration and all
// nodes must agree on: the least number of replicas in sync.
func (c *Controller) Adopt(m metadata.Image) Result {
	const name = "min.insync.replicas"
	value, set := c.cfg.Broker.Given(name)
	old, was := m.BrokerConfig(metadata.OwnFile, name)
	if set == was && value == old {
		return Result{}
	}
	record := &metadata.ConfigureBroker{Node: metadata.OwnFile, Name: name, Value: value, Unset: !set}
	s := c.sequence(m)
	s.suppose(record)
	for t := range s.image.Topics() {
		if s.image.MinISR(t) < m.MinISR(t) {
			s.records = append(s.records, unelectable(s.image, t.ID)...)
		}
	}
	s.records = append(s.records, record)
	return s.result(nil)
}

// Finish decides about the ends of reassignments, and about replicas that were
// given up, that waited because those that go may have led until a moment ago; see
// Sessions.HandedOver.
func (c *Controller) Finish(m metadata.Image, partitions []*metadata.Partition) Result {
	s := c.sequence(m)
	for _, p := range partitions {
		if done, ok := ended(m, p); ok {
			s.alter(p, done, online)
		}
	}
	return s.result(nil)
}
