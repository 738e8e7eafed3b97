package maelstrom

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
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

// read returns the records of partition 0 of each topic, from an offset up to a
// high watermark that is no older than the call. It asks each topic's leader, and
// again whoever leads then, until all has been read or ctx ends. An error matches
// errUnavailable or errRefused.
func (s *service) read(ctx context.Context, from map[string]int64) (map[string][]protocol.Entry, error) {
	unread := map[string]*reading{}
	for topic, offset := range from {
		unread[topic] = &reading{from: offset, next: offset, end: -1}
	}
	found := map[string][]protocol.Entry{}
	var why error
	for len(unread) > 0 {
		progress, err := s.readSome(ctx, unread, found)
		if why == nil || ctx.Err() == nil { // that the time is over is the lesser news
			why = err
		}
		if !progress && !wait(ctx) {
			return nil, why
		}
	}
	return found, nil
}

// readSome fetches once what is unread from each leader, and moves to found what
// has been read to its end. Unless it made progress it returns why.
func (s *service) readSome(ctx context.Context, unread map[string]*reading, found map[string][]protocol.Entry) (progress bool, err error) {
	leaders, err := s.leaders(ctx, slices.Sorted(maps.Keys(unread)))
	if err != nil {
		return false, err
	}
	led := map[metadata.NodeID][]string{}
	for topic, leader := range leaders {
		led[leader] = append(led[leader], topic)
	}
	err = fmt.Errorf("%w: nobody leads %d topics", errUnavailable, len(unread)-len(leaders))
	var fetches sync.WaitGroup
	var mu sync.Mutex // over progress and err; the topics of each fetch are its own
	var ended []string
	for leader, topics := range led {
		slices.Sort(topics)
		fetches.Go(func() {
			advanced, done, failed := s.fetch(ctx, leader, topics, unread)
			mu.Lock()
			defer mu.Unlock()
			progress = progress || advanced
			ended = append(ended, done...)
			if failed != nil {
				err = failed
			}
		})
	}
	fetches.Wait()
	for _, topic := range ended {
		found[topic] = unread[topic].entries
		delete(unread, topic)
	}
	return progress || len(ended) > 0, err
}

// fetch fetches topics once from who leads them. It returns whether any was read
// further and which have been read to their end. An error, of the last that had
// one, matches errUnavailable.
func (s *service) fetch(ctx context.Context, leader metadata.NodeID, topics []string, unread map[string]*reading) (advanced bool, done []string, err error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, fetchBytes
	req.SessionEpoch = -1 // no session
	for _, topic := range topics {
		p := kmsg.NewFetchRequestTopicPartition()
		p.FetchOffset, p.PartitionMaxBytes = unread[topic].next, fetchPartitionBytes
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.Partitions = topic, []kmsg.FetchRequestTopicPartition{p}
		req.Topics = append(req.Topics, t)
	}
	resp, err := try[*kmsg.FetchResponse](ctx, s, leader, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return false, nil, fmt.Errorf("%w: fetch: %v", errUnavailable, err)
	}
	for _, t := range resp.Topics {
		if !slices.Contains(topics, t.Topic) || len(t.Partitions) != 1 {
			return false, nil, fmt.Errorf("%w: a fetch response of another shape: topic %q", errUnavailable, t.Topic)
		}
		more, end, failed := unread[t.Topic].take(t.Partitions[0])
		advanced = advanced || more
		if end {
			done = append(done, t.Topic)
		}
		if failed != nil {
			err = fmt.Errorf("topic %s on node %d: %w", t.Topic, leader, failed)
		}
	}
	return advanced, done, err
}

// take adds what a fetch brought. done says that the topic has been read to
// its end. An error matches errUnavailable.
func (r *reading) take(p kmsg.FetchResponseTopicPartition) (advanced, done bool, err error) {
	switch err := kerr.ErrorForCode(p.ErrorCode); err {
	case nil:
	case kerr.OffsetOutOfRange:
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
