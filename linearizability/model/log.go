package model

import (
	"errors"
	"fmt"
	"sort"

	"github.com/anishathalye/porcupine"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// step is what an operation does to, or says of, a log of a given length,
// counted in records that the final log still has.
type step struct {
	id   int // of the operation
	kind stepKind
	// grow: length from becomes length to. is: the length is to. atLeast,
	// atMost: it is no less, no more than to.
	from, to int
}

type stepKind uint8

const (
	grow stepKind = iota
	is
	atLeast
	atMost
)

// logModel is a log's length; it begins at the window's first slot.
func logModel(first int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return first },
		Step: func(state, input, _ any) (bool, any) {
			length, s := state.(int), input.(step)
			switch s.kind {
			case grow:
				return length == s.from, s.to
			case is:
				return length == s.to, length
			case atLeast:
				return length >= s.to, length
			default:
				return length <= s.to, length
			}
		},
		DescribeOperation: func(input, _ any) string {
			s := input.(step)
			switch s.kind {
			case grow:
				return fmt.Sprintf("append [%d, %d)", s.from, s.to)
			case is:
				return fmt.Sprintf("length = %d", s.to)
			case atLeast:
				return fmt.Sprintf("length >= %d", s.to)
			default:
				return fmt.Sprintf("length <= %d", s.to)
			}
		},
		DescribeState:             func(state any) string { return fmt.Sprintf("length %d", state) },
		DescribeOperationMetadata: func(m any) string { return fmt.Sprint(m) },
	}
}

// ErrContradiction says that operations contradict the final log by themselves,
// whatever their order.
var ErrContradiction = errors.New("history contradicts the final log")

// Log cuts one partition's appends, reads and list-ends into windows, given the
// final log; atomic says that an append's records become visible together. The
// error is ErrContradiction; then no search is needed, the history is illegal.
func Log(p history.Partition, ops []*history.Operation, final *history.Log, atomic bool, limits Limits) ([]*Window, error) {
	r := &resolver{final: final, place: make(map[history.Value]int, len(final.Records))}
	for i, rec := range final.Records {
		if i > 0 && rec.Offset <= final.Records[i-1].Offset {
			return nil, fmt.Errorf("%w: offset %d after %d in it", ErrContradiction, rec.Offset, final.Records[i-1].Offset)
		}
		r.place[rec.Value] = i
	}
	if len(r.place) != len(final.Records) {
		return nil, fmt.Errorf("%w: %d values in %d records", ErrContradiction, len(r.place), len(final.Records))
	}
	for _, o := range ops {
		if o.Outcome == history.OK && (o.Kind == history.Read && !o.OutOfRange || o.Kind == history.ListEnd) {
			r.look(o)
		}
	}
	r.findDeadlines()
	for _, o := range ops {
		if o.Kind == history.Append {
			r.append(o, atomic)
		}
	}
	for i, written := range r.written() {
		if !written {
			r.reject(fmt.Sprintf("no append explains offset %d", final.Records[i].Offset))
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return r.cut(p, limits), nil
}

// resolver turns operations into steps.
type resolver struct {
	final   *history.Log
	place   map[history.Value]int // in final.Records
	appends []porcupine.Operation // of steps that grow
	looks   []porcupine.Operation // of the others
	seen    []history.Time        // by slot, the first return of a look that saw it
	err     error                 // the first contradiction
}

func (r *resolver) reject(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrContradiction, what)
	}
}

// length is how many of the final log's records are below the offset.
func (r *resolver) length(offset history.Offset) int {
	return sort.Search(len(r.final.Records), func(i int) bool { return r.final.Records[i].Offset >= offset })
}

func (r *resolver) look(o *history.Operation) {
	s := step{id: o.ID}
	switch {
	case o.Kind == history.Read && !r.agrees(o):
		r.reject(o.String())
		return
	case o.End != history.NoOffset:
		if o.End > r.final.End {
			r.reject(o.String())
			return
		}
		s.kind, s.to = is, r.length(o.End)
	case o.Kind == history.ListEnd:
		return
	case len(o.Records) == 0:
		s.kind, s.to = atMost, r.length(o.From)
	default:
		s.kind, s.to = atLeast, r.length(o.Next())
	}
	r.looks = append(r.looks, operation(o, s, o.Return))
}

// agrees reports whether a read returned what the final log has from where it
// should begin. What is below the log's start is out of sight.
func (r *resolver) agrees(o *history.Operation) bool {
	slot := r.length(max(o.From, r.final.Start))
	previous := o.From - 1
	for _, rec := range o.Records {
		if rec.Offset <= previous || o.End != history.NoOffset && rec.Offset >= o.End {
			return false
		}
		previous = rec.Offset
		if rec.Offset < r.final.Start {
			continue
		}
		if slot >= len(r.final.Records) || r.final.Records[slot] != rec {
			return false
		}
		slot++
	}
	return true
}

// findDeadlines notes by when each slot had been seen.
func (r *resolver) findDeadlines() {
	r.seen = make([]history.Time, len(r.final.Records))
	for i := range r.seen {
		r.seen[i] = never
	}
	for _, o := range r.looks {
		if s := o.Input.(step); s.kind != atMost && s.to > 0 {
			r.seen[s.to-1] = min(r.seen[s.to-1], history.Time(o.Return))
		}
	}
	for i := len(r.seen) - 2; i >= 0; i-- {
		r.seen[i] = min(r.seen[i], r.seen[i+1])
	}
}

// append adds the steps of an append: one for each record, or one in all.
func (r *resolver) append(o *history.Operation, atomic bool) {
	binding := o.Outcome == history.OK && !o.Weak
	var slots []int
	for i, v := range o.Values {
		slot, there := r.place[v]
		at := o.Base + history.Offset(i)
		switch {
		case there && o.Outcome == history.Failed,
			there && binding && r.final.Records[slot].Offset != at,
			!there && binding && at >= r.final.Start:
			r.reject(o.String())
			return
		case there:
			slots = append(slots, slot)
		}
	}
	if len(slots) == 0 {
		return
	}
	if !atomic {
		for _, slot := range slots {
			r.grow(o, slot, slot+1, binding)
		}
		return
	}
	first := slots[0]
	for i, slot := range slots {
		if slot != first+i {
			r.reject(o.String())
			return
		}
	}
	cutByStart := first == 0 && r.final.Start > 0
	if len(slots) != len(o.Values) && !cutByStart {
		r.reject(o.String())
		return
	}
	r.grow(o, first, first+len(slots), binding)
}

func (r *resolver) grow(o *history.Operation, from, to int, binding bool) {
	deadline := max(o.Call, r.seen[from])
	if binding {
		deadline = o.Return
	}
	r.appends = append(r.appends, operation(o, step{o.ID, grow, from, to}, deadline))
}

// written tells of each slot whether some append filled it.
func (r *resolver) written() []bool {
	w := make([]bool, len(r.final.Records))
	for _, o := range r.appends {
		s := o.Input.(step)
		for i := s.from; i < s.to; i++ {
			w[i] = true
		}
	}
	return w
}

// cut makes windows of ranges of slots. A window has the appends that fill its
// slots and the looks that compare the length with one of them. Two windows
// share the length between them.
func (r *resolver) cut(p history.Partition, limits Limits) []*Window {
	sort.SliceStable(r.appends, func(i, j int) bool {
		return r.appends[i].Input.(step).from < r.appends[j].Input.(step).from
	})
	sort.SliceStable(r.looks, func(i, j int) bool { return r.looks[i].Input.(step).to < r.looks[j].Input.(step).to })
	var windows []*Window
	looks := r.looks
	for a := 0; ; {
		first := 0
		if a < len(r.appends) {
			first = r.appends[a].Input.(step).from
		} else if a > 0 {
			break
		}
		// Take appends while they and the looks up to their end fit.
		b, end, n := a, first, 0
		for b < len(r.appends) {
			to := r.appends[b].Input.(step).to
			for n < len(looks) && looks[n].Input.(step).to <= to {
				n++
			}
			if b > a && b+1-a+n > limits.Operations {
				break
			}
			end = to
			b++
		}
		for n = 0; n < len(looks) && looks[n].Input.(step).to <= end; {
			n++
		}
		windows = append(windows, r.windows(p, first, end, r.appends[a:b], looks[:n], limits)...)
		// Looks at the shared length are wanted again.
		for len(looks) > 0 && looks[0].Input.(step).to < end {
			looks = looks[1:]
		}
		if a = b; a >= len(r.appends) {
			break
		}
	}
	if len(windows) == 1 {
		windows[0].Whole = windows[0].Left == 0
	}
	return windows
}

// windows makes one window, or several with the same appends when there are too
// many looks for one.
func (r *resolver) windows(p history.Partition, first, end int, appends, looks []porcupine.Operation, limits Limits) []*Window {
	var out []*Window
	room := max(1, limits.Operations-len(appends))
	for {
		n := min(room, len(looks))
		kept, left := thin(looks[:n], func(porcupine.Operation) bool { return true }, limits.Concurrency)
		w := &Window{
			Name: fmt.Sprintf("%s [%d, %d)", p, first, end), Left: left,
			model: logModel(first), steps: limits.Steps,
			history: append(append([]porcupine.Operation{}, appends...), kept...),
		}
		for _, o := range w.history {
			w.IDs = append(w.IDs, o.Input.(step).id)
		}
		out = append(out, w)
		if looks = looks[n:]; len(looks) == 0 {
			return out
		}
	}
}
