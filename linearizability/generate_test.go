package linearizability_test

import (
	"math/rand/v2"
	"slices"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// shape is a history to draw.
type shape struct {
	operations, clients, batch int
	unknownPerMille            int // of appends and commits
	span                       int // the longest an operation takes
}

var (
	testPartition = history.Partition{Topic: "t"}
	testGroup     = "g"
)

// draw makes a legal history of one partition's log, and its final log: clients
// call one operation after the other, and each takes effect at one instant.
func draw(rng *rand.Rand, s shape) *history.History {
	type planned struct {
		op     history.Operation
		effect history.Time // Never: none
	}
	plan := make([]planned, 0, s.operations)
	free := make([]history.Time, s.clients) // when each client's last call ended
	span := func() history.Time { return history.Time(rng.IntN(s.span + 1)) }
	for range s.operations {
		c := rng.IntN(s.clients)
		call := free[c] + span()
		effect := call + span()
		ret := effect + span()
		free[c] = ret + 1
		o := history.Operation{Client: history.Client(c), Call: call, Return: ret, Partition: testPartition}
		switch dice := rng.IntN(100); {
		case dice < 50:
			o.Kind = history.Append
			if rng.IntN(1000) < s.unknownPerMille {
				o.Outcome, o.Return = history.Unknown, history.Never
				free[c] += span()
				if effect += 3 * span(); rng.IntN(2) == 0 {
					effect = history.Never
				}
			}
		case dice < 85:
			o.Kind = history.Read
		default:
			o.Kind = history.ListEnd
		}
		plan = append(plan, planned{o, effect})
	}
	slices.SortStableFunc(plan, func(a, b planned) int { return int(min(1, max(-1, a.effect-b.effect))) })
	var log []history.Record
	next := history.Value(1)
	for i := range plan {
		o := &plan[i].op
		end := history.Offset(len(log))
		switch o.Kind {
		case history.Append:
			for range 1 + rng.IntN(s.batch) {
				o.Values = append(o.Values, next)
				if plan[i].effect != history.Never {
					log = append(log, history.Record{Offset: history.Offset(len(log)), Value: next})
				}
				next++
			}
			if o.Outcome == history.OK {
				o.Base = end
			}
		case history.Read:
			o.From = end - min(end, history.Offset(rng.IntN(6)))
			o.Records = slices.Clone(log[o.From:])
			if o.End = end; rng.IntN(4) == 0 {
				// As from one that does not tell the end.
				if o.End = history.NoOffset; len(o.Records) > 1 {
					o.Records = o.Records[:1+rng.IntN(len(o.Records))]
				}
			}
		case history.ListEnd:
			o.End = end
		}
	}
	slices.SortStableFunc(plan, func(a, b planned) int { return int(min(1, max(-1, a.op.Call-b.op.Call))) })
	h := &history.History{Final: []history.Log{{Partition: testPartition, End: history.Offset(len(log)), Records: log}}}
	for _, p := range plan {
		h.Add(p.op)
	}
	return h
}

// drawCommits makes a legal history of one group's offset.
func drawCommits(rng *rand.Rand, s shape) *history.History {
	h := draw(rng, shape{operations: s.operations, clients: s.clients, batch: 1, span: s.span, unknownPerMille: s.unknownPerMille})
	// Each append becomes a commit that takes effect at the same instant; each
	// other operation a fetch of what was last appended.
	byOffset := func(n history.Offset) history.Operation {
		if n <= 0 {
			return history.Operation{Committed: history.NoOffset}
		}
		v := h.Final[0].Records[n-1].Value
		return history.Operation{Committed: history.Offset(v) * 10, Token: v}
	}
	out := &history.History{}
	for _, o := range h.Operations {
		n := o.End
		if o.Kind == history.Read && n == history.NoOffset {
			continue
		}
		c := history.Operation{}
		if o.Kind == history.Append {
			c.Kind, c.Committed, c.Token = history.Commit, history.Offset(o.Values[0])*10, o.Values[0]
		} else {
			c = byOffset(n)
			c.Kind = history.FetchCommitted
		}
		c.Group, c.Partition, c.Client = testGroup, o.Partition, o.Client
		c.Outcome, c.Call, c.Return = o.Outcome, o.Call, o.Return
		out.Add(c)
	}
	return out
}

// spoil changes a small thing, which may or may not make the history illegal.
func spoil(rng *rand.Rand, h *history.History) {
	o := &h.Operations[rng.IntN(len(h.Operations))]
	switch rng.IntN(10) {
	case 0:
		o.End = max(history.NoOffset, o.End+history.Offset(rng.IntN(5)-2))
	case 1:
		shift := history.Time(rng.IntN(41) - 20)
		if o.Call += shift; o.Return != history.Never {
			o.Return += shift
		}
	case 2:
		if o.Return != history.Never {
			o.Return = o.Call + (o.Return-o.Call)/2
		}
	case 3:
		if o.Kind == history.Append && o.Outcome == history.OK {
			o.Base = max(0, o.Base+history.Offset(rng.IntN(5)-2))
		}
	case 4:
		if o.Kind == history.Append {
			o.Outcome = history.Failed
		}
	case 5:
		if o.Kind == history.Append {
			o.Outcome, o.Return = history.Unknown, history.Never
		}
	case 6:
		if n := len(o.Records); n > 0 {
			o.Records[rng.IntN(n)].Value++
		}
	case 7:
		if f := h.Final; len(f) > 0 && len(f[0].Records) > 1 {
			i := rng.IntN(len(f[0].Records) - 1)
			f[0].Records[i].Value, f[0].Records[i+1].Value = f[0].Records[i+1].Value, f[0].Records[i].Value
		}
	case 8:
		if f := h.Final; len(f) > 0 && len(f[0].Records) > 0 {
			f[0].Records = f[0].Records[:len(f[0].Records)-1]
			f[0].End--
		}
	case 9:
		if o.Kind == history.Read {
			o.Records, o.End = nil, history.NoOffset
		}
	}
	if o.Kind == history.FetchCommitted && rng.IntN(2) == 0 {
		other := h.Operations[rng.IntN(len(h.Operations))]
		o.Token, o.Committed = other.Token, other.Committed
	}
}
