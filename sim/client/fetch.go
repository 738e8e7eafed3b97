package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/storage/codec"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/workloads"
)

// read makes the one attempt at a read.
func (a *Actor) read(op workloads.Read) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(a.own.Int64N(int64(a.cfg.MaxWait/time.Millisecond) + 1))
	req.MinBytes = int32(a.own.IntN(2))
	req.MaxBytes = 1 << 20
	req.SessionEpoch = int32(a.own.IntN(2)) - 1
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition = op.Partition.Index
	part.FetchOffset = int64(op.From)
	part.PartitionMaxBytes = op.MaxBytes
	part.CurrentLeaderEpoch = a.epoch(op.Partition)
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = op.Partition.Topic
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	a.cluster.AskLeader(op.Partition, nil, req, func(resp kmsg.Response, err error) {
		switch {
		case a.op == nil: // given up
		case err != nil:
			a.failed(err.Error())
		default:
			a.fetched(op, resp.(*kmsg.FetchResponse))
		}
	})
}

func (a *Actor) fetched(op workloads.Read, resp *kmsg.FetchResponse) {
	if resp.ErrorCode != 0 {
		a.failed(codeNote(resp.ErrorCode))
		return
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != op.Partition.Index {
		a.cluster.broken("Fetch answers for other partitions than asked")
		a.failed("wrong partitions")
		return
	}
	p := resp.Topics[0].Partitions[0]
	if p.ErrorCode == codeOutOfRange {
		a.watch.OutOfRange(op.Partition, record.Offset(op.From))
		a.finish(workloads.Result{Outcome: history.OK, OutOfRange: true, Next: op.From, End: history.NoOffset, Start: logStart(resp.Version, p.LogStartOffset)})
		return
	}
	if p.ErrorCode != 0 {
		a.refused(op.Partition, p.ErrorCode)
		a.failed(codeNote(p.ErrorCode))
		return
	}
	r, err := a.records(op, p.RecordBatches)
	if err != nil {
		a.watch.Spoiled(op.Partition, record.Offset(op.From), err.Error())
		a.failed(err.Error())
		return
	}
	r.End = history.Offset(p.HighWatermark) // -1, no offset, if the leader is not sure
	r.Start = logStart(resp.Version, p.LogStartOffset)
	a.finish(r)
}

// logStart is what an answer of a version says of where the log begins.
func logStart(version int16, at int64) history.Offset {
	const told = 5 // first version that says so
	if version < told {
		return history.NoOffset
	}
	return history.Offset(at)
}

var errNotAsked = errors.New("not what was asked for")

// records takes batches apart, as a consumer does.
func (a *Actor) records(op workloads.Read, p []byte) (workloads.Result, error) {
	r := workloads.Result{Outcome: history.OK, Next: op.From}
	for first := true; len(p) > 0; first = false {
		b, rest, err := record.Cut(p)
		if errors.Is(err, record.ErrShort) {
			return r, fmt.Errorf("batch after %d: %w", r.Next, err) // pawl sends whole batches only
		}
		if err != nil {
			return r, err
		}
		p = rest
		if b.NextOffset() <= record.Offset(op.From) || !first && b.BaseOffset() != record.Offset(r.Next) || b.BaseOffset() > record.Offset(r.Next) {
			return r, fmt.Errorf("batch [%d, %d) after offset %d: %w", b.BaseOffset(), b.NextOffset(), r.Next, errNotAsked)
		}
		a.watch.Served(op.Partition, b)
		if err := a.unpack(op, b, &r); err != nil {
			return r, err
		}
		r.Next = history.Offset(b.NextOffset())
	}
	return r, nil
}

func (a *Actor) unpack(op workloads.Read, b record.Batch, r *workloads.Result) error {
	payload := b.Payload()
	if b.Codec() != 0 {
		var err error
		if payload, err = codec.Decompress(b.Codec(), payload, 1<<24); err != nil {
			return err
		}
	}
	return record.Walk(payload, b.Count(), func(rec record.Record) error {
		offset := history.Offset(b.BaseOffset()) + history.Offset(rec.OffsetDelta)
		v, err := workloads.ParsePayload(rec.Value)
		if err != nil {
			return fmt.Errorf("offset %d: %w", offset, err)
		}
		if offset >= op.From {
			r.Records = append(r.Records, history.Record{Offset: offset, Value: v})
		}
		return nil
	})
}
