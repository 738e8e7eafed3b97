package partition

import (
	"slices"

	"github.com/pawlbroker/pawl/broker/metadata"
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

	Leader         metadata.NodeID // NoNode if nobody leads
	PartitionEpoch metadata.PartitionEpoch
	Leads          bool // this node does, and knows its log
	Settled        bool // it knows what was committed before its time
	InSync         bool // the metadata have this replica in sync
}

// Status is a partition as it is now, for checkers and operators.
type Status struct {
	Glance
	Producers    int
	ProducerHash uint64 // of what is on disk
	Parked       int    // fetches that wait, for all partitions together
	Lags         []replica.Lag
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
		Topic: p.topic.Name, Log: p.log(), LeaderEpoch: p.replica.Epoch(), LogStart: p.replica.LogStart(),
		HighWatermark: p.replica.HighWatermark(), OnDisk: p.replica.OnDisk(), LogEnd: p.replica.LogEnd(),
		Epochs: p.replica.Epochs(), View: p.view, Damage: p.damage,
		Leader: p.replica.Leader(), PartitionEpoch: p.replica.PartitionEpoch(),
		Leads: p.replica.Leads(), Settled: p.replica.Settled(), InSync: p.replica.InSync(),
	}
}

// Status lists the open partitions by topic name and index.
func (t *Table) Status() []Status {
	var out []Status
	for _, p := range t.sorted() {
		st := Status{Glance: p.glance(), Producers: p.producers.Len(), ProducerHash: p.producers.Hash(p.replica.OnDisk()), Parked: len(t.fetches)}
		p.replica.Lags(func(l replica.Lag) { st.Lags = append(st.Lags, l) })
		out = append(out, st)
	}
	return out
}

// Census counts the partitions of a node by what is the matter with them.
type Census struct {
	Partitions      int
	Leading         int
	UnderReplicated int // led, with replicas that are not in sync
	UnderMinISR     int // of those, such as take nothing with acks=all
	Unsettled       int // led, and not served to consumers yet
	Leaderless      int
	Damaged         int
}

// Census looks at every partition. It is for those who look on.
func (t *Table) Census() (c Census) {
	for _, p := range t.sorted() {
		r := &p.replica
		c.Partitions++
		for _, n := range [...]struct {
			count *int
			is    bool
		}{
			{&c.Leading, r.Leading()},
			{&c.UnderReplicated, r.Short()},
			{&c.UnderMinISR, r.UnderMinISR()},
			{&c.Unsettled, r.Leading() && !r.Settled()},
			{&c.Leaderless, r.Leader() == metadata.NoNode},
			{&c.Damaged, p.damage != nil},
		} {
			if n.is {
				*n.count++
			}
		}
	}
	return c
}
