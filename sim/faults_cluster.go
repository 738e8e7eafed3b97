package sim

import (
	"math/rand/v2"
	"time"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/sim/simnet"
	"github.com/pawlbroker/pawl/sim/swarm"
)

// strikeCluster does what goes wrong between nodes.
func (f *faults) strikeCluster(kind swarm.Fault, m *machine, rng *rand.Rand) {
	w := f.w
	d := kernel.Skewed(rng, 100*time.Millisecond, 15*time.Second)
	switch kind {
	case swarm.Isolate:
		f.isolate(f.leader(m, rng), d, rng)
	case swarm.Partition:
		f.split(d, rng)
	case swarm.Bridge:
		f.bridge(d, rng)
	case swarm.OneWay:
		if other := f.other(m, rng); other != nil {
			w.count(happened[kind])
			f.last(lasting{muted: [][2]simnet.Host{{m.host(), other.host()}}}, d)
		}
	case swarm.PeerReset:
		if f.reset(w.net.Open(m.host(), simnet.PeerPort), rng) {
			w.count(happened[kind])
		}
	case swarm.SlowPeer:
		if other := f.other(m, rng); other != nil {
			w.count(happened[kind])
			both := [][2]simnet.Host{{m.host(), other.host()}, {other.host(), m.host()}}
			f.last(lasting{slow: both, by: kernel.Between(rng, 5*time.Millisecond, 600*time.Millisecond)}, d)
		}
	case swarm.Rolling:
		if f.rolling < 0 {
			w.count(happened[kind])
			f.rolling = 0
			f.roll()
		}
	case swarm.LongPause:
		f.pause(m, kernel.Between(rng, 9*time.Second, 14*time.Second), happened[kind])
	case swarm.Drift:
		w.count(happened[kind])
		m.drift(rng.Int64N(2*maxDrift+1) - maxDrift)
	case swarm.Beyond:
		w.count(happened[kind])
		w.check.Beyond = true
		m.drift([]int64{-million, -900_000, -500_000, 500_000, 4 * million}[rng.IntN(5)])
	case swarm.Wipe:
		f.wipe(rng)
	}
}

// other is another node than m, or nil if there is none.
func (f *faults) other(m *machine, rng *rand.Rand) *machine {
	n := len(f.w.machines)
	if n == 1 {
		return nil
	}
	return f.w.machines[(m.id+1+rng.IntN(n-1))%n]
}

// leader is a node that leads something, or m if none does: the cluster, or a
// partition.
func (f *faults) leader(m *machine, rng *rand.Rand) *machine {
	if c := f.w.controller(); c != nil && rng.IntN(2) == 0 {
		return c
	}
	image := f.w.check.Newest()
	t, ok := image.Topic(topicName)
	if !ok {
		return m
	}
	p, ok := image.Partition(t.ID, int32(rng.IntN(int(t.Partitions))))
	if !ok || p.Leader == metadata.NoNode {
		return m
	}
	return f.w.machines[p.Leader-1]
}

// isolate cuts a node off from the others: both ways, or one; with its clients or
// without.
func (f *faults) isolate(m *machine, d time.Duration, rng *rand.Rand) {
	f.w.count(happened[swarm.Isolate])
	way := rng.IntN(4) // 0 hears nobody, 1 is not heard, else both
	var l lasting
	cut := func(other simnet.Host) {
		if way != 1 {
			l.muted = append(l.muted, [2]simnet.Host{other, m.host()})
		}
		if way != 0 {
			l.muted = append(l.muted, [2]simnet.Host{m.host(), other})
		}
	}
	for _, other := range f.w.machines {
		if other != m {
			cut(other.host())
		}
	}
	if rng.IntN(3) == 0 {
		for i := range f.w.clusters {
			cut(clientHost(i))
		}
	}
	f.last(l, d)
}

// split puts the nodes in two parts, and some of the clients with each.
func (f *faults) split(d time.Duration, rng *rand.Rand) {
	w := f.w
	n := len(w.machines)
	if n == 1 {
		return
	}
	w.count(happened[swarm.Partition])
	side := make([]bool, n)
	for _, i := range rng.Perm(n)[:1+rng.IntN(n-1)] {
		side[i] = true
	}
	oneWay := rng.IntN(4) == 0
	var l lasting
	cut := func(a, b simnet.Host) {
		l.muted = append(l.muted, [2]simnet.Host{a, b})
		if !oneWay {
			l.muted = append(l.muted, [2]simnet.Host{b, a})
		}
	}
	for i := range side {
		for j := range side {
			if side[i] && !side[j] {
				cut(simnet.Host(i), simnet.Host(j))
			}
		}
	}
	if rng.IntN(2) == 0 {
		for c := range w.clusters {
			with := rng.IntN(2) == 0
			for i := range side {
				if side[i] != with {
					cut(clientHost(c), simnet.Host(i))
				}
			}
		}
	}
	f.last(l, d)
}

// bridge cuts every two nodes off from each other, but for one that hears all, or
// in a ring for the neighbours.
func (f *faults) bridge(d time.Duration, rng *rand.Rand) {
	n := len(f.w.machines)
	if n < 3 {
		return
	}
	f.w.count(happened[swarm.Bridge])
	middle, ring := rng.IntN(n), n > 3 && rng.IntN(2) == 0
	var l lasting
	for i := range n {
		for j := range n {
			apart := i != middle && j != middle
			if ring {
				apart = (i+1)%n != j && (j+1)%n != i
			}
			if i != j && apart {
				l.muted = append(l.muted, [2]simnet.Host{simnet.Host(i), simnet.Host(j)})
			}
		}
	}
	f.last(l, d)
}

// roll restarts the next node, once the one before it serves again or takes too
// long.
func (f *faults) roll() {
	w := f.w
	if f.rolling < 0 {
		return
	}
	if f.rolling >= len(w.machines) {
		f.rolling = -1
		return
	}
	m := w.machines[f.rolling]
	f.rolling++
	m.shutdown()
	rng := w.k.Stream("rolling", f.count[swarm.Rolling], uint64(f.rolling))
	w.k.After(kernel.Between(rng, 300*time.Millisecond, 3*time.Second), f, whatRoll, 0)
}

// wipe takes the victim's disk away, unless it alone has everything of a partition.
func (f *faults) wipe(*rand.Rand) {
	m := f.w.machines[f.victim]
	if f.w.alone(m) {
		return
	}
	f.w.count(happened[swarm.Wipe])
	m.replaceDisk()
}
