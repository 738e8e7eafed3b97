package standalone_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/standalone"
)

// remove deletes a topic, which must be there.
func (w *wire) remove(topic string) {
	w.t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TopicNames = 5, []string{topic}
	if code := ask[*kmsg.DeleteTopicsResponse](w, req).Topics[0].ErrorCode; code != 0 {
		w.t.Fatalf("delete %s: error %d", topic, code)
	}
}

func metadataOf(version int16, create bool, topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = version, create
	for i := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topics[i]
		req.Topics = append(req.Topics, t)
	}
	return req
}

func configured(t *testing.T, set ...metadata.Config) func(*standalone.Config) {
	t.Helper()
	broker, err := metadata.NewBrokerConfig(set)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *standalone.Config) { c.Node.Broker = broker }
}

// TestBadTopicIsNotCreated, and says why.
func TestBadTopicIsNotCreated(t *testing.T) {
	w := dial(t, serve(t))
	w.topic("taken.name")
	with := func(change func(*kmsg.CreateTopicsRequestTopic)) kmsg.CreateTopicsRequestTopic {
		topic := wanted("t")
		change(&topic)
		return topic
	}
	cases := []struct {
		name  string
		topic kmsg.CreateTopicsRequestTopic
		code  int16
	}{
		{"empty name", wanted(""), invalidTopic},
		{"dot", wanted("."), invalidTopic},
		{"dots", wanted(".."), invalidTopic},
		{"slash", wanted("a/b"), invalidTopic},
		{"way out", wanted("../../etc/passwd"), invalidTopic},
		{"NUL", wanted("a\x00b"), invalidTopic},
		{"not ASCII", wanted("ä"), invalidTopic},
		{"250 characters", wanted(strings.Repeat("x", 250)), invalidTopic},
		{"the same but for a dot", wanted("taken_name"), invalidTopic},
		{"taken", wanted("taken.name"), topicAlreadyExists},
		{"no partitions", with(func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = 0 }), invalidPartitions},
		{"-2 partitions", with(func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = -2 }), invalidPartitions},
		{"no replicas", with(func(t *kmsg.CreateTopicsRequestTopic) { t.ReplicationFactor = 0 }), 38},
		{"more replicas than brokers", with(func(t *kmsg.CreateTopicsRequestTopic) { t.ReplicationFactor = 3 }), 38},
		{"unknown configuration", wanted("t", "no.such.thing", "1"), invalidConfig},
		{"configuration that is no number", wanted("t", "max.message.bytes", "many"), invalidConfig},
		{"configuration out of range", wanted("t", "max.message.bytes", "-1"), invalidConfig},
		{"unknown cleanup policy", wanted("t", "cleanup.policy", "burn"), invalidConfig},
	}
	for _, c := range cases {
		for version := int16(2); version <= 7; version++ {
			req := kmsg.NewPtrCreateTopicsRequest()
			req.Version = version
			req.Topics = append(req.Topics, c.topic)
			topic := ask[*kmsg.CreateTopicsResponse](w, req).Topics[0]
			if topic.ErrorCode != c.code || topic.ErrorMessage == nil {
				t.Errorf("%s, version %d: error %d, want %d; message %v", c.name, version, topic.ErrorCode, c.code, topic.ErrorMessage)
			}
		}
	}
	if all := ask[*kmsg.MetadataResponse](w, metadataOf(9, false)); len(all.Topics) != 1 { // null is all
		t.Errorf("%d topics, want 1", len(all.Topics))
	}
	none := metadataOf(9, false)
	none.Topics = []kmsg.MetadataRequestTopic{}
	if all := ask[*kmsg.MetadataResponse](w, none); len(all.Topics) != 0 {
		t.Errorf("an empty list: %d topics", len(all.Topics))
	}
}

// TestTopicNamedTwiceIsRefusedOnce, and the other one is created.
func TestTopicNamedTwiceIsRefusedOnce(t *testing.T) {
	w := dial(t, serve(t))
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	req.Topics = append(req.Topics, wanted("twice"), wanted("once"), wanted("twice"))
	codes := map[string]int16{}
	for _, topic := range ask[*kmsg.CreateTopicsResponse](w, req).Topics {
		if _, ok := codes[topic.Topic]; ok {
			t.Errorf("%s is in the answer twice", topic.Topic)
		}
		codes[topic.Topic] = topic.ErrorCode
	}
	if codes["twice"] != invalidRequest || codes["once"] != 0 || len(codes) != 2 {
		t.Errorf("codes %v", codes)
	}
	if p := w.listed(7, "twice", -1); p.ErrorCode != unknownTopicOrPartition {
		t.Errorf("it was created: error %d", p.ErrorCode)
	}
}

// TestTopicOfTheSameNameHasNothingOfTheOld, not after a restart either.
func TestTopicOfTheSameNameHasNothingOfTheOld(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dir)
	w := dial(t, b)
	old := w.topic("t")
	w.write("t", "old", "old", "old")
	byID := func(w *wire, id [16]byte) kmsg.MetadataResponseTopic {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 12
		rt := kmsg.NewMetadataRequestTopic()
		rt.TopicID = id
		req.Topics = append(req.Topics, rt)
		return ask[*kmsg.MetadataResponse](w, req).Topics[0]
	}
	if topic := byID(w, old); topic.ErrorCode != 0 || topic.Topic == nil || *topic.Topic != "t" {
		t.Errorf("by id: error %d, name %v", topic.ErrorCode, topic.Topic)
	}
	w.remove("t")
	if p := w.produce(produceOf("t", plain("lost"))); p.ErrorCode != unknownTopicOrPartition {
		t.Errorf("produce to a deleted topic: error %d", p.ErrorCode)
	}
	id := w.topic("t")
	check := func(w *wire, end int64) {
		t.Helper()
		if got := w.end("t"); got != end {
			t.Errorf("log end %d, want %d", got, end)
		}
		if p := w.fetch(fetchOf("t", 3)); p.ErrorCode != offsetOutOfRange {
			t.Errorf("fetch at the old end: error %d", p.ErrorCode)
		}
		if topic := byID(w, old); topic.ErrorCode != unknownTopicID {
			t.Errorf("old id: error %d", topic.ErrorCode)
		}
		if topic := byID(w, id); topic.ErrorCode != 0 {
			t.Errorf("new id: error %d", topic.ErrorCode)
		}
	}
	if id == old {
		t.Error("the topic id is that of the old one")
	}
	check(w, 0)
	w.write("t", "new")
	check(w, 1)
	w.Close()
	if err := b.Shutdown(); err != nil {
		t.Fatal(err)
	}
	b = start(t, dir)
	defer b.Shutdown()
	check(dial(t, b), 1)
}

// TestMetadataCreatesTopics: always in versions 0 to 3, which cannot say
// otherwise, then for those who allow it, and for nobody where
// auto.create.topics.enable is false.
func TestMetadataCreatesTopics(t *testing.T) {
	never := configured(t, metadata.Config{Name: "auto.create.topics.enable", Value: "false"})
	for _, c := range []struct {
		name    string
		broker  *standalone.Broker
		creates bool
	}{{"by default", serve(t), true}, {"switched off", serve(t, never), false}} {
		w := dial(t, c.broker)
		for version := range int16(13) {
			for _, allow := range []bool{false, true} {
				name := "v" + string('a'+rune(version)) + map[bool]string{true: "-allowed"}[allow]
				topic := ask[*kmsg.MetadataResponse](w, metadataOf(version, allow, name)).Topics[0]
				want := int16(unknownTopicOrPartition)
				if c.creates && (allow || version < 4) {
					want = 0
				}
				if topic.ErrorCode != want {
					t.Errorf("%s, version %d, allowed %t: error %d, want %d", c.name, version, allow, topic.ErrorCode, want)
				}
			}
		}
		for _, name := range []string{"", ".", "..", "a/b", "a b", strings.Repeat("x", 250)} {
			for _, version := range []int16{1, 12} {
				if topic := ask[*kmsg.MetadataResponse](w, metadataOf(version, true, name)).Topics[0]; topic.ErrorCode != invalidTopic {
					t.Errorf("%s, %q, version %d: error %d", c.name, name, version, topic.ErrorCode)
				}
			}
		}
	}
}

// TestMetadataNamesLeadersItLists: a client cannot find a leader that is not
// among the brokers.
func TestMetadataNamesLeadersItLists(t *testing.T) {
	b := serve(t)
	w := dial(t, b)
	w.topic("t")
	for version := range int16(13) {
		resp := ask[*kmsg.MetadataResponse](w, metadataOf(version, false, "t"))
		if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 1 {
			t.Fatalf("version %d: brokers %+v", version, resp.Brokers)
		}
		if p := resp.Topics[0].Partitions[0]; p.Leader != 1 || len(p.Replicas) != 1 || len(p.ISR) != 1 {
			t.Errorf("version %d: %+v", version, p)
		}
	}
}

func described(w *wire, version int16, kind kmsg.ConfigResourceType, name string) kmsg.DescribeConfigsResponseResource {
	w.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms, req.IncludeDocumentation = version, true, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	req.Resources = append(req.Resources, r)
	return ask[*kmsg.DescribeConfigsResponse](w, req).Resources[0]
}

// TestDescribeConfigsSaysWhereAValueIsFrom, as UIs show it and Debezium and
// Strimzi need it.
func TestDescribeConfigsSaysWhereAValueIsFrom(t *testing.T) {
	w := dial(t, serve(t, configured(t, metadata.Config{Name: "log.retention.hours", Value: "5"})))
	w.topic("t", "max.message.bytes", "1234")
	find := func(r kmsg.DescribeConfigsResponseResource, name string) kmsg.DescribeConfigsResponseResourceConfig {
		t.Helper()
		if r.ErrorCode != 0 {
			t.Fatalf("%s: error %d", r.ResourceName, r.ErrorCode)
		}
		for _, c := range r.Configs {
			if c.Name == name {
				return c
			}
		}
		t.Fatalf("%s has no %s", r.ResourceName, name)
		panic("unreachable")
	}
	for version := int16(1); version <= 4; version++ {
		topic := described(w, version, kmsg.ConfigResourceTypeTopic, "t")
		c := find(topic, "max.message.bytes")
		if *c.Value != "1234" || c.Source != kmsg.ConfigSourceDynamicTopicConfig || c.ReadOnly || c.IsSensitive {
			t.Errorf("version %d: %+v", version, c)
		}
		if version >= 3 && (c.ConfigType != kmsg.ConfigTypeInt || c.Documentation == nil) {
			t.Errorf("version %d: type %d, documentation %v", version, c.ConfigType, c.Documentation)
		}
		// Its own value, and the default that would be.
		if s := c.ConfigSynonyms; len(s) != 2 || s[0].Name != "max.message.bytes" || s[1].Name != "message.max.bytes" ||
			s[1].Source != kmsg.ConfigSourceDefaultConfig || *s[1].Value != "1048588" {
			t.Errorf("version %d: synonyms %+v", version, s)
		}
		if c := find(topic, "retention.ms"); *c.Value != "18000000" || c.Source != kmsg.ConfigSourceStaticBrokerConfig {
			t.Errorf("version %d: retention.ms %s from %d", version, *c.Value, c.Source)
		}
		if c := find(topic, "cleanup.policy"); *c.Value != "delete" || c.Source != kmsg.ConfigSourceDefaultConfig {
			t.Errorf("version %d: cleanup.policy %s from %d", version, *c.Value, c.Source)
		}
		broker := described(w, version, kmsg.ConfigResourceTypeBroker, "1")
		if c := find(broker, "default.replication.factor"); *c.Value != "1" {
			t.Errorf("version %d: default.replication.factor %s", version, *c.Value)
		}
		if c := find(broker, "log.retention.hours"); *c.Value != "5" || c.Source != kmsg.ConfigSourceStaticBrokerConfig {
			t.Errorf("version %d: log.retention.hours %s from %d", version, *c.Value, c.Source)
		}
		for _, bad := range []struct {
			kind kmsg.ConfigResourceType
			name string
			code int16
		}{
			{kmsg.ConfigResourceTypeTopic, "nonesuch", unknownTopicOrPartition},
			{kmsg.ConfigResourceTypeTopic, "a/b", invalidTopic},
			{kmsg.ConfigResourceTypeBroker, "2", invalidRequest},
			{kmsg.ConfigResourceTypeBroker, "one", invalidRequest},
			{0, "t", invalidRequest},
			{99, "t", invalidRequest},
		} {
			if r := described(w, version, bad.kind, bad.name); r.ErrorCode != bad.code || len(r.Configs) != 0 {
				t.Errorf("version %d, %d %q: error %d, %d configurations", version, bad.kind, bad.name, r.ErrorCode, len(r.Configs))
			}
		}
	}
}

// TestDeleteOfWhatIsNotThere by name and by id.
func TestDeleteOfWhatIsNotThere(t *testing.T) {
	w := dial(t, serve(t))
	id := w.topic("t")
	name := "t"
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version = 6
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{}, {Topic: &name, TopicID: id}, {TopicID: [16]byte{1}}, {TopicID: id}, {Topic: &name}}
	topics := ask[*kmsg.DeleteTopicsResponse](w, req).Topics
	for i, want := range []int16{invalidRequest, invalidRequest, unknownTopicID, 0, invalidRequest} {
		if got := topics[i].ErrorCode; got != want {
			t.Errorf("topic %d: error %d, want %d", i, got, want)
		}
	}
	if p := w.listed(7, "t", -1); p.ErrorCode != unknownTopicOrPartition {
		t.Errorf("it is still there: error %d", p.ErrorCode)
	}
}

// TestWhatThereIsNone of: security, other endpoints.
func TestWhatThereIsNone(t *testing.T) {
	w := dial(t, serve(t))
	for version := int16(1); version <= 3; version++ {
		req := kmsg.NewPtrDescribeACLsRequest()
		req.Version, req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = version, kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		if resp := ask[*kmsg.DescribeACLsResponse](w, req); resp.ErrorCode != securityDisabled {
			t.Errorf("DescribeACLs version %d: error %d", version, resp.ErrorCode)
		}
	}
	for version := range int16(2) {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version = version
		if resp := ask[*kmsg.DescribeClusterResponse](w, req); resp.ErrorCode != 0 || len(resp.Brokers) != 1 || len(resp.ClusterID) != 22 {
			t.Errorf("DescribeCluster version %d: error %d, %d brokers, cluster %q", version, resp.ErrorCode, len(resp.Brokers), resp.ClusterID)
		}
	}
}
