package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
)

var idA, idB = metadata.TopicID{0xa}, metadata.TopicID{0xb}

// aView has brokers 1 and 2, a topic whose second partition is led by broker 3,
// which has left, and one that brokers write.
func aView(t *testing.T, set ...metadata.Config) *View {
	m, _, err := metadata.Apply(metadata.Image{}, 9, []metadata.Record{
		&metadata.RegisterBroker{Node: 1, Epoch: 0, Host: "registered", Port: 1},
		&metadata.RegisterBroker{Node: 2, Epoch: 1, Host: "second", Port: 2, Rack: "r"},
		&metadata.AddTopic{ID: idA, Name: "a", Configs: []metadata.Config{{Name: "segment.bytes", Value: "99"}}},
		&metadata.Partition{Topic: idA, Replicas: []metadata.NodeID{1, 3}, ISR: []metadata.NodeID{1}, Leader: 1, LeaderEpoch: 5},
		&metadata.Partition{Topic: idA, Index: 1, Replicas: []metadata.NodeID{3}, ISR: []metadata.NodeID{3}, Leader: 3},
		&metadata.AddTopic{ID: idB, Name: metadata.ConsumerOffsets},
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := metadata.NewBrokerConfig(set)
	if err != nil {
		t.Fatal(err)
	}
	return &View{Image: m, Config: b, Self: 1, ClusterID: "cluster", Controller: 1, Host: "reached", Port: 9}
}

// sent is what a client reads of a response.
func sent[R kmsg.Response](t *testing.T, resp R, empty R) R {
	empty.SetVersion(resp.GetVersion())
	if err := empty.ReadFrom(resp.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	return empty
}

func ask(v int16, allow bool, topics ...kmsg.MetadataRequestTopic) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation, req.Topics = v, allow, topics
	return req
}

func named(name string) kmsg.MetadataRequestTopic { return kmsg.MetadataRequestTopic{Topic: &name} }

func show(resp *kmsg.MetadataResponse) string {
	var b strings.Builder
	for _, t := range resp.Topics {
		fmt.Fprintf(&b, "%s:%d", deref(t.Topic), t.ErrorCode)
		for _, p := range t.Partitions {
			fmt.Fprintf(&b, " %d:%d leader=%d/%d %v %v %v", p.Partition, p.ErrorCode, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.OfflineReplicas)
		}
		b.WriteString("; ")
	}
	return b.String()
}

func TestMetadataNamesNoLeaderItDoesNotList(t *testing.T) {
	v := aView(t)
	resp, _ := v.Metadata(ask(12, false, named("a")), nil)
	if got, want := show(sent(t, resp, kmsg.NewPtrMetadataResponse())), "a:0 0:0 leader=1/5 [1 3] [1] [3] 1:5 leader=-1/0 [3] [3] [3]; "; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	if b := resp.Brokers; len(b) != 2 || b[0].Host != "reached" || b[0].Port != 9 || b[1].Host != "second" || *b[1].Rack != "r" || b[0].Rack != nil {
		t.Fatalf("brokers %+v", b)
	}
	if resp.ControllerID != 1 || *resp.ClusterID != "cluster" || resp.Topics[0].AuthorizedOperations != -1<<31 {
		t.Fatalf("%+v", resp)
	}
	v.Controller, v.Host = 3, ""
	resp, _ = v.Metadata(ask(12, false), nil)
	if resp.ControllerID != 1 || resp.Brokers[0].Host != "registered" {
		t.Fatalf("controller %d, broker %+v", resp.ControllerID, resp.Brokers[0])
	}
}

func TestMetadataListsWhatEachVersionMeans(t *testing.T) {
	v := aView(t)
	for version := int16(0); version <= 12; version++ {
		for _, c := range []struct {
			topics []kmsg.MetadataRequestTopic
			all    bool
		}{{nil, true}, {[]kmsg.MetadataRequestTopic{}, version == 0}} {
			resp, create := v.Metadata(ask(version, true, c.topics...), nil)
			got := sent(t, resp, kmsg.NewPtrMetadataResponse())
			if (len(got.Topics) == 2) != c.all || (len(got.Topics) == 0) == c.all || create != nil {
				t.Errorf("v%d, %#v: %s", version, c.topics, show(got))
			}
			if c.all && version > 0 && !got.Topics[0].IsInternal {
				t.Errorf("v%d: %s is not internal", version, deref(got.Topics[0].Topic))
			}
		}
	}
}

func TestMetadataReportsWhatMayBeCreated(t *testing.T) {
	asked := []kmsg.MetadataRequestTopic{named("a"), named("new"), named("b@d"), named("new"), named("a_b")}
	for _, c := range []struct {
		version int16
		allow   bool
		config  string
		want    []string
	}{
		{3, false, "true", []string{"new", "a_b"}}, // there is no such field
		{4, true, "true", []string{"new", "a_b"}},
		{4, false, "true", nil},
		{12, true, "false", nil},
	} {
		v := aView(t, metadata.Config{Name: "auto.create.topics.enable", Value: c.config})
		resp, create := v.Metadata(ask(c.version, c.allow, asked...), nil)
		if !slices.Equal(create, c.want) {
			t.Errorf("v%d allow=%t: create %v, want %v", c.version, c.allow, create, c.want)
		}
		if len(resp.Topics) != 4 || resp.Topics[1].ErrorCode != 3 || resp.Topics[2].ErrorCode != 17 {
			t.Errorf("v%d: %s", c.version, show(resp))
		}
		again, create := v.Metadata(ask(c.version, c.allow, asked[1]), []Refusal{{"new", metadata.ErrInvalidReplicationFactor}})
		if again.Topics[0].ErrorCode != 38 || create != nil {
			t.Errorf("v%d: refused, and %s", c.version, show(again))
		}
	}
}

func TestMetadataFindsTopicsByID(t *testing.T) {
	v := aView(t)
	resp, create := v.Metadata(ask(12, true, kmsg.MetadataRequestTopic{TopicID: idA}, kmsg.MetadataRequestTopic{TopicID: [16]byte{9}}), nil)
	got := sent(t, resp, kmsg.NewPtrMetadataResponse())
	if deref(got.Topics[0].Topic) != "a" || got.Topics[1].ErrorCode != 100 || got.Topics[1].TopicID != [16]byte{9} || got.Topics[1].Topic != nil || create != nil {
		t.Fatalf("%s", show(got))
	}
}

func TestOperationsAreToldIfAskedFor(t *testing.T) {
	req := ask(8, false, named("a"))
	req.IncludeClusterAuthorizedOperations, req.IncludeTopicAuthorizedOperations = true, true
	resp, _ := aView(t).Metadata(req, nil)
	if resp.AuthorizedOperations != clusterOperations || resp.Topics[0].AuthorizedOperations != topicOperations {
		t.Fatalf("%d %d", resp.AuthorizedOperations, resp.Topics[0].AuthorizedOperations)
	}
}

func TestDescribeConfigsTellsWhereValuesComeFrom(t *testing.T) {
	v := aView(t, metadata.Config{Name: "log.retention.hours", Value: "1"}, metadata.Config{Name: "ssl.key.password", Value: "secret"})
	for version := int16(1); version <= 4; version++ {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version, req.IncludeSynonyms, req.IncludeDocumentation = version, true, true
		req.Resources = []kmsg.DescribeConfigsRequestResource{
			{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "a", ConfigNames: []string{"segment.bytes", "retention.ms", "nonsense"}},
			{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "a"},
			{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"},
			{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: ""},
			{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "2"},
			{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "nobody"},
			{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "b@d"},
			{ResourceType: kmsg.ConfigResourceTypeBrokerLogger, ResourceName: "1"},
		}
		answer, ok := v.Answer(req)
		if !ok {
			t.Fatal("no answer")
		}
		resp := sent(t, answer.(*kmsg.DescribeConfigsResponse), kmsg.NewPtrDescribeConfigsResponse())
		var shape []string
		for _, r := range resp.Resources {
			shape = append(shape, fmt.Sprintf("%d:%d", r.ErrorCode, len(r.Configs)))
		}
		want := fmt.Sprintf("0:2 0:%d 0:%d 0:0 42:0 3:0 17:0 42:0", len(metadata.TopicConfigs()), len(metadata.BrokerConfigs()))
		if got := strings.Join(shape, " "); got != want {
			t.Fatalf("v%d: %s, want %s", version, got, want)
		}
		retention, segment := resp.Resources[0].Configs[0], resp.Resources[0].Configs[1]
		if *retention.Value != "3600000" || retention.Source != kmsg.ConfigSourceStaticBrokerConfig || len(retention.ConfigSynonyms) != 2 || *retention.ConfigSynonyms[0].Value != "1" {
			t.Errorf("v%d: %+v", version, retention)
		}
		if *segment.Value != "99" || segment.Source != kmsg.ConfigSourceDynamicTopicConfig || version >= 3 && (segment.ConfigType != kmsg.ConfigTypeInt || segment.Documentation == nil) {
			t.Errorf("v%d: %+v", version, segment)
		}
		for _, c := range resp.Resources[2].Configs {
			switch c.Name {
			case "ssl.key.password":
				if c.Value != nil || !c.IsSensitive || c.ConfigSynonyms[0].Value != nil {
					t.Errorf("a secret is told: %+v", c)
				}
			case "default.replication.factor":
				if *c.Value != "1" || c.Source != kmsg.ConfigSourceDefaultConfig {
					t.Errorf("%+v", c)
				}
			}
		}
	}
}

func TestDescribeCluster(t *testing.T) {
	v := aView(t)
	req := kmsg.NewPtrDescribeClusterRequest()
	req.Version, req.IncludeClusterAuthorizedOperations = 1, true
	resp := sent(t, v.DescribeCluster(req), kmsg.NewPtrDescribeClusterResponse())
	if resp.ErrorCode != 0 || resp.ClusterID != "cluster" || resp.ControllerID != 1 || len(resp.Brokers) != 2 || resp.Brokers[0].Host != "reached" || resp.ClusterAuthorizedOperations != clusterOperations {
		t.Fatalf("%+v", resp)
	}
	for endpoint, code := range map[int8]int16{2: 114, 3: 115} {
		req.EndpointType = endpoint
		if resp := v.DescribeCluster(req); resp.ErrorCode != code || len(resp.Brokers) != 0 {
			t.Fatalf("%+v", resp)
		}
	}
}

func TestDescribeACLsSaysThereIsNoSecurity(t *testing.T) {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.Version = 1
	if resp := aView(t).DescribeACLs(req); resp.ErrorCode != 54 || resp.Version != 1 {
		t.Fatalf("%+v", resp)
	}
}
