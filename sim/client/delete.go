package client

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/workloads"
)

// deleteRecords makes the one attempt at a deletion. Who has begun it and is not the
// leader any more may have done it, and so may one that took too long.
func (a *Actor) deleteRecords(op workloads.DeleteRecords) {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = int32(a.own.Int64N(int64(a.cluster.patience/time.Millisecond) + 1))
	part := kmsg.NewDeleteRecordsRequestTopicPartition()
	part.Partition, part.Offset = op.Partition.Index, int64(op.Below)
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic = op.Partition.Topic
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	a.watch.Deleting(op.Partition, record.Offset(op.Below))
	a.askSomebody(op.Partition, req, func(resp kmsg.Response, err error) {
		switch {
		case a.op == nil: // given up
		case errors.Is(err, ErrNotSent):
			a.failed(err.Error())
		case err != nil:
			a.finish(workloads.Result{Outcome: history.Unknown, Note: err.Error()})
		default:
			a.deleted(op.Partition, resp.(*kmsg.DeleteRecordsResponse))
		}
	})
}

func (a *Actor) deleted(p history.Partition, resp *kmsg.DeleteRecordsResponse) {
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != p.Index {
		a.cluster.broken("DeleteRecords answers for other partitions than asked")
		a.failed("wrong partitions")
		return
	}
	got := resp.Topics[0].Partitions[0]
	a.refused(p, got.ErrorCode)
	switch got.ErrorCode {
	case 0:
		a.watch.Deleted(p, record.Offset(got.LowWatermark))
		a.finish(workloads.Result{Outcome: history.OK, Start: history.Offset(got.LowWatermark)})
	case codeOutOfRange, codeUnknownTopic:
		a.failed(codeNote(got.ErrorCode))
	default:
		a.finish(workloads.Result{Outcome: history.Unknown, Note: codeNote(got.ErrorCode)})
	}
}
