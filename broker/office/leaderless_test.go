package office

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/controller"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// A node whose voters are not there says so after a while, names them with their
// addresses, and again a minute later.
func TestWhoIsMissingIsSaidByName(t *testing.T) {
	c := testConfig(1, 2, 3)
	c.Controllers = []wire.Peer{{ID: 1, Host: "a", Port: 1}, {ID: 2, Host: "b", Port: 2}, {ID: 3, Host: "c", Port: 3}}
	var out Out
	o, err := New(c, rand.New(rand.NewPCG(1, 2)), nil, &out)
	if err != nil {
		t.Fatal(err)
	}
	var said []clock.Instant
	now := clock.Instant(0)
	for ; now < clock.Instant(70*time.Second); now = o.NextWake() {
		o.Wake(now, &out)
		if out.Save != nil {
			o.Saved(now, &out)
		}
		for _, l := range out.Lines {
			said = append(said, now)
			if l.Text != "no quorum yet: it is founded once all controllers reach each other, or this node is let into theirs" {
				t.Errorf("said: %s", l.Text)
			}
			if got := l.Attrs[1].Value.String(); len(said) == 2 && got != "2@b:2 for 1m3s, 3@c:3 for 1m3s" {
				t.Errorf("missing are %s", got)
			}
		}
		out = Out{}
	}
	if len(said) != 2 || said[0] < clock.Instant(leaderlessAfter) || said[0] > clock.Instant(2*leaderlessAfter) {
		t.Errorf("said at %v", said)
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = append(create.Topics, kmsg.CreateTopicsRequestTopic{Topic: "t"})
	resp := o.Leaderless(create, controller.View{}, now, 0).(*kmsg.CreateTopicsResponse)
	if !errors.Is(wire.ErrorOf(resp.Topics[0].ErrorCode), wire.ErrTimedOut) {
		t.Errorf("answer %+v", resp.Topics[0])
	}
	view := controller.View{Self: 1, Controller: metadata.NoNode}
	ask := kmsg.NewPtrDescribeQuorumRequest()
	ask.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: controller.ClusterMetadata, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
	p := o.Leaderless(ask, view, now, 0).(*kmsg.DescribeQuorumResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.LeaderID != -1 {
		t.Errorf("quorum %+v", p)
	}
}
