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
//     that it was bringing in, and that are not wanted any more, go at once,
//     unless fewer than min.insync.replicas would be left that have everything
//     that was committed; the ones from before stay until it is done. Kafka keeps
//     the former as well.
//   - Null replicas cancel what is under way, which gives back the replicas from
//     before; without, NO_REASSIGNMENT_IN_PROGRESS.
//     Where those that are in sync have to stay for a while, what was cancelled is
//     listed as under way until all from before are. Kafka refuses that with
//     INVALID_REPLICA_ASSIGNMENT, but only if none would be left.
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
	q := reassigned(p, target, int(t.Config(b.broker()).MinInSyncReplicas))
	if q := b.change(p, q, online); q != nil {
		return b.add(q)
	}
	return nil
}

// reassigned is p on its way to the replicas that it is to have in the end, for
// change to make something of. Of those that are to go, the ones that have
// everything that was committed stay until then, if without them there would be
// fewer than minInSync of those.
func reassigned(p *metadata.Partition, target []metadata.NodeID, minInSync int) metadata.Partition {
	q, before := *p, origin(p)
	q.Adding, q.Removing = without(target, before), without(before, target)
	dropped := without(p.Replicas, slices.Concat(target, q.Removing))
	whole := ordered(p.Replicas, slices.Concat(p.ISR, p.ELR))
	if len(without(whole, dropped)) < min(minInSync, len(target)) {
		q.Removing = slices.Concat(q.Removing, ordered(dropped, whole))
		dropped = without(dropped, whole)
	}
	q.Replicas = slices.Concat(target, q.Removing)
	q.ISR, q.ELR, q.LastKnownELR = without(p.ISR, dropped), without(p.ELR, dropped), without(p.LastKnownELR, dropped)
	return q
}
