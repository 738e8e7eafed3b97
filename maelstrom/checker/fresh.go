package checker

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/pawlbroker/pawl/linearizability/anomaly"
)

// timeline is the greatest value reached by each instant.
type timeline struct {
	at  []time.Duration
	max []int64
}

// timelineOf takes points in any order.
func timelineOf(points []point) timeline {
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	var t timeline
	for _, p := range points {
		if n := len(t.max); n == 0 || p.value > t.max[n-1] {
			t.at, t.max = append(t.at, p.at), append(t.max, p.value)
		}
	}
	return t
}

type point struct {
	at    time.Duration
	value int64
}

// before is the greatest value at an instant earlier than at, or -1.
func (t timeline) before(at time.Duration) int64 {
	i, _ := slices.BinarySearch(t.at, at)
	if i == 0 {
		return -1
	}
	return t.max[i-1]
}

// recency: a poll reflects every send that was acknowledged before it began. A
// node that answers at most some messages a poll would need more room here;
// ours answers all there is.
func (j *judge) recency() {
	acknowledged := map[string][]point{}
	for _, op := range j.h.Ops {
		if op.Kind == Send && op.Outcome == OK {
			acknowledged[op.Key] = append(acknowledged[op.Key], point{op.Ended, op.Offset})
		}
	}
	reached := map[string]timeline{}
	for key, points := range acknowledged {
		reached[key] = timelineOf(points)
	}
	for i, op := range j.h.Ops {
		if op.Kind != Poll || op.Outcome != OK {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(op.Asked)) {
			want := reached[key].before(op.Invoked)
			got := op.Asked[key] - 1
			if reads := op.Reads[key]; len(reads) > 0 {
				got = reads[len(reads)-1].Offset
			}
			if got < want {
				j.found(anomaly.StaleRead, "op %d process %d key %s: asked from %d, reached %d, but %d was acknowledged before",
					i, op.Process, key, op.Asked[key], got, want)
			}
		}
	}
}

// commits: a key's committed offset is a register that only grows. A list shows
// at least what was answered, or shown, before it began, and only what somebody
// has sent by its end.
func (j *judge) commits() {
	answered, sent := map[string][]point{}, map[string][]point{}
	for _, c := range j.h.Commits {
		for key, offset := range c.Offsets {
			sent[key] = append(sent[key], point{c.Invoked, offset})
			if c.OK {
				answered[key] = append(answered[key], point{c.Ended, offset})
			}
		}
	}
	for _, l := range j.h.Lists {
		for key, offset := range l.Offsets {
			answered[key] = append(answered[key], point{l.Ended, offset})
		}
	}
	least, most := map[string]timeline{}, map[string]timeline{}
	for key, points := range answered {
		least[key] = timelineOf(points)
	}
	for key, points := range sent {
		most[key] = timelineOf(points)
	}
	for i, l := range j.h.Lists {
		for _, key := range l.Keys {
			got, ok := l.Offsets[key]
			if !ok {
				got = -1
			}
			if want := least[key].before(l.Invoked); got < want {
				j.found(CommitLost, "list %d key %s: %d, but %d was committed before", i, key, got, want)
			}
			if limit := most[key].before(l.Ended + 1); got > limit {
				j.found(CommitMadeUp, "list %d key %s: %d, but nobody has committed more than %d", i, key, got, limit)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(l.Offsets)) {
			if !slices.Contains(l.Keys, key) {
				j.found(CommitMadeUp, "list %d: key %s was not asked", i, key)
			}
		}
	}
}
