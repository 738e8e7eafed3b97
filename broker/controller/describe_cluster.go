package controller

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// DescribeCluster
//
// Behavior:
//   - The brokers are those of Metadata.
//
// Versions:
//   - v1 can ask a controller for the controllers (KIP-919); a broker answers
//     MISMATCHED_ENDPOINT_TYPE, and UNSUPPORTED_ENDPOINT_TYPE to types that
//     there are not, without a list.
//   - v2 lists brokers that are fenced too, if asked to, and says which are
//     (KIP-1073).

// DescribeCluster answers a DescribeCluster request.
func (v *View) DescribeCluster(req *kmsg.DescribeClusterRequest) *kmsg.DescribeClusterResponse {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.Version = req.Version
	resp.ClusterID = v.ClusterID
	resp.ControllerID = int32(metadata.NoNode)
	resp.ClusterAuthorizedOperations = notAsked
	if req.Version >= 1 && req.EndpointType != brokers {
		err := fmt.Errorf("%w: %d, brokers answer for brokers, which is %d", metadata.ErrUnsupportedEndpoint, req.EndpointType, brokers)
		if req.EndpointType == controllers {
			err = fmt.Errorf("%w: this is a broker, which does not list controllers", metadata.ErrMismatchedEndpoint)
		}
		resp.EndpointType = req.EndpointType
		resp.ErrorCode, resp.ErrorMessage = wire.Code(err), wire.Message(err)
		return resp
	}
	resp.EndpointType = brokers
	resp.ControllerID = v.controller()
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	for b := range v.Image.Brokers() {
		if b.Fenced && !(req.Version >= 2 && req.IncludeFencedBrokers) {
			continue
		}
		cb := kmsg.NewDescribeClusterResponseBroker()
		cb.NodeID = int32(b.Node)
		cb.Host, cb.Port = v.address(b)
		cb.Rack = rack(b)
		cb.IsFenced = b.Fenced
		resp.Brokers = append(resp.Brokers, cb)
	}
	return resp
}

// The types of endpoints.
const (
	brokers     = 1
	controllers = 2
)
