package checker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pawlbroker/pawl/linearizability/anomaly"
	"github.com/pawlbroker/pawl/linearizability/history"
)

// NeverOK is what Maelstrom's stats checker finds: no operation of a kind
// succeeded.
const NeverOK anomaly.Kind = "never-ok"

// The anomalies that Maelstrom does not look for, beside those of package
// anomaly.
const (
	NotAsked     anomaly.Kind = "not-asked"      // an answer has a key, or an offset, that was not asked for
	CommitLost   anomaly.Kind = "commit-lost"    // a committed offset below one that was answered or seen before
	CommitMadeUp anomaly.Kind = "commit-made-up" // a committed offset that nobody has sent
)

var ours = []anomaly.Kind{NotAsked, CommitLost, CommitMadeUp, anomaly.StaleRead, anomaly.Unwritten}

// Verdict is what was found.
type Verdict struct {
	Found      map[anomaly.Kind][]string // a line for each case
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
		for _, c := range cases[:min(3, len(cases))] {
			fmt.Fprintf(&b, "\n%s: %s", a, c)
		}
		if len(cases) > 3 {
			fmt.Fprintf(&b, "\n%s: and %d more", a, len(cases)-3)
		}
	}
	return b.String()
}

type judge struct {
	h History
	v Verdict
}

// Check judges a history.
func Check(h History) Verdict {
	j := &judge{h: h}
	j.v.Found = map[anomaly.Kind][]string{}
	j.count()
	j.jepsen()
	j.form()
	j.recency()
	j.commits()
	return j.v
}

func (j *judge) found(a anomaly.Kind, format string, args ...any) {
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

var outcomes = map[Outcome]history.Outcome{OK: history.OK, Fail: history.Failed, Info: history.Unknown}

// jepsen applies Jepsen's definitions.
func (j *judge) jepsen() {
	var ops []anomaly.KafkaOp
	for _, op := range j.h.Ops {
		k := anomaly.KafkaOp{Process: op.Process, Outcome: outcomes[op.Outcome]}
		switch op.Kind {
		case Crash:
			continue
		case Assign:
			k.Assign = append([]string{}, op.Keys...)
		case Send:
			s := anomaly.KafkaSend{Key: op.Key, Value: history.Value(op.Value), Offset: history.NoOffset}
			if op.Outcome == OK {
				s.Offset = history.Offset(op.Offset)
			}
			k.Sends = []anomaly.KafkaSend{s}
		case Poll:
			for _, key := range slices.Sorted(maps.Keys(op.Reads)) {
				poll := anomaly.KafkaPoll{Key: key}
				for _, r := range op.Reads[key] {
					poll.Records = append(poll.Records, history.Record{Offset: history.Offset(r.Offset), Value: history.Value(r.Value)})
				}
				k.Polls = append(k.Polls, poll)
			}
		}
		ops = append(ops, k)
	}
	for _, f := range anomaly.Kafka(ops) {
		j.found(f.Kind, "key %s: %s", f.Partition.Topic, f.Text)
	}
}

// form: nothing is answered that was not asked for.
func (j *judge) form() {
	for i, op := range j.h.Ops {
		for _, key := range slices.Sorted(maps.Keys(op.Reads)) {
			from, asked := op.Asked[key]
			if !asked {
				j.found(NotAsked, "op %d: key %s", i, key)
				continue
			}
			for _, r := range op.Reads[key] {
				if r.Offset < from {
					j.found(NotAsked, "op %d key %s: offset %d, asked from %d", i, key, r.Offset, from)
				}
			}
		}
	}
}
