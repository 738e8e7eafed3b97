package partition

import (
	"github.com/pawlbroker/pawl/broker/clock"
)

// Lease says until when this node may answer consumers: until then no other node
// leads what it leads. clock.Never is for ever.
func (t *Table) Lease(until clock.Instant, at Moment, out *Out) {
	t.lease = until
	if !t.leased(at) {
		return
	}
	starving := t.starving
	t.starving = nil
	for _, f := range starving {
		f.starving = false
		t.serve(f, at, out)
	}
	lists := t.listing
	t.listing = nil
	for _, l := range lists {
		t.list(l, at, out)
	}
}

// leased reports whether consumers may be answered.
func (t *Table) leased(at Moment) bool { return at.Now < t.lease }

// starve notes that a fetch waits for the lease.
func (t *Table) starve(f *fetch) {
	if f.starving {
		return
	}
	if len(t.starving) >= t.starvingMax {
		kept := t.starving[:0]
		for _, g := range t.starving {
			if g.state == waiting {
				kept = append(kept, g)
			}
		}
		clear(t.starving[len(kept):])
		t.starving, t.starvingMax = kept, 2*len(kept)+8
	}
	f.starving = true
	t.starving = append(t.starving, f)
}

// leaseWait is how long a ListOffsets waits for the lease, which is renewed many
// times in that: nanoseconds.
const leaseWait = 1_000_000_000

// listLater makes a ListOffsets wait for the lease.
func (t *Table) listLater(l *listOffsets, at Moment) {
	t.listing = append(t.listing, l)
	t.listDeadlines.Add(at.Now+leaseWait, l)
}

// listsDue answers those that have waited long enough.
func (t *Table) listsDue(at Moment, out *Out) {
	for {
		l, ok := t.listDeadlines.Due(at.Now)
		if !ok {
			return
		}
		if l.started {
			continue
		}
		t.list(l, at, out)
		for i, m := range t.listing {
			if m == l {
				t.listing = append(t.listing[:i], t.listing[i+1:]...)
				break
			}
		}
	}
}
