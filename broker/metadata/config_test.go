package metadata

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestConfigTablesAreInOrderAndSound(t *testing.T) {
	for what, table := range map[string][]*ConfigDef{"topic": TopicConfigs(), "broker": BrokerConfigs()} {
		if !slices.IsSortedFunc(table, func(a, b *ConfigDef) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%s configurations are not in order", what)
		}
		for i, d := range table {
			if i > 0 && table[i-1].Name == d.Name {
				t.Errorf("%s is there twice", d.Name)
			}
			if d.Doc == "" {
				t.Errorf("%s has no documentation", d.Name)
			}
			if err := d.Validate(d.Default); err != nil && !d.Null {
				t.Errorf("default: %v", err)
			}
			for _, s := range d.Inherits {
				if _, ok := findConfig(brokerConfigs, s.Name); !ok {
					t.Errorf("%s inherits from %s, which does not exist", d.Name, s.Name)
				}
			}
		}
	}
}

func TestTopicDefaultsAreTheBrokersDefaults(t *testing.T) {
	for _, v := range DescribeTopicConfigs(nil, BrokerConfig{}) {
		if v.Source != FromDefault || v.Value != v.Def.Default || len(v.Synonyms) != 1 {
			t.Errorf("%s: %+v", v.Def.Name, v)
		}
		for _, s := range v.Def.Inherits {
			d, _ := findConfig(brokerConfigs, s.Name)
			if !d.Null && s.scaled(d.Default) != v.Value {
				t.Errorf("%s is %s, but %s is %s", v.Def.Name, v.Value, d.Name, d.Default)
			}
		}
	}
}

// The names of Kafka's TopicConfig, each with a value that is not its default.
func TestKafkasTopicConfigsAreAccepted(t *testing.T) {
	names := strings.Fields(`segment.bytes segment.ms segment.jitter.ms segment.index.bytes flush.messages flush.ms
		retention.bytes retention.ms remote.storage.enable local.retention.bytes local.retention.ms max.message.bytes
		index.interval.bytes file.delete.delay.ms delete.retention.ms min.compaction.lag.ms max.compaction.lag.ms
		min.cleanable.dirty.ratio cleanup.policy unclean.leader.election.enable min.insync.replicas compression.type
		compression.gzip.level compression.lz4.level compression.zstd.level preallocate message.timestamp.type
		message.timestamp.before.max.ms message.timestamp.after.max.ms pawl.flush
		leader.replication.throttled.replicas follower.replication.throttled.replicas`)
	for _, name := range names {
		d, ok := findConfig(topicConfigs, name)
		if !ok {
			t.Errorf("there is no %s", name)
			continue
		}
		if _, err := ValidateTopicConfigs([]Config{{name, d.Default}}, BrokerConfig{}); err != nil {
			t.Error(err)
		}
	}
	if len(names) != len(topicConfigs) {
		t.Errorf("%d names, %d configurations", len(names), len(topicConfigs))
	}
}

func TestBadConfigsAreNamed(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{"no.such", "1"}, `there is no topic configuration "no.such"`},
		{Config{"segment.bytes", "13"}, `segment.bytes is "13", want at least 14`},
		{Config{"segment.bytes", "2147483648"}, `segment.bytes is "2147483648", want an integer of 32 bits`},
		{Config{"retention.ms", "x"}, `retention.ms is "x", want an integer of 64 bits`},
		{Config{"retention.ms", "-2"}, `want at least -1`},
		{Config{"preallocate", "yes"}, `preallocate is "yes", want true or false`},
		{Config{"cleanup.policy", "compact,drop"}, `want a list of delete, compact`},
		{Config{"cleanup.policy", ""}, `want a list of delete, compact`},
		{Config{"min.cleanable.dirty.ratio", "1.1"}, `want 0 to 1`},
		{Config{"min.cleanable.dirty.ratio", "half"}, `want a decimal number`},
		{Config{"compression.type", "brotli"}, `want one of uncompressed, zstd`},
		{Config{"compression.gzip.level", "0"}, `want 1 to 9`},
		{Config{"message.timestamp.type", "createtime"}, `want one of CreateTime, LogAppendTime`},
		{Config{"remote.storage.enable", "true"}, `there is no remote storage`},
		{Config{"min.compaction.lag.ms", "9223372036854775807"}, ""},
		{Config{"max.compaction.lag.ms", "1"}, ""},
		{Config{"leader.replication.throttled.replicas", "0:1, 1:2"}, ""},
		{Config{"leader.replication.throttled.replicas", "*"}, ""},
		{Config{"follower.replication.throttled.replicas", "0"}, `want a list of partition:broker, or *`},
		{Config{"pawl.flush", "never"}, `pawl.flush is "never", want one of fsync, os`},
	} {
		_, err := ValidateTopicConfigs([]Config{c.config}, BrokerConfig{})
		if (err != nil) != (c.want != "") || err != nil && (!errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %s", c.config, err, c.want)
		}
	}
	_, err := ValidateTopicConfigs([]Config{{"min.compaction.lag.ms", "2"}, {"max.compaction.lag.ms", "1"}}, BrokerConfig{})
	if !errors.Is(err, ErrInvalidConfig) {
		t.Errorf("lags that cross: %v", err)
	}
	if _, err := NewBrokerConfig([]Config{{"zookeeper.connect", "z"}}); !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), "zookeeper.connect") {
		t.Errorf("unknown broker configuration: %v", err)
	}
}

func TestTopicConfigsComeFromTheirTopicThenTheBroker(t *testing.T) {
	b, err := NewBrokerConfig([]Config{
		{"log.retention.hours", "2"}, {"log.segment.bytes", "4096"}, {"pawl.flush", "os"}, {"message.max.bytes", "7"},
		{"message.max.bytes", "9"}, {"log.cleanup.policy", "compact, delete"}, {"num.partitions", "3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	topic := &Topic{Configs: []Config{{"message.timestamp.type", "LogAppendTime"}, {"segment.bytes", " 512 "}}}
	want := TopicConfig{
		SegmentBytes: 512, MaxMessageBytes: 9, MinInSyncReplicas: 1, TimestampType: LogAppendTime,
		TimestampBeforeMax: 1<<63 - 1, TimestampAfterMax: 3_600_000, Compact: true, Delete: true,
		CompressionType: "producer", RetentionBytes: -1, RetentionMillis: 7_200_000, PageCache: true,
	}
	if got := topic.Config(b); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if b.NumPartitions() != 3 || b.DefaultReplicationFactor() != 1 || !b.AutoCreateTopics() || !b.DeleteTopics() {
		t.Error("the broker's own are wrong")
	}
	for _, v := range DescribeTopicConfigs(topic.Configs, b) {
		if v.Def.Name == "segment.bytes" && !reflect.DeepEqual(v.Synonyms, []SynonymValue{
			{Name: "segment.bytes", Value: " 512 ", Source: FromTopic},
			{Name: "log.segment.bytes", Value: "4096", Source: FromBroker},
			{Name: "log.segment.bytes", Value: "1073741824", Source: FromDefault}}) {
			t.Errorf("synonyms %+v", v.Synonyms)
		}
	}
	if got := strings.Join(b.Inert(), " "); got != "log.retention.hours" {
		t.Errorf("changes nothing: %s", got)
	}
}

func TestTopicNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "A-b_c.9": true, strings.Repeat("x", 249): true, "...": true, "__consumer_offsets": true,
		"": false, ".": false, "..": false, strings.Repeat("x", 250): false, "a b": false, "ä": false, "a/b": false, "a\x00": false,
	} {
		if err := ValidateTopicName(name); (err == nil) != ok || err != nil && !errors.Is(err, ErrInvalidTopic) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
