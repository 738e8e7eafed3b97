package record

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// three has a record of every kind of field.
func three() *Builder {
	return NewBuilder().
		Append(1000, []byte("k"), []byte("v"), Header{"h", []byte("x")}, Header{"h", nil}, Header{"", []byte{}}).
		Append(900, nil, []byte{}).
		Append(1700, []byte{}, nil)
}

func collect(t *testing.T, b Batch) []Record {
	t.Helper()
	var all []Record
	if err := Walk(b.Payload(), b.Count(), func(r Record) error { all = append(all, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestWalkSeesWhatWasAppended(t *testing.T) {
	got := ""
	for _, r := range collect(t, three().Build(Options{})) {
		got += fmt.Sprintf("%d %d %q %t %q %t;", r.OffsetDelta, r.TimestampDelta, r.Key, r.Key == nil, r.Value, r.Value == nil)
		for k, v := range r.Headers() {
			got += fmt.Sprintf(" %q=%q %t;", k, v, v == nil)
		}
	}
	want := `0 0 "k" false "v" false; "h"="x" false; "h"="" true; ""="" false;` +
		`1 -100 "" true "" false;2 700 "" false "" true;`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// kmsg is another reader of the same format.
func TestBuildMakesWhatKmsgReads(t *testing.T) {
	b := three().Build(Options{Producer: &Producer{7, 8, 9}, Transactional: true})
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	if _, rest, err := Cut(b); err != nil || len(rest) != 0 {
		t.Fatalf("cut: %d bytes left, %v", len(rest), err)
	}
	if k.ProducerID != 7 || k.ProducerEpoch != 8 || k.FirstSequence != 9 || k.Attributes != 0x10 || k.NumRecords != 3 ||
		k.LastOffsetDelta != 2 || k.FirstTimestamp != 1000 || k.MaxTimestamp != 1700 || k.PartitionLeaderEpoch != -1 || k.Magic != 2 {
		t.Errorf("kmsg reads %+v", k)
	}
	p := k.Records
	for i, want := range collect(t, b) {
		var r kmsg.Record
		size, n := Varint(p)
		if err := r.ReadFrom(p[:n+int(size)]); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		p = p[n+int(size):]
		if r.OffsetDelta != want.OffsetDelta || r.TimestampDelta64 != want.TimestampDelta || !slices.Equal(r.Key, want.Key) ||
			!slices.Equal(r.Value, want.Value) || len(r.Headers) != int(want.HeaderCount) {
			t.Errorf("record %d: kmsg reads %+v, want %+v", i, r, want)
		}
	}
}

func TestInspectFindsTheFacts(t *testing.T) {
	for _, c := range []struct {
		b    *Builder
		want Facts
	}{
		{three(), Facts{MinTimestamp: 900, MaxTimestamp: 1700, NullKey: 1}},
		{NewBuilder().Append(5, []byte{}, nil), Facts{5, 5, -1}},
		{NewBuilder().Append(NoTimestamp, nil, nil), Facts{NoTimestamp, NoTimestamp, 0}},
		{NewBuilder().Append(NoTimestamp, nil, nil).Append(3, nil, nil), Facts{3, 3, 0}},
		{NewBuilder().Append(math.MaxInt64, nil, nil).Append(-7, nil, nil), Facts{-7, math.MaxInt64, 0}},
	} {
		b := c.b.Build(Options{})
		if got, err := Inspect(b.Payload(), b.Count(), b.BaseTimestamp()); err != nil || got != c.want {
			t.Errorf("got %+v, %v, want %+v", got, err, c.want)
		}
	}
}

// wire makes a record of raw bytes: its length in front of the parts.
func wire(parts ...string) string {
	body := ""
	for _, p := range parts {
		body += p
	}
	return string(AppendVarint(nil, int32(len(body)))) + body
}

const (
	attrs = "\x00"
	zero  = "\x00" // the varint 0
	one   = "\x02"
	null  = "\x01" // the varint -1
	minus = "\x03" // the varint -2
	huge  = "\xfe\xff\xff\xff\x0f"
	over  = "\xff\xff\xff\xff\x7f"             // more than 32 bits
	wide  = "\xff\xff\xff\xff\xff\xff\xff\xff" // and on: more than 64 bits
)

func TestMalformedRecordsAreInvalid(t *testing.T) {
	good := wire(attrs, zero, zero, null, null, zero)
	next := wire(attrs, zero, one, null, null, zero)
	for _, c := range []struct {
		name    string
		payload string
		count   int32
	}{
		{"nothing for a record", "", 1},
		{"a record for nothing", good, 0},
		{"more records than there are", good, 2},
		{"fewer records than there are", good + next, 1},
		{"a negative count", good, -1},
		{"the greatest count", good, math.MaxInt32},
		{"a byte after the last", good + "\x00", 1},
		{"cut short", good[:len(good)-1], 1},
		{"length negative", "\x01" + good[1:], 1},
		{"length zero", "\x00", 1},
		{"length huge", huge + good[1:], 1},
		{"length over 32 bits", over + good[1:], 1},
		{"length unfinished", "\x80", 1},
		{"only attributes", wire(attrs), 1},
		{"timestamp delta over 64 bits", wire(attrs, wide, "\xff\x7f", zero, null, null, zero), 1},
		{"no offset delta", wire(attrs, zero), 1},
		{"offset delta over 32 bits", wire(attrs, zero, over, null, null, zero), 1},
		{"offset delta negative", wire(attrs, zero, null, null, null, zero), 1},
		{"offset delta twice", good + good, 2},
		{"no key", wire(attrs, zero, zero), 1},
		{"key length -2", wire(attrs, zero, zero, minus, null, zero), 1},
		{"key longer than the record", wire(attrs, zero, zero, huge, null, zero), 1},
		{"key into the next record", wire(attrs, zero, zero, "\x10", null, zero) + next, 2},
		{"no value", wire(attrs, zero, zero, null), 1},
		{"value length -2", wire(attrs, zero, zero, null, minus, zero), 1},
		{"value longer than the record", wire(attrs, zero, zero, null, huge, zero), 1},
		{"no header count", wire(attrs, zero, zero, null, null), 1},
		{"header count negative", wire(attrs, zero, zero, null, null, null), 1},
		{"header count huge", wire(attrs, zero, zero, null, null, huge), 1},
		{"header missing", wire(attrs, zero, zero, null, null, one), 1},
		{"header key null", wire(attrs, zero, zero, null, null, one, null, null), 1},
		{"header key too long", wire(attrs, zero, zero, null, null, one, huge, null), 1},
		{"header value missing", wire(attrs, zero, zero, null, null, one, zero), 1},
		{"header value -2", wire(attrs, zero, zero, null, null, one, zero, minus), 1},
		{"a byte after the last header", wire(attrs, zero, zero, null, null, zero, "\x00"), 1},
	} {
		err := Walk([]byte(c.payload), c.count, func(Record) error { return nil })
		if !errors.Is(err, ErrInvalid) || !errors.Is(err, ErrCorrupt) {
			t.Errorf("walk %s: %v", c.name, err)
		}
		if _, err := Inspect([]byte(c.payload), c.count, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("inspect %s: %v", c.name, err)
		}
	}
}

func TestOnlyInspectMindsGaps(t *testing.T) {
	gap := []byte(wire(attrs, zero, one, null, null, zero) + wire(attrs, zero, "\x08", null, null, zero))
	if err := Walk(gap, 2, func(Record) error { return nil }); err != nil {
		t.Errorf("walk: %v", err)
	}
	if _, err := Inspect(gap, 2, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("inspect: %v", err)
	}
}

func TestWalkStopsAtTheCallersError(t *testing.T) {
	b, stop, seen := three().Build(Options{}), errors.New("enough"), 0
	err := Walk(b.Payload(), 3, func(Record) error { seen++; return stop })
	if err != stop || seen != 1 {
		t.Errorf("%v after %d records", err, seen)
	}
}

func TestWalkAndInspectDoNotAllocate(t *testing.T) {
	b, sum := three().Build(Options{}), 0
	n := testing.AllocsPerRun(100, func() {
		if err := Walk(b.Payload(), 3, func(r Record) error { sum += len(r.Key); return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := Inspect(b.Payload(), 3, 0); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
