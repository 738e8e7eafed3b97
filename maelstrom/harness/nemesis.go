package harness

import (
	"math/rand/v2"
	"time"
)

// nemesis causes one fault after another, each healed before the next, until
// the main phase ends; then everything is well again, but for who has died.
func (r *run) nemesis(over <-chan struct{}) {
	if len(r.cfg.Faults) == 0 && r.cfg.Deaths == 0 {
		<-over
		return
	}
	rnd := rand.New(rand.NewPCG(r.cfg.Seed, 3))
	for r.rest(rnd, over) {
		if r.now() >= r.cfg.TimeLimit/2 {
			r.die()
		}
		if len(r.cfg.Faults) == 0 {
			continue
		}
		heal := r.cause(rnd)
		more := r.rest(rnd, over)
		heal()
		if !more {
			break
		}
	}
	r.die()
}

// die kills for good the nodes that are to die, unless it has.
func (r *run) die() {
	for len(r.net.names)-len(r.living()) < r.cfg.Deaths {
		r.mu.Lock()
		victim := r.net.names[r.dead]
		r.dead++
		r.mu.Unlock()
		r.net.kill(victim)
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
	living := r.living()
	victims := living
	if fault != KillAll {
		victims = []string{living[rnd.IntN(len(living))]}
	}
	r.mu.Lock()
	r.faults[fault]++
	r.mu.Unlock()
	switch fault {
	case Partition:
		r.net.partition(rnd)
		return r.net.heal
	case OneWay:
		r.net.deafen(victims[0], rnd.IntN(2) == 0)
		return r.net.heal
	case Pause:
		r.net.signal(victims[0], Process.Pause)
		return func() { r.net.signal(victims[0], Process.Resume) }
	default:
		for _, victim := range victims {
			r.net.kill(victim)
		}
		return func() { r.reboot(victims) }
	}
}

// reboot brings back nodes that were killed.
func (r *run) reboot(names []string) {
	for _, name := range names {
		if err := r.boot(name); err != nil {
			r.net.mu.Lock()
			defer r.net.mu.Unlock()
			if r.net.exited == nil {
				r.net.exited = err
			}
			return
		}
	}
}
