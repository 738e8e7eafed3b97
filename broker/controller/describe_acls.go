package controller

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// DescribeACLs
//
// Behavior:
//   - SECURITY_DISABLED: there is no authorizer. The API is served at all
//     because kafka-python guesses a broker's age from it.

// DescribeACLs answers a DescribeACLs request.
func (v *View) DescribeACLs(req *kmsg.DescribeACLsRequest) *kmsg.DescribeACLsResponse {
	resp := kmsg.NewPtrDescribeACLsResponse()
	resp.Version = req.Version
	err := fmt.Errorf("%w: no authorizer is configured", metadata.ErrSecurityDisabled)
	resp.ErrorCode, resp.ErrorMessage = wire.Code(err), wire.Message(err)
	return resp
}
