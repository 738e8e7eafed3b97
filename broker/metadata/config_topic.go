package metadata

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pawlbroker/pawl/storage/assert"
)

const (
	maxLong = "9223372036854775807"
	hour    = 3_600_000 // in milliseconds
	minute  = 60_000
)

// topicConfigs is every configuration a topic may have, by name. Names, types
// and defaults are Kafka's; those that begin with "pawl." are our own.
var topicConfigs = []*ConfigDef{
	{Name: "cleanup.policy", Type: ListConfig, Default: "delete", Check: someOf("delete", "compact"), Inherits: same("log.cleanup.policy"),
		Doc: "What happens to old records: delete drops them by age and size, compact keeps the latest of each key. Records without a key are refused while compact is in the list."},
	{Name: "compression.gzip.level", Type: IntConfig, Default: "-1", Check: gzipLevel, Inherits: same("compression.gzip.level"), Inert: true,
		Doc: "Level for gzip, 1 to 9, or -1 for the codec's own."},
	{Name: "compression.lz4.level", Type: IntConfig, Default: "9", Check: between(1, 17), Inherits: same("compression.lz4.level"), Inert: true,
		Doc: "Level for lz4, 1 to 17."},
	{Name: "compression.type", Type: StringConfig, Default: "producer", Inherits: same("compression.type"), Inert: true,
		Check: oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
		Doc:   "How batches are stored. With producer they are kept as the producer compressed them."},
	{Name: "compression.zstd.level", Type: IntConfig, Default: "3", Check: between(-131072, 22), Inherits: same("compression.zstd.level"), Inert: true,
		Doc: "Level for zstd, -131072 to 22."},
	{Name: "delete.retention.ms", Type: LongConfig, Default: "86400000", Check: atLeast(0), Inherits: same("log.cleaner.delete.retention.ms"), Inert: true,
		Doc: "How long a compacted topic keeps the record that says a key was deleted, in milliseconds."},
	{Name: "file.delete.delay.ms", Type: LongConfig, Default: "60000", Check: atLeast(0), Inherits: same("log.segment.delete.delay.ms"), Inert: true,
		Doc: "How long a file that is no longer needed stays on disk, in milliseconds."},
	{Name: "flush.messages", Type: LongConfig, Default: maxLong, Check: atLeast(1), Inherits: same("log.flush.interval.messages"), Inert: true,
		Doc: "Number of records after which Kafka syncs. Here pawl.flush decides."},
	{Name: "flush.ms", Type: LongConfig, Default: maxLong, Check: atLeast(0), Inherits: same("log.flush.interval.ms"), Inert: true,
		Doc: "Milliseconds after which Kafka syncs. Here pawl.flush decides."},
	{Name: "follower.replication.throttled.replicas", Type: ListConfig, Check: throttled, Inert: true,
		Doc: "Replicas that fetch no faster than follower.replication.throttled.rate, as partition:broker, or * for all. Nothing is throttled."},
	{Name: "index.interval.bytes", Type: IntConfig, Default: "4096", Check: atLeast(0), Inherits: same("log.index.interval.bytes"), Inert: true,
		Doc: "Bytes of log between two entries of its index."},
	{Name: "leader.replication.throttled.replicas", Type: ListConfig, Check: throttled, Inert: true,
		Doc: "Replicas that are sent no faster than leader.replication.throttled.rate, as partition:broker, or * for all. Nothing is throttled."},
	{Name: "local.retention.bytes", Type: LongConfig, Default: "-2", Check: atLeast(-2), Inherits: same("log.local.retention.bytes"), Inert: true,
		Doc: "Bytes kept on local disk when there is remote storage; -2 means retention.bytes."},
	{Name: "local.retention.ms", Type: LongConfig, Default: "-2", Check: atLeast(-2), Inherits: same("log.local.retention.ms"), Inert: true,
		Doc: "Milliseconds kept on local disk when there is remote storage; -2 means retention.ms."},
	{Name: "max.compaction.lag.ms", Type: LongConfig, Default: maxLong, Check: atLeast(1), Inherits: same("log.cleaner.max.compaction.lag.ms"), Inert: true,
		Doc: "Longest time a record stays out of reach of compaction, in milliseconds."},
	{Name: "max.message.bytes", Type: IntConfig, Default: "1048588", Check: atLeast(0), Inherits: same("message.max.bytes"),
		Doc: "Size of the largest record batch that is accepted, in bytes, as it arrives (after compression)."},
	{Name: "message.timestamp.after.max.ms", Type: LongConfig, Default: "3600000", Check: atLeast(0), Inherits: same("log.message.timestamp.after.max.ms"),
		Doc: "How far a record's timestamp may be ahead of the broker's clock, in milliseconds. Not checked with LogAppendTime."},
	{Name: "message.timestamp.before.max.ms", Type: LongConfig, Default: maxLong, Check: atLeast(0), Inherits: same("log.message.timestamp.before.max.ms"),
		Doc: "How far a record's timestamp may be behind the broker's clock, in milliseconds. Not checked with LogAppendTime."},
	{Name: "message.timestamp.type", Type: StringConfig, Default: "CreateTime", Check: oneOf("CreateTime", "LogAppendTime"), Inherits: same("log.message.timestamp.type"),
		Doc: "Whose time a record carries: the producer's (CreateTime) or the broker's (LogAppendTime)."},
	{Name: "min.cleanable.dirty.ratio", Type: DoubleConfig, Default: "0.5", Check: ratio, Inherits: same("log.cleaner.min.cleanable.ratio"), Inert: true,
		Doc: "Share of a log, 0 to 1, that must be new since the last compaction for the next one."},
	{Name: "min.compaction.lag.ms", Type: LongConfig, Default: "0", Check: atLeast(0), Inherits: same("log.cleaner.min.compaction.lag.ms"), Inert: true,
		Doc: "Shortest time a record stays out of reach of compaction, in milliseconds."},
	{Name: "min.insync.replicas", Type: IntConfig, Default: "1", Check: atLeast(1), Inherits: same("min.insync.replicas"),
		Doc: "Number of replicas that must be in sync for a produce with acks=all to be taken."},
	{Name: "pawl.flush", Type: StringConfig, Default: "fsync", Check: oneOf("fsync", "os"), Inherits: same("pawl.flush"),
		Doc: "When a record counts as written: once it is on stable storage (fsync), or once the operating system has it, as in Kafka (os). With os, records that were acknowledged can be lost when the power fails."},
	{Name: "preallocate", Type: BooleanConfig, Default: "false", Inherits: same("log.preallocate"), Inert: true,
		Doc: "Whether a file of a log gets its space before it is written."},
	{Name: "remote.storage.enable", Type: BooleanConfig, Default: "false", Check: noRemoteStorage, Inert: true,
		Doc: "Whether old parts of the log go to remote storage. There is none, so only false will do."},
	{Name: "retention.bytes", Type: LongConfig, Default: "-1", Check: atLeast(-1), Inherits: same("log.retention.bytes"), Inert: true,
		Doc: "Size above which a partition drops its oldest records, in bytes; -1 for no limit."},
	{Name: "retention.ms", Type: LongConfig, Default: "604800000", Check: atLeast(-1), Inert: true,
		Inherits: []Synonym{{Name: "log.retention.ms"}, {Name: "log.retention.minutes", Scale: minute}, {Name: "log.retention.hours", Scale: hour}},
		Doc:      "Age above which a partition drops records, in milliseconds; -1 for no limit."},
	{Name: "segment.bytes", Type: IntConfig, Default: "1073741824", Check: atLeast(14), Inherits: same("log.segment.bytes"),
		Doc: "Size at which a partition's log goes on in a new file, in bytes."},
	{Name: "segment.index.bytes", Type: IntConfig, Default: "10485760", Check: atLeast(4), Inherits: same("log.index.size.max.bytes"), Inert: true,
		Doc: "Largest size of the index of one file of a log, in bytes."},
	{Name: "segment.jitter.ms", Type: LongConfig, Default: "0", Check: atLeast(0), Inert: true,
		Inherits: []Synonym{{Name: "log.roll.jitter.ms"}, {Name: "log.roll.jitter.hours", Scale: hour}},
		Doc:      "Up to how much segment.ms is shortened at random, in milliseconds."},
	{Name: "segment.ms", Type: LongConfig, Default: "604800000", Check: atLeast(1), Inert: true,
		Inherits: []Synonym{{Name: "log.roll.ms"}, {Name: "log.roll.hours", Scale: hour}},
		Doc:      "Time after which a partition's log goes on in a new file, in milliseconds."},
	{Name: "unclean.leader.election.enable", Type: BooleanConfig, Default: "false", Inherits: same("unclean.leader.election.enable"),
		Doc: "Whether a replica that is not in sync may lead when no other can, which loses records."},
}

func same(name string) []Synonym { return []Synonym{{Name: name}} }

func noRemoteStorage(value string) error {
	if !strings.EqualFold(value, "false") {
		return fmt.Errorf("there is no remote storage")
	}
	return nil
}

// throttled is for lists of replicas: empty, "*", or partition:broker each.
func throttled(value string) error {
	if value == "" || value == "*" {
		return nil
	}
	for _, v := range splitList(value) {
		partition, broker, _ := strings.Cut(v, ":")
		if wantInteger(partition, 32) != nil || wantInteger(broker, 32) != nil {
			return fmt.Errorf("want a list of partition:broker, or *")
		}
	}
	return nil
}

// TopicConfigs is every configuration a topic may have, by name. It must not be
// changed.
func TopicConfigs() []*ConfigDef { return topicConfigs }

// ValidateTopicConfigs returns configs in order of names, or an
// ErrInvalidConfig that names the first one that does not exist or may not have
// its value. Of two with one name the later counts.
func ValidateTopicConfigs(configs []Config, b BrokerConfig) ([]Config, error) {
	var sorted []Config
	for _, c := range configs {
		d, ok := findConfig(topicConfigs, c.Name)
		if !ok {
			return nil, fmt.Errorf("%w: there is no topic configuration %q", ErrInvalidConfig, c.Name)
		}
		if err := d.Validate(c.Value); err != nil {
			return nil, err
		}
		i, found := slices.BinarySearchFunc(sorted, c, compareConfig)
		if found {
			sorted[i] = c
		} else {
			sorted = slices.Insert(sorted, i, c)
		}
	}
	least, most := long(sorted, b, "min.compaction.lag.ms"), long(sorted, b, "max.compaction.lag.ms")
	if least > most {
		return nil, fmt.Errorf("%w: min.compaction.lag.ms is %d, more than max.compaction.lag.ms, which is %d", ErrInvalidConfig, least, most)
	}
	return sorted, nil
}

// DescribeTopicConfigs returns all configurations of a topic that has configs
// set, by name.
func DescribeTopicConfigs(configs []Config, b BrokerConfig) []ConfigValue {
	values := make([]ConfigValue, len(topicConfigs))
	for i, d := range topicConfigs {
		values[i] = topicConfig(d, configs, b)
	}
	return values
}

func topicConfig(d *ConfigDef, configs []Config, b BrokerConfig) ConfigValue {
	v := ConfigValue{Def: d, Value: d.Default, Null: d.Null, Source: FromDefault}
	set := func(name, value, effective string, source ConfigSource) {
		if len(v.Synonyms) == 0 {
			v.Value, v.Null, v.Source = effective, false, source
		}
		v.Synonyms = append(v.Synonyms, SynonymValue{Name: name, Value: value, Source: source})
	}
	if value, ok := find(configs, d.Name); ok {
		set(d.Name, value, value, FromTopic)
	}
	for _, level := range b.levels() {
		for _, s := range d.Inherits {
			if value, ok := find(level.configs, s.Name); ok {
				set(s.Name, value, s.scaled(value), level.source)
			}
		}
	}
	name := d.Name
	if len(d.Inherits) > 0 {
		name = d.Inherits[len(d.Inherits)-1].Name
		if def, ok := findConfig(brokerConfigs, name); ok {
			v.Synonyms = append(v.Synonyms, SynonymValue{Name: name, Value: def.Default, Null: def.Null, Source: FromDefault})
			return v
		}
	}
	v.Synonyms = append(v.Synonyms, SynonymValue{Name: name, Value: d.Default, Null: d.Null, Source: FromDefault})
	return v
}

// scaled is the value of a broker's configuration in the unit of the topic's.
// Negative values are not amounts, and stay.
func (s Synonym) scaled(value string) string {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if s.Scale == 0 || err != nil || n < 0 {
		return value
	}
	return strconv.FormatInt(n*s.Scale, 10)
}

// TimestampType says whose time a topic's records carry.
type TimestampType int8

// The types there are, by Kafka's numbers.
const (
	CreateTime    TimestampType = 0 // the producer's
	LogAppendTime TimestampType = 1 // the broker's
)

// TopicConfig is what a topic's configurations, the broker's and the defaults
// come to, as far as brokers act on it.
type TopicConfig struct {
	SegmentBytes         int64
	MaxMessageBytes      int32
	MinInSyncReplicas    int32
	TimestampType        TimestampType
	TimestampBeforeMax   int64  // milliseconds; message.timestamp.before.max.ms
	TimestampAfterMax    int64  // milliseconds; message.timestamp.after.max.ms
	Compact              bool   // cleanup.policy has compact
	Delete               bool   // cleanup.policy has delete
	CompressionType      string // "producer" to keep what the producer chose
	RetentionBytes       int64  // -1 for no limit
	RetentionMillis      int64  // -1 for no limit
	PageCache            bool   // pawl.flush=os: written is what the operating system has
	UncleanLeaderAllowed bool
}

// Config is the topic's configuration on a broker.
func (t *Topic) Config(b BrokerConfig) TopicConfig { return TypedTopicConfig(t.Configs, b) }

// TypedTopicConfig is the configuration of a topic that has configs set.
func TypedTopicConfig(configs []Config, b BrokerConfig) TopicConfig {
	policy := splitList(text(configs, b, "cleanup.policy"))
	c := TopicConfig{
		SegmentBytes:         long(configs, b, "segment.bytes"),
		MaxMessageBytes:      int32(long(configs, b, "max.message.bytes")),
		MinInSyncReplicas:    int32(long(configs, b, "min.insync.replicas")),
		TimestampBeforeMax:   long(configs, b, "message.timestamp.before.max.ms"),
		TimestampAfterMax:    long(configs, b, "message.timestamp.after.max.ms"),
		Compact:              slices.Contains(policy, "compact"),
		Delete:               slices.Contains(policy, "delete"),
		CompressionType:      text(configs, b, "compression.type"),
		RetentionBytes:       long(configs, b, "retention.bytes"),
		RetentionMillis:      long(configs, b, "retention.ms"),
		PageCache:            text(configs, b, "pawl.flush") == "os",
		UncleanLeaderAllowed: strings.EqualFold(text(configs, b, "unclean.leader.election.enable"), "true"),
	}
	if text(configs, b, "message.timestamp.type") == "LogAppendTime" {
		c.TimestampType = LogAppendTime
	}
	return c
}

// text is the value of one configuration, which exists.
func text(configs []Config, b BrokerConfig, name string) string {
	d, ok := findConfig(topicConfigs, name)
	assert.That(ok, "metadata: no such topic configuration")
	return strings.TrimSpace(topicConfig(d, configs, b).Value)
}

func long(configs []Config, b BrokerConfig, name string) int64 {
	n, err := strconv.ParseInt(text(configs, b, name), 10, 64)
	assert.That(err == nil, "metadata: a configuration was not validated")
	return n
}
