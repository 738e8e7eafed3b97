package partition

// OffsetForLeaderEpoch (key 23), versions 2 to 4.
//
// Behaviour:
//   - Answers the largest leader epoch at most the asked one, and the offset
//     where it ends (KIP-279); both are -1 if there is none. Consumers use it to
//     find out that the log was truncated under them (KIP-320).
//
// Versions: 3 adds the replica id, 4 is flexible.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/record"
)

// OffsetForLeaderEpoch answers an OffsetForLeaderEpoch request.
func (t *Table) OffsetForLeaderEpoch(c wire.Caller, req *wire.Request, out *Out) {
	body := req.Body.(*kmsg.OffsetForLeaderEpochRequest)
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.SetVersion(body.Version)
	for _, top := range body.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = top.Topic
		for _, ask := range top.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition = ask.Partition
			p, err := t.find(top.Topic, ask.Partition)
			if err == nil {
				err = p.replica.CheckLeader(record.LeaderEpoch(ask.CurrentLeaderEpoch))
			}
			if err != nil {
				rp.ErrorCode = wire.Code(err)
			} else {
				epoch, end := p.replica.EndOffsetFor(record.LeaderEpoch(ask.LeaderEpoch))
				rp.LeaderEpoch, rp.EndOffset = int32(epoch), int64(end)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	out.reply(c, wire.Response{Body: resp})
}
