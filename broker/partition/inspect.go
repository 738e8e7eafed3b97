package partition

import (
	"slices"

	"github.com/pawlbroker/pawl/broker/producer"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// Glance is what costs next to nothing to know of a partition. It shares
// memory with it, and is good until the next event.
type Glance struct {
	Topic         string
	Log           storage.LogID
	LeaderEpoch   record.LeaderEpoch
	LogStart      record.Offset
	HighWatermark record.Offset
	OnDisk        record.Offset // log end offset on disk
	LogEnd        record.Offset
	Epochs        []replica.EpochStart
	View          storage.View
	Damage        error
}

// Status is a partition as it is now, for checkers and operators.
type Status struct {
	Glance
	Producers    int
	ProducerHash uint64 // of what is on disk
	Parked       int    // fetches that wait for data, some of which may be answered
}

// Glances tells f of the open partitions, by topic name and index.
func (t *Table) Glances(f func(Glance)) {
	var room [8]string
	names := room[:0]
	for name := range t.topics { //pawl:unordered sorted below
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, p := range t.topics[name].partitions {
			if p != nil {
				f(p.glance())
			}
		}
	}
}

func (p *Partition) glance() Glance {
	return Glance{
		Topic: p.topic.Name, Log: p.log, LeaderEpoch: p.replica.Epoch(), LogStart: p.replica.LogStart(),
		HighWatermark: p.replica.HighWatermark(), OnDisk: p.replica.OnDisk(), LogEnd: p.replica.LogEnd(),
		Epochs: p.replica.Epochs(), View: p.view, Damage: p.damage,
	}
}

// Status lists the open partitions by topic name and index.
func (t *Table) Status() []Status {
	var out []Status
	for _, p := range t.sorted() {
		out = append(out, Status{
			Glance: p.glance(), Producers: p.producers.Len(), ProducerHash: p.producers.Hash(p.replica.OnDisk()), Parked: len(p.waiting()),
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
