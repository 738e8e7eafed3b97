package metadata

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// configured is an image in which somebody has configured brokers.
func configured(t *testing.T, records ...Record) Image {
	m, _, err := Apply(Image{}, 1, records)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func where(values []ConfigValue, name string) string {
	for _, v := range values {
		if v.Def.Name != name {
			continue
		}
		s := fmt.Sprintf("%s from %d", v.Value, v.Source)
		for _, y := range v.Synonyms {
			s += fmt.Sprintf(" %s=%s/%d", y.Name, y.Value, y.Source)
		}
		return s
	}
	return "nowhere"
}

func TestDynamicConfigsComeBeforeTheFile(t *testing.T) {
	file, err := NewBrokerConfig([]Config{{"log.retention.hours", "5"}, {"message.max.bytes", "5"}})
	if err != nil {
		t.Fatal(err)
	}
	m := configured(t,
		&ConfigureBroker{Node: EveryBroker, Name: "message.max.bytes", Value: "6"},
		&ConfigureBroker{Node: EveryBroker, Name: "log.retention.ms", Value: "1000"},
		&ConfigureBroker{Node: 1, Name: "message.max.bytes", Value: "7"},
		&ConfigureBroker{Node: 2, Name: "message.max.bytes", Value: "8"},
	)
	own, other, every := file.On(m, 1), file.On(m, 3), file.On(m, EveryBroker)
	if a, b, c := own.Int("message.max.bytes"), other.Int("message.max.bytes"), every.Int("message.max.bytes"); a != 7 || b != 6 || c != 6 {
		t.Errorf("7, 6 and 6 are %d, %d and %d", a, b, c)
	}
	for _, c := range []struct{ got, want string }{
		{where(own.Describe(), "message.max.bytes"), "7 from 2 message.max.bytes=7/2 message.max.bytes=6/3 message.max.bytes=5/4 message.max.bytes=1048588/5"},
		{where(other.Describe(), "message.max.bytes"), "6 from 3 message.max.bytes=6/3 message.max.bytes=5/4 message.max.bytes=1048588/5"},
		{where(own.DescribeEvery(), "message.max.bytes"), "6 from 3 message.max.bytes=6/3"},
		{where(own.DescribeEvery(), "log.segment.bytes"), "nowhere"},
		{where(DescribeTopicConfigs([]Config{{"retention.ms", "9"}}, own), "retention.ms"),
			"9 from 1 retention.ms=9/1 log.retention.ms=1000/3 log.retention.hours=5/4 log.retention.hours=168/5"},
		{where(DescribeTopicConfigs(nil, own), "max.message.bytes"),
			"7 from 2 message.max.bytes=7/2 message.max.bytes=6/3 message.max.bytes=5/4 message.max.bytes=1048588/5"},
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
}

func TestAllBrokersHaveOneMinISR(t *testing.T) {
	file, err := NewBrokerConfig([]Config{{"min.insync.replicas", "9"}, {"num.partitions", "2"}})
	if err != nil {
		t.Fatal(err)
	}
	m := configured(t, &ConfigureBroker{Node: OwnFile, Name: "min.insync.replicas", Value: "3"})
	for _, b := range []BrokerConfig{file, {}} {
		if got := b.On(m, 1).Int("min.insync.replicas"); got != 3 {
			t.Errorf("%q: %d, want what the controller was started with", b, got)
		}
	}
	if got := where(file.On(m, 1).Describe(), "min.insync.replicas"); got != "3 from 4 min.insync.replicas=3/4 min.insync.replicas=1/5" {
		t.Error(got)
	}
	m = configured(t,
		&ConfigureBroker{Node: OwnFile, Name: "min.insync.replicas", Value: "3"},
		&ConfigureBroker{Node: EveryBroker, Name: "min.insync.replicas", Value: "2"},
	)
	if got := file.On(m, 1).Int("min.insync.replicas"); got != 2 || m.MinISR(&Topic{}) != 2 {
		t.Errorf("%d, want what was set for every broker", got)
	}
	if file.Int("min.insync.replicas") != 9 {
		t.Error("the configuration of the file has changed")
	}
}

func TestWhatMayBeSetWhileBrokersRun(t *testing.T) {
	for _, c := range []struct {
		node   NodeID
		config Config
		err    error
		want   string
	}{
		{1, Config{"message.max.bytes", "1"}, nil, ""},
		{EveryBroker, Config{"message.max.bytes", "1"}, nil, ""},
		{EveryBroker, Config{"min.insync.replicas", "2"}, nil, ""},
		{1, Config{"min.insync.replicas", "2"}, ErrInvalidConfig, "the same for all brokers"},
		{1, Config{"node.id", "2"}, ErrInvalidRequest, "node.id cannot be changed while brokers run"},
		{EveryBroker, Config{"colour", "red"}, ErrInvalidRequest, `there is no configuration "colour"`},
		{1, Config{"message.max.bytes", "x"}, ErrInvalidRequest, `invalid request: message.max.bytes is "x", want an integer`},
	} {
		err := ValidateDynamic(c.node, c.config)
		if !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d %v: %v", c.node, c.config, err)
		}
	}
}
