package partition

import (
	"github.com/pawlbroker/pawl/broker/producer"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// Status is a partition as it is now, for checkers and operators.
type Status struct {
	Topic         string
	Log           storage.LogID
	LeaderEpoch   record.LeaderEpoch
	LogStart      record.Offset
	HighWatermark record.Offset
	OnDisk        record.Offset // log end offset on disk
	LogEnd        record.Offset
	Producers     int
	ProducerHash  uint64 // of what is on disk
	Epochs        []replica.EpochStart
	View          storage.View
	Parked        int // fetches that wait for data, some of which may be answered
	Damage        error
}

// Status lists the open partitions by topic name and index.
func (t *Table) Status() []Status {
	var out []Status
	for _, p := range t.sorted() {
		out = append(out, Status{
			Topic: p.topic.Name, Log: p.log, LeaderEpoch: p.replica.Epoch(), LogStart: p.replica.LogStart(),
			HighWatermark: p.replica.HighWatermark(), OnDisk: p.replica.OnDisk(), LogEnd: p.replica.LogEnd(),
			Producers: p.producers.Len(), ProducerHash: p.producers.Hash(p.replica.OnDisk()),
			Epochs: p.replica.Epochs(), View: p.view, Parked: len(p.waiting()), Damage: p.damage,
		})
	}
	return out
}

// Replayed rebuilds the producer state of a log from what was recovered, and
// returns its hash: what Status says after the node has recovered from it.
func Replayed(rec *storage.RecoveredLog) (uint64, error) {
	state, err := producer.Restore(rec.Snapshot, 0)
	if err != nil {
		return 0, err
	}
	replay(&state, rec, 0)
	return state.Hash(rec.View.End()), nil
}
