package sim

import (
	"fmt"
	"slices"

	"github.com/pawlbroker/pawl/broker/quorum"
)

// healed waits until every operation has ended and everything is read, without
// faults; then stops the nodes in good order and starts them once more.
func (w *World) healed() {
	if w.ended() {
		return
	}
	limit := healLimit
	if w.hopeless() {
		limit = spoiledLimit // what cannot be read will not be, however long one waits
	}
	(&technician{w}).Happen(0, 0)
	if w.forsaken(); w.ended() || w.stuck != "" {
		return
	}
	w.rest(true)
	done := w.runUntil(limit, func() bool { return w.idle() || w.dead() })
	if done && !w.dead() {
		// Requests that nobody waits for any more are still on their way.
		w.runUntil(settle, func() bool { return false })
		w.converged() // or what nobody waits for is committed while the end is read
		w.finish()
		w.rest(false)
		w.tail.Steady()
		w.tail.Forget()
		done = w.runWhile(limit, w.tail.Read, func() bool {
			return w.finished() && w.idle() && w.tail.Done(int(w.cfg.Partitions)) || w.dead()
		})
	}
	if w.ended() {
		return
	}
	for _, a := range w.actors {
		a.Retire()
	}
	w.tail.Retire()
	if !done || w.dead() {
		if !w.hopeless() && !w.stranded() && w.stuck == "" {
			w.stuck = w.whatIsStuck()
		}
		for _, a := range w.actors {
			a.GiveUp()
		}
		return
	}
	w.converged()
	for _, m := range w.machines {
		w.restarted(m)
	}
	w.converged()
}

// finish begins the last phase of every workload.
func (w *World) finish() {
	w.load.Finish()
	if w.admin != nil {
		w.admin.Finish()
	}
}

func (w *World) finished() bool {
	return w.load.Finished() && (w.admin == nil || w.admin.Finished())
}

// hopeless says whether something is gone for good, so that not everything is
// owed: what a disk has lost that nobody else has.
func (w *World) hopeless() bool {
	return w.lost || w.check.Gone || len(w.machines) == 1 && w.machines[0].spoiled || w.cfg.Replication == 1 && slices.ContainsFunc(w.machines, func(m *machine) bool { return m.spoiled || m.wiped })
}

// dead says whether a node cannot be started any more.
func (w *World) dead() bool {
	return slices.ContainsFunc(w.machines, func(m *machine) bool { return m.dead })
}

// restarted stops a node in good order and starts it again.
func (w *World) restarted(m *machine) {
	if w.ended() || w.stuck != "" {
		return
	}
	m.shutdown()
	stopped := w.runUntil(healLimit, func() bool { return !m.stopping || m.node == nil })
	if w.ended() {
		return
	}
	if !stopped {
		w.stuck = m.who + " did not stop when asked"
		return
	}
	if !w.runUntil(healLimit, func() bool { return m.dead || m.node != nil && m.ready() }) && !w.ended() && !m.dead {
		w.stuck = m.who + " did not start again after it had stopped"
	}
	if m.node != nil {
		w.check.Table(m.id, m.node.Table())
	}
}

// converged waits until all nodes agree on everything.
func (w *World) converged() {
	if len(w.machines) == 1 || w.hopeless() || w.ended() || w.stuck != "" {
		return
	}
	apart := ""
	if !w.runUntil(healLimit, func() bool {
		if !w.joined() {
			apart = "a node is not ready, or fenced"
			return false
		}
		apart = w.check.Apart()
		return apart == ""
	}) && !w.ended() && !w.stranded() {
		w.stuck = "the nodes do not come to agree: " + apart
	}
}

// describe puts the state of everything into the trace.
func (w *World) describe() {
	t := &w.k.Trace
	if !t.Wanted() {
		return
	}
	m := w.check.Newest()
	for b := range m.Brokers() {
		t.Text("image", b)
	}
	for top := range m.Topics() {
		for p := range m.Partitions(top.ID) {
			t.Say("image", fmt.Sprintf("%s: %v", top.Name, p))
		}
	}
	for _, m := range w.machines {
		if m.node == nil {
			t.Say(m.who, "is not running")
			continue
		}
		missing, _ := m.node.Ready()
		t.Say(m.who, fmt.Sprintf("is %s; metadata offset %d", missing, m.node.Image().Offset()))
		for _, s := range m.node.Table().Status() {
			t.Say(m.who, fmt.Sprintf("%s-%d leads=%t settled=%t in_sync=%t leader=%d epoch=%d start=%d hw=%d disk=%d end=%d damage=%v lags=%v",
				s.Topic, s.Log.Partition, s.Leads, s.Settled, s.InSync, s.Leader, s.LeaderEpoch, s.LogStart, s.HighWatermark, s.OnDisk, s.LogEnd, s.Damage, s.Lags))
		}
	}
}

func (w *World) whatIsStuck() string {
	state := "every node serves"
	for _, m := range w.machines {
		switch {
		case m.node == nil:
			state = m.who + " is not running"
		case !m.ready():
			missing, _ := m.node.Ready()
			state = m.who + " is " + missing
		}
	}
	for i, a := range w.actors {
		if op, busy := a.Busy(); busy {
			return fmt.Sprintf("%s; client %d waits for %s", state, i, op)
		}
	}
	for i, p := range w.pipes {
		if !p.Idle() {
			return fmt.Sprintf("%s; pipeline %d has batches that are not acknowledged", state, i)
		}
	}
	if w.passer != nil && !w.passer.Idle() {
		return state + "; a topic that is to be deleted is not"
	}
	return state + "; not everything could be read"
}

// controller is the machine whose node leads the cluster, as far as one says so,
// or nil.
func (w *World) controller() *machine {
	var best *machine
	var term quorum.Term
	for _, m := range w.machines {
		if m.node == nil {
			continue
		}
		if q := m.node.Quorum(); q != nil && q.Leading() && q.Leader().Term > term {
			best, term = m, q.Leader().Term
		}
	}
	return best
}
