package tcp

import (
	"slices"
	"sync"
)

// budget is memory that requests take a share of before they are read. Those
// who wait get theirs in the order they came, so that a big request is not
// passed by small ones for ever.
type budget struct {
	mu      sync.Mutex
	max     int64
	free    int64
	waiting []*waiter
}

type waiter struct {
	n     int64
	given chan struct{}
}

func newBudget(max int64) *budget { return &budget{max: max, free: max} }

// clip makes n what a lone request of n bytes takes: at most everything.
func (b *budget) clip(n int64) int64 { return min(n, b.max) }

// try takes n bytes if they are free and nobody waits.
func (b *budget) try(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || b.free < n {
		return false
	}
	b.free -= n
	return true
}

// take waits until n bytes, at most b.max, are free and takes them. It reports
// false, and takes nothing, if gone is closed first.
func (b *budget) take(n int64, gone <-chan struct{}) bool {
	b.mu.Lock()
	if len(b.waiting) == 0 && b.free >= n {
		b.free -= n
		b.mu.Unlock()
		return true
	}
	w := &waiter{n, make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	select {
	case <-w.given:
		return true
	case <-gone:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, w)
	if i < 0 { // it was given at the same moment
		b.free += n
	} else {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	b.serve() // who stood behind w may be able to go
	return false
}

// give returns n bytes.
func (b *budget) give(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	b.free += n
	b.serve()
	b.mu.Unlock()
}

func (b *budget) serve() {
	for len(b.waiting) > 0 && b.waiting[0].n <= b.free {
		w := b.waiting[0]
		b.free -= w.n
		b.waiting = slices.Delete(b.waiting, 0, 1)
		close(w.given)
	}
}

// taken is how many bytes are not free.
func (b *budget) taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.max - b.free
}
