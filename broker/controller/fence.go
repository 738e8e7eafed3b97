package controller

import (
	"github.com/pawlbroker/pawl/broker/metadata"
)

// Fence decides about brokers that are silent: they are in no ISR any more, and
// others lead what they led (KIP-631, KIP-841). Those that are fenced already
// are passed over.
//
// Brokers that are fenced together leave an ISR together: if none of them is
// left then all of them have everything that was committed, since none could go
// on without the others. Kafka fences them one by one, and has only the last
// eligible.
func (c *Controller) Fence(m metadata.Image, nodes []metadata.NodeID) Result {
	s := c.sequence(m)
	s.fence(nodes...)
	return s.result(nil)
}

// fence makes it part of the decision that nodes are fenced.
func (s *sequence) fence(nodes ...metadata.NodeID) {
	var fenced []metadata.NodeID
	var changes []metadata.Record
	for _, n := range nodes {
		if b, ok := s.image.Broker(n); ok && !b.Fenced {
			fenced = append(fenced, n)
			changes = append(changes, &metadata.BrokerChange{Node: n, Epoch: b.Epoch, Fenced: true})
		}
	}
	s.suppose(changes...)
	s.leave(fenced...)
	s.records = append(s.records, changes...)
}

// unfence makes it part of the decision that a broker is not fenced any more,
// and leads what has no leader and it can lead.
func (s *sequence) unfence(b *metadata.Broker) {
	change := &metadata.BrokerChange{Node: b.Node, Epoch: b.Epoch}
	s.suppose(change)
	s.records = append(s.records, change)
	s.revive(b.Node)
}
