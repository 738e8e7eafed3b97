package metadata

import (
	"errors"
	"reflect"
	"testing"
)

var everyRecord = []Record{
	&RegisterBroker{1, IncarnationID{1, 2}, 7, "host", 9092, "rack"},
	&UnregisterBroker{2},
	&AddTopic{TopicID{3}, "t", []Config{{"a", "1"}, {"b", ""}}},
	&AddTopic{TopicID{4}, "u", nil},
	&RemoveTopic{TopicID{5}},
	&Partition{TopicID{3}, 0, []NodeID{1, 2, 3}, []NodeID{2}, 2, 1 << 30, 9},
	&Partition{TopicID{3}, 1<<31 - 1, nil, nil, NoNode, -1, -1 << 31},
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
	} {
		if _, err := Decode(c.b); !errors.Is(err, ErrMalformed) || err.Error() != c.want {
			t.Errorf("%v: %v, want %s", c.b, err, c.want)
		}
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
