package partition

// DescribeProducers (key 61), version 0.
//
// Behaviour:
//   - Tells the producers that a partition's leader remembers (KIP-664): their
//     last epoch and sequence number, and when they last wrote. A time that was
//     recovered from disk is that of the recovery.
//   - There are no transactions: no coordinator's epoch and no open transaction,
//     which are -1.
//   - A partition that is asked for twice is INVALID_REQUEST the second time.
//   - Another node than the leader is NOT_LEADER_OR_FOLLOWER.

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/record"
)

// errAskedTwice is for partitions that a request names more than once.
var errAskedTwice = fmt.Errorf("%w: the partition occurs more than once in the request", metadata.ErrInvalidRequest)

// DescribeProducers answers a DescribeProducers request.
func (t *Table) DescribeProducers(c wire.Caller, req *wire.Request, at Moment, out *Out) {
	body := req.Body.(*kmsg.DescribeProducersRequest)
	resp := kmsg.NewPtrDescribeProducersResponse()
	resp.SetVersion(body.Version)
	seen := map[*Partition]bool{}
	for i := range body.Topics {
		asked := &body.Topics[i]
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = asked.Topic
		for _, index := range asked.Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = index
			p, err := t.find(asked.Topic, index)
			if err == nil {
				err = p.replica.CheckLeader(record.NoEpoch)
			}
			if err == nil && seen[p] {
				err = errAskedTwice
			}
			if err == nil {
				seen[p] = true
				rp.ActiveProducers = p.active(at)
			}
			rp.ErrorCode, rp.ErrorMessage = wire.Code(err), wire.Message(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	out.reply(c, wire.Response{Body: resp})
}

func (p *Partition) active(at Moment) []kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	list := []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{}
	for _, a := range p.producers.Active() {
		r := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		r.ProducerID, r.ProducerEpoch, r.LastSequence = int64(a.ID), int32(a.Epoch), int32(a.LastSequence)
		r.LastTimestamp = int64(at.Wall) - int64(at.Now-a.Seen)/1_000_000 // milliseconds
		r.CoordinatorEpoch, r.CurrentTxnStartOffset = -1, -1
		list = append(list, r)
	}
	return list
}
