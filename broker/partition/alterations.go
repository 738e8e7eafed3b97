package partition

// What a table decides about replicas, as requests to other nodes.

import (
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// Alterations are the proposals of a table that the active controller was asked
// about and has not answered.
//
// Source: KIP-497, KIP-903.
type Alterations struct {
	last uint64
	open map[uint64][]ISRProposal
}

// Ask returns a request with proposals, and the number under which its answer is
// to come.
func (a *Alterations) Ask(self metadata.NodeID, epoch metadata.BrokerEpoch, proposals []ISRProposal) (uint64, *kmsg.AlterPartitionRequest) {
	if a.open == nil {
		a.open = make(map[uint64][]ISRProposal)
	}
	a.last++
	a.open[a.last] = proposals
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = 3, int32(self), int64(epoch)
	topics := make(map[metadata.TopicID]int)
	for _, p := range proposals {
		i, ok := topics[p.Log.Topic]
		if !ok {
			i = len(req.Topics)
			topics[p.Log.Topic] = i
			t := kmsg.NewAlterPartitionRequestTopic()
			t.TopicID = p.Log.Topic
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewAlterPartitionRequestTopicPartition()
		rp.Partition, rp.LeaderEpoch, rp.PartitionEpoch = p.Log.Partition, int32(p.LeaderEpoch), int32(p.PartitionEpoch)
		for _, m := range p.ISR {
			b := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			b.BrokerID, b.BrokerEpoch = int32(m.Node), int64(m.Epoch)
			rp.NewEpochISR = append(rp.NewEpochISR, b)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	return a.last, req
}

// Altered takes the answer to a request, or why there is none, and tells the
// table what became of each proposal.
func (a *Alterations) Altered(t *Table, seq uint64, resp *kmsg.AlterPartitionResponse, err error, at Moment, out *Out) {
	type place struct {
		topic metadata.TopicID
		index int32
	}
	answers := make(map[place]*kmsg.AlterPartitionResponseTopicPartition)
	if resp != nil {
		err = wire.ErrorOf(resp.ErrorCode)
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				p := &resp.Topics[i].Partitions[j]
				answers[place{resp.Topics[i].TopidID, p.Partition}] = p
			}
		}
	}
	var refused []ISRProposal
	var reason error
	for _, p := range a.open[seq] {
		epoch, why := metadata.PartitionEpoch(0), err
		if answer := answers[place{p.Log.Topic, p.Log.Partition}]; why == nil && answer == nil {
			why = wire.ErrUnknown
		} else if why == nil {
			epoch, why = metadata.PartitionEpoch(answer.PartitionEpoch), wire.ErrorOf(answer.ErrorCode)
		}
		if t.ISRDecided(p, epoch, why, at, out) {
			refused, reason = append(refused, p), why
		}
	}
	delete(a.open, seq)
	if len(refused) > 0 { // there may be thousands, for one reason
		out.Lines = append(out.Lines, Line{slog.LevelWarn, "the controller refused ISRs",
			append(t.partition(refused[0].Log).attrs(), slog.Int("partitions", len(refused)), slog.String("error", reason.Error()))})
	}
}

// Report is what one leader is told.
type Report struct {
	To  metadata.NodeID
	Req *wire.Progress
}

// Reports puts together what each leader is to be told.
func Reports(self metadata.NodeID, epoch metadata.BrokerEpoch, progress []ProgressTo) []Report {
	var reports []Report
	of := make(map[metadata.NodeID]*wire.Progress)
	for _, p := range progress {
		req := of[p.To]
		if req == nil {
			req = &wire.Progress{Node: self, BrokerEpoch: epoch}
			of[p.To] = req
			reports = append(reports, Report{p.To, req})
		}
		req.Partitions = append(req.Partitions, wire.ProgressPartition{
			Topic: p.Log.Topic, Index: p.Log.Partition, LeaderEpoch: p.LeaderEpoch, Durable: p.Durable, LogStart: p.LogStart,
		})
	}
	return reports
}

// Brokers is what a table must know of the brokers of an image.
func Brokers(m metadata.Image) []BrokerInfo {
	list := make([]BrokerInfo, 0, m.BrokerCount())
	for b := range m.Brokers() {
		list = append(list, BrokerInfo{Node: b.Node, Epoch: b.Epoch, Active: b.Active(), Rack: b.Rack, Host: b.Host, Port: b.Port})
	}
	return list
}
