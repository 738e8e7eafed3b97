package metadata

import (
	"fmt"
	"slices"
	"strings"
)

// On returns the configuration of a broker that was started with b, with what
// was set in the cluster since (KIP-226): for that broker, and for every broker.
// For EveryBroker it is with the latter alone.
//
// min.insync.replicas cannot differ from one broker to another, because the
// controller acts on it; so it is the image's even where b has another.
func (b BrokerConfig) On(m Image, node NodeID) BrokerConfig {
	if m.brokerConfigs == nil {
		return b
	}
	b.all = m.BrokerConfigs(EveryBroker)
	if node >= 0 {
		b.own = m.BrokerConfigs(node)
	}
	value, ok := m.BrokerConfig(OwnFile, minISR)
	i, found := slices.BinarySearchFunc(b.set, Config{Name: minISR}, compareConfig)
	if ok {
		b.set = slices.Clone(b.set)
		if !found {
			b.set = slices.Insert(b.set, i, Config{})
		}
		b.set[i] = Config{minISR, value}
	}
	return b
}

const minISR = "min.insync.replicas"

// level is one of the places where a broker's configuration can be set.
type level struct {
	configs []Config
	source  ConfigSource
}

// levels are the places, the one that comes before the others first.
func (b BrokerConfig) levels() [3]level {
	return [...]level{{b.own, FromDynamicBroker}, {b.all, FromEveryBroker}, {b.set, FromBroker}}
}

// each tells f of the values that are set for a name, the one that counts first.
func (b BrokerConfig) each(name string, f func(value string, source ConfigSource)) {
	for _, l := range b.levels() {
		if value, ok := find(l.configs, name); ok {
			f(value, l.source)
		}
	}
}

// DescribeEvery returns what was set for every broker while they ran, by name.
func (b BrokerConfig) DescribeEvery() []ConfigValue {
	var values []ConfigValue
	for _, c := range b.all {
		d, ok := findConfig(brokerConfigs, c.Name)
		if !ok {
			continue
		}
		values = append(values, ConfigValue{Def: d, Value: c.Value, Source: FromEveryBroker, Synonyms: []SynonymValue{
			{Name: c.Name, Value: c.Value, Source: FromEveryBroker},
		}})
	}
	return values
}

// ValidateDynamic returns an error unless somebody may set a broker's
// configuration to that value while brokers run: an ErrInvalidRequest, as in
// Kafka, that names it. Node is the broker, or EveryBroker.
func ValidateDynamic(node NodeID, c Config) error {
	d, ok := findConfig(brokerConfigs, c.Name)
	switch {
	case !ok:
		return fmt.Errorf("%w: there is no configuration %q", ErrInvalidRequest, c.Name)
	case d.ReadOnly:
		return fmt.Errorf("%w: %s cannot be changed while brokers run", ErrInvalidRequest, c.Name)
	case node != EveryBroker && c.Name == minISR:
		return fmt.Errorf("%w: %s is the same for all brokers, and cannot be set for one", ErrInvalidConfig, c.Name)
	}
	if err := d.Validate(c.Value); err != nil {
		return fmt.Errorf("%w: %s", ErrInvalidRequest, strings.TrimPrefix(err.Error(), ErrInvalidConfig.Error()+": "))
	}
	return nil
}
