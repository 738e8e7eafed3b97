package anomaly

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// KafkaOp is one completed operation of Jepsen's Kafka workload. An operation
// with Assign set is an assign and nothing else; otherwise it is its Sends and
// Polls, in that order. A crashed client's successor is another Process.
type KafkaOp struct {
	Process int
	Outcome history.Outcome
	Sends   []KafkaSend
	Polls   []KafkaPoll
	Assign  []string // the keys to poll from now on; nil if this is no assign
}

// KafkaSend is one message sent. Offset counts only when it is known, which it
// may be for an operation that is not OK as a whole; else it is NoOffset.
type KafkaSend struct {
	Key    string
	Value  history.Value
	Offset history.Offset
}

// KafkaPoll is what one poll returned of one key, in the order returned.
type KafkaPoll struct {
	Key     string
	Records []history.Record
}

// Kafka finds what Jepsen's Kafka workload calls anomalies when consumers use
// assign, in operations listed in the order they completed. Findings have the
// key as topic, and in Operations places in ops. Messages of one key have
// different values.
//
// Of Jepsen's anomalies those are left out that cannot arise without
// transactions: precommitted reads, and cycles.
//
// Source: jepsen.tests.kafka (Jepsen 0.3.7), documentation of each anomaly.
func Kafka(ops []KafkaOp) []Finding {
	c := &kafkaCheck{ops: ops, keys: make(map[string]*kafkaKey)}
	c.gather()
	for _, name := range c.names {
		c.keys[name].layOut()
	}
	for _, name := range c.names {
		c.checkKey(c.keys[name])
	}
	c.checkProcesses()
	var all []Finding
	for _, name := range c.names {
		all = append(all, c.keys[name].report.sorted()...)
	}
	return all
}

type kafkaCheck struct {
	ops   []KafkaOp
	keys  map[string]*kafkaKey
	names []string // of keys, in order of appearance, then sorted
}

// kafkaKey is what is known about one key.
type kafkaKey struct {
	report
	writers map[history.Value]int // the operation that sent it
	polled  map[history.Value]int // the first OK operation that returned it
	pairs   []history.Record      // every (offset, value) known to be in the log
	// What follows numbers the offsets that hold something, without gaps.
	order []history.Record      // one record for each index
	first map[history.Value]int // the lowest index at which a value is
	last  map[history.Value]int // the highest
}

func (c *kafkaCheck) key(name string) *kafkaKey {
	k := c.keys[name]
	if k == nil {
		k = &kafkaKey{
			report:  report{partition: history.Partition{Topic: name}},
			writers: make(map[history.Value]int), polled: make(map[history.Value]int),
			first: make(map[history.Value]int), last: make(map[history.Value]int),
		}
		c.keys[name] = k
		c.names = append(c.names, name)
	}
	return k
}

func (c *kafkaCheck) gather() {
	for i := range c.ops {
		for _, s := range c.ops[i].Sends {
			c.key(s.Key).writers[s.Value] = i
		}
		for _, p := range c.ops[i].Polls {
			k := c.key(p.Key)
			for _, r := range p.Records {
				// Polls tell the truth about the log even in operations that
				// came to nothing.
				k.pairs = append(k.pairs, r)
				if _, again := k.polled[r.Value]; !again && c.ops[i].Outcome == history.OK {
					k.polled[r.Value] = i
				}
			}
		}
	}
	for i := range c.ops {
		if !c.happened(i) {
			continue
		}
		for _, s := range c.ops[i].Sends {
			if s.Offset != history.NoOffset {
				k := c.key(s.Key)
				k.pairs = append(k.pairs, history.Record{Offset: s.Offset, Value: s.Value})
			}
		}
	}
	slices.Sort(c.names)
}

// happened reports whether an operation's sends are known to be in the log: it
// is OK, or unknown and one of them was polled.
func (c *kafkaCheck) happened(i int) bool {
	switch c.ops[i].Outcome {
	case history.OK:
		return true
	case history.Failed:
		return false
	}
	return slices.ContainsFunc(c.ops[i].Sends, func(s KafkaSend) bool {
		_, polled := c.key(s.Key).polled[s.Value]
		return polled
	})
}

// layOut orders the log by offset. Where an offset has several values the least
// stands for it.
func (k *kafkaKey) layOut() {
	slices.SortFunc(k.pairs, func(a, b history.Record) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Value, b.Value))
	})
	k.pairs = slices.Compact(k.pairs)
	for _, r := range k.pairs {
		if n := len(k.order); n == 0 || k.order[n-1].Offset != r.Offset {
			k.order = append(k.order, r)
		}
		i := len(k.order) - 1
		if _, again := k.first[r.Value]; !again {
			k.first[r.Value] = i
		}
		k.last[r.Value] = i
	}
}

func (c *kafkaCheck) checkKey(k *kafkaKey) {
	k.checkPairs()
	bound := -1 // everything up to it must have been polled
	for _, v := range slices.Sorted(maps.Keys(k.polled)) {
		if i, ok := k.first[v]; ok {
			bound = max(bound, i)
		}
		f := Finding{Operations: []int{k.polled[v]}, Values: []history.Value{v}}
		w, ok := k.writers[v]
		switch {
		case !ok:
			f.Kind, f.Text = Unwritten, fmt.Sprintf("%d was polled, and sent by nobody", v)
		case c.ops[w].Outcome == history.Failed:
			f.Kind, f.Operations = AbortedRead, append(f.Operations, w)
			f.Text = fmt.Sprintf("%d was polled, and its send failed", v)
		default:
			continue
		}
		k.add(f)
	}
	c.checkUnpolled(k, bound)
}

func (k *kafkaKey) checkPairs() {
	places := make(map[history.Value]history.Offset)
	for i, r := range k.pairs {
		if i > 0 && k.pairs[i-1].Offset == r.Offset {
			k.add(Finding{Kind: InconsistentOffsets, Offsets: []history.Offset{r.Offset}, Values: []history.Value{k.pairs[i-1].Value, r.Value},
				Operations: k.writersOf(k.pairs[i-1].Value, r.Value),
				Text:       fmt.Sprintf("offset %d is both %d and %d", r.Offset, k.pairs[i-1].Value, r.Value)})
		}
		if before, again := places[r.Value]; again {
			k.add(Finding{Kind: Duplicate, Offsets: []history.Offset{before, r.Offset}, Values: []history.Value{r.Value},
				Operations: k.writersOf(r.Value),
				Text:       fmt.Sprintf("%d is at %d and at %d", r.Value, before, r.Offset)})
		}
		places[r.Value] = r.Offset
	}
}

func (k *kafkaKey) writersOf(values ...history.Value) []int {
	var ops []int
	for _, v := range values {
		if w, ok := k.writers[v]; ok {
			ops = append(ops, w)
		}
	}
	return ops
}

// checkUnpolled looks at what was sent and never polled.
func (c *kafkaCheck) checkUnpolled(k *kafkaKey, bound int) {
	for _, v := range slices.Sorted(maps.Keys(k.writers)) {
		if _, polled := k.polled[v]; polled {
			continue
		}
		w := k.writers[v]
		if i, ok := k.last[v]; ok && i <= bound && c.happened(w) {
			k.add(Finding{Kind: LostWrite, Operations: []int{w}, Offsets: []history.Offset{k.order[i].Offset}, Values: []history.Value{v},
				Text: fmt.Sprintf("%d was sent to offset %d and never polled, though offset %d was", v, k.order[i].Offset, k.order[bound].Offset)})
		}
		if c.ops[w].Outcome == history.OK {
			k.add(Finding{Kind: Unseen, Operations: []int{w}, Values: []history.Value{v}, Text: fmt.Sprintf("%d was sent and never polled", v)})
		}
	}
}

// kafkaProcess is how far one process has come in each key, and with which
// operation.
type kafkaProcess struct {
	polled, sent map[string]kafkaPlace
}

type kafkaPlace struct {
	value history.Value
	op    int
}

func (c *kafkaCheck) checkProcesses() {
	processes := make(map[int]*kafkaProcess)
	for i := range c.ops {
		o := &c.ops[i]
		p := processes[o.Process]
		if p == nil {
			p = &kafkaProcess{polled: make(map[string]kafkaPlace), sent: make(map[string]kafkaPlace)}
			processes[o.Process] = p
		}
		if o.Assign != nil {
			if o.Outcome != history.Failed {
				keepOnly(p.polled, o.Assign)
				keepOnly(p.sent, o.Assign)
			}
			continue
		}
		c.checkPolls(p, i)
		c.checkSends(p, i)
	}
}

func keepOnly(places map[string]kafkaPlace, keys []string) {
	for key := range places {
		if !slices.Contains(keys, key) {
			delete(places, key)
		}
	}
}

func (c *kafkaCheck) checkPolls(p *kafkaProcess, i int) {
	for _, poll := range c.ops[i].Polls {
		if len(poll.Records) == 0 {
			continue
		}
		k := c.key(poll.Key)
		if before, ok := p.polled[poll.Key]; ok {
			k.step(before, kafkaPlace{poll.Records[0].Value, i}, PollSkip, NonmonotonicPoll)
		}
		for j := 1; j < len(poll.Records); j++ {
			k.step(kafkaPlace{poll.Records[j-1].Value, i}, kafkaPlace{poll.Records[j].Value, i}, IntPollSkip, IntNonmonotonicPoll)
		}
		if c.ops[i].Outcome == history.OK {
			p.polled[poll.Key] = kafkaPlace{poll.Records[len(poll.Records)-1].Value, i}
		}
	}
}

func (c *kafkaCheck) checkSends(p *kafkaProcess, i int) {
	if c.ops[i].Outcome == history.Failed {
		return
	}
	begun := make(map[string]bool) // keys this operation has sent to
	for _, s := range c.ops[i].Sends {
		back := NonmonotonicSend
		if begun[s.Key] {
			back = IntNonmonotonicSend
		}
		if before, ok := p.sent[s.Key]; ok {
			c.key(s.Key).step(before, kafkaPlace{s.Value, i}, "", back)
		}
		begun[s.Key] = true
		p.sent[s.Key] = kafkaPlace{s.Value, i}
	}
}

// step reports as skip when to is further than one index after from, and as
// back when it is not after it; no skip is reported when skip is empty.
func (k *kafkaKey) step(from, to kafkaPlace, skip, back Kind) {
	i, okFrom := k.last[from.value]
	j, okTo := k.last[to.value]
	if !okFrom || !okTo {
		return
	}
	f := Finding{Operations: []int{to.op}, Values: []history.Value{from.value, to.value},
		Offsets: []history.Offset{k.order[i].Offset, k.order[j].Offset}}
	if from.op != to.op {
		f.Operations = append(f.Operations, from.op)
	}
	switch {
	case j < i+1:
		f.Kind, f.Text = back, fmt.Sprintf("after %d at %d came %d at %d", from.value, k.order[i].Offset, to.value, k.order[j].Offset)
	case j > i+1 && skip != "":
		f.Kind, f.Text = skip, fmt.Sprintf("after %d at %d came %d at %d, past offset %d", from.value, k.order[i].Offset, to.value, k.order[j].Offset, k.order[i+1].Offset)
	default:
		return
	}
	k.add(f)
}
