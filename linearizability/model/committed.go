package model

import (
	"fmt"
	"sort"

	"github.com/anishathalye/porcupine"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// register is an operation on a committed offset.
type register struct {
	id     int // of the operation
	commit bool
	token  history.Value
	offset history.Offset
}

// committedModel is a register that holds the token of the last commit, 0 for
// none.
func committedModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return register{offset: history.NoOffset} },
		Step: func(state, input, _ any) (bool, any) {
			now, r := state.(register), input.(register)
			if r.commit {
				return true, register{token: r.token, offset: r.offset}
			}
			return now.token == r.token && now.offset == r.offset, now
		},
		DescribeOperation: func(input, _ any) string {
			r := input.(register)
			if r.commit {
				return fmt.Sprintf("commit %d", r.offset)
			}
			return fmt.Sprintf("fetch %d", r.offset)
		},
		DescribeState:             func(state any) string { return fmt.Sprintf("committed %d", state.(register).offset) },
		DescribeOperationMetadata: func(m any) string { return fmt.Sprint(m) },
	}
}

// Committed cuts the commits and fetches of one group in one partition into
// windows: a commit is in the window that has the fetches which saw it. Commits
// of unknown outcome that nobody saw are taken not to have happened; the others
// are given the first such fetch's return as their own.
func Committed(group string, p history.Partition, ops []*history.Operation, limits Limits) []*Window {
	deadline := make(map[history.Value]history.Time) // first return of a fetch, by token
	for _, o := range ops {
		if o.Kind == history.FetchCommitted && o.Outcome == history.OK {
			if at, ok := deadline[o.Token]; !ok || o.Return < at {
				deadline[o.Token] = o.Return
			}
		}
	}
	cluster := make(map[history.Value]int) // by token, numbered in order of call
	var all []porcupine.Operation
	commits := make([]*history.Operation, 0, len(ops))
	for _, o := range ops {
		if o.Kind == history.Commit && o.Outcome != history.Failed {
			commits = append(commits, o)
		}
	}
	sort.SliceStable(commits, func(i, j int) bool { return commits[i].Call < commits[j].Call })
	for _, o := range commits {
		ret := o.Return
		if o.Outcome == history.Unknown {
			first, seen := deadline[o.Token]
			if !seen {
				continue
			}
			ret = max(o.Call, first)
		}
		cluster[o.Token] = len(cluster) + 1
		all = append(all, operation(o, register{o.ID, true, o.Token, o.Committed}, ret))
	}
	for _, o := range ops {
		if o.Kind == history.FetchCommitted && o.Outcome == history.OK {
			all = append(all, operation(o, register{o.ID, false, o.Token, o.Committed}, o.Return))
		}
	}
	// Fetches of what nobody committed join the first window, where they fit
	// nowhere, like those of no commit, which fit only at the beginning.
	sort.SliceStable(all, func(i, j int) bool {
		return cluster[all[i].Input.(register).token] < cluster[all[j].Input.(register).token]
	})
	return cutClusters(fmt.Sprintf("%s group %s", p, group), all, limits)
}

// cutClusters makes windows of whole clusters, as many as fit. A cluster that
// does not fit by itself is cut into windows that each have its commit.
func cutClusters(name string, all []porcupine.Operation, limits Limits) []*Window {
	var windows []*Window
	var current []porcupine.Operation
	flush := func() {
		if len(current) > 0 {
			windows = append(windows, committedWindow(name, current, limits))
			current = nil
		}
	}
	for len(all) > 0 {
		n := 1
		for n < len(all) && !all[n].Input.(register).commit {
			n++
		}
		next := all[:n]
		all = all[n:]
		if len(current)+len(next) > limits.Operations {
			flush()
		}
		for len(next) > max(2, limits.Operations) {
			size := max(2, limits.Operations)
			windows = append(windows, committedWindow(name, next[:size], limits))
			rest := next[size:]
			if next[0].Input.(register).commit {
				rest = append([]porcupine.Operation{next[0]}, rest...)
			}
			next = rest
		}
		current = append(current, next...)
	}
	flush()
	if len(windows) == 1 {
		windows[0].Whole = windows[0].Left == 0
	}
	return windows
}

func committedWindow(name string, ops []porcupine.Operation, limits Limits) *Window {
	kept, left := thinClusters(ops, limits.Concurrency)
	w := &Window{Name: name, Left: left, model: committedModel(), history: kept, steps: limits.Steps}
	for _, o := range kept {
		w.IDs = append(w.IDs, o.Input.(register).id)
	}
	return w
}

// thinClusters leaves out fetches, and commits with all the fetches that saw
// them, so that at most limit of those kept overlap at any time.
func thinClusters(ops []porcupine.Operation, limit int) (kept []porcupine.Operation, left int) {
	everything := func(porcupine.Operation) bool { return true }
	few, _ := thin(ops, everything, limit)
	there := map[history.Value]bool{0: true}
	for _, o := range few {
		if r := o.Input.(register); r.commit {
			there[r.token] = true
		}
	}
	written := make(map[history.Value]bool)
	for _, o := range ops {
		if r := o.Input.(register); r.commit {
			written[r.token] = true
		}
	}
	for _, o := range few {
		if t := o.Input.(register).token; there[t] || !written[t] {
			kept = append(kept, o)
		}
	}
	return kept, len(ops) - len(kept)
}
