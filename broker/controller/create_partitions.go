package controller

import (
	"fmt"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// CreatePartitions
//
// Behavior:
//   - Topics grow or are refused one by one; one that is refused does not keep
//     the others from growing.
//   - A name that occurs twice is refused, once, with INVALID_REQUEST.
//   - Count is how many partitions the topic has afterwards. It must be more
//     than it has: INVALID_PARTITIONS.
//   - Assignments, if there are any, are those of the new partitions in order,
//     each of as many brokers as the topic's partitions have replicas:
//     INVALID_REPLICA_ASSIGNMENT. Otherwise the partitions are spread as those
//     of a new topic, so that the topic as a whole is even.
//   - With validate-only all is decided and nothing recorded.
//   - What would be too much at once is refused with POLICY_VIOLATION.

// CreatePartitions decides about more partitions for topics.
func (c *Controller) CreatePartitions(m metadata.Image, req *kmsg.CreatePartitionsRequest, rng *rand.Rand) Result {
	resp := kmsg.NewPtrCreatePartitionsResponse()
	resp.Version = req.Version
	resp.Topics = []kmsg.CreatePartitionsResponseTopic{}
	times := map[string]int{}
	for i := range req.Topics {
		times[req.Topics[i].Topic]++
	}
	d := c.draft(m)
	for i := range req.Topics {
		name := req.Topics[i].Topic
		n := times[name]
		if n == 0 {
			continue // said already
		}
		times[name] = 0
		err := fmt.Errorf("%w: the topic occurs %d times in the request", metadata.ErrInvalidRequest, n)
		if n == 1 {
			err = d.createPartitions(&req.Topics[i], rng)
		}
		t := kmsg.NewCreatePartitionsResponseTopic()
		t.Topic = name
		t.ErrorCode, t.ErrorMessage = wire.Code(err), wire.Message(err)
		resp.Topics = append(resp.Topics, t)
	}
	if req.ValidateOnly {
		return Result{Response: resp}
	}
	return Result{Records: d.records, Response: resp}
}

func (d *draft) createPartitions(asked *kmsg.CreatePartitionsRequestTopic, rng *rand.Rand) error {
	t, ok := d.image.Topic(asked.Topic)
	if !ok {
		return fmt.Errorf("%w: %s", metadata.ErrUnknownTopic, asked.Topic)
	}
	more := int(asked.Count) - int(t.Partitions)
	switch {
	case more <= 0:
		return fmt.Errorf("%w: %d, but the topic has %d", metadata.ErrInvalidPartitions, asked.Count, t.Partitions)
	case asked.Assignment != nil && len(asked.Assignment) != more:
		return fmt.Errorf("%w: %d partitions to add, %d assignments", metadata.ErrInvalidReplicaAssignment, more, len(asked.Assignment))
	case more > d.cfg.MaxRecords:
		return fmt.Errorf("%w: %d partitions, at most %d at once are allowed", metadata.ErrPolicyViolation, more, d.cfg.MaxRecords)
	}
	placed, err := d.placeMore(t, asked, more, rng)
	if err != nil {
		return err
	}
	records := make([]metadata.Record, 0, more)
	for i, replicas := range placed {
		records = append(records, d.newPartition(t.ID, t.Partitions+int32(i), replicas))
	}
	return d.add(records...)
}

// placeMore returns the replicas of more partitions of a topic, which has some.
func (d *draft) placeMore(t *metadata.Topic, asked *kmsg.CreatePartitionsRequestTopic, more int, rng *rand.Rand) ([][]metadata.NodeID, error) {
	first, ok := d.image.Partition(t.ID, 0)
	if !ok {
		return nil, fmt.Errorf("%w: %s has no partitions", metadata.ErrInvalidPartitions, t.Name)
	}
	replicas := len(goal(first))
	if asked.Assignment == nil {
		p := newPlacer(d.image, rng)
		for old := range d.image.Partitions(t.ID) {
			p.has(goal(old))
		}
		return p.place(more, replicas)
	}
	placed := make([][]metadata.NodeID, more)
	for i := range placed {
		index := t.Partitions + int32(i)
		placed[i] = ids(asked.Assignment[i].Replicas)
		if err := d.mayBeReplicas(index, placed[i]); err != nil {
			return nil, err
		}
		if n := len(placed[i]); n != replicas {
			return nil, fmt.Errorf("%w: partition %d has %d replicas, the topic's others %d",
				metadata.ErrInvalidReplicaAssignment, index, n, replicas)
		}
		if !d.anyActive(placed[i]) {
			return nil, noneActive(index)
		}
	}
	return placed, nil
}

func ids(list []int32) []metadata.NodeID {
	nodes := make([]metadata.NodeID, len(list))
	for i, n := range list {
		nodes[i] = metadata.NodeID(n)
	}
	return nodes
}
