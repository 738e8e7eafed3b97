package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/pawlbroker/pawl/linearizability"
	"github.com/pawlbroker/pawl/linearizability/anomaly"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/sim/check"
)

// Verdicts of a run.
const (
	OK        = "ok"
	Violation = "violation"
	Stuck     = "stuck" // faults have ended and not everything did, in bounded time
)

// judge holds the whole run against what is promised.
func (w *World) judge() {
	if w.check.First() != nil || w.load == nil {
		return
	}
	w.check.Finish()
	h := w.judged()
	v := linearizability.Check(h, linearizability.DefaultOptions())
	for _, f := range v.Findings {
		if w.check.Beyond && (f.Kind == anomaly.StaleRead || f.Kind == anomaly.DeletedRead) {
			continue // what clocks beyond the bound may lead to
		}
		w.check.Violate("linearizable", "%s", f)
	}
	if w.check.Beyond {
		return
	}
	for _, d := range v.Disagreements {
		w.check.Violate("the judges agree", "%s", d)
	}
}

// judged is the history without the partitions that the node has named as
// damaged: of those it is only promised that nothing false is served, which was
// checked when it was.
func (w *World) judged() *history.History {
	all := w.history()
	if len(w.check.Damage) == 0 {
		return all
	}
	h := &history.History{}
	for _, o := range all.Operations {
		if w.check.Damage[o.Partition] == "" {
			h.Add(o)
		}
	}
	for _, l := range all.Final {
		if w.check.Damage[l.Partition] == "" {
			h.Final = append(h.Final, l)
		}
	}
	return h
}

// history is what all clients remember.
func (w *World) history() *history.History {
	if w.admin == nil {
		return w.load.History()
	}
	h := &history.History{Final: w.load.History().Final}
	for _, o := range w.load.History().Operations {
		h.Add(o)
	}
	for _, o := range w.admin.History().Operations {
		o.Client += history.Client(w.load.Clients())
		h.Add(o)
	}
	return h
}

func (w *World) result(seed uint64) Result {
	r := Result{
		Seed: seed, Config: w.cfg, Verdict: OK, Hash: uint64(w.k.Trace.Sum()),
		Simulated: time.Duration(w.k.Now()), Events: w.k.Events(), At: w.k.Now(), Reached: w.reached,
		Recoveries: w.counts["recovery"],
	}
	r.Faults = w.faultsSeen()
	if w.passer != nil {
		r.Faults["topic deleted"] = w.passer.Passed
		r.Faults["topic created again"] = w.passer.Again
	}
	if w.gambler != nil {
		r.Faults["unclean election"] = w.check.Unclean
		r.Faults["operator: unclean election"] = w.gambler.Forced
	}
	if w.operator != nil {
		for what, n := range w.operator.Done { //pawl:unordered copied into a map
			r.Faults["operator: "+what] = n
		}
	}
	if w.load != nil {
		r.History = w.history()
		r.OK, r.Failed, r.Unknown = r.History.Count()
	}
	switch v := w.check.First(); {
	case v != nil:
		r.Verdict, r.Violation = Violation, v
	case w.stuck != "":
		w.describe()
		r.Verdict = Stuck
		r.Violation = &check.Violation{Check: "everything ends", Text: w.stuck}
	}
	return r
}

func (w *World) faultsSeen() map[string]int64 {
	w.faults.w = w
	return w.faults.tally()
}

// Explain says in a few lines what came of a run.
func (r *Result) Explain() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s", r.Seed, r.Verdict)
	if r.Violation != nil {
		fmt.Fprintf(&b, " at %v\n  check: %s\n  found: %s", time.Duration(r.At), r.Violation.Check, r.Violation.Text)
	}
	fmt.Fprintf(&b, "\n  hash %016x, %v simulated, %d events, operations: %d ok, %d failed, %d unknown",
		r.Hash, r.Simulated.Round(time.Millisecond), r.Events, r.OK, r.Failed, r.Unknown)
	return b.String()
}
