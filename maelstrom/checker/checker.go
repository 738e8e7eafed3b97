package checker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Anomaly is a kind of thing that must not happen.
type Anomaly string

// Jepsen's anomalies.
const (
	LostWrite           Anomaly = "lost-write"
	Unseen              Anomaly = "unseen"
	InconsistentOffsets Anomaly = "inconsistent-offsets"
	Duplicate           Anomaly = "duplicate"
	AbortedRead         Anomaly = "G1a"
	PollSkip            Anomaly = "poll-skip"
	NonmonotonicPoll    Anomaly = "nonmonotonic-poll"
	IntPollSkip         Anomaly = "int-poll-skip"
	IntNonmonotonicPoll Anomaly = "int-nonmonotonic-poll"
	NonmonotonicSend    Anomaly = "nonmonotonic-send"
	NeverOK             Anomaly = "never-ok" // the stats checker: no operation of a kind succeeded
)

// The anomalies that Maelstrom does not look for.
const (
	UnwrittenRead Anomaly = "unwritten-read" // a value that nobody sent, or a key or offset that was not asked
	StalePoll     Anomaly = "stale-poll"     // a poll misses what was acknowledged before it began
	CommitLost    Anomaly = "commit-lost"    // a committed offset below one that was answered or seen before
	CommitMadeUp  Anomaly = "commit-made-up" // a committed offset that nobody has sent
)

var ours = []Anomaly{UnwrittenRead, StalePoll, CommitLost, CommitMadeUp}

// Verdict is what was found.
type Verdict struct {
	Found      map[Anomaly][]string // a line for each case
	Counts     map[Kind]map[Outcome]int
	OKFraction float64 // of all operations, crashes included as Maelstrom does
}

// Maelstrom is the verdict that Maelstrom would give with --availability.
func (v Verdict) Maelstrom(availability float64) bool {
	for a := range v.Found {
		if !slices.Contains(ours, a) {
			return false
		}
	}
	return v.OKFraction >= availability
}

// Valid is the whole verdict.
func (v Verdict) Valid(availability float64) bool {
	return len(v.Found) == 0 && v.OKFraction >= availability
}

// String lists at most three cases of each anomaly.
func (v Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ok-fraction %.4f", v.OKFraction)
	for _, k := range []Kind{Send, Poll, Assign, Crash} {
		fmt.Fprintf(&b, ", %s %d/%d/%d", k, v.Counts[k][OK], v.Counts[k][Fail], v.Counts[k][Info])
	}
	b.WriteString(" (ok/fail/info)")
	for _, a := range slices.Sorted(maps.Keys(v.Found)) {
		cases := v.Found[a]
		fmt.Fprintf(&b, "\n%s: %d", a, len(cases))
		for _, c := range cases[:min(3, len(cases))] {
			fmt.Fprintf(&b, "\n    %s", c)
		}
	}
	return b.String()
}

// keyLog is what is known of one key.
type keyLog struct {
	values  map[int64]map[int64]bool // by offset: the values said to be there
	offsets map[int64]map[int64]bool // by value: the offsets it was said to be at
	known   []int64                  // the offsets of values, ascending
	sent    map[int64]Outcome        // by value
	polled  map[int64]bool           // values that an OK poll returned
	highest int64                    // offset of any polled value, or -1
}

type judge struct {
	h    History
	v    Verdict
	logs map[string]*keyLog
}

// Check judges a history.
func Check(h History) Verdict {
	j := &judge{h: h, logs: map[string]*keyLog{}}
	j.v.Found = map[Anomaly][]string{}
	j.count()
	j.learn()
	j.offsets()
	j.losses()
	j.processes()
	j.reads()
	j.recency()
	j.commits()
	return j.v
}

func (j *judge) found(a Anomaly, format string, args ...any) {
	j.v.Found[a] = append(j.v.Found[a], fmt.Sprintf(format, args...))
}

func (j *judge) count() {
	j.v.Counts = map[Kind]map[Outcome]int{}
	for _, k := range []Kind{Send, Poll, Assign, Crash} {
		j.v.Counts[k] = map[Outcome]int{}
	}
	ok := 0
	for _, op := range j.h.Ops {
		j.v.Counts[op.Kind][op.Outcome]++
		if op.Outcome == OK {
			ok++
		}
	}
	if len(j.h.Ops) > 0 {
		j.v.OKFraction = float64(ok) / float64(len(j.h.Ops))
	}
	for _, k := range []Kind{Send, Poll, Assign} {
		c := j.v.Counts[k]
		if c[OK] == 0 && c[Fail]+c[Info] > 0 {
			j.found(NeverOK, "%s: 0 of %d", k, c[Fail]+c[Info])
		}
	}
}

func (j *judge) log(key string) *keyLog {
	l := j.logs[key]
	if l == nil {
		l = &keyLog{values: map[int64]map[int64]bool{}, offsets: map[int64]map[int64]bool{},
			sent: map[int64]Outcome{}, polled: map[int64]bool{}, highest: -1}
		j.logs[key] = l
	}
	return l
}

func (l *keyLog) place(offset, value int64) {
	if l.values[offset] == nil {
		l.values[offset] = map[int64]bool{}
	}
	if l.offsets[value] == nil {
		l.offsets[value] = map[int64]bool{}
	}
	l.values[offset][value] = true
	l.offsets[value][offset] = true
}

// learn collects where values are said to be, by whoever.
func (j *judge) learn() {
	for _, op := range j.h.Ops {
		switch op.Kind {
		case Send:
			l := j.log(op.Key)
			l.sent[op.Value] = op.Outcome
			if op.Outcome == OK {
				l.place(op.Offset, op.Value)
			}
		case Poll:
			for key, reads := range op.Reads {
				l := j.log(key)
				for _, r := range reads {
					l.place(r.Offset, r.Value)
					l.polled[r.Value] = true
					l.highest = max(l.highest, r.Offset)
				}
			}
		}
	}
	for _, l := range j.logs {
		l.known = slices.Sorted(maps.Keys(l.values))
	}
}

// keys are those of the history, sorted, so that verdicts print the same.
func (j *judge) keys() []string { return slices.Sorted(maps.Keys(j.logs)) }

// offsets: every offset has one value and every value one offset.
func (j *judge) offsets() {
	for _, key := range j.keys() {
		l := j.logs[key]
		for _, offset := range l.known {
			if vs := l.values[offset]; len(vs) > 1 {
				j.found(InconsistentOffsets, "key %s offset %d: values %d", key, offset, slices.Sorted(maps.Keys(vs)))
			}
		}
		for _, value := range slices.Sorted(maps.Keys(l.offsets)) {
			if os := l.offsets[value]; len(os) > 1 {
				j.found(Duplicate, "key %s value %d: offsets %d", key, value, slices.Sorted(maps.Keys(os)))
			}
		}
	}
}

// losses: what was acknowledged is polled by the end, and nothing is polled
// past it without it.
func (j *judge) losses() {
	for _, key := range j.keys() {
		l := j.logs[key]
		for _, value := range slices.Sorted(maps.Keys(l.sent)) {
			if l.sent[value] != OK || l.polled[value] {
				continue
			}
			j.found(Unseen, "key %s value %d", key, value)
			for _, offset := range slices.Sorted(maps.Keys(l.offsets[value])) {
				if offset < l.highest {
					j.found(LostWrite, "key %s value %d: acknowledged at offset %d, and %d was polled", key, value, offset, l.highest)
				}
			}
		}
	}
}

// between counts the known offsets in the open range (a, b).
func (l *keyLog) between(a, b int64) int {
	from, _ := slices.BinarySearch(l.known, a+1)
	to, _ := slices.BinarySearch(l.known, b)
	return max(0, to-from)
}

// processes: what one process sends and polls goes forward, and its polls leave
// nothing out.
func (j *judge) processes() {
	type place struct {
		process int
		key     string
	}
	sent := map[place]int64{}
	polled := map[int]map[string]int64{} // by process and key: the last offset polled
	for i, op := range j.h.Ops {
		switch {
		case op.Kind == Send && op.Outcome == OK:
			at := place{op.Process, op.Key}
			if last, ok := sent[at]; ok && op.Offset <= last {
				j.found(NonmonotonicSend, "op %d process %d key %s: offset %d after %d", i, op.Process, op.Key, op.Offset, last)
			}
			sent[at] = op.Offset
		case op.Kind == Assign && op.Outcome != Fail:
			maps.DeleteFunc(polled[op.Process], func(key string, _ int64) bool { return !slices.Contains(op.Keys, key) })
		case op.Kind == Poll && op.Outcome == OK:
			if polled[op.Process] == nil {
				polled[op.Process] = map[string]int64{}
			}
			for _, key := range slices.Sorted(maps.Keys(op.Reads)) {
				j.successive(i, op, key, polled[op.Process])
			}
		}
	}
}

// successive checks one key of one poll against the process's poll before.
func (j *judge) successive(i int, op Op, key string, polled map[string]int64) {
	l := j.logs[key]
	last, before := polled[key]
	skip, back := PollSkip, NonmonotonicPoll
	for _, r := range op.Reads[key] {
		if before {
			if r.Offset <= last {
				j.found(back, "op %d process %d key %s: offset %d after %d", i, op.Process, key, r.Offset, last)
			} else if n := l.between(last, r.Offset); n > 0 {
				j.found(skip, "op %d process %d key %s: offset %d after %d leaves out %d", i, op.Process, key, r.Offset, last, n)
			}
		}
		last, before = r.Offset, true
		skip, back = IntPollSkip, IntNonmonotonicPoll
	}
	if before {
		polled[key] = last
	}
}

// reads: nothing is read that was not written, or not asked for.
func (j *judge) reads() {
	for i, op := range j.h.Ops {
		for _, key := range slices.Sorted(maps.Keys(op.Reads)) {
			from, asked := op.Asked[key]
			if !asked {
				j.found(UnwrittenRead, "op %d: key %s was not asked", i, key)
			}
			for _, r := range op.Reads[key] {
				switch outcome, sent := j.logs[key].sent[r.Value]; {
				case !sent:
					j.found(UnwrittenRead, "op %d key %s offset %d: value %d was never sent", i, key, r.Offset, r.Value)
				case outcome == Fail:
					j.found(AbortedRead, "op %d key %s offset %d: the send of value %d failed", i, key, r.Offset, r.Value)
				}
				if asked && r.Offset < from {
					j.found(UnwrittenRead, "op %d key %s: offset %d, asked from %d", i, key, r.Offset, from)
				}
			}
		}
	}
}
