package maelstrom

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/record"
)

// acksAll is Kafka's -1: answered once every in-sync replica has the record.
const acksAll = -1

// producer is an idempotent producer. It sends one batch at a time, again and
// again until it knows what became of it; brokers store it once.
type producer struct {
	id    record.ProducerID
	epoch record.ProducerEpoch
	next  map[string]record.Sequence // by topic
}

// producers are those that have nothing to send.
type producers struct {
	mu   sync.Mutex
	idle []*producer
}

// put gives a producer back. One that does not know what became of its last batch
// must not come back: its next would be out of order if that was not stored.
func (p *producers) put(one *producer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, one)
}

func (p *producers) take() *producer {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	one := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return one
}

// producer returns a producer with nothing to send. An error matches
// errUnavailable.
func (s *service) producer(ctx context.Context) (*producer, error) {
	if one := s.producers.take(); one != nil {
		return one, nil
	}
	resp, err := try[*kmsg.InitProducerIDResponse](ctx, s, s.self, kmsg.NewPtrInitProducerIDRequest())
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: producer id: %v", errUnavailable, err)
	}
	return &producer{record.ProducerID(resp.ProducerID), record.ProducerEpoch(resp.ProducerEpoch), map[string]record.Sequence{}}, nil
}

// produce appends one record, and tries until it knows that it is stored, or
// ctx ends. An error matches errUnavailable or errRefused only if it is sure that
// nothing was appended.
func (s *service) produce(ctx context.Context, topic string, key, value []byte) (int64, error) {
	for {
		p, err := s.producer(ctx)
		if err == nil {
			return s.produceAs(ctx, p, topic, key, value)
		}
		if !wait(ctx) {
			return 0, err
		}
	}
}

func (s *service) produceAs(ctx context.Context, p *producer, topic string, key, value []byte) (int64, error) {
	batch := record.NewBuilder().Append(record.Timestamp(time.Now().UnixMilli()), key, value).
		Build(record.Options{Producer: &record.Producer{ID: p.id, Epoch: p.epoch, BaseSequence: p.next[topic]}})
	var doubt error // what became of an earlier try, if that is not known
	for {
		offset, err := s.produceOnce(ctx, topic, batch)
		switch {
		case err == nil:
			p.next[topic]++
			s.producers.put(p)
			return offset, nil
		case errors.Is(err, errUnknown):
			doubt = err
		}
		if errors.Is(err, errUnavailable) || errors.Is(err, errUnknown) && !isFinal(err) {
			if wait(ctx) {
				continue
			}
		}
		if doubt != nil {
			return 0, doubt
		}
		s.producers.put(p)
		return 0, err
	}
}

// isFinal reports whether a broker knows the producer's batches, and the one that
// it was sent does not follow or has been forgotten.
func isFinal(err error) bool {
	for _, final := range []error{kerr.OutOfOrderSequenceNumber, kerr.DuplicateSequenceNumber, kerr.InvalidProducerEpoch, kerr.UnknownProducerID} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// produceOnce sends a batch to whoever leads.
func (s *service) produceOnce(ctx context.Context, topic string, batch record.Batch) (int64, error) {
	leader, err := s.leader(ctx, topic)
	if err != nil {
		return 0, err
	}
	return s.produceTo(ctx, leader, topic, batch)
}

func (s *service) produceTo(ctx context.Context, leader metadata.NodeID, topic string, batch record.Batch) (int64, error) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = s.acks
	req.TimeoutMillis = int32(tryTime.Milliseconds())
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Records = batch
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = topic, []kmsg.ProduceRequestTopicPartition{partition}
	req.Topics = []kmsg.ProduceRequestTopic{t}

	resp, err := try[*kmsg.ProduceResponse](ctx, s, leader, req)
	if err != nil {
		return 0, fmt.Errorf("produce to %s on node %d: %w", topic, leader, err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("%w: a produce response of another shape", errUnknown)
	}
	p := resp.Topics[0].Partitions[0]
	if err := verdict(p.ErrorCode); err != nil {
		return 0, fmt.Errorf("produce to %s on node %d: %w", topic, leader, err)
	}
	return p.BaseOffset, nil
}
