package metadata

import (
	"errors"
	"reflect"
	"testing"
)

var everyRecord = []Record{
	&RegisterBroker{Node: 1, Incarnation: IncarnationID{1, 2}, Epoch: 7, Host: "host", Port: 9092, Rack: "rack"},
	&RegisterBroker{Node: 2, Epoch: 8, Host: "host", Port: 9092, PeerHost: "peer", PeerPort: 9093, Directory: [16]byte{1, 15: 2}, Fenced: true},
	&RegisterBroker{Node: 2, Epoch: 8, InShutdown: true},
	&BrokerChange{2, 8, true, false},
	&BrokerChange{2, 8, false, true},
	&UnregisterBroker{2},
	&ConfigureBroker{OwnFile, "min.insync.replicas", "2", false},
	&ConfigureBroker{EveryBroker, "min.insync.replicas", "", true},
	&AddTopic{TopicID{3}, "t", []Config{{"a", "1"}, {"b", ""}}},
	&AddTopic{TopicID{4}, "u", nil},
	&RemoveTopic{TopicID{5}},
	&Partition{Topic: TopicID{3}, Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{2}, Leader: 2, LeaderEpoch: 1 << 30, Epoch: 9},
	&Partition{Topic: TopicID{3}, Index: 1<<31 - 1, Leader: NoNode, LeaderEpoch: -1, Epoch: -1 << 31},
	&Partition{Topic: TopicID{3}, Replicas: []NodeID{1, 2, 3, 4}, ISR: []NodeID{2}, Leader: 2, Epoch: 9,
		ELR: []NodeID{1}, Adding: []NodeID{3, 4}, Removing: []NodeID{1}},
	&Partition{Topic: TopicID{3}, Replicas: []NodeID{1}, Leader: NoNode, LastKnownELR: []NodeID{1}},
	&Partition{Topic: TopicID{3}, Replicas: []NodeID{1}, ISR: []NodeID{1}, Leader: 1, Recovering: true},
	&ConfigureTopic{TopicID{3}, "a", "2", false},
	&ConfigureTopic{TopicID{3}, "a", "", true},
	&ProducerIDs{1<<63 - 1},
	&DeletedTopic{TopicID{9}},
	&BrokerEpochs{8},
}

func TestRecordsSurviveTheirEncoding(t *testing.T) {
	b := Encode(everyRecord)
	got, err := Decode(b)
	if err != nil || !reflect.DeepEqual(got, everyRecord) {
		t.Fatalf("got %v, %v", got, err)
	}
	for i := range b {
		if got, err := Decode(b[:i]); err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatalf("first %d bytes: %v", i, err)
		} else if err == nil && len(got) == len(everyRecord) {
			t.Fatalf("first %d of %d bytes are enough", i, len(b))
		}
	}
}

func TestMalformedRecordsAreNamed(t *testing.T) {
	for _, c := range []struct {
		b    []byte
		want string
	}{
		{nil, "malformed metadata records: empty"},
		{[]byte{2}, "malformed metadata records: version 2, this is written for version 1"},
		{[]byte{1, 200, 0}, "malformed metadata records: record at byte 1 is of unknown kind 200"},
		{[]byte{1, 2, 1, 2, 2, 5, 0}, "malformed metadata records: record at byte 4 is cut short"},
		{[]byte{1, 2, 2, 2, 0}, "malformed metadata records: record at byte 1, of kind 2, does not fit its 2 bytes"},
		{[]byte{1, 2, 2, 0x82, 0}, "malformed metadata records: record at byte 1, of kind 2, does not fit its 2 bytes"},
		// A broker and a partition that older kinds have room for, as newer kinds.
		{append([]byte{1, 10, 41}, make([]byte, 41)...), "malformed metadata records: record at byte 1, of kind 10, does not fit its 41 bytes"},
		{append([]byte{1, 12, 27}, make([]byte, 27)...), "malformed metadata records: record at byte 1, of kind 12, does not fit its 27 bytes"},
	} {
		if _, err := Decode(c.b); !errors.Is(err, ErrMalformed) || err.Error() != c.want {
			t.Errorf("%v: %v, want %s", c.b, err, c.want)
		}
	}
}

// What was written before there were more fields is read as if those were
// zero.
func TestOldEncodingsAreRead(t *testing.T) {
	b := []byte{1,
		1, 26, 2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 14, 1, 'h', 0x88, 0x8e, 1, 2, 'r', 'k', // a broker
		5, 25, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 4, 1, 4, 4, 6, 18, // a partition
	}
	want := []Record{
		&RegisterBroker{Node: 1, Incarnation: IncarnationID{1, 2}, Epoch: 7, Host: "h", Port: 9092, Rack: "rk"},
		&Partition{Topic: TopicID{3}, Replicas: []NodeID{1, 2}, ISR: []NodeID{2}, Leader: 2, LeaderEpoch: 3, Epoch: 9},
	}
	got, err := Decode(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, %v", got, err)
	}
	if again := Encode(got); string(again) != string(b) {
		t.Fatalf("%v is written as %v", b, again)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(everyRecord))
	for _, r := range everyRecord {
		f.Add(Encode([]Record{r}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := Decode(b)
		if err != nil {
			return
		}
		if again := Encode(records); string(again) != string(b) {
			t.Fatalf("%x decodes and is encoded as %x", b, again)
		}
		// Whatever they are, they are applied or refused.
		m, _, err := Apply(Image{}, 1, records)
		if err != nil && !errors.Is(err, ErrInapplicable) {
			t.Fatal(err)
		}
		if err == nil {
			again, _, err := Apply(Image{}, 1, m.Records())
			if err != nil || again.Hash() != m.Hash() {
				t.Fatalf("an image does not survive a snapshot: %v", err)
			}
		}
	})
}
