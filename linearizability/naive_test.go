package linearizability_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// The naive judge: Porcupine with nothing resolved. The state is the whole log,
// the final log is one more read, and an append of unknown outcome that never
// happened is one that happens after everything else. It shares no code with
// the judges it checks.

const endOfTime = history.Never

func naiveLog(h *history.History) bool {
	var ops []porcupine.Operation
	for i := range h.Operations {
		o := h.Operations[i]
		if o.Outcome == history.Failed || o.Outcome == history.Unknown && o.Kind != history.Append {
			continue
		}
		ops = append(ops, porcupine.Operation{ClientId: int(o.Client), Input: o, Call: int64(o.Call), Return: int64(o.Return)})
	}
	final := h.Final[0]
	ops = append(ops, porcupine.Operation{
		Input: history.Operation{Kind: history.Read, Records: final.Records, End: final.End},
		Call:  int64(endOfTime - 2), Return: int64(endOfTime - 1),
	})
	return porcupine.CheckOperations(porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, _ any) (bool, any) {
			log := state.(string)
			o := input.(history.Operation)
			values := strings.Fields(log)
			end := history.Offset(len(values))
			switch o.Kind {
			case history.Append:
				for _, v := range o.Values {
					log += fmt.Sprintf("%d ", v)
				}
				return o.Outcome == history.Unknown || o.Base == end, log
			case history.ListEnd:
				return o.End == history.NoOffset || o.End == end, log
			}
			if o.End != history.NoOffset && o.End != end {
				return false, log
			}
			if o.End == history.NoOffset && len(o.Records) == 0 {
				return end <= o.From, log
			}
			for i, r := range o.Records {
				at := o.From + history.Offset(i)
				if r.Offset != at || at >= end || values[at] != fmt.Sprint(r.Value) {
					return false, log
				}
			}
			return true, log
		},
	}, ops)
}

func naiveCommitted(h *history.History) bool {
	var ops []porcupine.Operation
	for i := range h.Operations {
		o := h.Operations[i]
		if o.Outcome == history.Failed || o.Outcome == history.Unknown && o.Kind != history.Commit {
			continue
		}
		ops = append(ops, porcupine.Operation{ClientId: int(o.Client), Input: o, Call: int64(o.Call), Return: int64(o.Return)})
	}
	return porcupine.CheckOperations(porcupine.Model{
		Init: func() any { return [2]int64{0, int64(history.NoOffset)} },
		Step: func(state, input, _ any) (bool, any) {
			o := input.(history.Operation)
			value := [2]int64{int64(o.Token), int64(o.Committed)}
			if o.Kind == history.Commit {
				return true, value
			}
			return state == value, state
		},
	}, ops)
}

func pointers(h *history.History) []*history.Operation {
	ops := make([]*history.Operation, len(h.Operations))
	for i := range ops {
		ops[i] = &h.Operations[i]
	}
	return ops
}

func clone(h *history.History) *history.History {
	c := &history.History{Operations: slices.Clone(h.Operations), Final: slices.Clone(h.Final)}
	for i := range c.Operations {
		c.Operations[i].Records = slices.Clone(c.Operations[i].Records)
		c.Operations[i].Values = slices.Clone(c.Operations[i].Values)
	}
	for i := range c.Final {
		c.Final[i].Records = slices.Clone(c.Final[i].Records)
	}
	return c
}
