package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/workloads"
)

// producerKind is what tells producers apart; franz-go fixes it for a client's
// life.
type producerKind struct {
	idempotent bool
	acks       workloads.Acks
}

// producers is one workload client's franz-go clients, made when first needed.
type producers struct {
	config Config
	open   map[producerKind]*kgo.Client
}

func (p *producers) close() {
	for _, c := range p.open {
		c.Close()
	}
}

func (p *producers) get(kind producerKind) (*kgo.Client, error) {
	if c := p.open[kind]; c != nil {
		return c, nil
	}
	acks := kgo.AllISRAcks()
	switch kind.acks {
	case workloads.AcksLeader:
		acks = kgo.LeaderAck()
	case workloads.AcksNone:
		acks = kgo.NoAck()
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(p.config.Seeds...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100 * time.Millisecond), // find a new leader soon
		kgo.ManualFlushing(),                       // so that an append's records make one batch
		kgo.RequiredAcks(acks),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	}
	if !kind.idempotent {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.RecordRetries(0))
	}
	c, err := kgo.NewClient(append(options, p.config.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	if p.open == nil {
		p.open = make(map[producerKind]*kgo.Client)
	}
	p.open[kind] = c
	return c, nil
}

// produced is how one record ended.
type produced struct {
	i      int
	offset int64
	err    error
}

// append produces the values as one batch and waits for the answer.
func (p *producers) append(ctx context.Context, op workloads.Append) workloads.Result {
	kind := producerKind{op.Idempotent, op.Acks}
	c, err := p.get(kind)
	if err != nil {
		return failed(err)
	}
	ended := make(chan produced, len(op.Values))
	for i, v := range op.Values {
		c.Produce(ctx, &kgo.Record{
			Topic: op.Partition.Topic, Partition: op.Partition.Index,
			Key: workloads.RecordKey(v), Value: workloads.AppendPayload(nil, v, op.Size),
		}, func(r *kgo.Record, err error) { ended <- produced{i, r.Offset, err} })
	}
	if err := c.Flush(ctx); err != nil {
		return p.giveUp(kind, err)
	}
	offsets := make([]int64, len(op.Values))
	for range op.Values {
		select {
		case e := <-ended:
			if e.err != nil {
				return p.refused(kind, e.err)
			}
			offsets[e.i] = e.offset
		case <-ctx.Done():
			return p.giveUp(kind, ctx.Err())
		}
	}
	for i, o := range offsets {
		if o != offsets[0]+int64(i) {
			return unknown(fmt.Errorf("%d records went in more than one batch: offsets %v", len(offsets), offsets))
		}
	}
	return workloads.Result{Base: history.Offset(offsets[0])}
}

// giveUp closes the producer, so that nothing more is sent for what was given
// up.
func (p *producers) giveUp(kind producerKind, err error) workloads.Result {
	p.open[kind].Close()
	delete(p.open, kind)
	return unknown(err)
}

// refused are the errors that say nothing was appended. A leader that steps
// down answers "not leader" to what it has appended already, so that is none of
// them.
var refused = []error{
	kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.CorruptMessage, kerr.InvalidRecord, kerr.InvalidTimestamp,
	kerr.NotEnoughReplicas, kerr.InvalidRequiredAcks, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed,
	kerr.UnsupportedForMessageFormat,
}

// refused says what an error means. An idempotent producer may have sent the
// batch before and got another answer, or none: then nothing is definite.
func (p *producers) refused(kind producerKind, err error) workloads.Result {
	if kind.idempotent {
		return p.giveUp(kind, err)
	}
	for _, definite := range refused {
		if errors.Is(err, definite) {
			return failed(err)
		}
	}
	return p.giveUp(kind, err)
}

func failed(err error) workloads.Result {
	return workloads.Result{Outcome: history.Failed, Note: err.Error()}
}

func unknown(err error) workloads.Result {
	return workloads.Result{Outcome: history.Unknown, Note: err.Error()}
}
