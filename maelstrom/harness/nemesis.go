package harness

import (
	"math/rand/v2"
	"time"
)

// nemesis causes one fault after another, each healed before the next, until
// the main phase ends; then everything is well again.
func (r *run) nemesis(over <-chan struct{}) {
	if len(r.cfg.Faults) == 0 {
		<-over
		return
	}
	rnd := rand.New(rand.NewPCG(r.cfg.Seed, 3))
	for r.rest(rnd, over) {
		heal := r.cause(rnd)
		more := r.rest(rnd, over)
		heal()
		if !more {
			return
		}
	}
}

// rest waits for a drawn time and reports whether the main phase goes on.
func (r *run) rest(rnd *rand.Rand, over <-chan struct{}) bool {
	timer := time.NewTimer(r.drawn(rnd, r.cfg.FaultEvery))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-over:
		return false
	}
}

// cause begins a fault and returns what ends it.
func (r *run) cause(rnd *rand.Rand) (heal func()) {
	fault := r.cfg.Faults[rnd.IntN(len(r.cfg.Faults))]
	victim := r.net.names[rnd.IntN(len(r.net.names))]
	r.mu.Lock()
	r.faults[fault]++
	r.mu.Unlock()
	switch fault {
	case Partition:
		r.net.partition(rnd)
		return r.net.heal
	case Pause:
		r.net.signal(victim, Process.Pause)
		return func() { r.net.signal(victim, Process.Resume) }
	default:
		r.net.kill(victim)
		return func() {
			if err := r.boot(victim); err != nil {
				r.net.mu.Lock()
				defer r.net.mu.Unlock()
				if r.net.exited == nil {
					r.net.exited = err
				}
			}
		}
	}
}
