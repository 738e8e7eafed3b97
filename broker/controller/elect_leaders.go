package controller

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// ElectLeaders
//
// Behavior:
//   - Partitions are decided about one by one; one that is named twice is
//     refused each time, with INVALID_REQUEST. Null topics ask for all
//     partitions, and then those that need no election are not in the answer.
//   - A preferred election gives a partition to its first replica. If that
//     leads, ELECTION_NOT_NEEDED; if it is not in sync, or its broker is fenced
//     or shutting down, PREFERRED_LEADER_NOT_AVAILABLE.
//   - An unclean election gives a partition that has no leader to a replica that
//     may lack records that were committed: to the last leader there was, else to
//     the first replica that can lead. The other replicas drop what it has not.
//     If it has a leader, ELECTION_NOT_NEEDED; if no replica can lead,
//     ELIGIBLE_LEADERS_NOT_AVAILABLE. Whether the topic allows unclean elections
//     is not looked at: this is the operator's word.
//   - Other types of election are INVALID_REQUEST as a whole.
//
// Versions:
//   - v0 has preferred elections only. v1 adds types (KIP-460) and an error for
//     the whole.

// The types of elections, by Kafka's numbers.
const (
	preferredElection = 0
	uncleanElection   = 1
)

// ElectLeaders decides about other leaders for partitions.
func (c *Controller) ElectLeaders(m metadata.Image, req *kmsg.ElectLeadersRequest) Result {
	resp := kmsg.NewPtrElectLeadersResponse()
	resp.Version = req.Version
	resp.Topics = []kmsg.ElectLeadersResponseTopic{}
	b := c.batch(m)
	elect := b.electPreferred
	switch {
	case req.Version == 0 || req.ElectionType == preferredElection:
	case req.ElectionType == uncleanElection:
		elect = b.electAnyway
	default:
		resp.ErrorCode = wire.Code(metadata.ErrInvalidRequest)
		err := fmt.Errorf("%w: there are no elections of type %d", metadata.ErrInvalidRequest, req.ElectionType)
		elect = func(*metadata.Topic, *metadata.Partition) error { return err }
	}
	if req.Topics == nil {
		resp.Topics = b.electAll(elect)
	} else {
		resp.Topics = b.electSome(req.Topics, elect)
	}
	return Result{Records: b.done(), Response: resp}
}

// electAll decides about all partitions there are.
func (b *batch) electAll(elect func(*metadata.Topic, *metadata.Partition) error) []kmsg.ElectLeadersResponseTopic {
	topics := []kmsg.ElectLeadersResponseTopic{}
	for t := range b.image.Topics() {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = t.Name
		for p := range b.image.Partitions(t.ID) {
			if err := elect(t, p); err != metadata.ErrElectionNotNeeded {
				rt.Partitions = append(rt.Partitions, elected(p.Index, err))
			}
		}
		if len(rt.Partitions) > 0 {
			topics = append(topics, rt)
		}
	}
	return topics
}

func (b *batch) electSome(asked []kmsg.ElectLeadersRequestTopic, elect func(*metadata.Topic, *metadata.Partition) error) []kmsg.ElectLeadersResponseTopic {
	times := map[partitionName]int{}
	for i := range asked {
		for _, index := range asked[i].Partitions {
			times[partitionName{asked[i].Topic, index}]++
		}
	}
	topics := make([]kmsg.ElectLeadersResponseTopic, 0, len(asked))
	for i := range asked {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = asked[i].Topic
		for _, index := range asked[i].Partitions {
			name := partitionName{rt.Topic, index}
			err := errNamedTwice
			if times[name] == 1 {
				var t *metadata.Topic
				var p *metadata.Partition
				if t, p, err = b.find(name); err == nil {
					err = elect(t, p)
				}
			}
			rt.Partitions = append(rt.Partitions, elected(index, err))
		}
		topics = append(topics, rt)
	}
	return topics
}

func elected(index int32, err error) kmsg.ElectLeadersResponseTopicPartition {
	p := kmsg.NewElectLeadersResponseTopicPartition()
	p.Partition = index
	p.ErrorCode, p.ErrorMessage = wire.Code(err), wire.Message(err)
	return p
}

// electPreferred decides whether a partition's first replica leads it.
func (b *batch) electPreferred(_ *metadata.Topic, p *metadata.Partition) error {
	first := p.Replicas[0]
	if p.Leader == first {
		return metadata.ErrElectionNotNeeded
	}
	q := b.change(p, *p, preferred)
	if q == nil || q.Leader != first {
		return fmt.Errorf("%w: replica %d is not in sync, or its broker is fenced or shutting down", metadata.ErrPreferredLeaderNotAvailable, first)
	}
	return b.add(q)
}

// electAnyway decides who leads a partition that has no leader, even if that
// lacks something that was committed.
func (b *batch) electAnyway(_ *metadata.Topic, p *metadata.Partition) error {
	if p.Leader != metadata.NoNode {
		return metadata.ErrElectionNotNeeded
	}
	q := b.change(p, *p, unclean)
	if q == nil || q.Leader == metadata.NoNode {
		return fmt.Errorf("%w: the brokers of all replicas, %v, are fenced or shutting down", metadata.ErrEligibleLeadersNotAvailable, p.Replicas)
	}
	return b.add(q)
}
