package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// aCluster has brokers 1 and 2, broker 3, which is fenced, and broker 4, which
// is shutting down, and a topic with a replica on each.
func aCluster(t *testing.T) *View {
	m := ground(t,
		&metadata.Broker{Node: 1, Host: "one", Port: 1, PeerHost: "peer1", PeerPort: 11},
		&metadata.Broker{Node: 2, Host: "two", Port: 2, PeerHost: "peer2", PeerPort: 12, Rack: "r"},
		&metadata.Broker{Node: 3, Host: "three", Port: 3, Fenced: true},
		&metadata.Broker{Node: 4, Host: "four", Port: 4, InShutdown: true},
	)
	m, _, err := metadata.Apply(m, 2, []metadata.Record{
		&metadata.AddTopic{ID: idA, Name: "a"},
		&metadata.Partition{Topic: idA, Replicas: []metadata.NodeID{1, 2, 3, 4}, ISR: []metadata.NodeID{1, 2}, Leader: 2, LeaderEpoch: 7, ELR: []metadata.NodeID{4}},
		&metadata.Partition{Topic: idA, Index: 1, Replicas: []metadata.NodeID{3, 1}, Leader: metadata.NoNode, LeaderEpoch: 3, ELR: []metadata.NodeID{3}, LastKnownELR: []metadata.NodeID{3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &View{Image: m, Self: 1, ClusterID: "cluster", Controller: 1}
}

func TestMetadataHidesBrokersThatAreFenced(t *testing.T) {
	v := aCluster(t)
	resp, _ := v.Metadata(ask(13, false, named("a")), nil)
	got := sent(t, resp, kmsg.NewPtrMetadataResponse())
	var listed []int32
	for _, b := range got.Brokers {
		listed = append(listed, b.NodeID)
	}
	if !slices.Equal(listed, []int32{1, 2, 4}) {
		t.Errorf("brokers %v", listed)
	}
	if s, want := show(got), "a:0 0:0 leader=2/7 [1 2 3 4] [1 2] [3] 1:5 leader=-1/3 [3 1] [] [3]; "; s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	resp, _ = v.Metadata(ask(0, false, named("a")), nil)
	if s, want := show(sent(t, resp, kmsg.NewPtrMetadataResponse())), "a:0 0:9 leader=2/-1 [1 2 4] [1 2] [] 1:5 leader=-1/-1 [1] [] []; "; s != want {
		t.Errorf("v0: got  %s\nwant %s", s, want)
	}
}

// A client that has to ask the controller is told of a broker that it can ask.
func TestTheControllerThatIsNamedIsListed(t *testing.T) {
	v := aCluster(t)
	for _, c := range []struct{ controller, self, want metadata.NodeID }{{2, 1, 2}, {3, 1, 1}, {metadata.NoNode, 1, 1}, {4, 1, 4}, {3, 3, -1}, {9, 3, -1}} {
		v.Controller, v.Self = c.controller, c.self
		resp, _ := v.Metadata(ask(12, false), nil)
		d := v.DescribeCluster(kmsg.NewPtrDescribeClusterRequest())
		if resp.ControllerID != int32(c.want) || d.ControllerID != int32(c.want) {
			t.Errorf("controller %d, asked %d: %d and %d, want %d", c.controller, c.self, resp.ControllerID, d.ControllerID, c.want)
		}
	}
}

func TestDescribeClusterListsFencedBrokersIfAskedTo(t *testing.T) {
	v := aCluster(t)
	for _, c := range []struct {
		version int16
		fenced  bool
		want    string
	}{{2, true, "1 2 3! 4 "}, {2, false, "1 2 4 "}, {1, true, "1 2 4 "}, {0, false, "1 2 4 "}} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version, req.IncludeFencedBrokers = c.version, c.fenced
		var got strings.Builder
		for _, b := range sent(t, v.DescribeCluster(req), kmsg.NewPtrDescribeClusterResponse()).Brokers {
			fmt.Fprintf(&got, "%d%s ", b.NodeID, map[bool]string{true: "!"}[b.IsFenced])
		}
		if got.String() != c.want {
			t.Errorf("v%d, fenced %t: %s, want %s", c.version, c.fenced, got.String(), c.want)
		}
	}
}

func describeTopics(limit int32, topics ...string) *kmsg.DescribeTopicPartitionsRequest {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = limit
	for _, t := range topics {
		req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: t})
	}
	return req
}

func TestDescribeTopicPartitionsTellsWhoMayLead(t *testing.T) {
	v := aCluster(t)
	answer, ok := v.Answer(describeTopics(100, "nobody", "a", "b@d", "a"))
	if !ok {
		t.Fatal("no answer")
	}
	resp := sent(t, answer.(*kmsg.DescribeTopicPartitionsResponse), kmsg.NewPtrDescribeTopicPartitionsResponse())
	var got strings.Builder
	for _, topic := range resp.Topics {
		fmt.Fprintf(&got, "%s:%d", *topic.Topic, topic.ErrorCode)
		for _, p := range topic.Partitions {
			fmt.Fprintf(&got, " %d leader=%d/%d %v isr=%v elr=%v known=%v offline=%v", p.Partition, p.LeaderID, p.LeaderEpoch,
				p.Replicas, p.ISR, p.EligibleLeaderReplicas, p.LastKnownELR, p.OfflineReplicas)
		}
		got.WriteString("; ")
	}
	want := "a:0 0 leader=2/7 [1 2 3 4] isr=[1 2] elr=[4] known=[] offline=[3] 1 leader=-1/3 [3 1] isr=[] elr=[3] known=[3] offline=[3]; b@d:17; nobody:3; "
	if got.String() != want || resp.NextCursor != nil || resp.Topics[0].TopicID != idA {
		t.Errorf("got  %s\nwant %s", got.String(), want)
	}
}

// Whatever the limit, going on from cursor to cursor sees every partition once,
// in order.
func TestCursorsLeadThroughAllPartitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := []metadata.Record{&metadata.Broker{Node: 1}}
		var want []string
		var names []string
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, 5), 1, 5).Draw(t, "partitions") {
			id, name := metadata.TopicID{byte(i + 1)}, fmt.Sprintf("t%d", i)
			records = append(records, &metadata.AddTopic{ID: id, Name: name})
			names = append(names, name)
			if n == 0 {
				want = append(want, name)
			}
			for p := range int32(n) {
				records = append(records, &metadata.Partition{Topic: id, Index: p, Replicas: []metadata.NodeID{1}, ISR: []metadata.NodeID{1}, Leader: 1})
				want = append(want, fmt.Sprintf("%s-%d", name, p))
			}
		}
		m, _, err := metadata.Apply(metadata.Image{}, 1, records)
		if err != nil {
			t.Fatal(err)
		}
		b, err := metadata.NewBrokerConfig([]metadata.Config{{Name: "max.request.partition.size.limit", Value: rapid.SampledFrom([]string{"1", "3", "2000"}).Draw(t, "most")}})
		if err != nil {
			t.Fatal(err)
		}
		v := View{Image: m, Config: b, Self: 1}
		limit := rapid.Int32Range(-1, 7).Draw(t, "limit")
		if rapid.Bool().Draw(t, "all") {
			names = nil
		}
		var got []string
		req := describeTopics(limit, names...)
		for range 100 {
			resp := v.DescribeTopicPartitions(req)
			seen := 0
			for _, topic := range resp.Topics {
				if topic.ErrorCode != 0 {
					t.Fatalf("%s: error %d", *topic.Topic, topic.ErrorCode)
				}
				if len(topic.Partitions) == 0 {
					got = append(got, *topic.Topic)
				}
				for _, p := range topic.Partitions {
					got = append(got, fmt.Sprintf("%s-%d", *topic.Topic, p.Partition))
					seen++
				}
			}
			if int32(seen) > max(limit, 1) || int64(seen) > b.Int("max.request.partition.size.limit") {
				t.Fatalf("%d partitions at once, limit %d", seen, limit)
			}
			if resp.NextCursor == nil {
				break
			}
			req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got  %v\nwant %v", got, want)
		}
	})
}

func TestCursorsThatMakeNoSense(t *testing.T) {
	v := aCluster(t)
	for _, c := range []struct {
		cursor kmsg.DescribeTopicPartitionsRequestCursor
		topics []string
		want   string // topic:error/partitions
	}{
		{kmsg.DescribeTopicPartitionsRequestCursor{Topic: "b"}, []string{"a"}, "a:42/0"},
		{kmsg.DescribeTopicPartitionsRequestCursor{Topic: "a", Partition: -1}, []string{"a"}, "a:42/0"},
		{kmsg.DescribeTopicPartitionsRequestCursor{Topic: "a", Partition: 9}, []string{"a"}, "a:0/0"},
		{kmsg.DescribeTopicPartitionsRequestCursor{Topic: "a", Partition: 1}, []string{"a"}, "a:0/1"},
		{kmsg.DescribeTopicPartitionsRequestCursor{Topic: "", Partition: 5}, nil, "a:0/2"}, // a topic that was deleted meanwhile
		{kmsg.DescribeTopicPartitionsRequestCursor{Topic: "b"}, nil, ""},
	} {
		req := describeTopics(10, c.topics...)
		req.Cursor = &c.cursor
		got := ""
		for _, topic := range v.DescribeTopicPartitions(req).Topics {
			got += fmt.Sprintf("%s:%d/%d", *topic.Topic, topic.ErrorCode, len(topic.Partitions))
		}
		if got != c.want {
			t.Errorf("%+v of %v: %s, want %s", c.cursor, c.topics, got, c.want)
		}
	}
}

func aQuorum() Quorum {
	return Quorum{Leading: true, Term: 5, Committed: 41, Members: []QuorumMember{
		{Node: 1, Incarnation: 0x0a000001, Voter: true, Match: 41, Heard: 100, CaughtUp: 100},
		{Node: 2, Incarnation: 0x0b000001, Voter: true, Match: 40, Heard: 90, CaughtUp: 80},
		{Node: 2, Incarnation: 0x0b000002, Match: 7, Heard: 95, CaughtUp: -1},
		{Node: 3, Incarnation: 0x0c000001, Match: 41, Heard: 99, CaughtUp: 99},
	}}
}

func TestDescribeQuorum(t *testing.T) {
	v := aCluster(t)
	v.Quorum = aQuorum()
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Topics = []kmsg.DescribeQuorumRequestTopic{
		{Topic: ClusterMetadata, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}, {Partition: 1}}},
		{Topic: "a", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}},
	}
	for version := int16(0); version <= 2; version++ {
		req.Version = version
		answer, _ := v.Answer(req)
		resp := sent(t, answer.(*kmsg.DescribeQuorumResponse), kmsg.NewPtrDescribeQuorumResponse())
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.LeaderID != 1 || p.LeaderEpoch != 5 || p.HighWatermark != 42 || len(p.CurrentVoters) != 2 || len(p.Observers) != 2 {
			t.Fatalf("v%d: %+v", version, p)
		}
		if o := p.Observers[0]; o.ReplicaID != 2 || o.LogEndOffset != 8 || version >= 1 && (o.LastFetchTimestamp != 95 || o.LastCaughtUpTimestamp != -1) {
			t.Errorf("v%d: %+v", version, o)
		}
		if version >= 2 {
			if id := p.CurrentVoters[1].ReplicaDirectoryID; id != v.Quorum.Members[1].Directory() || id == p.Observers[0].ReplicaDirectoryID {
				t.Errorf("directory %x", id)
			}
			if len(resp.Nodes) != 2 || resp.Nodes[1].NodeID != 2 || resp.Nodes[1].Listeners[0].Host != "peer2" || resp.Nodes[1].Listeners[0].Port != 12 {
				t.Errorf("nodes %+v", resp.Nodes)
			}
		}
		if a, b := resp.Topics[0].Partitions[1].ErrorCode, resp.Topics[1].Partitions[0].ErrorCode; a != 3 || b != 3 {
			t.Errorf("v%d: errors %d and %d", version, a, b)
		}
	}
	v.Quorum = Quorum{}
	if p := v.DescribeQuorum(req).Topics[0].Partitions[0]; p.ErrorCode != 6 || p.LeaderID != -1 {
		t.Errorf("not the leader: %+v", p)
	}
}

func TestChangesOfVoters(t *testing.T) {
	v := aCluster(t)
	directory := func(incarnation uint32) [16]byte { return (&QuorumMember{Incarnation: incarnation}).Directory() }
	cluster, other := "cluster", "other"
	for _, c := range []struct {
		what      string
		add       bool
		cluster   *string
		node      int32
		directory [16]byte
		code      int16
	}{
		{"an observer", true, &cluster, 3, directory(0x0c000001), 0},
		{"without a cluster id", true, nil, 3, directory(0x0c000001), 0},
		{"of another cluster", true, &other, 3, directory(0x0c000001), 104},
		{"without a directory", true, nil, 3, [16]byte{}, 42},
		{"without a node", true, nil, -1, directory(0x0c000001), 42},
		{"with the disk it had before", true, nil, 3, directory(0x0c000009), 7},
		{"a node that does not follow", true, nil, 4, directory(0x0d000001), 7},
		{"a voter", true, nil, 1, directory(0x0a000001), 126},
		{"a voter's new disk, while the old one votes", true, nil, 2, directory(0x0b000002), 126},
		{"a voter", false, nil, 2, directory(0x0b000001), 0},
		{"of another cluster", false, &other, 2, directory(0x0b000001), 104},
		{"a voter by its new disk", false, nil, 2, directory(0x0b000002), 127},
		{"an observer", false, nil, 3, directory(0x0c000001), 127},
		{"nobody", false, nil, 9, directory(0x0c000001), 127},
	} {
		v.Quorum = aQuorum()
		var req kmsg.Request = &kmsg.AddRaftVoterRequest{ClusterID: c.cluster, VoterID: c.node, VoterDirectoryID: c.directory}
		if !c.add {
			req = &kmsg.RemoveRaftVoterRequest{ClusterID: c.cluster, VoterID: c.node, VoterDirectoryID: c.directory}
		}
		resp, change, ok := v.ChangeVoters(req)
		if !ok || voterError(resp) != c.code || (change == nil) != (c.code != 0) {
			t.Errorf("add %t, %s: error %d, want %d; change %v", c.add, c.what, voterError(resp), c.code, change)
		}
		if change != nil && (change.Node != metadata.NodeID(c.node) || change.Add != c.add || change.Made(v.Quorum.Members)) {
			t.Errorf("add %t, %s: %+v", c.add, c.what, change)
		}
		v.Quorum = Quorum{}
		if resp, change, _ := v.ChangeVoters(req); change != nil || c.code == 0 && voterError(resp) != 6 {
			t.Errorf("add %t, %s: not the leader: error %d", c.add, c.what, voterError(resp))
		}
	}
	v.Quorum = Quorum{Leading: true, Members: aQuorum().Members[:1]}
	resp, _, _ := v.ChangeVoters(&kmsg.RemoveRaftVoterRequest{VoterID: 1, VoterDirectoryID: directory(0x0a000001)})
	if voterError(resp) != 42 {
		t.Errorf("the last voter: error %d", voterError(resp))
	}
	if _, _, ok := v.ChangeVoters(kmsg.NewPtrMetadataRequest()); ok {
		t.Error("Metadata changes voters")
	}
}

func voterError(resp kmsg.Response) int16 {
	switch resp := resp.(type) {
	case *kmsg.AddRaftVoterResponse:
		return resp.ErrorCode
	case *kmsg.RemoveRaftVoterResponse:
		return resp.ErrorCode
	}
	return -2
}

// Every request that is for the controller is decided or answered by somebody
// here, and no other is.
func TestWhoAnswersWhat(t *testing.T) {
	v, c := aCluster(t), New(DefaultConfig())
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		req.SetVersion(req.MaxVersion())
		_, decides := c.Decide(v.Image, req, nil)
		_, _, changes := v.ChangeVoters(req)
		_, answers := v.Answer(req)
		if want := decides || changes || key == int16(kmsg.DescribeQuorum); ForController(req) != want {
			t.Errorf("%s: for the controller: %t, want %t", kmsg.NameForKey(key), !want, want)
		}
		if decides && answers {
			t.Errorf("%s is decided and answered", kmsg.NameForKey(key))
		}
	}
}
