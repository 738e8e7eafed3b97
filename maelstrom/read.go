package maelstrom

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/maelstrom/protocol"
	"github.com/pawlbroker/pawl/storage/record"
)

// Limits of one fetch, in bytes. What does not fit is fetched next.
const (
	fetchBytes          = 32 << 20
	fetchPartitionBytes = 1 << 20
)

// reading is how far one topic has been read.
type reading struct {
	from    int64 // what the client asked
	next    int64
	end     int64 // the high watermark when it was first fetched; -1 before that
	entries []protocol.Entry
}

// read returns the records of partition 0 of each topic, from an offset up to
// the high watermark there is when it is asked. Topics that do not exist have
// none. An error matches errUnavailable.
func (s *service) read(ctx context.Context, from map[string]int64) (map[string][]protocol.Entry, error) {
	unread := map[string]*reading{}
	for topic, offset := range from {
		unread[topic] = &reading{from: offset, next: offset, end: -1}
	}
	found := map[string][]protocol.Entry{}
	for len(unread) > 0 {
		resp, err := s.fetch(ctx, unread)
		if err != nil {
			return nil, err
		}
		progress := false
		for _, t := range resp.Topics {
			r := unread[t.Topic]
			if r == nil || len(t.Partitions) != 1 {
				return nil, fmt.Errorf("%w: a fetch response of another shape: topic %q", errUnavailable, t.Topic)
			}
			advanced, done, err := r.take(t.Partitions[0])
			if err != nil {
				return nil, fmt.Errorf("topic %s: %w", t.Topic, err)
			}
			progress = progress || advanced || done
			if done {
				found[t.Topic] = r.entries
				delete(unread, t.Topic)
			}
		}
		if !progress {
			return nil, fmt.Errorf("%w: a fetch of %d topics brought nothing", errUnavailable, len(unread))
		}
	}
	return found, nil
}

func (s *service) fetch(ctx context.Context, unread map[string]*reading) (*kmsg.FetchResponse, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, fetchBytes
	req.SessionEpoch = -1 // no session
	for _, topic := range slices.Sorted(maps.Keys(unread)) {
		p := kmsg.NewFetchRequestTopicPartition()
		p.FetchOffset, p.PartitionMaxBytes = unread[topic].next, fetchPartitionBytes
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.Partitions = topic, []kmsg.FetchRequestTopicPartition{p}
		req.Topics = append(req.Topics, t)
	}
	answer, err := s.node.request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("%w: fetch: %w", errUnavailable, err)
	}
	resp, ok := answer.(*kmsg.FetchResponse)
	if !ok {
		return nil, fmt.Errorf("%w: a fetch response of another shape", errUnavailable)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, fmt.Errorf("%w: fetch: %w", errUnavailable, err)
	}
	return resp, nil
}

// take adds what a fetch brought. done says that the topic has been read to
// its end.
func (r *reading) take(p kmsg.FetchResponseTopicPartition) (advanced, done bool, err error) {
	switch err := kerr.ErrorForCode(p.ErrorCode); err {
	case nil:
	case kerr.UnknownTopicOrPartition, kerr.OffsetOutOfRange:
		return false, true, nil // there is nothing at or after the offset
	default:
		return false, false, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	if r.end < 0 {
		r.end = p.HighWatermark
	}
	before := r.next
	for rest := p.RecordBatches; len(rest) > 0; {
		var b record.Batch
		b, rest, err = record.Cut(rest)
		if err != nil {
			return false, false, fmt.Errorf("%w: %w", errUnavailable, err)
		}
		if err := r.takeBatch(b); err != nil {
			return false, false, fmt.Errorf("%w: %w", errUnavailable, err)
		}
	}
	return r.next > before, r.next >= r.end, nil
}

func (r *reading) takeBatch(b record.Batch) error {
	r.next = max(r.next, int64(b.NextOffset()))
	if b.Control() {
		return nil
	}
	return record.Walk(b.Payload(), b.Count(), func(rec record.Record) error {
		offset := int64(b.BaseOffset()) + int64(rec.OffsetDelta)
		if offset >= r.from {
			r.entries = append(r.entries, protocol.Entry{Offset: offset, Msg: rec.Value})
		}
		return nil
	})
}
