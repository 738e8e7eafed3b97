package anomaly

import (
	"fmt"
	"slices"
	"sort"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// Options say what else than linearizability is promised.
type Options struct {
	// Atomic: an append's values become visible all at once, as one record
	// batch does.
	Atomic bool
	// Dense: every offset has a record: nothing is compacted, and there are no
	// transaction markers.
	Dense bool
}

// Log judges one partition: all operations on it that are appends, reads, deletions
// and questions for its end or start (others are passed over), and the final log, or nil when it was not
// read. Without a final log appends that nobody saw are not judged lost.
//
// Every value is appended by one operation only.
func Log(p history.Partition, ops []*history.Operation, final *history.Log, opt Options) []Finding {
	c := &logCheck{ops: ops, final: final, opt: opt, report: report{partition: p}}
	c.findWriters()
	c.layOut()
	c.checkFinal()
	c.checkAppends()
	c.checkReads()
	c.checkSends()
	if opt.Atomic {
		c.checkTorn()
	}
	c.checkOrder()
	c.checkStart()
	return c.report.sorted()
}

// logCheck is one partition under judgement.
type logCheck struct {
	report
	ops   []*history.Operation
	final *history.Log
	opt   Options

	writers map[history.Value]writer
	// slots are the records held to be the log's, by offset, ascending. Where a
	// final log was read they are its records, preceded by those below its
	// start that were seen; otherwise all that were seen or acknowledged.
	slots  []history.Record
	placed map[history.Value]int // where in slots; the first place of a duplicate
}

type writer struct {
	op *history.Operation
	i  int // in its Values
}

// promised reports whether an append's answer binds the cluster.
func promised(o *history.Operation) bool { return o.Outcome == history.OK && !o.Weak }

func (c *logCheck) findWriters() {
	n := 0
	for _, o := range c.ops {
		n += len(o.Values)
	}
	c.writers = make(map[history.Value]writer, n)
	for _, o := range c.ops {
		if o.Kind != history.Append {
			continue
		}
		for i, v := range o.Values {
			c.writers[v] = writer{o, i}
		}
	}
}

// layOut fills slots and placed.
func (c *logCheck) layOut() {
	var seen []history.Record
	limit := history.Offset(1<<63 - 1) // records below it are taken from what was seen
	if c.final != nil {
		limit = c.final.Start
	}
	for _, o := range c.ops {
		switch {
		case o.Kind == history.Read && o.Outcome == history.OK:
			for _, r := range o.Records {
				if r.Offset < limit {
					seen = append(seen, r)
				}
			}
		case o.Kind == history.Append && promised(o):
			for i, v := range o.Values {
				if at := o.Base + history.Offset(i); at < limit {
					seen = append(seen, history.Record{Offset: at, Value: v})
				}
			}
		}
	}
	sort.Slice(seen, func(i, j int) bool {
		if seen[i].Offset != seen[j].Offset {
			return seen[i].Offset < seen[j].Offset
		}
		return seen[i].Value < seen[j].Value
	})
	for _, r := range slices.Compact(seen) {
		if n := len(c.slots); n > 0 && c.slots[n-1].Offset == r.Offset {
			c.add(Finding{Kind: InconsistentOffsets, Offsets: []history.Offset{r.Offset},
				Values:     []history.Value{c.slots[n-1].Value, r.Value},
				Operations: append(c.witnesses(r.Offset, c.slots[n-1].Value), c.witnesses(r.Offset, r.Value)...),
				Text:       fmt.Sprintf("offset %d is both %#x and %#x", r.Offset, uint64(c.slots[n-1].Value), uint64(r.Value))})
			continue
		}
		c.slots = append(c.slots, r)
	}
	if c.final != nil {
		c.slots = append(c.slots, c.final.Records...)
	}
	c.placed = make(map[history.Value]int, len(c.slots))
	for i, r := range c.slots {
		first, again := c.placed[r.Value]
		if !again {
			c.placed[r.Value] = i
			continue
		}
		c.add(Finding{Kind: Duplicate, Values: []history.Value{r.Value}, Operations: c.writerOf(r.Value),
			Offsets: []history.Offset{c.slots[first].Offset, r.Offset},
			Text:    fmt.Sprintf("%#x is at %d and at %d", uint64(r.Value), c.slots[first].Offset, r.Offset)})
	}
}

// witnesses is the first operation that says v is at the offset. It is for
// findings only: it takes a pass over the history.
func (c *logCheck) witnesses(at history.Offset, v history.Value) []int {
	for _, o := range c.ops {
		switch {
		case o.Outcome != history.OK:
		case o.Kind == history.Read && slices.Contains(o.Records, history.Record{Offset: at, Value: v}),
			o.Kind == history.Append && at >= o.Base && at < o.Base+history.Offset(len(o.Values)) && o.Values[at-o.Base] == v:
			return []int{o.ID}
		}
	}
	return nil
}

func (c *logCheck) writerOf(v history.Value) []int {
	if w, ok := c.writers[v]; ok {
		return []int{w.op.ID}
	}
	return nil
}

// slot is the index of the first slot at or after the offset.
func (c *logCheck) slot(at history.Offset) int {
	n := len(c.slots)
	if n == 0 || at <= c.slots[0].Offset {
		return 0
	}
	// Where the log is dense the place can be computed.
	if i := int64(at - c.slots[0].Offset); i < int64(n) && c.slots[i].Offset == at {
		return int(i)
	}
	return sort.Search(n, func(i int) bool { return c.slots[i].Offset >= at })
}

// at is the value at the offset.
func (c *logCheck) at(offset history.Offset) (history.Value, bool) {
	if i := c.slot(offset); i < len(c.slots) && c.slots[i].Offset == offset {
		return c.slots[i].Value, true
	}
	return 0, false
}

// checkFinal looks at the log's form and at who wrote its records.
func (c *logCheck) checkFinal() {
	for i, r := range c.slots {
		if i > 0 && r.Offset <= c.slots[i-1].Offset {
			c.add(Finding{Kind: IntNonmonotonicPoll, Offsets: []history.Offset{c.slots[i-1].Offset, r.Offset},
				Text: fmt.Sprintf("in the final log offset %d follows %d", r.Offset, c.slots[i-1].Offset)})
		}
		c.checkWriter(r, nil)
	}
	if c.final == nil {
		return
	}
	if n := len(c.final.Records); n > 0 && (c.final.Records[0].Offset < c.final.Start || c.final.Records[n-1].Offset >= c.final.End) {
		c.add(Finding{Kind: ReadPastEnd, Offsets: []history.Offset{c.final.Records[0].Offset, c.final.Records[n-1].Offset},
			Text: fmt.Sprintf("the final log holds %d to %d, and says it is [%d, %d)",
				c.final.Records[0].Offset, c.final.Records[n-1].Offset, c.final.Start, c.final.End)})
	}
	if c.opt.Dense {
		next := c.final.Start
		for _, r := range c.final.Records {
			c.checkDense(next, r.Offset)
			next = r.Offset + 1
		}
		c.checkDense(next, c.final.End)
	}
}

func (c *logCheck) checkDense(next, found history.Offset) {
	if found > next {
		c.add(Finding{Kind: Gap, Offsets: []history.Offset{next, found},
			Text: fmt.Sprintf("nothing at [%d, %d) of the final log", next, found)})
	}
}

// checkWriter asks who wrote a record; reader is who saw it, nil for the final
// log.
func (c *logCheck) checkWriter(r history.Record, reader *history.Operation) {
	f := Finding{Offsets: []history.Offset{r.Offset}, Values: []history.Value{r.Value}}
	if reader != nil {
		f.Operations = []int{reader.ID}
	}
	w, ok := c.writers[r.Value]
	switch {
	case !ok:
		f.Kind, f.Text = Unwritten, fmt.Sprintf("%#x at %d was appended by nobody", uint64(r.Value), r.Offset)
	case w.op.Outcome == history.Failed:
		f.Kind, f.Operations = AbortedRead, append(f.Operations, w.op.ID)
		f.Text = fmt.Sprintf("%#x at %d is visible, and its append failed", uint64(r.Value), r.Offset)
	default:
		return
	}
	c.add(f)
}

// checkAppends asks whether what was acknowledged is where it was said to be.
func (c *logCheck) checkAppends() {
	if c.final == nil {
		return
	}
	for _, o := range c.ops {
		if o.Kind != history.Append || !promised(o) {
			continue
		}
		for i, v := range o.Values {
			c.checkPromise(o, history.Record{Offset: o.Base + history.Offset(i), Value: v})
		}
	}
}

func (c *logCheck) checkPromise(o *history.Operation, want history.Record) {
	there, taken := c.at(want.Offset)
	if taken && there == want.Value {
		return
	}
	f := Finding{Operations: []int{o.ID}, Offsets: []history.Offset{want.Offset}, Values: []history.Value{want.Value}}
	i, elsewhere := c.placed[want.Value]
	if elsewhere {
		f.Kind, f.Offsets = InconsistentOffsets, append(f.Offsets, c.slots[i].Offset)
		f.Text = fmt.Sprintf("%#x was acknowledged at %d and is at %d", uint64(want.Value), want.Offset, c.slots[i].Offset)
		c.add(f)
		return
	}
	if taken {
		g := f
		g.Kind, g.Values = InconsistentOffsets, []history.Value{want.Value, there}
		g.Operations = append([]int{o.ID}, c.writerOf(there)...)
		g.Text = fmt.Sprintf("%#x was acknowledged at %d, where %#x is", uint64(want.Value), want.Offset, uint64(there))
		c.add(g)
	}
	f.Kind = Unseen
	if want.Offset < c.final.End {
		f.Kind = LostWrite
	}
	f.Text = fmt.Sprintf("%#x was acknowledged at %d and is nowhere in the final log [%d, %d)", uint64(want.Value), want.Offset, c.final.Start, c.final.End)
	c.add(f)
}

// checkReads compares what readers saw with the log, and each answer with what
// was asked.
func (c *logCheck) checkReads() {
	for _, o := range c.ops {
		if o.Outcome != history.OK || o.Kind != history.Read && o.Kind != history.ListEnd {
			continue
		}
		if c.final != nil && o.End > c.final.End {
			c.add(Finding{Kind: EndWentBack, Operations: []int{o.ID}, Offsets: []history.Offset{o.End, c.final.End},
				Text: fmt.Sprintf("the end was %d, and the final log ends at %d", o.End, c.final.End)})
		}
		if o.Kind == history.Read && len(o.Records) > 0 {
			c.checkRead(o)
		}
	}
}

func (c *logCheck) checkRead(o *history.Operation) {
	next := c.slot(o.From) // the slot that must come
	for i, r := range o.Records {
		if !c.checkStep(o, i, next) {
			return
		}
		next = c.slot(r.Offset)
		there, ok := c.at(r.Offset)
		switch {
		case ok && there == r.Value:
			next++
			continue
		case ok:
			next++
			c.add(Finding{Kind: InconsistentOffsets, Offsets: []history.Offset{r.Offset}, Values: []history.Value{r.Value, there},
				Operations: append([]int{o.ID}, c.writerOf(r.Value)...),
				Text:       fmt.Sprintf("%#x was read at %d, where %#x is", uint64(r.Value), r.Offset, uint64(there))})
		default:
			c.add(Finding{Kind: LostWrite, Offsets: []history.Offset{r.Offset}, Values: []history.Value{r.Value},
				Operations: append([]int{o.ID}, c.writerOf(r.Value)...),
				Text:       fmt.Sprintf("%#x was read at %d, which is not in the final log", uint64(r.Value), r.Offset)})
		}
		if _, placed := c.placed[r.Value]; !placed {
			c.checkWriter(r, o)
		}
	}
	if last := o.Records[len(o.Records)-1].Offset; o.End != history.NoOffset && last >= o.End {
		c.add(Finding{Kind: ReadPastEnd, Operations: []int{o.ID}, Offsets: []history.Offset{last, o.End},
			Text: fmt.Sprintf("offset %d was read, and the end was %d", last, o.End)})
	}
}

// checkStep looks at the i-th record's offset: it must rise, and pass over no
// slot from next on. It reports whether it is worth looking further.
func (c *logCheck) checkStep(o *history.Operation, i, next int) bool {
	at, skip, back := o.Records[i].Offset, IntPollSkip, IntNonmonotonicPoll
	previous := o.From - 1
	if i > 0 {
		previous = o.Records[i-1].Offset
	} else {
		skip, back = PollSkip, NonmonotonicPoll
	}
	if at <= previous {
		c.add(Finding{Kind: back, Operations: []int{o.ID}, Offsets: []history.Offset{previous, at},
			Text: fmt.Sprintf("a read from %d got %d where an offset past %d was due", o.From, at, previous)})
		return false
	}
	// Below the start of the final log records may have been removed by the
	// time of the read.
	if next < len(c.slots) && c.slots[next].Offset < at && (c.final == nil || c.slots[next].Offset >= c.final.Start) {
		c.add(Finding{Kind: skip, Operations: []int{o.ID}, Offsets: []history.Offset{c.slots[next].Offset, at},
			Values: []history.Value{c.slots[next].Value},
			Text:   fmt.Sprintf("a read from %d got %d and not %d before it", o.From, at, c.slots[next].Offset)})
	}
	return true
}

// checkSends asks whether each client's acknowledged appends rise.
func (c *logCheck) checkSends() {
	last := make(map[history.Client]*history.Operation)
	for _, o := range c.byCall() {
		if o.Kind != history.Append || !promised(o) || len(o.Values) == 0 {
			continue
		}
		before := last[o.Client]
		last[o.Client] = o
		if before == nil || before.Return >= o.Call {
			continue
		}
		if end := before.Base + history.Offset(len(before.Values)); o.Base < end {
			c.add(Finding{Kind: NonmonotonicSend, Operations: []int{o.ID, before.ID}, Offsets: []history.Offset{o.Base, before.Base},
				Text: fmt.Sprintf("client %d appended to [%d, %d) and then to %d", o.Client, before.Base, end, o.Base)})
		}
	}
}

// byCall is the operations in the order they were called.
func (c *logCheck) byCall() []*history.Operation {
	less := func(a, b *history.Operation) int {
		switch {
		case a.Call < b.Call:
			return -1
		case a.Call > b.Call:
			return 1
		}
		return a.ID - b.ID
	}
	if slices.IsSortedFunc(c.ops, less) {
		return c.ops
	}
	return slices.SortedFunc(slices.Values(c.ops), less)
}
