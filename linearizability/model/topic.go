package model

import (
	"fmt"
	"slices"
	"sort"

	"github.com/anishathalye/porcupine"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// topic is what there is under a name: the token of its configuration, or 0 for
// no topic.
type topic history.Value

// change is an operation on a topic.
type change struct {
	id    int // of the operation
	kind  history.Kind
	token history.Value
	there bool
	known bool // the answer is
}

func topicModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return topic(0) },
		Step: func(state, input, _ any) (bool, any) {
			now, c := state.(topic), input.(change)
			exists := now != 0
			if c.kind == history.GetConfig {
				return now == topic(c.token), now
			}
			if c.known && exists != c.there {
				return false, now
			}
			switch {
			case c.kind == history.CreateTopic && !exists, c.kind == history.SetConfig && exists:
				return true, topic(c.token)
			case c.kind == history.DeleteTopic:
				return true, topic(0)
			}
			return true, now
		},
		DescribeOperation: func(input, _ any) string {
			c := input.(change)
			return fmt.Sprintf("%s %#x there=%t", c.kind, uint64(c.token), c.there)
		},
		DescribeState:             func(state any) string { return fmt.Sprintf("token %#x", uint64(state.(topic))) },
		DescribeOperationMetadata: func(m any) string { return fmt.Sprint(m) },
	}
}

// Topic makes a window of all operations on one topic name. One of unknown
// outcome may have taken effect at any time since it was called, or never.
//
// An answer that is one node's own knowledge may be old; but it is not older than
// what that node had answered before to anybody: a node never forgets. So such an
// operation counts as called when the last of those was, as if it had been
// answered late. Operations are in the order in which they ended.
func Topic(name string, ops []*history.Operation, limits Limits) *Window {
	w := &Window{Name: "topic " + name, Whole: true, model: topicModel(), steps: limits.Steps}
	since := make([]history.Time, len(ops)) // when what it tells was true at the earliest
	for i, o := range ops {
		since[i] = o.Call
		if o.Outcome == history.Failed || o.Outcome == history.Unknown && o.Kind == history.GetConfig {
			continue
		}
		c := change{id: o.ID, kind: o.Kind, token: o.Token, there: o.There, known: o.Outcome == history.OK}
		ret := o.Return
		if !c.known {
			ret = history.Never
		}
		op := operation(o, c, ret)
		if c.known && o.Kind == history.GetConfig && o.Via != history.AsOfNow {
			since[i] = 0
			for j, b := range ops[:i] {
				if b.Via == o.Via && b.Outcome == history.OK && b.Return < o.Call {
					since[i] = max(since[i], since[j])
				}
			}
			op.Call = int64(since[i])
		}
		w.history = append(w.history, op)
		w.IDs = append(w.IDs, o.ID)
	}
	return w
}

// Accused is the operation of an illegal window of Topic whose answer no order
// explains, given what had been answered before.
func Accused(ops []*history.Operation, w *Window) *history.Operation {
	var answered []porcupine.Operation
	for _, o := range w.history {
		if o.Input.(change).known {
			answered = append(answered, o)
		}
	}
	sort.SliceStable(answered, func(i, j int) bool { return answered[i].Return < answered[j].Return })
	first := sort.Search(len(answered), func(n int) bool { return w.until(answered[n].Return).Check() == Illegal })
	id := answered[min(first, len(answered)-1)].Input.(change).id
	return ops[slices.IndexFunc(ops, func(o *history.Operation) bool { return o.ID == id })]
}

// until is the window as it was at an instant: what was answered later was not
// known yet.
func (w *Window) until(now int64) *Window {
	past := *w
	past.history = nil
	for _, o := range w.history {
		c := o.Input.(change)
		switch {
		case o.Call > now, o.Return > now && c.kind == history.GetConfig:
			continue
		case o.Return > now:
			c.known = false
			o.Input, o.Return = c, int64(history.Never)
		}
		past.history = append(past.history, o)
	}
	return &past
}
