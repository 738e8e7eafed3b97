package metadata

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ConfigType is the type of a configuration's value. The numbers are those of
// Kafka's DescribeConfigs.
type ConfigType int8

// The types there are.
const (
	BooleanConfig ConfigType = 1
	StringConfig  ConfigType = 2
	IntConfig     ConfigType = 3
	ShortConfig   ConfigType = 4
	LongConfig    ConfigType = 5
	DoubleConfig  ConfigType = 6
	ListConfig    ConfigType = 7
	ClassConfig   ConfigType = 8
	SecretConfig  ConfigType = 9 // Kafka: password
)

// ConfigSource says where a value comes from. The numbers are those of Kafka's
// DescribeConfigs.
type ConfigSource int8

// The sources there are.
const (
	FromTopic         ConfigSource = 1 // somebody set it for this topic
	FromDynamicBroker ConfigSource = 2 // somebody set it for this broker while it ran
	FromEveryBroker   ConfigSource = 3 // somebody set it for all brokers while they ran
	FromBroker        ConfigSource = 4 // from the broker's configuration
	FromDefault       ConfigSource = 5
)

// ConfigDef is one line of the tables of configurations. Everything there is to
// say about one is here: validation, DescribeConfigs and the documentation for
// users come from the tables.
type ConfigDef struct {
	Name      string
	Type      ConfigType
	Default   string
	Null      bool                     // has no default value at all
	Check     func(value string) error // nil if every value of the type will do
	Inherits  []Synonym                // for a topic's: where its default comes from, first set first
	ReadOnly  bool                     // cannot be changed while the broker runs
	Sensitive bool                     // nobody is told the value
	Inert     bool                     // is accepted, and changes nothing
	Doc       string
}

// Synonym is a broker's configuration that gives the default for a topic's.
type Synonym struct {
	Name  string
	Scale int64 // what its value is multiplied by; 0 if it is taken as it is
}

// ConfigValue is the value of a configuration, and where it came from.
type ConfigValue struct {
	Def      *ConfigDef
	Value    string
	Null     bool // there is no value
	Source   ConfigSource
	Synonyms []SynonymValue // what could give the value, the one that does first
}

// SynonymValue is one of the places a value could come from.
type SynonymValue struct {
	Name   string
	Value  string
	Null   bool
	Source ConfigSource
}

// Validate returns an ErrInvalidConfig that names the configuration, unless
// value is one it may have.
func (d *ConfigDef) Validate(value string) error {
	err := d.Type.check(value)
	if err == nil && d.Check != nil {
		err = d.Check(strings.TrimSpace(value))
	}
	if err != nil {
		return fmt.Errorf("%w: %s is %q, %w", ErrInvalidConfig, d.Name, value, err)
	}
	return nil
}

func (t ConfigType) check(value string) error {
	value = strings.TrimSpace(value)
	switch t {
	case BooleanConfig:
		if !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false") {
			return fmt.Errorf("want true or false")
		}
	case ShortConfig:
		return wantInteger(value, 16)
	case IntConfig:
		return wantInteger(value, 32)
	case LongConfig:
		return wantInteger(value, 64)
	case DoubleConfig:
		if _, ok := millionths(value); !ok {
			return fmt.Errorf("want a decimal number")
		}
	}
	return nil
}

func wantInteger(value string, bits int) error {
	if _, err := strconv.ParseInt(value, 10, bits); err != nil {
		return fmt.Errorf("want an integer of %d bits", bits)
	}
	return nil
}

// millionths reads a decimal number without an exponent as millionths, which
// are the same on every machine; further digits are dropped.
func millionths(value string) (n int64, ok bool) {
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(value, "-"), ".")
	if whole == "" && fraction == "" || len(whole) > 12 {
		return 0, false
	}
	for _, c := range []byte(whole + fraction) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	for _, c := range []byte(whole + (fraction + "000000")[:6]) {
		n = n*10 + int64(c-'0')
	}
	if strings.HasPrefix(value, "-") {
		n = -n
	}
	return n, true
}

// atLeast is for integers of every size.
func atLeast(least int64) func(string) error {
	return func(value string) error {
		if n, _ := strconv.ParseInt(value, 10, 64); n < least {
			return fmt.Errorf("want at least %d", least)
		}
		return nil
	}
}

func between(least, most int64) func(string) error {
	return func(value string) error {
		if n, _ := strconv.ParseInt(value, 10, 64); n < least || n > most {
			return fmt.Errorf("want %d to %d", least, most)
		}
		return nil
	}
}

func ratio(value string) error {
	if n, _ := millionths(value); n < 0 || n > 1_000_000 {
		return fmt.Errorf("want 0 to 1")
	}
	return nil
}

func oneOf(values ...string) func(string) error {
	return func(value string) error {
		if !slices.Contains(values, value) {
			return fmt.Errorf("want one of %s", strings.Join(values, ", "))
		}
		return nil
	}
}

// someOf is for lists: at least one, each of values.
func someOf(values ...string) func(string) error {
	return func(value string) error {
		for _, v := range splitList(value) {
			if !slices.Contains(values, v) {
				return fmt.Errorf("want a list of %s", strings.Join(values, ", "))
			}
		}
		return nil
	}
}

func gzipLevel(value string) error {
	if value == "-1" {
		return nil
	}
	return between(1, 9)(value)
}

func splitList(value string) []string {
	list := strings.Split(value, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// findConfig looks a name up in a table, which is in order of names.
func findConfig(table []*ConfigDef, name string) (*ConfigDef, bool) {
	i, ok := slices.BinarySearchFunc(table, name, func(d *ConfigDef, name string) int { return strings.Compare(d.Name, name) })
	if !ok {
		return nil, false
	}
	return table[i], true
}

// find looks a name up in configurations, which are in order of names.
func find(configs []Config, name string) (value string, ok bool) {
	i, ok := slices.BinarySearchFunc(configs, Config{Name: name}, compareConfig)
	if !ok {
		return "", false
	}
	return configs[i].Value, true
}
