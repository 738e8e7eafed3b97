package standalone

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// clusterOf is an image of three brokers, of which those in fenced are, and a
// partition for each ISR, replicated to all three, whose topic needs two in sync.
func clusterOf(t *testing.T, fenced []metadata.NodeID, isrs ...[]metadata.NodeID) metadata.Image {
	t.Helper()
	all := []metadata.NodeID{1, 2, 3}
	var records []metadata.Record
	for i, n := range all {
		records = append(records, &metadata.RegisterBroker{
			Node: n, Epoch: metadata.BrokerEpoch(i + 1), Incarnation: metadata.IncarnationID{byte(n)}, Host: "h", Port: 1, Fenced: slices.Contains(fenced, n),
		})
	}
	id := metadata.TopicID{1}
	records = append(records, &metadata.AddTopic{ID: id, Name: "t", Configs: []metadata.Config{{Name: "min.insync.replicas", Value: "2"}}})
	for i, isr := range isrs {
		records = append(records, &metadata.Partition{Topic: id, Index: int32(i), Replicas: all, ISR: isr, Leader: isr[0]})
	}
	image, _, err := metadata.Apply(metadata.Image{}, 1, records)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestWhatStandsAgainstARestart(t *testing.T) {
	nodes := func(n ...metadata.NodeID) []metadata.NodeID { return n }
	serving := Status{Phase: "serving", Ready: true}
	for name, x := range map[string]struct {
		status Status
		image  metadata.Image
		voters []metadata.NodeID
		want   []string
	}{
		"nothing": {serving, clusterOf(t, nil, nodes(1, 2, 3), nodes(2, 3)), nodes(1, 2, 3), nil},
		"a partition with just enough": {serving, clusterOf(t, nil, nodes(1, 2, 3), nodes(2, 1)), nodes(1, 2, 3),
			[]string{"t/1 would have 1 replicas in sync, and needs 2"}},
		"a voter that is down": {serving, clusterOf(t, nodes(3), nodes(2, 3)), nodes(1, 2, 3),
			[]string{"without this node 1 of 3 voters would be left, which decide nothing"}},
		"a voter that is down, and this is none":  {serving, clusterOf(t, nodes(3), nodes(2, 3)), nodes(2, 3, 4), nil},
		"the only voter, for which no wait helps": {serving, clusterOf(t, nil, nodes(2, 3)), nodes(1), nil},
		"it does not serve": {Status{Phase: "joining"}, clusterOf(t, nil, nodes(2, 3)), nodes(1, 2, 3),
			[]string{"this node is joining, not serving"}},
	} {
		if got := unsafe(1, x.status, x.image, x.voters, 10); fmt.Sprint(got) != fmt.Sprint(x.want) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
	many := clusterOf(t, nil, nodes(1, 2), nodes(1, 2), nodes(1, 2))
	if got := unsafe(1, serving, many, nil, 2); len(got) != 2 {
		t.Errorf("%d reasons, want 2 of 3", len(got))
	}
}

func TestWhyANodeIsNotReady(t *testing.T) {
	const leaderless = "no active controller is known: more than half of the voters must reach each other"
	serving := Status{Phase: "serving", Ready: true, Leader: 2, Leased: true}
	with := func(change func(*Status)) Status {
		s := serving
		change(&s)
		return s
	}
	for _, x := range []struct {
		status     Status
		twin, want string
	}{
		{serving, "", ""},
		{with(func(s *Status) { s.Leader = metadata.NoNode }), "", leaderless},
		{with(func(s *Status) { s.Fenced = true }), "", "fenced: the controller does not hear from this node"},
		{with(func(s *Status) { s.Leased = false }), "", "the lease is over: the active controller, node 2, does not answer"},
		{Status{Phase: "joining", Leader: metadata.NoNode}, "", "joining: " + leaderless},
		{Status{Phase: "joining", Leader: 2}, "", "joining: the active controller, node 2, has not registered this node yet"},
		{Status{Phase: "joining", Leader: metadata.NoNode}, "h:1", "joining: another process is in the cluster under this node's id, at h:1"},
		{Status{Phase: "recovering", Leader: metadata.NoNode}, "", "recovering"},
		{Status{Phase: "stopping", Leader: 2}, "", "stopping"},
		{Status{}, "", "starting"},
	} {
		if got := notReady(x.status, x.twin); got != x.want {
			t.Errorf("%+v: %q, want %q", x.status, got, x.want)
		}
	}
}
