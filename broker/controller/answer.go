package controller

import "github.com/twmb/franz-go/pkg/kmsg"

// Answer answers a request that every broker can answer from its image, and
// DescribeQuorum, which only the active controller can. It reports false for
// all other requests. Metadata may have things to create, and is not among
// them.
func (v *View) Answer(req kmsg.Request) (kmsg.Response, bool) {
	switch req := req.(type) {
	case *kmsg.DescribeConfigsRequest:
		return v.DescribeConfigs(req), true
	case *kmsg.DescribeClusterRequest:
		return v.DescribeCluster(req), true
	case *kmsg.DescribeACLsRequest:
		return v.DescribeACLs(req), true
	case *kmsg.DescribeTopicPartitionsRequest:
		return v.DescribeTopicPartitions(req), true
	case *kmsg.ListPartitionReassignmentsRequest:
		return v.ListPartitionReassignments(req), true
	case *kmsg.DescribeQuorumRequest:
		return v.DescribeQuorum(req), true
	}
	return nil, false
}

// ForController reports whether only the active controller can answer a
// request, so that any other broker has to send it there (KIP-590): those of
// Decide and ChangeVoters, and DescribeQuorum. Those that brokers send for
// themselves are among them, which look for the controller on their own.
func ForController(req kmsg.Request) bool {
	switch req.(type) {
	case *kmsg.CreateTopicsRequest, *kmsg.DeleteTopicsRequest, *kmsg.CreatePartitionsRequest,
		*kmsg.AlterConfigsRequest, *kmsg.IncrementalAlterConfigsRequest,
		*kmsg.ElectLeadersRequest, *kmsg.AlterPartitionAssignmentsRequest,
		*kmsg.BrokerRegistrationRequest, *kmsg.BrokerHeartbeatRequest, *kmsg.AlterPartitionRequest, *kmsg.AllocateProducerIDsRequest,
		*kmsg.UnregisterBrokerRequest, *kmsg.AddRaftVoterRequest, *kmsg.RemoveRaftVoterRequest,
		*kmsg.DescribeQuorumRequest:
		return true
	}
	return false
}
