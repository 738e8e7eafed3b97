package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// ListPartitionReassignments
//
// Behavior:
//   - Null topics ask for all. Partitions that are not being reassigned, or do
//     not exist, are left out, and so are topics of which none is left. Of each
//     topic they are by index, each once.
//   - Replicas has all of the partition's, those that are added and removed
//     included. A replica that was being added when something else was asked for,
//     and has not gone yet, is removed, and no longer added.

// ListPartitionReassignments answers a ListPartitionReassignments request.
func (v *View) ListPartitionReassignments(req *kmsg.ListPartitionReassignmentsRequest) *kmsg.ListPartitionReassignmentsResponse {
	resp := kmsg.NewPtrListPartitionReassignmentsResponse()
	resp.Version = req.Version
	resp.Topics = []kmsg.ListPartitionReassignmentsResponseTopic{}
	add := func(name string, partitions []kmsg.ListPartitionReassignmentsResponseTopicPartition) {
		if len(partitions) > 0 {
			t := kmsg.NewListPartitionReassignmentsResponseTopic()
			t.Topic, t.Partitions = name, partitions
			resp.Topics = append(resp.Topics, t)
		}
	}
	if req.Topics == nil {
		for t := range v.Image.Topics() {
			var list []kmsg.ListPartitionReassignmentsResponseTopicPartition
			for p := range v.Image.Partitions(t.ID) {
				list = appendReassignment(list, p)
			}
			add(t.Name, list)
		}
		return resp
	}
	for i := range req.Topics {
		asked := &req.Topics[i]
		t, ok := v.Image.Topic(asked.Topic)
		if !ok {
			continue
		}
		var list []kmsg.ListPartitionReassignmentsResponseTopicPartition
		for _, index := range slices.Compact(slices.Sorted(slices.Values(asked.Partitions))) {
			if p, ok := v.Image.Partition(t.ID, index); ok {
				list = appendReassignment(list, p)
			}
		}
		add(t.Name, list)
	}
	return resp
}

func appendReassignment(list []kmsg.ListPartitionReassignmentsResponseTopicPartition, p *metadata.Partition) []kmsg.ListPartitionReassignmentsResponseTopicPartition {
	if !p.Reassigning() {
		return list
	}
	r := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
	r.Partition = p.Index
	r.Replicas, r.AddingReplicas, r.RemovingReplicas = nodes(p.Replicas), nodes(without(p.Adding, p.Removing)), nodes(p.Removing)
	return append(list, r)
}
