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
//   - v1 can ask a controller for the controllers (KIP-919); a broker answers
//     UNSUPPORTED_ENDPOINT_TYPE, without a list.

// DescribeCluster answers a DescribeCluster request.
func (v *View) DescribeCluster(req *kmsg.DescribeClusterRequest) *kmsg.DescribeClusterResponse {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.Version = req.Version
	resp.ClusterID = v.ClusterID
	resp.ControllerID = int32(metadata.NoNode)
	resp.ClusterAuthorizedOperations = notAsked
	if req.Version >= 1 && req.EndpointType != brokers {
		err := fmt.Errorf("%w: %d, brokers answer for brokers, which is %d", metadata.ErrUnsupportedEndpoint, req.EndpointType, brokers)
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
		cb := kmsg.NewDescribeClusterResponseBroker()
		cb.NodeID = int32(b.Node)
		cb.Host, cb.Port = v.address(b)
		cb.Rack = rack(b)
		resp.Brokers = append(resp.Brokers, cb)
	}
	return resp
}

// brokers is the endpoint type of brokers.
const brokers = 1
