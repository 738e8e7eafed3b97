package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// Whoever is not the controller says so in every place where Kafka does, in a
// response that has the version of the request.
func TestRefusalsNameEverythingThatWasAskedFor(t *testing.T) {
	name, other := "orders", "payments"
	asked := func(req kmsg.Request) int { // how many places there are for an error
		switch req := req.(type) {
		case *kmsg.CreateTopicsRequest:
			req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: name}, {Topic: other}}
		case *kmsg.DeleteTopicsRequest:
			req.TopicNames = []string{name, other}
			req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &name}, {Topic: &other}}
		case *kmsg.CreatePartitionsRequest:
			req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: name}, {Topic: other}}
		case *kmsg.AlterConfigsRequest:
			req.Resources = []kmsg.AlterConfigsRequestResource{{ResourceName: name}, {ResourceName: other}}
		case *kmsg.IncrementalAlterConfigsRequest:
			req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceName: name}, {ResourceName: other}}
		case *kmsg.ElectLeadersRequest:
			req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: name, Partitions: []int32{0, 1}}, {Topic: other, Partitions: []int32{0}}}
			if req.Version == 0 {
				return 3
			}
			return 4
		default:
			return 1
		}
		return 2
	}
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		for version := int16(0); version <= req.MaxVersion(); version++ {
			req.SetVersion(version)
			places := asked(req)
			resp := Refuse(req, metadata.ErrNotController)
			if (resp != nil) != ForController(req) {
				t.Fatalf("%s: refused: %t", kmsg.NameForKey(key), resp != nil)
			}
			if resp == nil {
				continue
			}
			if n := strings.Count(fmt.Sprintf("%+v ", resp), "ErrorCode:41 "); resp.GetVersion() != version || n != places {
				t.Errorf("%s version %d: version %d, and the error is in %d places, want %d", kmsg.NameForKey(key), version, resp.GetVersion(), n, places)
			}
			again := resp.RequestKind().ResponseKind()
			again.SetVersion(version)
			if err := again.ReadFrom(resp.AppendTo(nil)); err != nil {
				t.Errorf("%s version %d: %v", kmsg.NameForKey(key), version, err)
			}
		}
	}
}
