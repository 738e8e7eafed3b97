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
			key, n := field(p)
			value, m := field(p[n:])
			if !yield(key, value) {
				return
			}
			p = p[n+m:]
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
	u, n := oneByte(p)
	if n == 0 {
		u, n = longUvarint(p)
	}
	size, n := signed32(u, n)
	if n == 0 || size < 0 || int(size) > len(p)-n {
		return nil, "length too big or does not fit what is left"
	}
	p, rest = p[n:n+int(size)], p[n+int(size):]
	if len(p) == 0 {
		return nil, "empty"
	}
	r.Attributes = int8(p[0])
	p = p[1:]
	if u, n = oneByte(p); n == 0 {
		u, n = longUvarint(p)
	}
	if r.TimestampDelta, n = signed64(u, n); n == 0 {
		return nil, "timestamp delta cut short or too big"
	}
	p = p[n:]
	if u, n = oneByte(p); n == 0 {
		u, n = longUvarint(p)
	}
	if r.OffsetDelta, n = signed32(u, n); n == 0 {
		return nil, "offset delta cut short or too big"
	}
	p = p[n:]
	if r.Key, n = field(p); n == 0 {
		return nil, "key does not fit the record"
	}
	p = p[n:]
	if r.Value, n = field(p); n == 0 {
		return nil, "value does not fit the record"
	}
	p = p[n:]
	if len(p) == 1 && p[0] == 0 {
		r.HeaderCount, r.RawHeaders = 0, nil
		return rest, ""
	}
	if r.HeaderCount, n = Varint(p); n == 0 || r.HeaderCount < 0 {
		return nil, "header count cut short, negative or too big"
	}
	r.RawHeaders = p[n:]
	return rest, headerFlaw(r.RawHeaders, r.HeaderCount)
}

func headerFlaw(p []byte, count int32) string {
	for range count {
		key, n := field(p)
		if n == 0 || key == nil {
			return "header key null or does not fit the record"
		}
		p = p[n:]
		if _, n = field(p); n == 0 {
			return "header value does not fit the record"
		}
		p = p[n:]
	}
	if len(p) > 0 {
		return "bytes after the last header"
	}
	return ""
}

// field reads a length and as many bytes from the front of p; n is how many it
// took in all, or 0 when they are not there. Length -1 is null and gives nil; an
// empty field is not nil.
func field(p []byte) (f []byte, n int) {
	u, n := oneByte(p)
	if n == 0 {
		u, n = longUvarint(p)
	}
	size, n := signed32(u, n)
	if n == 0 || size < 0 || int(size) > len(p)-n {
		if n > 0 && size == -1 {
			return nil, n
		}
		return nil, 0
	}
	end := n + int(size)
	return p[n:end:end], end
}
