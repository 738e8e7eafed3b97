package record

import (
	"bytes"
	"slices"
	"testing"
)

func FuzzCut(f *testing.F) {
	f.Add([]byte(three().Build(Options{})))
	f.Add([]byte(NewBuilder().Build(Options{Control: true})))
	f.Fuzz(func(t *testing.T, in []byte) {
		before := slices.Clone(in)
		b, rest, err := Cut(in)
		if err != nil {
			return
		}
		if !bytes.Equal(append(slices.Clone(b), rest...), before) {
			t.Fatal("batch and rest are not the input")
		}
		b.Assign(b.BaseOffset(), b.LeaderEpoch())
		b.seal()
		if !bytes.Equal(in, before) {
			t.Fatal("writing what was read changed the batch")
		}
	})
}

// Whatever Inspect accepts, building it again gives the same records; and if the
// input used the shortest varints, the same bytes.
func FuzzWalk(f *testing.F) {
	b := three().Build(Options{})
	f.Add(b.Payload(), b.Count())
	f.Add([]byte(wire(attrs, "\x80\x00", zero, null, null, zero)), int32(1))
	f.Fuzz(func(t *testing.T, in []byte, count int32) {
		var all []Record
		err := Walk(in, count, func(r Record) error { all = append(all, r); return nil })
		_, inspectErr := Inspect(in, count, 0)
		if err != nil {
			if inspectErr == nil {
				t.Fatalf("inspect accepts what walk does not: %v", err)
			}
			return
		}
		if inspectErr != nil || len(all) == 0 || all[0].TimestampDelta != 0 {
			return // a gap, or a base timestamp that a builder would not choose
		}
		again := NewBuilder()
		for _, r := range all {
			var headers []Header
			for k, v := range r.Headers() {
				headers = append(headers, Header{string(k), v})
			}
			if len(headers) != int(r.HeaderCount) {
				t.Fatalf("%d headers, want %d", len(headers), r.HeaderCount)
			}
			again.Append(Timestamp(r.TimestampDelta), r.Key, r.Value, headers...)
		}
		out := again.Build(Options{})
		if len(out.Payload()) == len(in) && !bytes.Equal(stripAttributes(out.Payload()), stripAttributes(in)) {
			t.Fatalf("built again\n% x, was\n% x", out.Payload(), in)
		}
		i := 0
		err = Walk(out.Payload(), out.Count(), func(r Record) error {
			w := all[i]
			if r.TimestampDelta != w.TimestampDelta || !bytes.Equal(r.Key, w.Key) || (r.Key == nil) != (w.Key == nil) ||
				!bytes.Equal(r.Value, w.Value) || (r.Value == nil) != (w.Value == nil) {
				t.Fatalf("record %d is %+v, was %+v", i, r, w)
			}
			i++
			return nil
		})
		if err != nil || i != len(all) {
			t.Fatalf("%d records of %d: %v", i, len(all), err)
		}
	})
}

// stripAttributes clears the attributes of every record, which a builder does
// not keep.
func stripAttributes(payload []byte) []byte {
	p := slices.Clone(payload)
	for rest := p; len(rest) > 0; {
		size, n := Varint(rest)
		rest[n] = 0
		rest = rest[n+int(size):]
	}
	return p
}
