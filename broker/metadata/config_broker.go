package metadata

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pawlbroker/pawl/storage/assert"
)

// BrokerConfig is the configuration of one broker: what somebody set, over the
// defaults. It never changes. The zero BrokerConfig is all defaults.
type BrokerConfig struct {
	set []Config // that it was started with, by name
	// own and all are what was set since, for this broker and for every broker
	// (KIP-226), by name. They come before set, in that order.
	own, all []Config
}

// NewBrokerConfig returns a configuration with set over the defaults, or an
// ErrInvalidConfig that names the first one that does not exist or may not have
// its value. Of two with one name the later counts.
func NewBrokerConfig(set []Config) (BrokerConfig, error) {
	var b BrokerConfig
	for _, c := range set {
		d, ok := findConfig(brokerConfigs, c.Name)
		if !ok {
			return BrokerConfig{}, fmt.Errorf("%w: there is no configuration %q", ErrInvalidConfig, c.Name)
		}
		if err := d.Validate(c.Value); err != nil {
			return BrokerConfig{}, err
		}
		i, found := slices.BinarySearchFunc(b.set, c, compareConfig)
		if found {
			b.set[i] = c
		} else {
			b.set = slices.Insert(b.set, i, c)
		}
	}
	return b, nil
}

// BrokerConfigs is every configuration a broker may have, by name. It must not
// be changed.
func BrokerConfigs() []*ConfigDef { return brokerConfigs }

// String is the configuration as lines of a server.properties, without what is
// default.
func (b BrokerConfig) String() string {
	var s strings.Builder
	for _, c := range b.set {
		if d, _ := findConfig(brokerConfigs, c.Name); d.Sensitive {
			c.Value = "[hidden]"
		}
		fmt.Fprintf(&s, "%s=%s\n", c.Name, c.Value)
	}
	return s.String()
}

// Inert lists what somebody set that changes nothing.
func (b BrokerConfig) Inert() []string {
	var names []string
	for _, c := range b.set {
		if d, _ := findConfig(brokerConfigs, c.Name); d.Inert {
			names = append(names, c.Name)
		}
	}
	return names
}

// Describe returns all configurations, by name.
func (b BrokerConfig) Describe() []ConfigValue {
	values := make([]ConfigValue, len(brokerConfigs))
	for i, d := range brokerConfigs {
		v := ConfigValue{Def: d, Value: d.Default, Null: d.Null, Source: FromDefault}
		b.each(d.Name, func(value string, source ConfigSource) {
			if len(v.Synonyms) == 0 {
				v.Value, v.Null, v.Source = value, false, source
			}
			v.Synonyms = append(v.Synonyms, SynonymValue{Name: d.Name, Value: value, Source: source})
		})
		v.Synonyms = append(v.Synonyms, SynonymValue{Name: d.Name, Value: d.Default, Null: d.Null, Source: FromDefault})
		values[i] = v
	}
	return values
}

// Text is the value of the configuration of that name, which must exist.
func (b BrokerConfig) Text(name string) string {
	d, ok := findConfig(brokerConfigs, name)
	assert.That(ok, "metadata: no such broker configuration")
	for _, level := range b.levels() {
		if value, ok := find(level.configs, name); ok {
			return strings.TrimSpace(value)
		}
	}
	return d.Default
}

// Int is the value of a configuration that is an integer of any size.
func (b BrokerConfig) Int(name string) int64 {
	n, err := strconv.ParseInt(b.Text(name), 10, 64)
	assert.That(err == nil, "metadata: a broker configuration is not an integer")
	return n
}

// Given is the value that a broker was started with, if it was.
func (b BrokerConfig) Given(name string) (value string, ok bool) { return find(b.set, name) }

// Bool is the value of a configuration that is true or false.
func (b BrokerConfig) Bool(name string) bool { return strings.EqualFold(b.Text(name), "true") }

// The configurations that decide about topics.

// NumPartitions is how many partitions a topic gets if nobody says. Kafka:
// num.partitions.
func (b BrokerConfig) NumPartitions() int32 { return int32(b.Int("num.partitions")) }

// DefaultReplicationFactor is how many replicas a partition gets if nobody
// says. Kafka: default.replication.factor.
func (b BrokerConfig) DefaultReplicationFactor() int16 {
	return int16(b.Int("default.replication.factor"))
}

// AutoCreateTopics is whether asking about a topic creates it. Kafka:
// auto.create.topics.enable.
func (b BrokerConfig) AutoCreateTopics() bool { return b.Bool("auto.create.topics.enable") }

// DeleteTopics is whether topics may be deleted. Kafka: delete.topic.enable.
func (b BrokerConfig) DeleteTopics() bool { return b.Bool("delete.topic.enable") }
