package partition

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/fetcher"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// TestWhatIsShownIsNewsForFollowersOnly has a consumer and then a follower wait. The
// first is not looked at when an append is shown or synced here, the second once.
func TestWhatIsShownIsNewsForFollowersOnly(t *testing.T) {
	c := newCluster(t)
	p := &metadata.Partition{
		Topic: clusterTopic.ID, Leader: 1, Replicas: []metadata.NodeID{1, 2}, ISR: []metadata.NodeID{1, 2},
	}
	for _, id := range []metadata.NodeID{1, 2} {
		var out Out
		c.nodes[id].table.Assign(Assignment{Topic: clusterTopic, Partition: p, MinISR: 1}, nil, c.at, &out)
		c.act(c.nodes[id], &out)
	}
	leader := c.nodes[1]
	c.produceTo(0)
	c.write(leader, 1) // it makes room for others
	f := leader.flights[0]
	leader.flights = nil
	c.done(leader, f.Finish())

	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 12, 1000, 1, 1<<20, -1
	rt, rp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	rt.Topic, rp.PartitionMaxBytes = "t", 1<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	var out Out
	leader.table.Fetch(c.caller(), &wire.Request{Body: req, Peer: wire.NoPeer}, c.at, &out)
	c.act(leader, &out)

	looks := func(what string, want int64, f func()) {
		t.Helper()
		before := leader.table.Stats.FetchLooks
		f()
		if n := leader.table.Stats.FetchLooks - before; n != want {
			t.Errorf("%s: %d looks, want %d", what, n, want)
		}
	}
	show := func() {
		c.produceTo(0)
		c.write(leader, 1)
	}
	sync := func() {
		f := leader.flights[0]
		leader.flights = nil
		c.done(leader, f.Finish())
	}
	looks("shown to a consumer", 0, show)
	looks("synced for a consumer", 0, sync)

	follower := c.nodes[2]
	fetch := func() {
		var fo fetcher.Out
		follower.fetcher.Wake(c.at.Now, &fo)
		c.fetched(follower, &fo)
	}
	fetch() // gets the two records
	fetch() // waits
	// One look wakes it, and one is the answer's.
	looks("shown to a follower", 2, show)
	looks("synced for a follower that has it", 0, sync)
}
