package controller

import (
	"fmt"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// Registration is what a broker says of itself when it starts.
type Registration struct {
	Node        metadata.NodeID
	Incarnation metadata.IncarnationID // drawn anew by each process
	Host        string
	Port        int32
	Rack        string
}

// Register decides about a broker that has started. It takes the place of what
// the node registered before, and has a new epoch, unless the same process
// registers the same again: then there is nothing to record, since what it has
// under way for its epoch must stay valid (KAFKA-16952).
func (c *Controller) Register(m metadata.Image, r Registration) ([]metadata.Record, error) {
	if r.Node < 0 || r.Port < 0 || r.Port > 65535 {
		return nil, fmt.Errorf("%w: broker %d at port %d", metadata.ErrInvalidRequest, r.Node, r.Port)
	}
	epoch := m.NextBrokerEpoch()
	if old, ok := m.Broker(r.Node); ok && old.Incarnation == r.Incarnation {
		if (Registration{old.Node, old.Incarnation, old.Host, old.Port, old.Rack}) == r {
			return nil, nil
		}
	}
	d := c.draft(m)
	err := d.add(&metadata.RegisterBroker{
		Node: r.Node, Incarnation: r.Incarnation, Epoch: epoch, Host: r.Host, Port: r.Port, Rack: r.Rack,
	})
	return d.records, err
}
