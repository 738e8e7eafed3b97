package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// DescribeTopicPartitions
//
// Behavior:
//   - Topics are answered by name, whatever the order of the request, each once
//     (KIP-966). No topics asks for all.
//   - At most max.request.partition.size.limit partitions are answered, or as
//     many as the asker wants, but at least one. If there are more, the cursor
//     says where to go on.
//   - A cursor that is not among the topics that are asked for, or has a
//     negative partition, makes the request invalid: every topic of it is
//     INVALID_REQUEST.
//   - Eligible and last known leader replicas are told, and offline replicas as
//     in Metadata.

// DescribeTopicPartitions answers a DescribeTopicPartitions request.
func (v *View) DescribeTopicPartitions(req *kmsg.DescribeTopicPartitionsRequest) *kmsg.DescribeTopicPartitionsResponse {
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	resp.Version = req.Version
	resp.Topics = []kmsg.DescribeTopicPartitionsResponseTopic{}
	names, from, err := v.namesFrom(req)
	if err != nil {
		for i := range req.Topics {
			resp.Topics = append(resp.Topics, undescribed(req.Topics[i].Topic, err))
		}
		return resp
	}
	left := max(1, min(int32(v.Config.Int("max.request.partition.size.limit")), req.ResponsePartitionLimit))
	for _, name := range names {
		if left == 0 {
			resp.NextCursor = cursor(name, 0)
			break
		}
		t, err := v.findTopic(metadataKey{byName: true, name: name})
		if err != nil {
			resp.Topics = append(resp.Topics, undescribed(name, err))
			continue
		}
		dt := v.describeTopic(t, from, left)
		resp.Topics = append(resp.Topics, dt)
		n := int32(len(dt.Partitions))
		left -= n
		if next := from + n; next < t.Partitions {
			resp.NextCursor = cursor(name, next)
			break
		}
		from = 0
	}
	return resp
}

// namesFrom returns the names of the topics to answer, in order, and the
// partition of the first to begin with.
func (v *View) namesFrom(req *kmsg.DescribeTopicPartitionsRequest) (names []string, from int32, err error) {
	all := len(req.Topics) == 0
	if all {
		for t := range v.Image.Topics() {
			names = append(names, t.Name)
		}
	} else {
		for i := range req.Topics {
			names = append(names, req.Topics[i].Topic)
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	c := req.Cursor
	if c == nil {
		return names, 0, nil
	}
	i, found := slices.BinarySearchFunc(names, c.Topic, strings.Compare)
	switch {
	case c.Partition < 0:
		return nil, 0, fmt.Errorf("%w: the cursor is at partition %d", metadata.ErrInvalidRequest, c.Partition)
	case !found && !all:
		return nil, 0, fmt.Errorf("%w: the cursor is at %q, which is not asked for", metadata.ErrInvalidRequest, c.Topic)
	case found:
		from = c.Partition
	}
	return names[i:], from, nil
}

// describeTopic describes at most limit partitions of a topic.
func (v *View) describeTopic(t *metadata.Topic, from, limit int32) kmsg.DescribeTopicPartitionsResponseTopic {
	dt := kmsg.NewDescribeTopicPartitionsResponseTopic()
	dt.Topic, dt.TopicID, dt.IsInternal = &t.Name, t.ID, metadata.IsInternal(t.Name)
	dt.AuthorizedOperations = topicOperations
	dt.Partitions = []kmsg.DescribeTopicPartitionsResponseTopicPartition{}
	for index := from; index < t.Partitions && index-from < limit; index++ {
		p, _ := v.Image.Partition(t.ID, index)
		dp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		dp.Partition = index
		dp.LeaderID, dp.LeaderEpoch = int32(v.leader(p)), int32(p.LeaderEpoch)
		dp.Replicas, dp.ISR = nodes(p.Replicas), nodes(p.ISR)
		dp.EligibleLeaderReplicas, dp.LastKnownELR = nodes(p.ELR), nodes(p.LastKnownELR)
		dp.OfflineReplicas = nodes(v.offline(p.Replicas))
		dt.Partitions = append(dt.Partitions, dp)
	}
	return dt
}

func undescribed(name string, err error) kmsg.DescribeTopicPartitionsResponseTopic {
	dt := kmsg.NewDescribeTopicPartitionsResponseTopic()
	dt.ErrorCode, dt.Topic, dt.IsInternal = wire.Code(err), &name, metadata.IsInternal(name)
	dt.Partitions = []kmsg.DescribeTopicPartitionsResponseTopicPartition{}
	return dt
}

func cursor(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	return &c
}
