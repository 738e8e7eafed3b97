package anomaly

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// The zone check.
//
// A register whose writes all have different values is linearizable if and only
// if its clusters can be ordered, a cluster being a write and the reads that
// saw it: between a write and its reads no other write can have happened. With
// f = the first return in a cluster and s = the last call, cluster A must come
// before B when f(A) < s(B), for then some operation of A had ended when one of
// B began. Any cycle of this relation contains one of length two, which is why
// it is enough to look for two clusters that must each precede the other: two
// forward zones (f < s) that overlap, or a backward zone (s <= f) inside a
// forward one. That leaves the reads that ended before their write began.

// Committed judges one group's offset in one partition: the commits and fetches
// among ops that have this group and partition. Commits of unknown outcome that
// nobody read are held not to have happened. Every commit has a token of its
// own, not 0.
func Committed(group string, p history.Partition, ops []*history.Operation) []Finding {
	c := &registerCheck{report: report{partition: p, group: group}}
	c.gather(ops)
	zones := c.zones()
	c.checkForward(zones)
	c.checkBackward(zones)
	return c.report.sorted()
}

type registerCheck struct {
	report
	clusters []*cluster // in order of the commits' calls; the first is that of no commit
}

// cluster is a commit and the fetches that saw it.
type cluster struct {
	write       *history.Operation // nil: the time before any commit
	reads       int
	firstReturn history.Time // f
	firstOp     *history.Operation
	lastCall    history.Time // s
	lastOp      *history.Operation
}

const beginning = history.Time(-1 << 63)

func (c *registerCheck) gather(ops []*history.Operation) {
	none := &cluster{firstReturn: beginning, lastCall: beginning}
	c.clusters = []*cluster{none}
	byToken := map[history.Value]*cluster{0: none}
	for _, o := range ops {
		if o.Kind != history.Commit {
			continue
		}
		k := &cluster{write: o, firstReturn: history.Never, firstOp: o, lastCall: o.Call, lastOp: o}
		if o.Outcome == history.OK {
			k.firstReturn = o.Return
		}
		c.clusters = append(c.clusters, k)
		byToken[o.Token] = k
	}
	for _, o := range ops {
		if o.Kind == history.FetchCommitted && o.Outcome == history.OK {
			c.place(o, byToken[o.Token])
		}
	}
}

// place puts a fetch in its cluster, unless the fetch is absurd by itself.
func (c *registerCheck) place(o *history.Operation, k *cluster) {
	f := Finding{Operations: []int{o.ID}, Offsets: []history.Offset{o.Committed}, Values: []history.Value{o.Token}}
	switch {
	case k == nil:
		f.Kind, f.Text = Unwritten, fmt.Sprintf("token %#x belongs to no commit", uint64(o.Token))
	case k.write == nil:
		if o.Committed == history.NoOffset {
			k.add(o)
			return
		}
		f.Kind, f.Text = CommitMismatch, fmt.Sprintf("offset %d without a commit's token", o.Committed)
	case k.write.Outcome == history.Failed:
		f.Kind, f.Operations = AbortedRead, append(f.Operations, k.write.ID)
		f.Text = fmt.Sprintf("token %#x is that of a commit that failed", uint64(o.Token))
	case k.write.Committed != o.Committed:
		f.Kind, f.Operations = CommitMismatch, append(f.Operations, k.write.ID)
		f.Offsets = append(f.Offsets, k.write.Committed)
		f.Text = fmt.Sprintf("offset %d with the token of the commit of %d", o.Committed, k.write.Committed)
	case o.Return < k.write.Call:
		f.Kind, f.Operations = FutureRead, append(f.Operations, k.write.ID)
		f.Text = fmt.Sprintf("fetched by %d, and committed only from %d on", o.Return, k.write.Call)
	default:
		k.add(o)
		return
	}
	c.report.add(f)
}

func (k *cluster) add(o *history.Operation) {
	k.reads++
	if o.Return < k.firstReturn {
		k.firstReturn, k.firstOp = o.Return, o
	}
	if o.Call > k.lastCall {
		k.lastCall, k.lastOp = o.Call, o
	}
}

// zones is the clusters that happened.
func (c *registerCheck) zones() []*cluster {
	return slices.DeleteFunc(c.clusters, func(k *cluster) bool {
		return k.write != nil && k.reads == 0 && k.write.Outcome != history.OK
	})
}

func (k *cluster) forward() bool { return k.firstReturn < k.lastCall }

// checkForward looks for forward zones that overlap.
func (c *registerCheck) checkForward(zones []*cluster) {
	var open *cluster // of those begun so far, the one that ends last
	for _, k := range sortedForward(zones) {
		if open != nil && k.firstReturn < open.lastCall {
			c.conflict(open, k)
		}
		if open == nil || k.lastCall > open.lastCall {
			open = k
		}
	}
}

// checkBackward looks for backward zones inside forward ones. Forward zones
// that overlap are reported by checkForward, so here each is compared with the
// one that contains most.
func (c *registerCheck) checkBackward(zones []*cluster) {
	forward := sortedForward(zones)
	backward := slices.DeleteFunc(slices.Clone(zones), (*cluster).forward)
	slices.SortFunc(backward, func(a, b *cluster) int {
		return cmp.Or(cmp.Compare(a.lastCall, b.lastCall), cmp.Compare(a.firstReturn, b.firstReturn))
	})
	var open *cluster
	next := 0
	for _, k := range backward {
		for next < len(forward) && forward[next].firstReturn < k.lastCall {
			if open == nil || forward[next].lastCall > open.lastCall {
				open = forward[next]
			}
			next++
		}
		if open != nil && k.firstReturn < open.lastCall {
			c.conflict(open, k)
		}
	}
}

func sortedForward(zones []*cluster) []*cluster {
	forward := slices.DeleteFunc(slices.Clone(zones), func(k *cluster) bool { return !k.forward() })
	slices.SortFunc(forward, func(a, b *cluster) int {
		return cmp.Or(cmp.Compare(a.firstReturn, b.firstReturn), cmp.Compare(a.lastCall, b.lastCall))
	})
	return forward
}

// conflict reports two clusters of which each must come before the other. The
// accused is the fetch that came too late for the older of the two.
func (c *registerCheck) conflict(a, b *cluster) {
	old := a
	if old.lastOp == nil || old.lastOp.Kind != history.FetchCommitted {
		old = b
	}
	young := a
	if old == a {
		young = b
	}
	f := Finding{Kind: CommitOrder, Text: "two commits must each come before the other"}
	if old.lastOp != nil && old.lastOp.Kind == history.FetchCommitted && young.firstOp != nil {
		f.Kind = StaleRead
		f.Text = fmt.Sprintf("fetched %s at %d or later, though %s was in force by %d",
			describe(old), old.lastCall, describe(young), young.firstReturn)
	}
	for _, o := range []*history.Operation{old.lastOp, young.firstOp, old.firstOp, young.lastOp} {
		if o != nil && !slices.Contains(f.Operations, o.ID) {
			f.Operations = append(f.Operations, o.ID)
		}
	}
	for _, k := range []*cluster{old, young} {
		if k.write != nil {
			f.Offsets = append(f.Offsets, k.write.Committed)
			f.Values = append(f.Values, k.write.Token)
		}
	}
	c.report.add(f)
}

func describe(k *cluster) string {
	if k.write == nil {
		return "no commit"
	}
	return fmt.Sprintf("offset %d (token %#x)", k.write.Committed, uint64(k.write.Token))
}
