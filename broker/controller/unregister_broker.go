package controller

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// UnregisterBroker
//
// Behavior:
//   - A broker that is not registered is BROKER_ID_NOT_REGISTERED.
//   - A broker that lives is refused with INVALID_REQUEST: it may be leading, and
//     it would register again. Kafka takes a living broker's leaderships away.
//   - What it has of partitions counts for nothing from then on: nobody will
//     know whether a broker that comes back under its id still has the disk. So
//     it is refused, with INVALID_REQUEST, while it alone has all that was
//     committed of a partition. Such a partition can be deleted, or be given
//     other replicas and one of those elected, unclean.
//   - It stays among the replicas of its partitions, until they are reassigned.

// UnregisterBroker decides about a broker that has left for good.
func (c *Controller) UnregisterBroker(m metadata.Image, req *kmsg.UnregisterBrokerRequest) Result {
	resp := kmsg.NewPtrUnregisterBrokerResponse()
	resp.Version = req.Version
	s := c.sequence(m)
	if err := s.unregister(metadata.NodeID(req.BrokerID)); err != nil {
		resp.ErrorCode, resp.ErrorMessage = wire.Code(err), wire.Message(err)
		return Result{Response: resp}
	}
	return s.result(resp)
}

func (s *sequence) unregister(node metadata.NodeID) error {
	broker, ok := s.image.Broker(node)
	switch {
	case !ok:
		return fmt.Errorf("%w: %d", metadata.ErrBrokerNotRegistered, node)
	case !broker.Fenced:
		return fmt.Errorf("%w: broker %d lives; stop it first", metadata.ErrInvalidRequest, node)
	}
	gone := []metadata.NodeID{node}
	for p := range s.image.PartitionsOf(node) {
		to := *p
		to.ISR, to.ELR = without(p.ISR, gone), without(p.ELR, gone)
		if len(to.ISR)+len(to.ELR) == 0 && len(p.ISR)+len(p.ELR) > 0 {
			t, _ := s.image.TopicByID(p.Topic)
			return fmt.Errorf("%w: broker %d alone has all that was committed of %s-%d", metadata.ErrInvalidRequest, node, t.Name, p.Index)
		}
		s.alter(p, to, online, node)
	}
	s.records = append(s.records, &metadata.UnregisterBroker{Node: node})
	return nil
}
