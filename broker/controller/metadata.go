package controller

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// Metadata
//
// Behavior:
//   - Topics are listed by name if all are asked for, else in the order of the
//     request, each once.
//   - An invalid name is INVALID_TOPIC_EXCEPTION, an unknown one
//     UNKNOWN_TOPIC_OR_PARTITION, an unknown id UNKNOWN_TOPIC_ID.
//   - An unknown name that may be created (auto.create.topics.enable, and the
//     asker allows it) is reported to the caller, who has it created and asks
//     again with what was refused.
//   - Brokers that are fenced are not listed; one that is shutting down is.
//   - A partition whose leader is not in the list of brokers has no leader, and
//     LEADER_NOT_AVAILABLE: clients loop on a leader they cannot find.
//   - Replicas on brokers that are fenced, or not registered, are offline.
//   - Operations are told if asked for: all of them, for want of an authorizer.
//
// Versions:
//   - v0: an empty list asks for all topics; from v1 null does, and an empty
//     list asks for none. Replicas that are offline are left out, and make the
//     partition REPLICA_NOT_AVAILABLE.
//   - v0-v3 have no say about creation, and always allow it.
//   - v10 adds topic ids to the response, v12 to the request (KIP-516).
//   - v13 adds an error for clients to start over with (KIP-1102). There is none.

// Metadata answers a Metadata request. The names in create do not exist and may
// be created; they have an error in the answer, which is that of refused if it
// has one.
func (v *View) Metadata(req *kmsg.MetadataRequest, refused []Refusal) (resp *kmsg.MetadataResponse, create []string) {
	resp = kmsg.NewPtrMetadataResponse()
	resp.Version = req.Version
	resp.ClusterID = &v.ClusterID
	resp.ControllerID = v.controller()
	resp.AuthorizedOperations = notAsked
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	for b := range v.Image.Brokers() {
		if b.Fenced {
			continue
		}
		mb := kmsg.NewMetadataResponseBroker()
		mb.NodeID = int32(b.Node)
		mb.Host, mb.Port = v.address(b)
		mb.Rack = rack(b)
		resp.Brokers = append(resp.Brokers, mb)
	}
	operations := int32(notAsked)
	if req.IncludeTopicAuthorizedOperations {
		operations = topicOperations
	}
	if req.Topics == nil || req.Version == 0 && len(req.Topics) == 0 {
		for t := range v.Image.Topics() {
			resp.Topics = append(resp.Topics, v.metadataTopic(t, operations, req.Version))
		}
		return resp, nil
	}
	creates := v.Config.AutoCreateTopics() && (req.Version < 4 || req.AllowAutoTopicCreation)
	seen := map[metadataKey]bool{}
	for i := range req.Topics {
		key := keyOf(&req.Topics[i])
		if seen[key] {
			continue
		}
		seen[key] = true
		t, err := v.findTopic(key)
		if err == nil {
			resp.Topics = append(resp.Topics, v.metadataTopic(t, operations, req.Version))
			continue
		}
		if reason := refusal(refused, key.name); reason != nil && key.byName {
			err = reason
		} else if creates && key.byName && metadata.ValidateTopicName(key.name) == nil {
			create = append(create, key.name)
		}
		mt := kmsg.NewMetadataResponseTopic()
		mt.AuthorizedOperations = notAsked
		mt.ErrorCode, mt.TopicID = wire.Code(err), key.id
		if key.byName {
			mt.Topic = &key.name
			mt.IsInternal = metadata.IsInternal(key.name)
		}
		resp.Topics = append(resp.Topics, mt)
	}
	return resp, create
}

// metadataKey is how a request names a topic: by id if it has one.
type metadataKey struct {
	byName bool
	name   string
	id     metadata.TopicID
}

func keyOf(t *kmsg.MetadataRequestTopic) metadataKey {
	if t.TopicID != [16]byte{} || t.Topic == nil {
		return metadataKey{id: t.TopicID}
	}
	return metadataKey{byName: true, name: *t.Topic}
}

func (v *View) findTopic(key metadataKey) (*metadata.Topic, error) {
	if !key.byName {
		if t, ok := v.Image.TopicByID(key.id); ok {
			return t, nil
		}
		return nil, fmt.Errorf("%w: %s", metadata.ErrUnknownTopicID, key.id)
	}
	if err := metadata.ValidateTopicName(key.name); err != nil {
		return nil, err
	}
	if t, ok := v.Image.Topic(key.name); ok {
		return t, nil
	}
	return nil, fmt.Errorf("%w: %s", metadata.ErrUnknownTopic, key.name)
}

func refusal(refused []Refusal, name string) error {
	for _, r := range refused {
		if r.Name == name {
			return r.Err
		}
	}
	return nil
}

func (v *View) metadataTopic(t *metadata.Topic, operations int32, version int16) kmsg.MetadataResponseTopic {
	mt := kmsg.NewMetadataResponseTopic()
	mt.Topic, mt.TopicID = &t.Name, t.ID
	mt.IsInternal = metadata.IsInternal(t.Name)
	mt.AuthorizedOperations = operations
	mt.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, t.Partitions)
	for p := range v.Image.Partitions(t.ID) {
		mp := kmsg.NewMetadataResponseTopicPartition()
		mp.Partition = p.Index
		mp.Leader, mp.LeaderEpoch = int32(v.leader(p)), int32(p.LeaderEpoch)
		mp.Replicas, mp.ISR = nodes(p.Replicas), nodes(p.ISR)
		offline := v.offline(p.Replicas)
		mp.OfflineReplicas = nodes(offline)
		if version == 0 && len(offline) > 0 {
			mp.Replicas, mp.ISR = nodes(without(p.Replicas, offline)), nodes(without(p.ISR, offline))
			mp.ErrorCode = wire.Code(metadata.ErrReplicaNotAvailable)
		}
		if mp.Leader < 0 {
			mp.ErrorCode = wire.Code(metadata.ErrLeaderNotAvailable)
		}
		mt.Partitions = append(mt.Partitions, mp)
	}
	return mt
}
