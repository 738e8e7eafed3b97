package anomaly

import (
	"fmt"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// The order check.
//
// A log's only state is its length, which only grows. So a history whose
// records all agree with one log is linearizable if and only if there are
// instants t(0) <= t(1) <= ... at which the slots came to be, such that every
// operation's claim holds at some instant of its interval. A claim is "the log
// has slot k" (length > k) or "the log has not slot k" (length <= k), and
// bounds t(k) from one side only:
//
//	t(k) <= return of every operation that saw slot k, or appended it and was acknowledged
//	t(k) >= call of every operation that saw that slot k was not there, or appended it
//
// An operation that tells an exact length makes both claims, about neighbouring
// slots; since t is ascending both hold at one instant of its interval as soon
// as each holds at some. What is left is to ask whether the greatest lower
// bound up to k passes the upper bound of k anywhere.
//
// An append of unknown outcome that is in the log has no upper bound of its
// own; one that is not never happened.

// bound is a time and who made it.
type bound struct {
	at history.Time
	op *history.Operation
}

type bounds struct {
	lower, upper []bound // by slot; op is nil where there is none
}

func (b *bounds) raise(slot int, o *history.Operation) {
	if slot < len(b.lower) && (b.lower[slot].op == nil || o.Call > b.lower[slot].at) {
		b.lower[slot] = bound{o.Call, o}
	}
}

func (b *bounds) drop(slot int, o *history.Operation) {
	if slot >= 0 && (b.upper[slot].op == nil || o.Return < b.upper[slot].at) {
		b.upper[slot] = bound{o.Return, o}
	}
}

// checkOrder asks whether the history is linearizable, given that its records
// agree with slots; where they do not, that is reported elsewhere, and this
// judges the rest.
func (c *logCheck) checkOrder() {
	b := bounds{lower: make([]bound, len(c.slots)), upper: make([]bound, len(c.slots))}
	for _, o := range c.ops {
		switch {
		case o.Kind == history.Append:
			c.boundAppend(&b, o)
		case o.Outcome != history.OK:
		default:
			if begins(o) {
				b.drop(c.slot(o.Start)-1, o) // what was deleted was there
			}
			if o.Kind == history.Read && !o.OutOfRange || o.Kind == history.ListEnd {
				has, hasNot := c.claims(o)
				b.raise(hasNot, o)
				b.drop(has, o)
			}
		}
	}
	if c.opt.Atomic {
		b.spread(c.batches())
	}
	c.compare(&b)
}

func (c *logCheck) boundAppend(b *bounds, o *history.Operation) {
	for i, v := range o.Values {
		slot, ok := c.placed[v]
		if !ok || o.Outcome == history.Failed {
			continue
		}
		b.raise(slot, o)
		if promised(o) && c.slots[slot].Offset == o.Base+history.Offset(i) {
			b.drop(slot, o)
		}
	}
}

// claims is the highest slot that a read or list-end knows to be there (-1 if
// none) and the lowest that it knows not to be (the number of slots if none).
func (c *logCheck) claims(o *history.Operation) (has, hasNot int) {
	has, hasNot = -1, len(c.slots)
	if o.End != history.NoOffset {
		hasNot = c.slot(o.End)
		has = hasNot - 1
	}
	if o.Kind == history.ListEnd {
		return has, hasNot
	}
	if n := len(o.Records); n > 0 {
		seen := c.slot(o.Records[n-1].Offset)
		if seen < len(c.slots) && c.slots[seen].Offset == o.Records[n-1].Offset {
			has = max(has, seen)
		}
	} else if o.End == history.NoOffset {
		hasNot = c.slot(o.From)
	}
	return has, hasNot
}

func (c *logCheck) compare(b *bounds) {
	var low bound
	lowSlot := 0
	blamed := make(map[*history.Operation]bool)
	for k := range c.slots {
		if l := b.lower[k]; l.op != nil && (low.op == nil || l.at > low.at) {
			low, lowSlot = l, k
		}
		up := b.upper[k]
		if low.op == nil || up.op == nil || low.at <= up.at {
			continue
		}
		if !blamed[low.op] && !blamed[up.op] {
			blamed[low.op], blamed[up.op] = true, true
			c.addOrder(low, up, lowSlot, k)
		}
	}
}

// addOrder reports that slot k was there by up.at though low.op shows that a
// slot no higher was not there before low.at.
func (c *logCheck) addOrder(low, up bound, lowSlot, k int) {
	f := Finding{
		Operations: []int{low.op.ID, up.op.ID},
		Offsets:    []history.Offset{c.slots[lowSlot].Offset, c.slots[k].Offset},
	}
	proof := fmt.Sprintf("operation #%d had shown by %d that offset %d is there", up.op.ID, up.at, c.slots[k].Offset)
	switch {
	case low.op.Kind != history.Append:
		f.Kind = StaleRead
		f.Text = fmt.Sprintf("called at %d, told that offset %d is not there, but %s", low.at, c.slots[lowSlot].Offset, proof)
	case up.op.Kind != history.Append:
		f.Kind, f.Operations = FutureRead, []int{up.op.ID, low.op.ID}
		f.Text = fmt.Sprintf("the append of offset %d was called only at %d, but %s", c.slots[lowSlot].Offset, low.at, proof)
	default:
		f.Kind = RealtimeOrder
		f.Text = fmt.Sprintf("the append of offset %d was called only at %d, but %s", c.slots[lowSlot].Offset, low.at, proof)
	}
	c.add(f)
}

// batches gives, for each slot, the first slot of the append it belongs to.
func (c *logCheck) batches() []int {
	first := make([]int, len(c.slots))
	for i := range first {
		first[i] = i
		if i == 0 {
			continue
		}
		before, ok := c.writers[c.slots[i-1].Value]
		if now, too := c.writers[c.slots[i].Value]; ok && too && before.op == now.op {
			first[i] = first[i-1]
		}
	}
	return first
}

// spread gives a batch's first slot the lower bounds of all its slots: who has
// not seen one of them was there before all. Since lower bounds hold for every
// slot that follows, upper bounds can stay where they are.
func (b *bounds) spread(first []int) {
	for i := range first {
		if l := b.lower[i]; l.op != nil {
			b.raise(first[i], l.op)
		}
	}
}

// checkTorn looks for batches of which only a part is there, or was there when
// somebody looked.
func (c *logCheck) checkTorn() {
	for _, o := range c.ops {
		if o.Kind == history.Append && o.Outcome != history.Failed && !promised(o) {
			c.checkWhole(o)
		}
	}
	first := c.batches()
	for _, o := range c.ops {
		if o.Outcome != history.OK || o.Kind != history.Read && o.Kind != history.ListEnd || o.End == history.NoOffset {
			continue
		}
		if i := c.slot(o.End); i < len(c.slots) && first[i] != i {
			c.add(Finding{Kind: TornAppend, Operations: append([]int{o.ID}, c.writerOf(c.slots[i].Value)...), Offsets: []history.Offset{o.End},
				Text: fmt.Sprintf("the end was %d, inside the batch at %d", o.End, c.slots[first[i]].Offset)})
		}
	}
}

// checkWhole asks whether all of an append is in the final log, side by side,
// or nothing.
func (c *logCheck) checkWhole(o *history.Operation) {
	if c.final == nil {
		return
	}
	together, lowest := 0, len(c.slots)
	for _, v := range o.Values {
		at, ok := c.placed[v]
		if !ok {
			continue
		}
		if together == 0 || at == lowest+together {
			together++
		}
		lowest = min(lowest, at)
	}
	if together == 0 || together == len(o.Values) {
		return
	}
	if c.slots[lowest].Offset <= c.final.Start && c.final.Start > 0 {
		return // the log's start may have been moved into the batch
	}
	c.add(Finding{Kind: TornAppend, Operations: []int{o.ID}, Offsets: []history.Offset{c.slots[lowest].Offset}, Values: o.Values,
		Text: fmt.Sprintf("%d of the batch's %d records are together in the log", together, len(o.Values))})
}
