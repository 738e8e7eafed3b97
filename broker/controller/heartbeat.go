package controller

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/assert"
)

// BrokerHeartbeat
//
// Behavior:
//   - A broker that is not registered under that epoch is STALE_BROKER_EPOCH.
//   - A fenced broker is unfenced once it knows the metadata up to the record
//     that fenced it. So it has seen that it leads nothing, before it is given
//     something to lead again.
//   - A broker that says that logs of its are damaged is taken out of the ISRs and
//     ELRs of those partitions, and others lead them. It answers nobody from a
//     damaged log, so it does not have to wait for its lease, as one that lives does.
//     If nobody else has everything it stays what it is: what it cannot read now it
//     may read when it is started again.
//   - A broker that wants to stop is first marked, so that it is given nothing
//     more, and others lead what it leads; it stays in the ISRs, so that nothing
//     is committed that it does not know while it may serve reads. Once it knows
//     that, it is fenced and told to stop. What nobody else can lead it leads
//     until then.
//   - A broker that is the only one stops at once, and leads on when it comes
//     back.
//   - A fenced broker stops at once.
//
// Source: KIP-631, KIP-841. Kafka takes a broker that wants to stop out of the
// ISRs at once.

// Heartbeat decides about a broker that lives.
func (c *Controller) Heartbeat(m metadata.Image, req *kmsg.BrokerHeartbeatRequest) Result {
	resp := kmsg.NewPtrBrokerHeartbeatResponse()
	resp.Version = req.Version
	s := c.sequence(m)
	b, err := registered(m, req.BrokerID, req.BrokerEpoch)
	if err != nil {
		resp.ErrorCode = wire.Code(err)
		return s.result(resp)
	}
	resp.IsCaughtUp = req.CurrentMetadataOffset >= int64(b.ChangedAt())
	resp.IsFenced = b.Fenced
	damaged, ok := damagedLogs(&req.UnknownTags)
	switch {
	case !ok:
		resp.ErrorCode = wire.Code(metadata.ErrInvalidRequest)
	case len(damaged) > 0: // what else it wants it will say again
		s.lose(b.Node, damaged)
	case b.Fenced && req.WantShutdown:
		resp.ShouldShutdown = true
	case b.Fenced && resp.IsCaughtUp && !req.WantFence:
		s.unfence(b)
		resp.IsFenced = false
	case b.Fenced:
	case req.WantShutdown && m.BrokerCount() == 1:
		resp.ShouldShutdown = true
	case req.WantShutdown && !req.WantFence && s.drain(b, resp.IsCaughtUp):
	case req.WantFence || req.WantShutdown:
		s.fence(b.Node)
		resp.IsFenced, resp.ShouldShutdown = true, req.WantShutdown
	}
	return s.result(resp)
}

// registered returns the broker of that id, if its epoch is that.
func registered(m metadata.Image, id int32, epoch int64) (*metadata.Broker, error) {
	b, ok := m.Broker(metadata.NodeID(id))
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: broker %d is not registered", metadata.ErrStaleBrokerEpoch, id)
	case int64(b.Epoch) != epoch:
		return nil, fmt.Errorf("%w: broker %d has epoch %d, not %d", metadata.ErrStaleBrokerEpoch, id, b.Epoch, epoch)
	}
	return b, nil
}

// lose takes a broker out of the ISRs and ELRs of partitions whose logs it lost.
func (s *sequence) lose(n metadata.NodeID, logs []wire.DamagedLog) {
	seen := make(map[wire.DamagedLog]bool, len(logs))
	for _, l := range logs {
		p, ok := s.image.Partition(l.Topic, l.Index)
		self := []metadata.NodeID{n}
		if !ok || seen[l] || len(without(p.ISR, self))+len(without(p.ELR, self)) == 0 {
			continue
		}
		assert.Reached("controller: a broker that lives has lost a log")
		seen[l] = true
		to := *p
		to.ISR, to.ELR = without(p.ISR, self), without(p.ELR, self)
		s.alter(p, to, online, n)
	}
}

// drain has others lead what a broker leads that wants to stop. It reports
// whether the broker has to wait.
func (s *sequence) drain(b *metadata.Broker, caughtUp bool) (waits bool) {
	change := &metadata.BrokerChange{Node: b.Node, Epoch: b.Epoch, InShutdown: true}
	s.suppose(change)
	for p := range s.image.PartitionsOf(b.Node) {
		if p.Leader == b.Node {
			s.alter(p, *p, online)
		}
	}
	if b.InShutdown && len(s.records) == 0 {
		return !caughtUp
	}
	// The mark also tells from where on the broker knows what it does not lead.
	s.records = append(s.records, change)
	return true
}
