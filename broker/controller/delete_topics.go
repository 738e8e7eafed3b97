package controller

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// DeleteTopics
//
// Behavior:
//   - Topics are deleted or refused one by one.
//   - A topic that is named twice is deleted once and refused the second time,
//     with INVALID_REQUEST, whether by name or by id.
//   - With delete.topic.enable=false all are refused: TOPIC_DELETION_DISABLED,
//     below v3 INVALID_REQUEST.
//
// Versions:
//   - v5 adds the error message. v6 names topics by id as well (KIP-516): just
//     one of name and id is allowed, an unknown id is UNKNOWN_TOPIC_ID, and
//     the response has both where they are known.

// DeleteTopics decides about topics to delete.
func (c *Controller) DeleteTopics(m metadata.Image, req *kmsg.DeleteTopicsRequest) Result {
	resp := kmsg.NewPtrDeleteTopicsResponse()
	resp.Version = req.Version
	resp.Topics = []kmsg.DeleteTopicsResponseTopic{}
	asked := req.Topics
	if req.Version < 6 {
		asked = make([]kmsg.DeleteTopicsRequestTopic, len(req.TopicNames))
		for i := range asked {
			asked[i].Topic = &req.TopicNames[i]
		}
	}
	d := c.draft(m)
	seen := map[metadata.TopicID]bool{}
	for i := range asked {
		topic, err := c.topicToDelete(m, &asked[i], req.Version)
		t := kmsg.NewDeleteTopicsResponseTopic()
		t.Topic, t.TopicID = asked[i].Topic, asked[i].TopicID
		if err == nil {
			t.Topic, t.TopicID = &topic.Name, topic.ID
			err = d.deleteTopic(topic, seen)
		}
		t.ErrorCode, t.ErrorMessage = wire.Code(err), wire.Message(err)
		resp.Topics = append(resp.Topics, t)
	}
	return Result{Records: d.records, Response: resp}
}

func (c *Controller) topicToDelete(m metadata.Image, asked *kmsg.DeleteTopicsRequestTopic, version int16) (*metadata.Topic, error) {
	name, id := asked.Topic, metadata.TopicID(asked.TopicID)
	byID := id != metadata.TopicID{}
	switch {
	case !c.cfg.Broker.DeleteTopics() && version < 3:
		return nil, fmt.Errorf("%w: delete.topic.enable is false", metadata.ErrInvalidRequest)
	case !c.cfg.Broker.DeleteTopics():
		return nil, fmt.Errorf("%w: delete.topic.enable is false", metadata.ErrTopicDeletionDisabled)
	case name != nil && byID:
		return nil, fmt.Errorf("%w: a topic is named both %s and %s", metadata.ErrInvalidRequest, *name, id)
	case name == nil && !byID:
		return nil, fmt.Errorf("%w: a topic has neither name nor id", metadata.ErrInvalidRequest)
	case byID:
		if t, ok := m.TopicByID(id); ok {
			return t, nil
		}
		return nil, fmt.Errorf("%w: %s", metadata.ErrUnknownTopicID, id)
	}
	if t, ok := m.Topic(*name); ok {
		return t, nil
	}
	return nil, fmt.Errorf("%w: %s", metadata.ErrUnknownTopic, *name)
}

func (d *draft) deleteTopic(t *metadata.Topic, seen map[metadata.TopicID]bool) error {
	if seen[t.ID] {
		return fmt.Errorf("%w: %s is in the request twice", metadata.ErrInvalidRequest, t.Name)
	}
	seen[t.ID] = true
	return d.add(&metadata.RemoveTopic{ID: t.ID})
}
