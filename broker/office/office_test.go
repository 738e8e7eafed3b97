package office

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
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

// A heartbeat's answer is a lease: a controller that cannot ask the others
// whether it still is one must not give it.
func TestAHeartbeatIsAnsweredOnlyOnceAMajorityHasConfirmed(t *testing.T) {
	seats, cut := map[quorum.NodeID]*Office{}, false
	now := clock.Instant(0)
	out := Out{}
	// deliver has everything saved and every message arrive.
	var deliver func(from quorum.NodeID, got *Out)
	deliver = func(from quorum.NodeID, got *Out) {
		sync(seats[from], got)
		messages := got.Messages
		out.Replies, got.Messages = append(out.Replies, got.Replies...), nil
		for _, m := range messages {
			if to := seats[m.To]; to != nil && !cut {
				var next Out
				to.Received(&wire.QuorumMessages{From: metadata.NodeID(from), Messages: [][]byte{m.Marshal()}}, now, &next)
				deliver(m.To, &next)
			}
		}
	}
	for id := quorum.NodeID(1); id <= 3; id++ {
		c := testConfig(1, 2, 3)
		c.Node, c.Quorum.ID, c.Controller.Node = metadata.NodeID(id), id, metadata.NodeID(id)
		o, err := New(c, rand.New(rand.NewPCG(uint64(id), 2)), nil, &Out{})
		if err != nil {
			t.Fatal(err)
		}
		seats[id] = o
	}
	leader := quorum.NodeID(0)
	turn := func() {
		now = min(seats[1].NextWake(), seats[2].NextWake(), seats[3].NextWake())
		for id := quorum.NodeID(1); id <= 3; id++ {
			if seats[id].NextWake() <= now {
				var next Out
				seats[id].Wake(now, &next)
				deliver(id, &next)
			}
			if seats[id].Log().Leading() {
				leader = id
			}
		}
	}
	for i := 0; leader == 0; i++ {
		if i > 10_000 {
			t.Fatal("nobody leads")
		}
		turn()
	}
	ask := func(body kmsg.Request) {
		var got Out
		seats[leader].Request(wire.Caller{}, &wire.Request{Body: body, Peer: 1}, controller.View{}, now, 0, &got)
		deliver(leader, &got)
	}
	ask(register())
	b, ok := seats[leader].Log().Image().Broker(1)
	if !ok || len(out.Replies) != 1 {
		t.Fatalf("not registered; %d answers", len(out.Replies))
	}
	beat := kmsg.NewPtrBrokerHeartbeatRequest()
	beat.Version, beat.BrokerID, beat.BrokerEpoch, beat.CurrentMetadataOffset = 1, 1, int64(b.Epoch), int64(seats[leader].Log().Applied())
	out.Replies, cut = nil, true
	ask(beat) // changes nothing, so there is nothing to be committed
	if len(out.Replies) != 0 {
		t.Fatal("answered though nobody has confirmed")
	}
	cut = false
	for range 100 {
		if turn(); len(out.Replies) > 0 {
			break
		}
	}
	if len(out.Replies) != 1 || out.Replies[0].Response.Body.(*kmsg.BrokerHeartbeatResponse).ErrorCode != 0 {
		t.Errorf("answers once the others are there: %+v", out.Replies)
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
