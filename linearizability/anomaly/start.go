package anomaly

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// The start check.
//
// Where a log begins is a register that only grows, by deletions. What is promised
// of it is about deletions that were acknowledged: who asks later never sees less.
// A deletion that was not may be seen, and not be seen by who asks after, because
// another replica leads that has not done it; but nobody sees more than was asked
// for. So a history is good if each answer lies between two bounds:
//
//	the latest start of a deletion that had returned before the answer was asked for
//	the latest offset of a deletion that was asked for before the answer came
//
// The first is exact: with deletions as late as they can be, at their returns, and
// answers as early, at their calls, there is an order if there is any.

// begins reports whether an operation tells where the log begins.
func begins(o *history.Operation) bool {
	switch o.Kind {
	case history.Read, history.ListStart, history.DeleteRecords:
		return o.Outcome == history.OK && o.Start != history.NoOffset
	}
	return false
}

// step is a deletion, and the most that it and those before it come to.
type step struct {
	at history.Time
	to history.Offset
	op *history.Operation
}

// steps are deletions by time.
type steps []step

func (s steps) sort() {
	slices.SortStableFunc(s, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(s); i++ {
		if s[i].to < s[i-1].to {
			s[i].to, s[i].op = s[i-1].to, s[i-1].op
		}
	}
}

// before is the last of them that comes before an instant.
func (s steps) before(t history.Time) step {
	if i := sort.Search(len(s), func(i int) bool { return s[i].at >= t }); i > 0 {
		return s[i-1]
	}
	return step{}
}

// checkStart holds what answers say of where the log begins against what was
// deleted.
func (c *logCheck) checkStart() {
	var asked, done steps
	for _, o := range c.ops {
		if o.Kind != history.DeleteRecords || o.Outcome == history.Failed {
			continue
		}
		to := o.From
		if to == history.NoOffset { // all there is, which the order check bounds
			to = math.MaxInt64
		}
		asked = append(asked, step{o.Call, to, o})
		if o.Outcome == history.OK {
			done = append(done, step{o.Return, o.Start, o})
		}
	}
	asked.sort()
	done.sort()
	for _, o := range c.ops {
		if o.Outcome != history.OK {
			continue
		}
		floor := done.before(o.Call)
		if begins(o) {
			c.checkBegins(o, o.Start, floor, asked.before(o.Return+1))
		}
		if o.Kind == history.Read {
			c.checkReadStart(o, floor, asked.before(o.Return+1))
		}
		if o.Kind == history.DeleteRecords && o.Start < o.From {
			c.add(Finding{Kind: DeletedRead, Operations: []int{o.ID}, Offsets: []history.Offset{o.Start, o.From},
				Text: fmt.Sprintf("what is below %d was deleted, and the log begins at %d", o.From, o.Start)})
		}
	}
	if c.final != nil {
		c.checkBegins(nil, c.final.Start, done.before(history.Never), asked.before(history.Never))
	}
}

// checkBegins asks whether a log could begin where it did, for an operation or, if
// that is nil, at the end.
func (c *logCheck) checkBegins(o *history.Operation, start history.Offset, floor, ceiling step) {
	f := Finding{Offsets: []history.Offset{start}}
	if o != nil {
		f.Operations = []int{o.ID}
	}
	switch {
	case floor.op != nil && start < floor.to:
		f.Kind, f.Operations, f.Offsets = DeletedRead, append(f.Operations, floor.op.ID), append(f.Offsets, floor.to)
		f.Text = fmt.Sprintf("the log begins at %d, and was said at %d to begin at %d", start, floor.op.Return, floor.to)
	case start > ceiling.to:
		f.Kind, f.Text = StartAhead, fmt.Sprintf("the log begins at %d, and nobody had deleted more than what is below %d", start, ceiling.to)
	case c.final != nil && start > c.final.End:
		f.Kind, f.Text = EndWentBack, fmt.Sprintf("the log began at %d, and the final log ends at %d", start, c.final.End)
	default:
		return
	}
	c.add(f)
}

// checkReadStart asks whether a read could get what it asked for, or not get it.
func (c *logCheck) checkReadStart(o *history.Operation, floor, ceiling step) {
	f := Finding{Operations: []int{o.ID}, Offsets: []history.Offset{o.From}}
	switch {
	case o.OutOfRange && o.From >= ceiling.to:
		f.Kind, f.Text = StartAhead, fmt.Sprintf("%d is out of range, and nobody had deleted more than what is below %d", o.From, ceiling.to)
	case o.OutOfRange:
		return
	case floor.op != nil && o.From < floor.to:
		f.Kind, f.Operations, f.Offsets = DeletedRead, append(f.Operations, floor.op.ID), append(f.Offsets, floor.to)
		f.Text = fmt.Sprintf("a read from %d was answered, and the log was said at %d to begin at %d", o.From, floor.op.Return, floor.to)
	case o.Start > o.From:
		f.Kind, f.Text = DeletedRead, fmt.Sprintf("a read from %d was answered, of a log that begins at %d", o.From, o.Start)
	default:
		return
	}
	c.add(f)
}
