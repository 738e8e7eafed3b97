package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"pgregory.net/rapid"
)

func detail(topic string, partition, leader int32, replicas, isr []int32) kadm.PartitionDetail {
	return kadm.PartitionDetail{Topic: topic, Partition: partition, Leader: leader, Replicas: replicas, ISR: isr}
}

func ids(n ...int32) []int32 { return n }

func TestProblemsAreToldTheWorstFirst(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	s := &state{
		controller: 1,
		brokers:    []broker{{id: 1}, {id: 2, fenced: true}, {id: 3}},
		partitions: []kadm.PartitionDetail{
			detail("a", 0, 1, ids(1, 2, 3), ids(1, 2, 3)),
			detail("a", 1, 1, ids(1, 2, 3), ids(1, 3)), // enough
			detail("a", 2, -1, ids(2), ids(2)),         // nobody
			detail("b", 0, 1, ids(1, 2, 3), ids(1)),    // too few
			detail("b", 1, 1, ids(1, 2, 3), ids(1, 2)), // 3 is being brought in
			detail("c", 0, 3, ids(3), ids(3)),          // fewer replicas than are asked for, all of them in sync
		},
		moving: kadm.ListPartitionReassignmentsResponses{"b": {1: {Topic: "b", Partition: 1, AddingReplicas: ids(3)}}},
		quorum: &quorum{leader: 1, voters: []member{{id: 1, leader: true, fetched: -1}, {id: 2, fetched: 988_000, addr: "h:9"}, {id: 3, fetched: 999_000}, {id: 4, fetched: -1}}},
	}
	var got []string
	for _, p := range s.problems(map[string]int{"a": 2, "b": 2, "c": 2}, now) {
		where := ""
		if p.Partition != nil {
			where = name(p.Topic, *p.Partition)
		}
		if p.Node != nil {
			where = fmt.Sprint("node ", *p.Node)
		}
		got = append(got, fmt.Sprintf("%s %s: %s", p.Kind, where, p.Text))
	}
	want := []string{
		"no-leader a/2: replicas 2, in sync were 2: start one of those",
		"under-min-isr b/0: 1 in sync (1), acks=all needs 2: records are refused",
		"voter-silent node 2: it, at h:9, was last heard of 12s ago by the leader of the metadata quorum",
		"voter-silent node 4: it has not been heard of by the leader of the metadata quorum",
		"node-fenced node 2: it serves nobody: it is down, or cannot reach the controller",
		"under-replicated a/1: not in sync: 2",
		"under-replicated b/0: not in sync: 2,3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	s = &state{controller: -1}
	if found := s.problems(nil, now); len(found) != 1 || found[0].Kind != noController {
		t.Errorf("%+v", found)
	}
	s = &state{controller: 2, quorum: &quorum{leader: -1, voters: []member{{id: 1, fetched: -1}}}}
	if found := s.problems(nil, now); len(found) != 2 || found[0].Kind != noController || found[1].Kind != voterSilent ||
		!strings.Contains(found[0].Text, "1 of 1 are silent and 1 are needed") || found[1].Text != "it has not been heard of by the node that was asked" {
		t.Errorf("%+v", found)
	}
}

// drawState draws a cluster whose replicas are where they may be.
func drawState(t *rapid.T) *state {
	s := &state{moving: kadm.ListPartitionReassignmentsResponses{}}
	for id := range int32(rapid.IntRange(1, 7).Draw(t, "nodes")) {
		s.brokers = append(s.brokers, broker{
			id: id, fenced: rapid.IntRange(0, 5).Draw(t, "fenced") == 0, rack: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "rack"),
		})
	}
	for p := range int32(rapid.IntRange(0, 30).Draw(t, "partitions")) {
		all := make([]int32, len(s.brokers))
		for i := range all {
			all[i] = int32(i)
		}
		replicas := rapid.Permutation(all).Draw(t, "order")[:rapid.IntRange(1, len(all)).Draw(t, "replicas")]
		s.partitions = append(s.partitions, detail("t", p, replicas[0], replicas, replicas))
	}
	return s
}

func TestADrainedNodeHasNothingAndNobodyHasTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		node := rapid.SampledFrom(s.brokers).Draw(t, "node").id
		plan, err := s.emptied(node)
		var want, serving int
		for _, b := range s.brokers {
			if !b.fenced && b.id != node {
				serving++
			}
		}
		stuck := false
		for _, p := range s.partitions {
			if !slices.Contains(p.Replicas, node) {
				continue
			}
			want++
			free := 0
			for _, b := range s.brokers {
				if !b.fenced && !slices.Contains(p.Replicas, b.id) {
					free++
				}
			}
			stuck = stuck || free == 0
		}
		if (err != nil) != stuck || err == nil && len(plan) != want {
			t.Fatalf("%d moves, want %d; %v, stuck %t", len(plan), want, err, stuck)
		}
		for _, m := range plan {
			sorted := slices.Sorted(slices.Values(m.To))
			if slices.Contains(m.To, node) || len(m.To) != len(m.From) || len(slices.Compact(sorted)) != len(m.To) {
				t.Fatalf("%+v", m)
			}
			for i, id := range m.To {
				if b, ok := s.find(id); id != m.From[i] && (!ok || b.fenced || m.From[i] != node) {
					t.Fatalf("%+v", m)
				}
			}
		}
	})
}

func TestADrainKeepsRacksApartAndSpreads(t *testing.T) {
	s := &state{brokers: []broker{{id: 1, rack: "x"}, {id: 2, rack: "y"}, {id: 3, rack: "z"}, {id: 4, rack: "y"}, {id: 5, rack: "z"}, {id: 6, rack: "z"}}}
	for p := range int32(4) {
		s.partitions = append(s.partitions, detail("t", p, 1, ids(1, 2, 3), ids(1, 2, 3)))
	}
	plan, err := s.emptied(3)
	if err != nil {
		t.Fatal(err)
	}
	var to []int32
	for _, m := range plan {
		to = append(to, m.To[2])
	}
	if !slices.Equal(to, ids(5, 6, 5, 6)) {
		t.Errorf("they go to %v", to)
	}
	if _, err := s.emptied(9); err == nil {
		t.Error("a node that is not there can be drained")
	}
	// What leaves already is left alone.
	s.moving = kadm.ListPartitionReassignmentsResponses{"t": {0: {RemovingReplicas: ids(3)}}}
	if plan, err := s.emptied(3); err != nil || len(plan) != 3 {
		t.Errorf("%d moves, %v", len(plan), err)
	}
}

func TestStraysAreLedByAnotherThanThePreferred(t *testing.T) {
	s := &state{partitions: []kadm.PartitionDetail{
		detail("a", 0, 1, ids(1, 2), ids(1, 2)), detail("a", 1, 1, ids(2, 1), ids(1)), detail("a", 2, -1, ids(2, 1), ids(1)),
	}}
	if got, want := s.strays(), []led{{Topic: "a", Partition: 1, Leader: 1, Preferred: 2}, {Topic: "a", Partition: 2, Leader: -1, Preferred: 2}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestVotersLag(t *testing.T) {
	q := &quorum{leader: 2, voters: []member{{id: 1, end: 90, fetched: 900}, {id: 2, end: 100, fetched: -1, leader: true}}, observers: []member{{id: 3, end: -1, fetched: -1}}}
	var got []string
	for _, l := range q.lines(time.UnixMilli(1000)) {
		got = append(got, fmt.Sprintf("%d %s %d %d %d", l.Node, l.Role, l.End, l.Lag, l.HeardMs))
	}
	if want := []string{"1 voter 90 10 100", "2 leader 100 0 -1", "3 observer -1 -1 -1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNumbersOfNodes(t *testing.T) {
	if got, err := numbers("3, 1,2"); err != nil || !slices.Equal(got, ids(3, 1, 2)) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "1,", "1,1", "-1", "a"} {
		if got, err := numbers(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
