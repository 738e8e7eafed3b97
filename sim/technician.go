package sim

import (
	"slices"
	"time"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/partition"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/storage"
)

// A technician looks after the nodes once faults have ended, every second: starts
// those again of which a read has failed, since such a log is not served from then
// on, and replaces a disk that has gone bad, once others have everything on it.
type technician struct{ w *World }

const technicianEvery = time.Second

// Happen is a look at every node.
func (t *technician) Happen(kernel.What, uint64) {
	w := t.w
	if w.ended() {
		return
	}
	for _, m := range w.machines {
		switch {
		case m.stopping:
		case m.spoiled && len(w.machines) > 1 && !w.hopeless() && !w.alone(m):
			w.count("operator replaced a disk")
			m.replaceDisk()
		case m.node != nil && !m.spoiled && w.helpless(m):
			w.count("started again after a read error")
			m.kill()
		}
	}
	w.led()
	w.k.After(technicianEvery, t, 0, 0)
}

// alone says whether a node is the only one that may have everything committed of
// some partition. One whose log of it is damaged, which the metadata may not say
// yet, is about to give it up. What a lax topic has may be lost.
func (w *World) alone(m *machine) bool {
	for p := range w.check.Newest().PartitionsOf(m.nodeID()) {
		other := func(n metadata.NodeID) bool {
			return n != m.nodeID() && !w.machines[n-1].damaged(storage.LogID{Topic: p.Topic, Partition: p.Index})
		}
		if !w.isLax(p) && !slices.ContainsFunc(p.ISR, other) && !slices.ContainsFunc(p.ELR, other) {
			return true
		}
	}
	return false
}

// stranded says whether a disk that has gone bad alone has everything of some
// partition, so that nobody can help.
func (w *World) stranded() bool {
	return slices.ContainsFunc(w.machines, func(m *machine) bool { return m.spoiled && w.alone(m) })
}

// helpless says whether a node does not serve a log that nobody can give it again.
func (w *World) helpless(m *machine) bool {
	other := func(n metadata.NodeID) bool { return n != m.nodeID() }
	return slices.ContainsFunc(m.node.Table().Status(), func(s partition.Status) bool {
		p, ok := w.check.Newest().Partition(s.Log.Topic, s.Log.Partition)
		return s.Damage != nil && !(ok && slices.ContainsFunc(p.ISR, other))
	})
}

// damaged says whether a node that runs does not serve a log.
func (m *machine) damaged(id storage.LogID) bool {
	return m.node != nil && slices.ContainsFunc(m.node.Table().Status(), func(s partition.Status) bool { return s.Log == id && s.Damage != nil })
}
