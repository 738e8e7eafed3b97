package replica

import (
	"math"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// waiter is a promise for records from base on.
type waiter struct {
	ticket  Ticket
	base    record.Offset
	records int32
	local   bool // kept when they are on disk here, else when they are committed
}

// next is the offset behind the records.
func (w *waiter) next() record.Offset { return w.base + record.Offset(w.records) }

// Await promises ticket for records that were produced before, at [base, next):
// it is done when they are committed, or, unless committed is set, when they are
// on disk here. That may be at once.
func (r *Replica) Await(base, next record.Offset, committed bool, ticket Ticket, out *Out) {
	if committed && next <= r.highWatermark || !committed && next <= r.written {
		out.Done = append(out.Done, Done{Ticket: ticket, Base: base})
		return
	}
	r.promise(base, next, committed, ticket)
	r.check()
}

// promise puts a promise into the queue.
func (r *Replica) promise(base, next record.Offset, committed bool, ticket Ticket) {
	assert.That(next-base <= math.MaxInt32, "replica: a batch of more records than one can have")
	i := len(r.waiting)
	for i > 0 && r.waiting[i-1].next() > next {
		i--
	}
	r.waiting = append(r.waiting, waiter{})
	copy(r.waiting[i+1:], r.waiting[i:])
	r.waiting[i] = waiter{ticket, base, int32(next - base), !committed}
	if !committed {
		r.local++
	}
}

// keepPromises keeps those whose records are where they have to be. If all wait
// for the same thing it looks at no others.
func (r *Replica) keepPromises(out *Out) {
	left, i := 0, 0
	for ; i < len(r.waiting); i++ {
		w := r.waiting[i]
		next := w.next()
		switch {
		case next <= r.highWatermark, w.local && next <= r.written:
			out.Done = append(out.Done, Done{Ticket: w.ticket, Base: w.base})
			if w.local {
				r.local--
			}
			continue
		case next > r.written || r.local == 0:
		default: // one behind it may be local
			r.waiting[left] = w
			left++
			continue
		}
		break
	}
	if left < i {
		r.waiting = r.waiting[:left+copy(r.waiting[left:], r.waiting[i:])]
	}
}

// fail breaks every promise for records that reach past from.
func (r *Replica) fail(from record.Offset, err error, out *Out) {
	i := len(r.waiting)
	for i > 0 && r.waiting[i-1].next() > from {
		i--
	}
	for _, w := range r.waiting[i:] {
		out.Done = append(out.Done, Done{Ticket: w.ticket, Base: -1, Err: err})
		if w.local {
			r.local--
		}
	}
	r.waiting = r.waiting[:i]
}

// breakCommitted breaks the promises that wait for records to be committed.
func (r *Replica) breakCommitted(err error, out *Out) {
	kept := r.waiting[:0]
	for _, w := range r.waiting {
		if w.local {
			kept = append(kept, w)
		} else {
			out.Done = append(out.Done, Done{Ticket: w.ticket, Base: -1, Err: err})
		}
	}
	r.waiting = kept
}
