package metadata

import (
	"testing"
)

func TestRestoreTellsWhatIsDifferent(t *testing.T) {
	id := func(b byte) TopicID { return TopicID{15: b} }
	apply := func(m Image, at Offset, records ...Record) Image {
		t.Helper()
		next, _, err := Apply(m, at, records)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	topic := func(b byte, name string, configs ...Config) []Record {
		return []Record{
			&AddTopic{ID: id(b), Name: name, Configs: configs},
			&Partition{Topic: id(b), Replicas: []NodeID{1}, ISR: []NodeID{1}, Leader: 1},
		}
	}
	brokers := []Record{&RegisterBroker{Node: 1, Epoch: 1}, &RegisterBroker{Node: 2, Epoch: 2}}
	before := apply(Image{}, 10, append(append(brokers, topic(1, "gone")...), topic(2, "stays", Config{"retention.ms", "5"})...)...)
	later := apply(before, 20, append([]Record{
		&UnregisterBroker{Node: 2},
		&RemoveTopic{ID: id(1)},
		&ConfigureTopic{Topic: id(2), Name: "retention.ms", Unset: true},
	}, topic(3, "new")...)...)

	got, delta, err := Restore(before, 20, later.Records())
	if err != nil {
		t.Fatal(err)
	}
	if got.Hash() != later.Hash() || got.Offset() != 20 {
		t.Errorf("the image is another: hash %x at %d, want %x at 20", got.Hash(), got.Offset(), later.Hash())
	}
	names := func(topics []*Topic) (s string) {
		for _, x := range topics {
			s += x.Name + " "
		}
		return s
	}
	if d := names(delta.Deleted); d != "gone " {
		t.Errorf("deleted: %q", d)
	}
	if d := names(delta.Created); d != "new " {
		t.Errorf("created: %q", d)
	}
	if d := names(delta.Configured); d != "stays " {
		t.Errorf("configured: %q", d)
	}
	if len(delta.Partitions) != 1 || len(delta.Brokers) != 1 {
		t.Errorf("partitions %v and brokers %v, want one of each", delta.Partitions, delta.Brokers)
	}
}
