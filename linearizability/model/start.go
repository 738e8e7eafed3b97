package model

import (
	"fmt"
	"sort"

	"github.com/anishathalye/porcupine"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// begin is what an operation does to, or says of, where a log begins, as far as
// that was acknowledged: a deletion raises it to at, everything else says that it is
// no more than at.
type begin struct {
	id     int // of the operation
	at     history.Offset
	raises bool
}

func startModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return history.Offset(0) },
		Step: func(state, input, _ any) (bool, any) {
			start, b := state.(history.Offset), input.(begin)
			if b.raises {
				return start <= b.at, b.at
			}
			return start <= b.at, start
		},
		DescribeOperation: func(input, _ any) string {
			if b := input.(begin); b.raises {
				return fmt.Sprintf("delete below %d", b.at)
			}
			return fmt.Sprintf("start <= %d", input.(begin).at)
		},
		DescribeState:             func(state any) string { return fmt.Sprintf("start %d", state) },
		DescribeOperationMetadata: func(m any) string { return fmt.Sprint(m) },
	}
}

// Start cuts what one partition's operations say of where its log begins into
// windows, by the time of the calls, given where the final log begins. A window
// knows nothing of the deletions before it.
func Start(p history.Partition, ops []*history.Operation, final *history.Log, limits Limits) []*Window {
	var all []porcupine.Operation
	for _, o := range ops {
		if o.Outcome != history.OK {
			continue
		}
		switch {
		case o.Kind == history.DeleteRecords:
			all = append(all, operation(o, begin{o.ID, o.Start, true}, o.Return))
		case o.Kind == history.ListStart, o.Kind == history.Read && o.OutOfRange && o.Start != history.NoOffset:
			all = append(all, operation(o, begin{o.ID, o.Start, false}, o.Return))
		case o.Kind == history.Read && !o.OutOfRange:
			at := o.From
			if o.Start != history.NoOffset {
				at = min(at, o.Start)
			}
			all = append(all, operation(o, begin{o.ID, at, false}, o.Return))
		}
	}
	all, left := thin(all, func(o porcupine.Operation) bool { return !o.Input.(begin).raises }, limits.Concurrency)
	sort.SliceStable(all, func(i, j int) bool { return all[i].Call < all[j].Call })
	all = append(all, porcupine.Operation{Input: begin{id: -1, at: final.Start}, Call: int64(never) - 1, Return: int64(never), Metadata: "the final log"})
	var windows []*Window
	for first := 0; first < len(all); first += limits.Operations {
		part := all[first:min(first+limits.Operations, len(all))]
		w := &Window{
			Name: fmt.Sprintf("start of %s window %d", p, len(windows)), Whole: len(part) == len(all) && left == 0,
			model: startModel(), history: part, steps: limits.Steps,
		}
		if first == 0 {
			w.Left = left
		}
		for _, o := range part {
			if id := o.Input.(begin).id; id >= 0 {
				w.IDs = append(w.IDs, id)
			}
		}
		windows = append(windows, w)
	}
	return windows
}
