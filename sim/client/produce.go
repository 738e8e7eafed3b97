package client

import (
	"errors"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/storage/codec"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/workloads"
)

// Kafka's codes that a client tells apart.
const (
	codeUnknownServer      = -1
	codeOutOfRange         = 1
	codeUnknownTopic       = 3
	codeLeaderNotAvailable = 5
	codeNotLeader          = 6
	codeTimedOut           = 7
	codeBrokerNotAvailable = 8
	codeNotEnough          = 19
	codeNotEnoughAfter     = 20
	codeOutOfOrder         = 45
	codeDuplicate          = 46
	codeStorage            = 56
	codeUnknownProducer    = 59
	codeFencedEpoch        = 74
	codeUnknownEpoch       = 75
	codeOffsetNotAvailable = 78
	codeUnknownTopicID     = 100
)

func codeNote(code int16) string {
	if err, ok := kerr.ErrorForCode(code).(*kerr.Error); ok {
		return err.Message
	}
	return strconv.Itoa(int(code))
}

// build makes the batch of an append.
func (a *Actor) build(op workloads.Append) record.Batch {
	b := record.NewBuilder()
	now := a.cfg.Wall()
	for _, v := range op.Values {
		b.Append(now, workloads.RecordKey(v), workloads.AppendPayload(nil, v, op.Size))
	}
	var o record.Options
	if op.Idempotent {
		p := a.producer
		p.BaseSequence = a.sequences[op.Partition]
		o.Producer = &p
	}
	if a.own.IntN(10) < a.cfg.CompressedIn10 {
		batch, err := b.Compressed(o, int8(2+a.own.IntN(2)), codec.Compress) // snappy or lz4: the cheap ones
		if err == nil {
			return batch
		}
	}
	return b.Build(o)
}

// append makes one attempt. A producer without idempotence has only one.
func (a *Actor) append(op workloads.Append) {
	if op.Idempotent && !a.issued {
		a.initProducer()
		return
	}
	if a.batch == nil {
		a.batch = a.build(op)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks = int16(op.Acks)
	req.TimeoutMillis = int32(a.cluster.patience / time.Millisecond / 2)
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition = op.Partition.Index
	part.Records = a.batch
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = op.Partition.Topic
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	batch := a.batch
	a.cluster.AskLeader(op.Partition, nil, req, func(resp kmsg.Response, err error) {
		switch {
		case a.op == nil: // given up
		case errors.Is(err, ErrNotSent) && !op.Idempotent:
			a.finish(workloads.Result{Outcome: history.Failed, Note: err.Error()})
		case err != nil:
			a.doubt(op, err.Error())
		case resp == nil:
			a.k.After(0, a, whatGone, 0)
		default:
			a.produced(op, batch, resp.(*kmsg.ProduceResponse))
		}
	})
}

// doubt follows an attempt of which nobody knows what became.
func (a *Actor) doubt(op workloads.Append, note string) {
	if !op.Idempotent {
		a.finish(workloads.Result{Outcome: history.Unknown, Note: note})
		return
	}
	if a.own.IntN(100) < a.cfg.RestartPercent {
		// As a producer does that is started anew: it knows nothing of the past.
		a.issued = false
		clear(a.sequences)
		a.finish(workloads.Result{Outcome: history.Unknown, Note: "producer restarted: " + note})
		return
	}
	a.again()
}

func (a *Actor) produced(op workloads.Append, batch record.Batch, resp *kmsg.ProduceResponse) {
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != op.Partition.Index {
		a.cluster.broken("Produce answers for other partitions than asked")
		a.doubt(op, "wrong partitions")
		return
	}
	p := resp.Topics[0].Partitions[0]
	a.refused(op.Partition, p.ErrorCode)
	switch p.ErrorCode {
	case 0:
		if op.Idempotent {
			a.sequences[op.Partition] = a.sequences[op.Partition].Add(int32(len(op.Values)))
		}
		if op.Acks == workloads.AcksAll {
			a.watch.Acked(op.Partition, record.Offset(p.BaseOffset), batch)
		}
		a.finish(workloads.Result{Outcome: history.OK, Base: history.Offset(p.BaseOffset)})
	case codeOutOfOrder, codeUnknownProducer, codeDuplicate:
		a.watch.Refused(op.Partition, codeNote(p.ErrorCode))
		a.issued = false
		clear(a.sequences)
		a.finish(workloads.Result{Outcome: history.Unknown, Note: codeNote(p.ErrorCode)})
	case codeUnknownServer, codeTimedOut, codeNotEnoughAfter:
		a.doubt(op, codeNote(p.ErrorCode))
	case codeStorage, codeNotLeader, codeUnknownTopic, codeNotEnough, codeLeaderNotAvailable, codeFencedEpoch, codeUnknownEpoch, codeUnknownTopicID, codeBrokerNotAvailable:
		if op.Idempotent {
			a.again()
			return
		}
		a.failed(codeNote(p.ErrorCode))
	default:
		if op.Idempotent { // an attempt before this one may have been carried out
			a.issued = false
			clear(a.sequences)
			a.finish(workloads.Result{Outcome: history.Unknown, Note: codeNote(p.ErrorCode)})
			return
		}
		a.failed(codeNote(p.ErrorCode))
	}
}

// initProducer gets a producer id, and goes on with the append.
func (a *Actor) initProducer() {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = 60_000
	req.ProducerID, req.ProducerEpoch = -1, -1
	a.cluster.Ask(req, func(resp kmsg.Response, err error) {
		if a.op == nil {
			return
		}
		if err != nil {
			a.again()
			return
		}
		r := resp.(*kmsg.InitProducerIDResponse)
		if r.ErrorCode != 0 {
			a.again()
			return
		}
		a.producer = record.Producer{ID: record.ProducerID(r.ProducerID), Epoch: record.ProducerEpoch(r.ProducerEpoch)}
		a.issued = true
		clear(a.sequences)
		a.watch.Issued(a.producer.ID, a.producer.Epoch)
		a.try()
	})
}
