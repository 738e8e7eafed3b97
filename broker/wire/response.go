package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
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
		if flexibleHeader(b) {
			f.Bytes = append(f.Bytes, 0) // no tags
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
	fetchNodes        = 16 // where the leaders are that partitions name
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
				p = appendMore(p, part.More)
			}
		}
		if flexible {
			p = append(p, 0)
		}
	}
	if flexible {
		p = appendNodes(p, r.Nodes, v)
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
		replica := noReadReplica
		if part.More != nil {
			replica = uint32(part.More.ReadReplica)
		}
		p = be.AppendUint32(p, replica)
	}
	return appendLength(p, int(part.Records.Len), flexible)
}

// Tags of a Fetch response, and their sizes in bytes with no tags of their own.
const (
	tagDiverging     = 0
	tagDivergingSize = 4 + 8 + 1
	tagLeader        = 1
	tagLeaderSize    = 4 + 4 + 1
	tagNodes         = 0 // of the whole response
)

// appendMore adds the tags of one partition.
//
// Sources: KIP-595 (diverging epoch), KIP-951 (current leader).
func appendMore(p []byte, m *FetchMore) []byte {
	if m == nil {
		return append(p, 0)
	}
	be, count := binary.BigEndian, len(p)
	p = append(p, 0)
	if m.Diverging.Epoch != record.NoEpoch {
		p[count]++
		p = append(p, tagDiverging, tagDivergingSize)
		p = be.AppendUint32(p, uint32(m.Diverging.Epoch))
		p = be.AppendUint64(p, uint64(m.Diverging.End))
		p = append(p, 0)
	}
	if m.Leader != metadata.NoNode {
		p[count]++
		p = append(p, tagLeader, tagLeaderSize)
		p = be.AppendUint32(p, uint32(m.Leader))
		p = be.AppendUint32(p, uint32(m.LeaderEpoch))
		p = append(p, 0)
	}
	return p
}

// appendNodes adds the tags of the whole response: where the leaders are that
// partitions name.
//
// Source: KIP-951.
func appendNodes(p []byte, nodes []Node, version int16) []byte {
	if len(nodes) == 0 || version < fetchNodes {
		return append(p, 0)
	}
	be := binary.BigEndian
	value := appendLength(nil, len(nodes), true)
	for i := range nodes {
		n := &nodes[i]
		value = be.AppendUint32(value, uint32(n.ID))
		value = kbin.AppendCompactString(value, n.Host)
		value = be.AppendUint32(value, uint32(n.Port))
		if n.Rack == "" {
			value = append(value, nullCompactArray)
		} else {
			value = kbin.AppendCompactString(value, n.Rack)
		}
		value = append(value, 0)
	}
	p = append(p, 1, tagNodes)
	p = binary.AppendUvarint(p, uint64(len(value)))
	return append(p, value...)
}

// appendLength adds the length of an array or byte string.
func appendLength(p []byte, n int, compact bool) []byte {
	if compact {
		return binary.AppendUvarint(p, uint64(n)+compactLengthBias)
	}
	return binary.BigEndian.AppendUint32(p, uint32(n))
}
