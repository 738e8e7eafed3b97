package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
)

// A Frame is responses as they go over the wire, one after another: bytes, with
// holes where regions of files go. The zero value is empty.
type Frame struct {
	Bytes []byte // everything but what is in the holes
	Holes []Hole // by At, ascending
	size  int64
}

// A Hole is where a region belongs: before Bytes[At].
type Hole struct {
	At     int
	Region storage.Region // not empty
}

// Reset empties the frame and keeps its memory.
func (f *Frame) Reset() {
	clear(f.Holes)
	f.Bytes, f.Holes, f.size = f.Bytes[:0], f.Holes[:0], 0
}

// Size is the length of the whole frame in bytes, holes included.
func (f *Frame) Size() int64 { return f.size }

// Append adds the response to the request with the given correlation id, with
// its length before it. body is a kmsg.Response with its version set, or a
// *FetchResponse. On an error, which only a response of 2 GiB gives, the frame
// is as it was.
func (f *Frame) Append(correlation int32, body Body) error {
	start, holes := len(f.Bytes), len(f.Holes)
	f.Bytes = append(f.Bytes, 0, 0, 0, 0)
	f.Bytes = binary.BigEndian.AppendUint32(f.Bytes, uint32(correlation))
	var regions int64
	switch b := body.(type) {
	case *FetchResponse:
		regions = f.appendFetch(b)
	case kmsg.Response:
		if b.IsFlexible() && b.Key() != kmsg.ApiVersions.Int16() {
			f.Bytes = append(f.Bytes, 0) // no tags; ApiVersions keeps header version 0
		}
		f.Bytes = b.AppendTo(f.Bytes)
	default:
		assert.That(false, "wire: a response that is neither kmsg's nor Fetch")
	}
	size := int64(len(f.Bytes)-start) + regions
	if size-PrefixSize > math.MaxInt32 {
		f.Bytes, f.Holes = f.Bytes[:start], f.Holes[:holes]
		return fmt.Errorf("%w: response of %d", ErrFrameSize, size)
	}
	binary.BigEndian.PutUint32(f.Bytes[start:], uint32(size-PrefixSize))
	f.size += size
	return nil
}

// fetchFlexible is the first version of Fetch with compact lengths and tags.
const (
	fetchFlexible     = 12
	fetchError        = 7  // error code and session id
	fetchLogStart     = 5  // log start offset
	fetchReadReplica  = 11 // preferred read replica
	fetchTopicID      = 13 // topic ids in place of names
	noReadReplica     = ^uint32(0)
	nullArray         = ^uint32(0)
	nullCompactArray  = 0
	noThrottle        = 0
	compactLengthBias = 1 // compact lengths are one more than what they mean
)

// appendFetch adds r's header and body, with holes for its regions, whose
// length it returns. Records are never null: librdkafka takes null for a
// malformed message set.
//
// Aborted transactions are null, which is what Kafka answers a reader of
// uncommitted data with.
//
// Sources: KIP-74 (one batch whatever its size), KIP-227 (sessions), KIP-392
// (read replica), KIP-516 (topic ids).
func (f *Frame) appendFetch(r *FetchResponse) (regions int64) {
	p, be, v := f.Bytes, binary.BigEndian, r.Version
	flexible := v >= fetchFlexible
	if flexible {
		p = append(p, 0) // header: no tags
	}
	p = be.AppendUint32(p, noThrottle)
	if v >= fetchError {
		p = be.AppendUint16(p, uint16(r.ErrorCode))
		p = be.AppendUint32(p, uint32(r.SessionID))
	}
	p = appendLength(p, len(r.Topics), flexible)
	for i := range r.Topics {
		t := &r.Topics[i]
		switch {
		case v >= fetchTopicID:
			p = append(p, t.TopicID[:]...)
		case flexible:
			p = appendLength(p, len(t.Topic), true)
			p = append(p, t.Topic...)
		default:
			p = be.AppendUint16(p, uint16(len(t.Topic)))
			p = append(p, t.Topic...)
		}
		p = appendLength(p, len(t.Partitions), flexible)
		for j := range t.Partitions {
			part := &t.Partitions[j]
			p = appendFetchPartition(p, part, v)
			if n := part.Records.Len; n > 0 {
				f.Holes = append(f.Holes, Hole{len(p), part.Records})
				regions += n
			}
			if flexible {
				p = append(p, 0)
			}
		}
		if flexible {
			p = append(p, 0)
		}
	}
	if flexible {
		p = append(p, 0)
	}
	f.Bytes = p
	return regions
}

// appendFetchPartition adds everything up to the records.
func appendFetchPartition(p []byte, part *FetchPartition, v int16) []byte {
	be, flexible := binary.BigEndian, v >= fetchFlexible
	p = be.AppendUint32(p, uint32(part.Partition))
	p = be.AppendUint16(p, uint16(part.ErrorCode))
	p = be.AppendUint64(p, uint64(part.HighWatermark))
	p = be.AppendUint64(p, uint64(part.LastStableOffset))
	if v >= fetchLogStart {
		p = be.AppendUint64(p, uint64(part.LogStartOffset))
	}
	if flexible {
		p = append(p, nullCompactArray)
	} else {
		p = be.AppendUint32(p, nullArray)
	}
	if v >= fetchReadReplica {
		p = be.AppendUint32(p, noReadReplica)
	}
	return appendLength(p, int(part.Records.Len), flexible)
}

// appendLength adds the length of an array or byte string.
func appendLength(p []byte, n int, compact bool) []byte {
	if compact {
		return binary.AppendUvarint(p, uint64(n)+compactLengthBias)
	}
	return binary.BigEndian.AppendUint32(p, uint32(n))
}
