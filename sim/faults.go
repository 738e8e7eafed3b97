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

	victim  int // the machine whose disk loses what was durable
	lasting []lasting
	rolling int // the machine that is to be restarted next; none if negative
}

// lasting is what is to be repaired.
type lasting struct {
	until clock.Instant
	muted [][2]simnet.Host
	slow  [][2]simnet.Host
	by    time.Duration // how slow
	full  *machine      // has no room on its disk
}

const (
	whatFault kernel.What = iota
	whatRepair
	whatRoll
)

func (f *faults) begin(w *World) {
	f.w, f.on, f.rolling = w, true, -1
	f.victim = w.k.Stream("victim").IntN(len(w.machines))
	if w.cfg.Voters == 1 && f.victim == 0 && len(w.machines) > 1 {
		f.victim = 1 // the metadata are on one disk only
	}
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
	w := f.w
	for _, m := range w.machines {
		m.disk.Calm()
		m.disk.SetCapacity(-1)
		m.slowUntil, m.wallOffset = 0, 0
		if m.ppm != 0 {
			m.drift(0)
		}
		if m.paused() {
			m.pausedUntil = w.k.Now()
			m.after(0, whatResume, 0)
		}
	}
	w.net.Heal()
	w.k.Trace.Event("world", "healed", 0, 0, 0)
}

// Happen is for the kernel.
func (f *faults) Happen(what kernel.What, arg uint64) {
	if !f.on {
		return
	}
	switch what {
	case whatRepair:
		f.repair()
		return
	case whatRoll:
		f.roll()
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

// pick draws the machine that is struck.
func (f *faults) pick(rng *rand.Rand) *machine {
	if len(f.w.machines) == 1 {
		return f.w.machines[0]
	}
	return f.w.machines[rng.IntN(len(f.w.machines))]
}

func (f *faults) strike(kind swarm.Fault, rng *rand.Rand) {
	w, m := f.w, f.pick(rng)
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
		f.last(lasting{full: m}, kernel.Between(rng, 50*time.Millisecond, 600*time.Millisecond))
	case swarm.SlowDisk:
		w.count("slow disk")
		m.slowUntil = w.k.Now().Add(kernel.Between(rng, 50*time.Millisecond, 500*time.Millisecond))
	case swarm.BitRot, swarm.BadSector:
		f.spoil(kind, rng)
	case swarm.Reset:
		f.reset(w.net.Open(m.host(), simnet.ClientPort), rng)
	case swarm.LostReply:
		if open := w.net.Open(m.host(), simnet.ClientPort); len(open) > 0 {
			w.net.LoseNextResponse(open[rng.IntN(len(open))])
		}
	case swarm.HalfOpen, swarm.Cut, swarm.SlowLink:
		f.disturb(kind, m, rng)
	case swarm.Pause:
		f.pause(m, kernel.Skewed(rng, time.Millisecond, 3*time.Second), "pause")
	case swarm.WallStep:
		w.count("wall clock step")
		m.wallOffset += rng.Int64N(7_200_000) - 3_600_000
	default:
		f.strikeCluster(kind, m, rng)
	}
}

func (f *faults) reset(open []simnet.ConnID, rng *rand.Rand) bool {
	if len(open) > 0 {
		f.w.net.Reset(open[rng.IntN(len(open))])
	}
	return len(open) > 0
}

func (f *faults) pause(m *machine, d time.Duration, what string) {
	if m.node == nil || m.paused() {
		return
	}
	f.w.count(what)
	m.pausedUntil = f.w.k.Now().Add(d)
	m.after(d, whatResume, 0)
}

// disturb makes one client's link to a node silent or slow for a while.
func (f *faults) disturb(kind swarm.Fault, m *machine, rng *rand.Rand) {
	client, node := clientHost(rng.IntN(len(f.w.clusters))), m.host()
	there, back := [2]simnet.Host{client, node}, [2]simnet.Host{node, client}
	d := kernel.Skewed(rng, 10*time.Millisecond, 2*time.Second)
	switch kind {
	case swarm.HalfOpen:
		f.w.count("net: half-open link")
		if rng.IntN(2) == 0 {
			there = back
		}
		f.last(lasting{muted: [][2]simnet.Host{there}}, d)
	case swarm.Cut:
		f.w.count("net: cut link")
		f.last(lasting{muted: [][2]simnet.Host{there, back}}, d)
	case swarm.SlowLink:
		f.w.count("net: slow link")
		f.last(lasting{slow: [][2]simnet.Host{there, back}, by: kernel.Between(rng, 5*time.Millisecond, 500*time.Millisecond)}, d)
	}
}

// last does what lasts for a while.
func (f *faults) last(l lasting, d time.Duration) {
	for _, p := range l.muted {
		f.w.net.Mute(p[0], p[1])
	}
	for _, p := range l.slow {
		f.w.net.Slow(p[0], p[1], l.by)
	}
	l.until = f.w.k.Now().Add(d)
	f.lasting = append(f.lasting, l)
	f.w.k.At(l.until, f, whatRepair, 0)
}

// repair ends what has lasted long enough.
func (f *faults) repair() {
	now := f.w.k.Now()
	left := f.lasting[:0]
	for _, l := range f.lasting {
		if l.until > now {
			left = append(left, l)
			continue
		}
		for _, p := range l.muted {
			f.w.net.Unmute(p[0], p[1])
		}
		for _, p := range l.slow {
			f.w.net.Slow(p[0], p[1], -l.by)
		}
		if l.full != nil {
			l.full.disk.SetCapacity(-1)
		}
	}
	f.lasting = left
}

// spoil damages durable bytes, of any file.
func (f *faults) spoil(kind swarm.Fault, rng *rand.Rand) {
	m := f.w.machines[f.victim]
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
	swarm.Isolate: "leader isolated", swarm.Partition: "nodes in two parts", swarm.Bridge: "nodes with a bridge",
	swarm.OneWay: "node deaf to another", swarm.PeerReset: "connection between nodes reset", swarm.SlowPeer: "slow link between nodes",
	swarm.Rolling: "rolling restart", swarm.LongPause: "pause longer than a session", swarm.Drift: "clock drifts",
	swarm.Wipe: "disk wiped", swarm.Beyond: "clock beyond the bound",
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
	for _, m := range w.machines {
		for kind := simdisk.PowerCut; kind <= simdisk.BrokenSector; kind++ {
			if n := m.disk.Hits(kind); n > 0 {
				out["disk: "+kind.String()] += n
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
