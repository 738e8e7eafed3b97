// Package kernel has what every part of a simulation shares: virtual time, the
// queue of what will happen, the random streams and the trace. One goroutine
// runs a simulation; the same seed gives the same run, to the bit, on every
// machine. So there are no floats here, and no draw depends on another.
package kernel

import (
	"time"

	"github.com/pawlbroker/pawl/broker/clock"
)

// What says what happens; each Handler has its own meanings.
type What uint32

// A Handler is a thing that things happen to. arg is whatever it scheduled.
type Handler interface {
	Happen(what What, arg uint64)
}

// Kernel runs one simulation. Instants are those of the world, not of any node
// in it.
type Kernel struct {
	Trace Trace

	now    clock.Instant
	seq    uint64
	heap   []happening
	events int64
	seed   uint64
}

// happening is due at a time; ties go in the order they were scheduled. Plain
// fields in place of a closure: the queue is a good part of an event's cost.
type happening struct {
	at   clock.Instant
	seq  uint64
	to   Handler
	arg  uint64
	what What
}

func (h *happening) before(g *happening) bool {
	return h.at < g.at || h.at == g.at && h.seq < g.seq
}

// New returns a kernel at instant 0.
func New(seed uint64) *Kernel {
	k := &Kernel{seed: seed}
	k.Trace.now = &k.now
	return k
}

// Now is the world's time.
func (k *Kernel) Now() clock.Instant { return k.now }

// Seed is what everything random comes from.
func (k *Kernel) Seed() uint64 { return k.seed }

// Events is how many have happened.
func (k *Kernel) Events() int64 { return k.events }

// After makes something happen d from now; not before the present.
func (k *Kernel) After(d time.Duration, to Handler, what What, arg uint64) {
	k.At(k.now.Add(max(d, 0)), to, what, arg)
}

// At makes something happen at an instant; not before the present.
func (k *Kernel) At(at clock.Instant, to Handler, what What, arg uint64) {
	k.seq++
	k.heap = append(k.heap, happening{max(at, k.now), k.seq, to, arg, what})
	i := len(k.heap) - 1
	moved := k.heap[i]
	for i > 0 {
		parent := (i - 1) / 4
		if !moved.before(&k.heap[parent]) {
			break
		}
		k.heap[i] = k.heap[parent]
		i = parent
	}
	k.heap[i] = moved
}

// Next is when the next thing happens, or clock.Never.
func (k *Kernel) Next() clock.Instant {
	if len(k.heap) == 0 {
		return clock.Never
	}
	return k.heap[0].at
}

// Step lets the next thing happen. There must be one.
func (k *Kernel) Step() {
	h := k.pop()
	k.now = h.at
	k.events++
	h.to.Happen(h.what, h.arg)
}

// Run lets everything happen that is due up to an instant, and makes it now.
func (k *Kernel) Run(until clock.Instant) {
	for k.Next() <= until {
		k.Step()
	}
	k.now = max(k.now, until)
}

func (k *Kernel) pop() happening {
	first := k.heap[0]
	n := len(k.heap) - 1
	moved := k.heap[n]
	k.heap[n] = happening{}
	k.heap = k.heap[:n]
	if n == 0 {
		return first
	}
	i := 0
	for {
		child := 4*i + 1
		if child >= n {
			break
		}
		for c, end := child+1, min(child+4, n); c < end; c++ {
			if k.heap[c].before(&k.heap[child]) {
				child = c
			}
		}
		if !k.heap[child].before(&moved) {
			break
		}
		k.heap[i] = k.heap[child]
		i = child
	}
	k.heap[i] = moved
	return first
}
