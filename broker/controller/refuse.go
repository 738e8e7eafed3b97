package controller

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/wire"
)

// Refuse answers a request that is for the controller (see ForController) by
// saying why nothing is known to be done about it, in all places where Kafka
// does. It returns nil for all other requests.
func Refuse(req kmsg.Request, err error) kmsg.Response {
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	code, message := wire.Code(err), wire.Message(err)
	switch resp := resp.(type) {
	case *kmsg.BrokerRegistrationResponse:
		resp.ErrorCode, resp.BrokerEpoch = code, -1
	case *kmsg.BrokerHeartbeatResponse:
		resp.ErrorCode = code
	case *kmsg.AlterPartitionResponse:
		resp.ErrorCode = code
	case *kmsg.AllocateProducerIDsResponse:
		resp.ErrorCode, resp.ProducerIDStart = code, -1
	case *kmsg.CreateTopicsResponse:
		for _, t := range req.(*kmsg.CreateTopicsRequest).Topics {
			r := kmsg.NewCreateTopicsResponseTopic()
			r.Topic, r.ErrorCode, r.ErrorMessage = t.Topic, code, message
			resp.Topics = append(resp.Topics, r)
		}
	case *kmsg.DeleteTopicsResponse:
		refuseDeletes(req.(*kmsg.DeleteTopicsRequest), resp, err)
	case *kmsg.CreatePartitionsResponse:
		for _, t := range req.(*kmsg.CreatePartitionsRequest).Topics {
			r := kmsg.NewCreatePartitionsResponseTopic()
			r.Topic, r.ErrorCode, r.ErrorMessage = t.Topic, code, message
			resp.Topics = append(resp.Topics, r)
		}
	case *kmsg.AlterConfigsResponse:
		for _, t := range req.(*kmsg.AlterConfigsRequest).Resources {
			r := kmsg.NewAlterConfigsResponseResource()
			r.ResourceType, r.ResourceName, r.ErrorCode, r.ErrorMessage = t.ResourceType, t.ResourceName, code, message
			resp.Resources = append(resp.Resources, r)
		}
	case *kmsg.IncrementalAlterConfigsResponse:
		for _, t := range req.(*kmsg.IncrementalAlterConfigsRequest).Resources {
			r := kmsg.NewIncrementalAlterConfigsResponseResource()
			r.ResourceType, r.ResourceName, r.ErrorCode, r.ErrorMessage = t.ResourceType, t.ResourceName, code, message
			resp.Resources = append(resp.Resources, r)
		}
	case *kmsg.ElectLeadersResponse:
		refuseElections(req.(*kmsg.ElectLeadersRequest), resp, err)
	case *kmsg.AlterPartitionAssignmentsResponse:
		resp.ErrorCode, resp.ErrorMessage = code, message
		resp.AllowReplicationFactorChange = req.(*kmsg.AlterPartitionAssignmentsRequest).AllowReplicationFactorChange
	case *kmsg.UnregisterBrokerResponse:
		resp.ErrorCode, resp.ErrorMessage = code, message
	case *kmsg.AddRaftVoterResponse, *kmsg.RemoveRaftVoterResponse:
		RefuseVoters(resp, err)
	case *kmsg.DescribeQuorumResponse:
		resp.ErrorCode, resp.ErrorMessage = code, message
	default:
		return nil
	}
	return resp
}

func refuseDeletes(req *kmsg.DeleteTopicsRequest, resp *kmsg.DeleteTopicsResponse, err error) {
	refuse := func(name *string, id [16]byte) {
		r := kmsg.NewDeleteTopicsResponseTopic()
		r.Topic, r.TopicID, r.ErrorCode, r.ErrorMessage = name, id, wire.Code(err), wire.Message(err)
		resp.Topics = append(resp.Topics, r)
	}
	if req.Version < 6 {
		for i := range req.TopicNames {
			refuse(&req.TopicNames[i], [16]byte{})
		}
		return
	}
	for i := range req.Topics {
		refuse(req.Topics[i].Topic, req.Topics[i].TopicID)
	}
}

func refuseElections(req *kmsg.ElectLeadersRequest, resp *kmsg.ElectLeadersResponse, err error) {
	if req.Version >= 1 {
		resp.ErrorCode = wire.Code(err)
	}
	for i := range req.Topics {
		t := kmsg.NewElectLeadersResponseTopic()
		t.Topic = req.Topics[i].Topic
		for _, index := range req.Topics[i].Partitions {
			t.Partitions = append(t.Partitions, elected(index, err))
		}
		resp.Topics = append(resp.Topics, t)
	}
}
