package sim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/sim/simnet"
	"github.com/pawlbroker/pawl/sim/swarm"
)

// faults is the schedule of what goes wrong. Each occurrence of each kind has a
// stream of its own, so one can be left out without changing any other.
type faults struct {
	w     *World
	on    bool
	count [swarm.FaultKinds]uint64

	fullUntil clock.Instant
	links     []clock.Instant // until when each session's link is disturbed
}

const (
	whatFault kernel.What = iota
	whatRepair
)

func (f *faults) begin(w *World) {
	f.w, f.on = w, true
	f.links = make([]clock.Instant, len(w.sessions))
	for kind := range swarm.FaultKinds {
		f.schedule(kind)
	}
}

// stream is the random numbers of the next occurrence of a kind.
func (f *faults) stream(kind swarm.Fault) *rand.Rand {
	return f.w.k.Stream("fault", uint64(kind), f.count[kind])
}

func (f *faults) schedule(kind swarm.Fault) {
	every := time.Duration(f.w.cfg.Faults[kind]) * time.Millisecond
	if every > 0 {
		f.w.k.After(kernel.Between(f.stream(kind), 0, 2*every), f, whatFault, uint64(kind))
	}
}

// end stops all faults and repairs what can be repaired.
func (f *faults) end() {
	f.on = false
	w, m := f.w, f.w.machine
	m.disk.Calm()
	m.disk.SetCapacity(-1)
	m.slowUntil, m.wallOffset = 0, 0
	if m.paused() {
		m.pausedUntil = w.k.Now()
		m.after(0, whatResume, 0)
	}
	w.net.Heal(len(w.sessions), 1)
	w.k.Trace.Event("world", "healed", 0, 0, 0)
}

// Happen is for the kernel.
func (f *faults) Happen(what kernel.What, arg uint64) {
	if !f.on {
		return
	}
	if what == whatRepair {
		f.repair()
		return
	}
	kind := swarm.Fault(arg)
	rng := f.stream(kind)
	rng.Uint64() // the gap was drawn from it
	f.w.k.Trace.Event("fault", kind.String(), f.count[kind], 0, 0)
	f.strike(kind, rng)
	f.count[kind]++
	f.schedule(kind)
}

func (f *faults) strike(kind swarm.Fault, rng *rand.Rand) {
	w, m := f.w, f.w.machine
	disk := m.disk
	switch kind {
	case swarm.Kill:
		m.kill()
	case swarm.Power:
		if rng.IntN(4) == 0 {
			m.powerOff() // between two jobs
		} else {
			disk.SetFuse(rng.Int64N(40), rng.Uint64())
		}
	case swarm.Restart:
		m.shutdown()
	case swarm.SyncError:
		disk.FailSync(1+rng.Int64N(4), rng.Uint64(), rng.IntN(2) == 0)
	case swarm.ReadError:
		disk.FailRead(1 + rng.Int64N(10))
	case swarm.WriteError:
		disk.FailWrite(1+rng.Int64N(10), rng.Uint64())
	case swarm.DiskFull:
		m.wasFull = true
		disk.SetCapacity(disk.Used() + rng.Int64N(4000))
		f.fullUntil = w.k.Now().Add(kernel.Between(rng, 50*time.Millisecond, 600*time.Millisecond))
		w.k.At(f.fullUntil, f, whatRepair, 0)
	case swarm.SlowDisk:
		w.count("slow disk")
		m.slowUntil = w.k.Now().Add(kernel.Between(rng, 50*time.Millisecond, 500*time.Millisecond))
	case swarm.BitRot, swarm.BadSector:
		f.spoil(kind, rng)
	case swarm.Reset, swarm.LostReply:
		if open := w.net.Open(m.id); len(open) > 0 {
			id := open[rng.IntN(len(open))]
			if kind == swarm.Reset {
				w.net.Reset(id)
			} else {
				w.net.LoseNextResponse(id)
			}
		}
	case swarm.HalfOpen, swarm.Cut, swarm.SlowLink:
		f.disturb(kind, rng)
	case swarm.Pause:
		if m.node != nil && !m.paused() {
			w.count("pause")
			d := kernel.Skewed(rng, time.Millisecond, 3*time.Second)
			m.pausedUntil = w.k.Now().Add(d)
			m.after(d, whatResume, 0)
		}
	case swarm.WallStep:
		w.count("wall clock step")
		m.wallOffset += rng.Int64N(7_200_000) - 3_600_000
	}
}

// disturb makes one link silent or slow for a while.
func (f *faults) disturb(kind swarm.Fault, rng *rand.Rand) {
	link := rng.IntN(len(f.links))
	until := f.w.k.Now().Add(kernel.Skewed(rng, 10*time.Millisecond, 2*time.Second))
	way := rng.IntN(2) == 0
	switch kind {
	case swarm.HalfOpen:
		f.w.net.Mute(link, 0, way, !way)
	case swarm.Cut:
		f.w.net.Mute(link, 0, true, true)
	case swarm.SlowLink:
		f.w.net.Slow(link, 0, kernel.Between(rng, 5*time.Millisecond, 500*time.Millisecond))
	}
	f.links[link] = max(f.links[link], until)
	f.w.k.At(until, f, whatRepair, 0)
}

// repair ends what has lasted long enough.
func (f *faults) repair() {
	now := f.w.k.Now()
	if f.fullUntil != 0 && f.fullUntil <= now {
		f.fullUntil = 0
		f.w.machine.disk.SetCapacity(-1)
	}
	for i, until := range f.links {
		if until != 0 && until <= now {
			f.links[i] = 0
			f.w.net.Slow(i, 0, 0)
			f.w.net.Mute(i, 0, false, false)
		}
	}
}

// spoil damages durable bytes, of any file.
func (f *faults) spoil(kind swarm.Fault, rng *rand.Rand) {
	m := f.w.machine
	files := m.disk.Files()
	if len(files) == 0 {
		return
	}
	file := files[rng.IntN(len(files))]
	if i := slices.IndexFunc(files, func(f simdisk.FileInfo) bool { return f.Name == "clean" }); i >= 0 && rng.IntN(2) == 0 {
		file = files[i] // it is there only between two processes
	}
	if file.Synced == 0 {
		return
	}
	pos := rng.Int64N(file.Synced)
	if strings.HasSuffix(file.Name, ".journal") && !m.disk.Followed(file.Name, pos) {
		return // a journal's last group: damaged and torn look the same
	}
	done := false
	if kind == swarm.BitRot {
		done = m.disk.FlipBit(file.Name, pos, uint(rng.IntN(8)))
	} else {
		done = m.disk.BreakSector(file.Name, pos)
	}
	if done {
		m.spoiled, f.w.check.Rotten = true, true
		if kind == swarm.BadSector {
			f.w.count("broken sector")
		}
		if t := &f.w.k.Trace; t.Wanted() {
			t.Say("fault", kind.String()+" in "+file.Name)
		}
	}
}

// happened is the name in the tally of what each kind leads to.
var happened = [swarm.FaultKinds]string{
	swarm.Kill: "kill", swarm.Power: "power cut", swarm.Restart: "restart",
	swarm.SyncError: "disk: sync error", swarm.ReadError: "disk: read error", swarm.WriteError: "disk: write error",
	swarm.DiskFull: "disk: no space", swarm.SlowDisk: "slow disk", swarm.BitRot: "disk: bit flip", swarm.BadSector: "broken sector",
	swarm.Reset: "net: connection reset", swarm.HalfOpen: "net: half-open link", swarm.Cut: "net: cut link",
	swarm.SlowLink: "net: slow link", swarm.LostReply: "net: lost response", swarm.Pause: "pause", swarm.WallStep: "wall clock step",
}

// Happened is the name in Result.Faults of a kind of fault that has struck.
func Happened(kind swarm.Fault) string { return happened[kind] }

// tally is how often each fault has really happened.
func (f *faults) tally() map[string]int64 {
	w := f.w
	out := map[string]int64{}
	for name, n := range w.counts { //pawl:unordered copied into a map
		out[name] = n
	}
	if w.machine != nil {
		for kind := simdisk.PowerCut; kind <= simdisk.BrokenSector; kind++ {
			if n := w.machine.disk.Hits(kind); n > 0 {
				out["disk: "+kind.String()] = n
			}
		}
	}
	for kind := simnet.Split; kind <= simnet.LostResponse; kind++ {
		if n := w.net.Hits(kind); n > 0 {
			out["net: "+kind.String()] = n
		}
	}
	return out
}
