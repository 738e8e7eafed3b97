// Package model has the sequential specifications that Porcupine searches: a
// partition's log and a committed offset. They judge bounded windows of a
// history, independently of the checks in anomaly, so that the checkers check
// each other.
//
// What makes the search short enough is to resolve before it begins what the
// final log tells: which offset each append got, and which appends of unknown
// outcome never happened. A log's state is then its length alone. What makes it
// bounded is that a window has at most Limits.Operations operations, at most
// Limits.Concurrency of which that only look overlap at any time: the others
// are left out, which never makes a legal history illegal. No clock has a part
// in a verdict; a search that goes beyond Limits.Steps is Unknown.
//
// Source: Athalye, Porcupine; after Wing and Gong 1993 and Lowe 2017.
package model

import (
	"fmt"
	"io"
	"math"
	"sort"

	"github.com/anishathalye/porcupine"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// Limits bound a search.
type Limits struct {
	Operations  int // in a window
	Concurrency int // of operations that overlap in a window
	Steps       int // of the model, before a window's verdict is Unknown
}

// DefaultLimits are what is judged in milliseconds a window.
func DefaultLimits() Limits { return Limits{Operations: 1000, Concurrency: 10, Steps: 1 << 20} }

// Verdict is what a search says of a window.
type Verdict uint8

// The verdicts.
const (
	Legal Verdict = iota
	Illegal
	Unknown // the search went beyond its limit
)

// String is the verdict in a word.
func (v Verdict) String() string { return [...]string{"legal", "illegal", "unknown"}[v] }

// Window is a part of a history that can be judged by itself: if the history is
// legal, so is the window.
type Window struct {
	Name    string
	IDs     []int // of the history's operations in the window
	Left    int   // operations of the history that belong here and were left out
	Whole   bool  // nothing of the history is outside the window
	model   porcupine.Model
	history []porcupine.Operation
	steps   int
}

// Check searches for an order of the window's operations that the model allows.
func (w *Window) Check() Verdict {
	m, exceeded := bounded(w.model, w.steps)
	switch {
	case porcupine.CheckOperations(m, w.history):
		return Legal
	case *exceeded:
		return Unknown
	}
	return Illegal
}

// Visualize writes the window as a page of HTML, with the longest orders found.
func (w *Window) Visualize(out io.Writer) error {
	m, _ := bounded(w.model, w.steps)
	_, info := porcupine.CheckOperationsVerbose(m, w.history, 0)
	// The page replays steps, which must not count.
	if err := porcupine.Visualize(w.model, info, out); err != nil {
		return fmt.Errorf("visualize %s: %w", w.Name, err)
	}
	return nil
}

// bounded is m that refuses every step after the first limit ones.
func bounded(m porcupine.Model, limit int) (porcupine.Model, *bool) {
	exceeded, steps, step := new(bool), 0, m.Step
	m.Step = func(state, input, output any) (bool, any) {
		if steps++; steps > limit {
			*exceeded = true
			return false, state
		}
		return step(state, input, output)
	}
	return m, exceeded
}

// thin leaves out operations that look only, so that of those kept at most
// limit overlap at any time. It keeps the order of ops.
func thin(ops []porcupine.Operation, looks func(porcupine.Operation) bool, limit int) (kept []porcupine.Operation, left int) {
	byCall := make([]int, len(ops))
	for i := range byCall {
		byCall[i] = i
	}
	sort.SliceStable(byCall, func(i, j int) bool { return ops[byCall[i]].Call < ops[byCall[j]].Call })
	var open []int64 // returns of the kept ones that look
	drop := make([]bool, len(ops))
	for _, i := range byCall {
		if !looks(ops[i]) {
			continue
		}
		still := open[:0]
		for _, ret := range open {
			if ret >= ops[i].Call {
				still = append(still, ret)
			}
		}
		open = still
		if len(open) >= limit {
			drop[i] = true
			left++
			continue
		}
		open = append(open, ops[i].Return)
	}
	for i, o := range ops {
		if !drop[i] {
			kept = append(kept, o)
		}
	}
	return kept, left
}

func operation(o *history.Operation, input any, deadline history.Time) porcupine.Operation {
	return porcupine.Operation{
		ClientId: int(o.Client), Input: input, Call: int64(o.Call), Return: int64(deadline), Metadata: o.String(),
	}
}

// never is later than every call and return in a history.
const never = history.Time(math.MaxInt64)
