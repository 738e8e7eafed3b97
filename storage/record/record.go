package record

import (
	"fmt"
	"iter"
	"math"
)

// ErrInvalid says the records of an intact batch are malformed: the CRC is
// right, so whoever made the batch made it wrong, and sending it again cannot
// help. It wraps ErrCorrupt, so look for it first.
var ErrInvalid = fmt.Errorf("%w: invalid records", ErrCorrupt)

// Record is one record of a batch. Its slices share the batch's bytes.
type Record struct {
	Attributes     int8  // no bit has a meaning yet
	OffsetDelta    int32 // to the batch's base offset
	HeaderCount    int32
	TimestampDelta int64  // milliseconds, to the batch's base timestamp
	Key, Value     []byte // nil when null
	RawHeaders     []byte // HeaderCount headers in wire form, checked
}

// Headers are the record's headers in order; a null value is nil, and a key may
// occur more than once.
//
// Source: KIP-82.
func (r Record) Headers() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		p := r.RawHeaders
		for range r.HeaderCount {
			key, rest, ok := field(p)
			if !ok {
				return
			}
			value, rest, ok := field(rest)
			if !ok || !yield(key, value) {
				return
			}
			p = rest
		}
	}
}

// Walk calls fn for each of the count records in payload, which is not
// compressed. It stops at the first error of fn and returns it as it is.
//
// It returns ErrInvalid when payload is anything but exactly count well-formed
// records whose offset deltas grow. Deltas may have gaps, as compaction leaves
// them; Inspect is for batches that may not.
func Walk(payload []byte, count int32, fn func(Record) error) error {
	if count < 0 {
		return fmt.Errorf("%w: count %d", ErrInvalid, count)
	}
	last := int32(-1)
	var r Record
	for i := range count {
		rest, flaw := next(payload, &r)
		if flaw != "" {
			return fmt.Errorf("%w: record %d of %d: %s", ErrInvalid, i, count, flaw)
		}
		if r.OffsetDelta <= last {
			return fmt.Errorf("%w: record %d of %d: offset delta %d after %d", ErrInvalid, i, count, r.OffsetDelta, last)
		}
		if err := fn(r); err != nil {
			return err
		}
		last, payload = r.OffsetDelta, rest
	}
	return nothingLeft(payload, count)
}

// Inspect is the check of records that a producer sent: payload, which is not
// compressed, must be exactly count well-formed records with the offset deltas
// 0, 1, 2 and so on. It returns ErrInvalid when it is not. base is the batch's
// base timestamp.
func Inspect(payload []byte, count int32, base Timestamp) (Facts, error) {
	if count < 0 {
		return Facts{}, fmt.Errorf("%w: count %d", ErrInvalid, count)
	}
	facts := Facts{MinTimestamp: math.MaxInt64, MaxTimestamp: NoTimestamp, NullKey: -1}
	stamped := false
	var r Record
	for i := range count {
		rest, flaw := next(payload, &r)
		if flaw != "" {
			return Facts{}, fmt.Errorf("%w: record %d of %d: %s", ErrInvalid, i, count, flaw)
		}
		if r.OffsetDelta != i {
			return Facts{}, fmt.Errorf("%w: record %d of %d: offset delta %d", ErrInvalid, i, count, r.OffsetDelta)
		}
		if t := base + Timestamp(r.TimestampDelta); t != NoTimestamp {
			stamped = true
			facts.MinTimestamp = min(facts.MinTimestamp, t)
			facts.MaxTimestamp = max(facts.MaxTimestamp, t)
		}
		if r.Key == nil && facts.NullKey < 0 {
			facts.NullKey = i
		}
		payload = rest
	}
	if !stamped {
		facts.MinTimestamp = NoTimestamp
	}
	return facts, nothingLeft(payload, count)
}

func nothingLeft(payload []byte, count int32) error {
	if len(payload) > 0 {
		return fmt.Errorf("%w: %d bytes after record %d", ErrInvalid, len(payload), count)
	}
	return nil
}

// next reads one record from the front of p into r. flaw is what is wrong with
// it, or empty.
func next(p []byte, r *Record) (rest []byte, flaw string) {
	size, n := Varint(p)
	if n == 0 {
		return nil, "length cut short or too big"
	}
	if size < 0 || int(size) > len(p)-n {
		return nil, "length does not fit what is left"
	}
	p, rest = p[n:n+int(size)], p[n+int(size):]
	if len(p) == 0 {
		return nil, "empty"
	}
	r.Attributes = int8(p[0])
	p = p[1:]
	if r.TimestampDelta, n = Varlong(p); n == 0 {
		return nil, "timestamp delta cut short or too big"
	}
	p = p[n:]
	if r.OffsetDelta, n = Varint(p); n == 0 {
		return nil, "offset delta cut short or too big"
	}
	p = p[n:]
	var ok bool
	if r.Key, p, ok = field(p); !ok {
		return nil, "key does not fit the record"
	}
	if r.Value, p, ok = field(p); !ok {
		return nil, "value does not fit the record"
	}
	if r.HeaderCount, n = Varint(p); n == 0 || r.HeaderCount < 0 {
		return nil, "header count cut short, negative or too big"
	}
	r.RawHeaders = p[n:]
	if r.HeaderCount == 0 && len(r.RawHeaders) == 0 {
		return rest, ""
	}
	return rest, headerFlaw(r.RawHeaders, r.HeaderCount)
}

func headerFlaw(p []byte, count int32) string {
	for range count {
		key, rest, ok := field(p)
		if !ok || key == nil {
			return "header key null or does not fit the record"
		}
		if _, p, ok = field(rest); !ok {
			return "header value does not fit the record"
		}
	}
	if len(p) > 0 {
		return "bytes after the last header"
	}
	return ""
}

// field reads a length and as many bytes from the front of p. Length -1 is null
// and gives nil; an empty field is not nil.
func field(p []byte) (f, rest []byte, ok bool) {
	size, n := Varint(p)
	switch {
	case n == 0 || size < -1 || int(size) > len(p)-n:
		return nil, nil, false
	case size == -1:
		return nil, p[n:], true
	}
	end := n + int(size)
	return p[n:end:end], p[end:], true
}
