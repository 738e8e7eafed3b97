package controller

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/record"
)

// AlterPartition
//
// Behavior:
//   - A broker that is not registered under that epoch is STALE_BROKER_EPOCH, as
//     a whole. All else is decided partition by partition; one that is named
//     twice is refused the second time, with INVALID_REQUEST.
//   - An epoch that is ahead of the controller's is NOT_CONTROLLER: another node
//     may be by now. An older leader epoch is FENCED_LEADER_EPOCH, an older
//     partition epoch INVALID_UPDATE_VERSION.
//   - Only the leader may ask, only for an ISR with itself in it, of replicas:
//     INVALID_REQUEST. A leader that recovers from an unclean election is in
//     sync with nobody until it has recovered (KIP-704).
//   - The brokers of the ISR must be registered under the epochs that their
//     fetches had, and not be fenced (KIP-903): INELIGIBLE_REPLICA. One that
//     wants to stop may stay, but not join (KIP-841).
//   - An ISR that is so already is granted too, and outdates what the leader asked
//     for before and has no answer to: it may still be on its way.
//   - If this ends a reassignment, and takes the leader out of the replicas, it
//     is done and the answer is NEW_LEADER_ELECTED.
//
// Versions:
//   - v2 names topics by id, and has INELIGIBLE_REPLICA, which was
//     OPERATION_NOT_ATTEMPTED, and NEW_LEADER_ELECTED, which was
//     FENCED_LEADER_EPOCH. v3 has the brokers' epochs (KIP-903).
//
// Source: KIP-497.

// AlterPartition decides about ISRs that leaders ask for.
func (c *Controller) AlterPartition(m metadata.Image, req *kmsg.AlterPartitionRequest) Result {
	resp := kmsg.NewPtrAlterPartitionResponse()
	resp.Version = req.Version
	resp.Topics = []kmsg.AlterPartitionResponseTopic{}
	s := c.sequence(m)
	if _, err := registered(m, req.BrokerID, req.BrokerEpoch); err != nil {
		resp.ErrorCode = wire.Code(err)
		return s.result(resp)
	}
	seen := map[*metadata.Partition]bool{}
	for i := range req.Topics {
		asked := &req.Topics[i]
		t := kmsg.NewAlterPartitionResponseTopic()
		t.Topic, t.TopidID = asked.Topic, asked.TopicID
		for j := range asked.Partitions {
			a := alteration{req: req, asked: &asked.Partitions[j]}
			p, err := a.find(m, asked)
			if err == nil && seen[p] {
				err = fmt.Errorf("%w: the partition is in the request twice", metadata.ErrInvalidRequest)
			}
			if err == nil {
				seen[p] = true
				p, err = s.alterISR(p, &a)
			}
			t.Partitions = append(t.Partitions, altered(a.asked.Partition, p, err))
		}
		resp.Topics = append(resp.Topics, t)
	}
	return s.result(resp)
}

// alteration is what a leader asks for one partition.
type alteration struct {
	req   *kmsg.AlterPartitionRequest
	asked *kmsg.AlterPartitionRequestTopicPartition
}

func (a *alteration) find(m metadata.Image, asked *kmsg.AlterPartitionRequestTopic) (*metadata.Partition, error) {
	id := metadata.TopicID(asked.TopicID)
	if a.req.Version < 2 {
		t, ok := m.Topic(asked.Topic)
		if !ok {
			return nil, fmt.Errorf("%w: %s", metadata.ErrUnknownTopic, asked.Topic)
		}
		id = t.ID
	}
	if _, ok := m.TopicByID(id); !ok {
		return nil, fmt.Errorf("%w: %s", metadata.ErrUnknownTopicID, id)
	}
	p, ok := m.Partition(id, a.asked.Partition)
	if !ok {
		return nil, fmt.Errorf("%w: %s-%d", metadata.ErrUnknownTopic, id, a.asked.Partition)
	}
	return p, nil
}

// isr is the ISR that is asked for, with the brokers' epochs, or -1 where they
// are not told.
func (a *alteration) isr() (nodes []metadata.NodeID, epochs []metadata.BrokerEpoch) {
	if a.req.Version < 3 {
		for _, n := range a.asked.NewISR {
			nodes, epochs = append(nodes, metadata.NodeID(n)), append(epochs, -1)
		}
		return nodes, epochs
	}
	for _, e := range a.asked.NewEpochISR {
		nodes, epochs = append(nodes, metadata.NodeID(e.BrokerID)), append(epochs, metadata.BrokerEpoch(e.BrokerEpoch))
	}
	return nodes, epochs
}

// alterISR decides about one partition, and returns it as it is then.
func (s *sequence) alterISR(p *metadata.Partition, a *alteration) (*metadata.Partition, error) {
	if err := s.mayAlter(p, a); err != nil {
		return nil, err
	}
	to := *p
	to.ISR, _ = a.isr()
	to.Recovering = a.asked.LeaderRecoveryState == recovering
	q := s.change(p, to, online)
	if q == nil { // nothing changes but the epoch
		same := *p
		same.Epoch++
		q = &same
	}
	s.records = append(s.records, q)
	switch {
	case q.Leader == p.Leader:
		return q, nil
	case a.req.Version < 2:
		return nil, fmt.Errorf("%w: broker %d leads", metadata.ErrFencedLeaderEpoch, q.Leader)
	}
	return nil, fmt.Errorf("%w: broker %d leads", metadata.ErrNewLeaderElected, q.Leader)
}

// recovering is Kafka's number for a leader that was elected uncleanly.
const recovering = 1

func (s *sequence) mayAlter(p *metadata.Partition, a *alteration) error {
	isr, epochs := a.isr()
	leaderEpoch, epoch := record.LeaderEpoch(a.asked.LeaderEpoch), metadata.PartitionEpoch(a.asked.PartitionEpoch)
	isRecovering := a.asked.LeaderRecoveryState == recovering
	switch {
	case leaderEpoch > p.LeaderEpoch || epoch > p.Epoch:
		return fmt.Errorf("%w: this node knows of leader epoch %d and partition epoch %d", metadata.ErrNotController, p.LeaderEpoch, p.Epoch)
	case leaderEpoch < p.LeaderEpoch:
		return fmt.Errorf("%w: it is %d", metadata.ErrFencedLeaderEpoch, p.LeaderEpoch)
	case metadata.NodeID(a.req.BrokerID) != p.Leader:
		return fmt.Errorf("%w: broker %d leads", metadata.ErrInvalidRequest, p.Leader)
	case epoch < p.Epoch:
		return fmt.Errorf("%w: it is %d", metadata.ErrInvalidUpdateVersion, p.Epoch)
	case !slices.Contains(isr, p.Leader):
		return fmt.Errorf("%w: the leader is not in the ISR", metadata.ErrInvalidRequest)
	case isRecovering && (len(isr) > 1 || !p.Recovering):
		return fmt.Errorf("%w: the leader has others in sync, or has recovered before", metadata.ErrInvalidRequest)
	}
	for i, n := range isr {
		if !slices.Contains(p.Replicas, n) || slices.Contains(isr[:i], n) {
			return fmt.Errorf("%w: broker %d is not a replica, or is in the ISR twice", metadata.ErrInvalidRequest, n)
		}
		if why := s.ineligible(p, n, epochs[i]); why != "" {
			err := metadata.ErrIneligibleReplica
			if a.req.Version < 2 {
				err = metadata.ErrNotAttempted
			}
			return fmt.Errorf("%w: broker %d is %s", err, n, why)
		}
	}
	return nil
}

// ineligible says why a broker cannot be in an ISR, or nothing.
func (s *sequence) ineligible(p *metadata.Partition, n metadata.NodeID, epoch metadata.BrokerEpoch) string {
	b, ok := s.image.Broker(n)
	switch {
	case !ok:
		return "not registered"
	case b.Fenced:
		return "fenced"
	case b.InShutdown && !slices.Contains(p.ISR, n):
		return "shutting down"
	case epoch != -1 && epoch != b.Epoch:
		return fmt.Sprintf("registered under epoch %d, not %d", b.Epoch, epoch)
	}
	return ""
}

// altered is the answer for one partition, which is p unless there is an error.
func altered(index int32, p *metadata.Partition, err error) kmsg.AlterPartitionResponseTopicPartition {
	r := kmsg.NewAlterPartitionResponseTopicPartition()
	r.Partition = index
	if err != nil {
		r.ErrorCode = wire.Code(err)
		return r
	}
	r.LeaderID, r.LeaderEpoch = int32(p.Leader), int32(p.LeaderEpoch)
	r.ISR = nodes(p.ISR)
	r.PartitionEpoch = int32(p.Epoch)
	if p.Recovering {
		r.LeaderRecoveryState = recovering
	}
	return r
}
