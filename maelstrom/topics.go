package maelstrom

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// leaders returns who leads each topic, of those that have a leader, as this node
// knows it. Topics that there are not it has made: its image may be an old one,
// and only the controller knows that there is nothing to read. An error matches
// errUnavailable or errRefused.
func (s *service) leaders(ctx context.Context, topics []string) (map[string]metadata.NodeID, error) {
	for {
		leaders, missing, err := s.metadata(ctx, topics)
		if err != nil || len(missing) == 0 {
			return leaders, err
		}
		// What is created, or was, is in this node's image once that is answered.
		if err := s.create(ctx, missing); err != nil {
			return nil, err
		}
	}
}

// leader is who leads one topic.
func (s *service) leader(ctx context.Context, topic string) (metadata.NodeID, error) {
	leaders, err := s.leaders(ctx, []string{topic})
	if err != nil {
		return metadata.NoNode, err
	}
	leader, ok := leaders[topic]
	if !ok {
		return metadata.NoNode, fmt.Errorf("%w: nobody leads %s", errUnavailable, topic)
	}
	return leader, nil
}

func (s *service) metadata(ctx context.Context, topics []string) (leaders map[string]metadata.NodeID, missing []string, err error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for i := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topics[i]
		req.Topics = append(req.Topics, t)
	}
	resp, err := try[*kmsg.MetadataResponse](ctx, s, s.self, req)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: metadata: %v", errUnavailable, err)
	}
	leaders = map[string]metadata.NodeID{}
	for _, t := range resp.Topics {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case t.Topic == nil || !slices.Contains(topics, *t.Topic):
			return nil, nil, fmt.Errorf("%w: metadata of what was not asked", errUnavailable)
		case err == kerr.UnknownTopicOrPartition:
			missing = append(missing, *t.Topic)
		case err == nil && len(t.Partitions) == 1 && t.Partitions[0].Leader >= 0:
			leaders[*t.Topic] = metadata.NodeID(t.Partitions[0].Leader)
		}
	}
	return leaders, missing, nil
}

// create makes topics with one partition, unless they are there. An error matches
// errUnavailable or errRefused.
func (s *service) create(ctx context.Context, topics []string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(tryTime.Milliseconds())
	for _, topic := range topics {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = topic, 1, -1
		req.Topics = append(req.Topics, t)
	}
	resp, err := try[*kmsg.CreateTopicsResponse](ctx, s, s.self, req)
	if err != nil {
		return fmt.Errorf("%w: create: %v", errUnavailable, err)
	}
	for _, t := range resp.Topics {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil || err == kerr.TopicAlreadyExists:
		case slices.Contains(nothingEver, err):
			return fmt.Errorf("%w: create %s: %w", errRefused, t.Topic, err)
		default:
			return fmt.Errorf("%w: create %s: %w", errUnavailable, t.Topic, err)
		}
	}
	return nil
}
