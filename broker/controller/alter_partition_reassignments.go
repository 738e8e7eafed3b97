package controller

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// AlterPartitionReassignments
//
// Behavior:
//   - Partitions are reassigned or refused one by one; one that is named twice
//     is refused each time, with INVALID_REQUEST.
//   - Replicas must be registered brokers, none twice: else
//     INVALID_REPLICA_ASSIGNMENT. They may be more or fewer than before. They may
//     be fenced; then the reassignment waits for them.
//   - The reassignment is done as soon as all replicas that stay are in sync,
//     which may be at once. It is not throttled.
//   - Another reassignment takes the place of one that is under way: replicas
//     that it was bringing in, and that are not wanted any more, are given up. They
//     go at once unless they are in sync: then after a moment, in which they could
//     still be serving reads, and not before min.insync.replicas without them have
//     everything that was committed. The ones from before stay until it is done.
//     Kafka keeps the former as well.
//   - Null replicas cancel what is under way, which gives back the replicas from
//     before; without, NO_REASSIGNMENT_IN_PROGRESS. What is given up is listed as
//     under way until it is gone, and to cancel that again changes nothing. Kafka
//     has nothing under way once it is cancelled, and refuses what would leave none
//     in sync, with INVALID_REPLICA_ASSIGNMENT.
//   - A leader that is to go stays until another leads, and for a moment after
//     that.
//
// Versions:
//   - v1 can forbid another number of replicas (KIP-860):
//     INVALID_REPLICATION_FACTOR.

// AlterPartitionReassignments decides about other replicas for partitions.
func (c *Controller) AlterPartitionReassignments(m metadata.Image, req *kmsg.AlterPartitionAssignmentsRequest) Result {
	resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	resp.Version = req.Version
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	resp.Topics = []kmsg.AlterPartitionAssignmentsResponseTopic{}
	times := map[partitionName]int{}
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			times[partitionName{req.Topics[i].Topic, req.Topics[i].Partitions[j].Partition}]++
		}
	}
	b := c.batch(m)
	for i := range req.Topics {
		t := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		t.Topic = req.Topics[i].Topic
		for j := range req.Topics[i].Partitions {
			asked := &req.Topics[i].Partitions[j]
			name := partitionName{t.Topic, asked.Partition}
			err := errNamedTwice
			if times[name] == 1 {
				err = b.reassign(name, asked.Replicas, req.Version >= 1 && !req.AllowReplicationFactorChange)
			}
			p := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			p.Partition = asked.Partition
			p.ErrorCode, p.ErrorMessage = wire.Code(err), wire.Message(err)
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return Result{Records: b.done(), Response: resp}
}

// reassign decides about the replicas of one partition; nil cancels a
// reassignment.
func (b *batch) reassign(name partitionName, replicas []int32, sameNumber bool) error {
	t, p, err := b.find(name)
	if err != nil {
		return err
	}
	target := ids(replicas)
	switch {
	case replicas == nil && !p.Reassigning():
		return fmt.Errorf("%w: %s-%d", metadata.ErrNoReassignmentInProgress, t.Name, p.Index)
	case replicas == nil:
		target = origin(p)
	default:
		if err := b.mayBeReplicas(p.Index, target); err != nil {
			return err
		}
		if n := len(origin(p)); sameNumber && len(target) != n {
			return fmt.Errorf("%w: %d, but the partition has %d and is to keep it", metadata.ErrInvalidReplicationFactor, len(target), n)
		}
	}
	if q := b.change(p, b.reassigned(p, target), online); q != nil {
		return b.add(q)
	}
	return nil
}

// reassigned is p on its way to the replicas that it is to have in the end, for
// change to make something of. Of those that were being brought in and are not
// wanted any more, the ones that may have led a moment ago stay for now; and also
// those that have everything that was committed, if without them too few did.
func (b *batch) reassigned(p *metadata.Partition, target []metadata.NodeID) metadata.Partition {
	q, before := *p, origin(p)
	adding, removing := without(target, before), without(before, target)
	gone := without(p.Replicas, slices.Concat(target, removing))
	kept := slices.DeleteFunc(ordered(gone, p.ISR), func(n metadata.NodeID) bool { return !b.lives(n) })
	if tooFewWithout(b.image, p, gone, target) {
		kept = ordered(gone, slices.Concat(p.ISR, p.ELR))
	}
	gone = without(gone, kept)
	q.Adding, q.Removing = slices.Concat(adding, kept), slices.Concat(removing, kept)
	q.Replicas = slices.Concat(target, q.Removing)
	q.ISR, q.ELR, q.LastKnownELR = without(p.ISR, gone), without(p.ELR, gone), without(p.LastKnownELR, gone)
	return q
}
