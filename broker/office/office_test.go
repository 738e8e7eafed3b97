package office

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/controller"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/broker/wire"
)

func testConfig(voters ...quorum.NodeID) Config {
	c := Config{Node: 1, Quorum: quorum.DefaultConfig(1), Controller: controller.DefaultConfig(), SnapshotEntries: 1000}
	c.Controller.Node, c.Controller.ClusterID, c.Quorum.Voters = 1, "cluster", voters
	return c
}

func open(t *testing.T, voters ...quorum.NodeID) (*Office, *Out) {
	t.Helper()
	out := new(Out)
	o, err := New(testConfig(voters...), rand.New(rand.NewPCG(1, 2)), nil, out)
	if err != nil {
		t.Fatal(err)
	}
	o.Wake(0, out)
	return o, out
}

func sync(o *Office, out *Out) {
	for out.Save != nil {
		out.Save = nil
		o.Saved(0, out)
	}
}

func register() *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.Version, req.BrokerID, req.ClusterID = 4, 1, "cluster"
	req.IncarnationID, req.LogDirs = [16]byte{1}, [][16]byte{{2}}
	for _, name := range []string{"PLAINTEXT", "PEER"} {
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port = name, "host", 9092
		req.Listeners = append(req.Listeners, l)
	}
	return req
}

func TestAnAnswerWaitsUntilItIsTrue(t *testing.T) {
	o, out := open(t, 1)
	sync(o, out)
	*out = Out{}
	o.Request(wire.Caller{Conn: 1}, &wire.Request{Body: register(), Peer: 1}, controller.View{}, 0, 0, out)
	if len(out.Replies) != 0 {
		t.Fatalf("answered before it is durable: %+v", out.Replies[0].Response.Body)
	}
	sync(o, out)
	if len(out.Replies) != 1 {
		t.Fatalf("%d answers", len(out.Replies))
	}
	r := out.Replies[0].Response
	if resp := r.Body.(*kmsg.BrokerRegistrationResponse); resp.ErrorCode != 0 || r.Offset != o.Log().Applied() {
		t.Errorf("answer %+v at %d", resp, r.Offset)
	}
	if _, ok := o.Log().Image().Broker(1); !ok {
		t.Error("the image has no such broker")
	}
}

func TestAHeartbeatSaysHowFarTheLogIs(t *testing.T) {
	o, out := open(t, 1)
	sync(o, out)
	o.Request(wire.Caller{}, &wire.Request{Body: register(), Peer: 1}, controller.View{}, 0, 0, out)
	sync(o, out)
	b, _ := o.Log().Image().Broker(1)
	*out = Out{}
	beat := kmsg.NewPtrBrokerHeartbeatRequest()
	beat.Version, beat.BrokerID, beat.BrokerEpoch, beat.CurrentMetadataOffset = 1, 1, int64(b.Epoch), int64(o.Log().Applied())
	o.Request(wire.Caller{}, &wire.Request{Body: beat, Peer: 1}, controller.View{}, 0, 0, out)
	sync(o, out)
	if len(out.Replies) != 1 {
		t.Fatalf("%d answers", len(out.Replies))
	}
	resp := out.Replies[0].Response.Body.(*kmsg.BrokerHeartbeatResponse)
	if at, ok := wire.GetTag(&resp.UnknownTags, wire.TagReadIndex); !ok || at != int64(o.Log().Applied()) || resp.ErrorCode != 0 {
		t.Errorf("answer %+v with read index %d", resp, at)
	}
}

func TestAnotherNodeIsTheController(t *testing.T) {
	o, out := open(t, 1, 2, 3)
	*out = Out{}
	for _, c := range []struct {
		name string
		req  wire.Request
		ok   func(wire.Response) bool
	}{
		{"of a node for itself", wire.Request{Body: register(), Peer: 2}, func(r wire.Response) bool {
			return r.Body.(*kmsg.BrokerRegistrationResponse).ErrorCode == wire.Code(metadata.ErrNotController)
		}},
		{"of a client, forwarded", wire.Request{Body: kmsg.NewPtrCreateTopicsRequest(), Peer: 2, Forwarded: true}, func(r wire.Response) bool {
			return errors.Is(r.Err, metadata.ErrNotController)
		}},
	} {
		o.Request(wire.Caller{}, &c.req, controller.View{}, 0, 0, out)
		if len(out.Replies) != 1 || !c.ok(out.Replies[0].Response) {
			t.Errorf("%s: %+v", c.name, out.Replies)
		}
		*out = Out{}
	}
}
