package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// minResponse is the shortest response: its correlation id.
const minResponse = 4 // bytes

// ResponseSize is FrameSize for responses of another node.
func ResponseSize(prefix []byte, max int) (int, error) {
	return frameSize(prefix, minResponse, max)
}

// Correlation is the correlation id of a response, given without its length.
func Correlation(frame []byte) int32 { return int32(binary.BigEndian.Uint32(frame)) }

// DecodeResponse reads the response to req from a frame, which is without its
// length and belongs to the response from then on. The response is a
// kmsg.Response, or a *Fetched if req is a Fetch, whose records are checked. An
// error matches ErrMalformed.
func DecodeResponse(req kmsg.Request, frame []byte) (any, error) {
	assert.That(!OneWay(req), "wire: a response to a request that has none")
	resp := req.ResponseKind()
	if err := readResponse(resp, frame); err != nil {
		return nil, err
	}
	if f, ok := resp.(*kmsg.FetchResponse); ok {
		return fetched(f, len(frame)), nil
	}
	return resp, nil
}

// readResponse reads a response whose version is set.
func readResponse(resp kmsg.Response, frame []byte) error {
	r := reader{p: frame}
	r.int32()
	if flexibleHeader(resp) {
		r.skipTags()
	}
	key := kmsg.Key(resp.Key())
	if r.bad {
		return fmt.Errorf("%w: response to %s: header", ErrMalformed, nameOf(key))
	}
	if err := resp.ReadFrom(r.p); err != nil {
		return fmt.Errorf("%w: response to %s: %w", ErrMalformed, nameOf(key), err)
	}
	return nil
}

// fetched cuts the records of a Fetch response into batches.
func fetched(r *kmsg.FetchResponse, size int) *Fetched {
	f := &Fetched{ErrorCode: r.ErrorCode, SessionID: r.SessionID, Size: int64(size)}
	n := 0
	for i := range r.Topics {
		n += len(r.Topics[i].Partitions)
	}
	f.Partitions = make([]FetchedPartition, 0, n)
	for i := range r.Topics {
		t := &r.Topics[i]
		for j := range t.Partitions {
			f.Partitions = append(f.Partitions, fetchedPartition(t.TopicID, &t.Partitions[j]))
		}
	}
	return f
}

func fetchedPartition(topic metadata.TopicID, p *kmsg.FetchResponseTopicPartition) FetchedPartition {
	f := FetchedPartition{
		Topic:         topic,
		Index:         p.Partition,
		Err:           ErrorOf(p.ErrorCode),
		HighWatermark: record.Offset(p.HighWatermark),
		LogStart:      record.Offset(p.LogStartOffset),
		Diverging:     Divergence{record.LeaderEpoch(p.DivergingEpoch.Epoch), record.Offset(p.DivergingEpoch.EndOffset)},
		Leader:        metadata.NodeID(p.CurrentLeader.LeaderID),
		LeaderEpoch:   record.LeaderEpoch(p.CurrentLeader.LeaderEpoch),
	}
	for rest := p.RecordBatches; len(rest) > 0; {
		var b record.Batch
		b, rest, f.Bad = record.Cut(rest)
		if f.Bad != nil {
			break
		}
		f.Batches = append(f.Batches, b)
	}
	return f
}
