package sim

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug" //pawl:allow runtime the stack of a failed assertion, for the trace's text only
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/partition"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/sim/simnet"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

// mind is what decides on a machine: a *broker.Node.
type mind interface {
	Step(broker.Event)
	NextWake() clock.Instant
	Ready() (missing string, ok bool)
	Table() *partition.Table
	Image() metadata.Image
	Quorum() *quorum.Quorum
}

// machine is the computer under one node: its disk, its clock, its lanes of
// disk work, and its end of the network (door.go, peers.go). It takes the place of
// broker/host and broker/tcp.
//
// A job is run whole, at an instant after its lane was free, together with
// everything that has queued up for the lane by then; the results arrive later.
// The power may go at any call of the file system in between.
type machine struct {
	w    *World
	id   int
	who  string
	disk *simdisk.Disk

	// Of the process that runs now; node is nil if none does.
	life     uint64 // counts processes; what an earlier one scheduled is void
	node     mind
	work     runner
	lanes    [job.Lanes]lane
	flightID uint64
	lookups  []job.Result // results of reads by slot; free ones have no Job
	free     []int
	wakeAt   clock.Instant
	woken    clock.Instant // last, and how often at that instant
	wakes    int
	stopping bool // Shutdown was asked for
	served   bool // the node had been serving when it was, and could say so on its disk
	stopped  bool // Env.Stop was called
	reason   error
	clean    bool  // the process before it stopped as asked
	excuses  int64 // disk faults that had struck when the process began
	drops    int64 // what disk.Drops said then
	front    door  // to clients
	back     door  // to other nodes
	peers    *peers
	held     []arrival // while the process is paused
	time     timepiece
	disks    *rand.Rand

	pausedUntil clock.Instant
	slowUntil   clock.Instant
	wallOffset  int64 // milliseconds
	ppm         int64 // of the clock of every process

	cleanly  bool // the last process stopped as asked, and none was started since
	closing  bool // the store was closed, or was being, since it was last opened
	failures int  // processes in a row that never served
	dead     bool // it cannot be started any more
	failed   error
	wasFull  bool // the disk has been full
	spoiled  bool // bits have flipped or sectors broken
	wiped    bool // it has had another disk
	buried   bool // no process is started for the time being
}

// What happens to a machine. The life it belongs to is in the low half of the
// argument, a number in the high half.
const (
	whatBoot kernel.What = iota
	whatLane
	whatSync
	whatFinish
	whatResults
	whatLookup
	whatLookupDone
	whatWake
	whatFlush
	whatFlushPeer
	whatResume
	whatPeerLink
	whatPeerTimer
	whatPeerEvents
)

func (m *machine) after(d time.Duration, what kernel.What, n uint64) {
	m.w.k.After(d, m, what, n<<32|m.life)
}

// Happen is for the kernel.
func (m *machine) Happen(what kernel.What, arg uint64) {
	n, life := arg>>32, arg&(1<<32-1)
	switch {
	case life != m.life:
		return
	case what == whatBoot:
		m.boot()
		return
	case what == whatResume:
		m.resume()
		return
	case m.node == nil:
		return
	case m.paused():
		m.w.k.At(m.pausedUntil, m, what, arg)
		return
	}
	switch what {
	case whatLane:
		m.runLane(job.Lane(n))
	case whatSync:
		m.syncFlight(n)
	case whatFinish:
		m.finishFlight()
	case whatResults:
		m.tellResults(job.Lane(n))
	case whatLookup:
		m.runLookup()
	case whatLookupDone:
		r := m.lookups[n]
		m.lookups[n] = job.Result{}
		m.free = append(m.free, int(n))
		m.step(broker.JobDone{Result: r})
	case whatWake:
		if m.wakeAt <= m.w.k.Now() {
			m.wakeAt = clock.Never
			m.wake()
		}
	case whatFlush:
		m.front.flush(n)
	case whatFlushPeer:
		m.back.flush(n)
	case whatPeerLink:
		m.peers.links[n].dial()
	case whatPeerTimer:
		m.peers.timeout(n)
	case whatPeerEvents:
		m.peers.events()
	}
}

// arrival is what the network brought to a process.
type arrival struct {
	to   interface{ handle(arrival) }
	conn simnet.ConnID
	kind arrivalKind
	why  simnet.Reason
	data []byte
}

type arrivalKind uint8

const (
	opened arrivalKind = iota
	received
	closed
)

// arrive takes what the network brings. A process that does not run takes it
// later.
func (m *machine) arrive(a arrival) {
	if m.paused() || len(m.held) > 0 {
		m.held = append(m.held, a)
		return
	}
	a.to.handle(a)
}

// resume handles what was held back.
func (m *machine) resume() {
	if m.paused() {
		return
	}
	held := m.held
	m.held = nil
	for _, a := range held {
		if m.node == nil {
			return
		}
		a.to.handle(a)
	}
}

// nodeID is the node's id: machines are numbered from 0, nodes from 1.
func (m *machine) nodeID() metadata.NodeID { return metadata.NodeID(m.id + 1) }

// host is the machine's number on the network.
func (m *machine) host() simnet.Host { return simnet.Host(m.id) }

func hostOf(node metadata.NodeID) simnet.Host { return simnet.Host(node - 1) }

// who is a node's name in traces, and of its host on the network.
func who(node metadata.NodeID) string { return fmt.Sprintf("n%d", node) }

// wake tells the node that its time has come.
func (m *machine) wake() {
	if now := m.w.k.Now(); now != m.woken {
		m.woken, m.wakes = now, 0
	}
	if m.wakes++; m.wakes > maxWakes {
		m.w.check.Violate("nodes do not spin", "%s wants to be woken at once, %d times in a row", m.who, m.wakes)
		return
	}
	m.step(broker.Wake{})
}

// maxWakes is how often a node may want to be woken at one instant.
const maxWakes = 1000

func (m *machine) paused() bool { return m.pausedUntil > m.w.k.Now() }

// boot starts a process.
func (m *machine) boot() {
	if m.node != nil || m.dead || m.buried {
		return
	}
	k := m.w.k
	m.life++
	m.time = timepiece{world: k.Now(), ppm: m.ppm}
	m.lanes = [job.Lanes]lane{}
	m.lookups, m.free = nil, nil
	m.wakeAt = clock.Never
	m.stopping, m.stopped, m.reason = false, false, nil
	m.excuses, m.drops = m.struck(), m.disk.Drops()
	m.clean, m.cleanly = m.cleanly, false
	m.disks = k.Stream("disk", uint64(m.id), m.life)
	m.work = newRunner(m.disk, m.w.storageConfig())
	k.Trace.Event(m.who, "boot", m.life, 0, 0)
	env := broker.Env{
		Clock: m, Disk: m, Network: m, Log: m, Applied: m.w.check.Applied,
		Rand: k.Stream("node", uint64(m.id), m.life),
		Stop: func(reason error) { m.stopped, m.reason = true, reason },
	}
	m.front, m.back = door{m: m, port: simnet.ClientPort}, door{m: m, port: simnet.PeerPort}
	m.w.net.Listen(m.host(), simnet.ClientPort, &m.front)
	if len(m.w.machines) > 1 {
		m.time.local = clock.Instant(k.Stream("clock", uint64(m.id), m.life).Int64N(int64(time.Hour)))
		m.peers = &peers{m: m, rng: k.Stream("peers", uint64(m.id), m.life)}
		env.Peers = m.peers
		m.w.net.Listen(m.host(), simnet.PeerPort, &m.back)
	}
	m.guard(func() { m.node = m.w.mind(m, env) })
	m.afterStep()
}

// Now implements broker.Clock. A node's time begins with its process.
func (m *machine) Now() clock.Instant { return m.time.now(m.w.k.Now()) }

// drift changes how fast the clock is.
func (m *machine) drift(ppm int64) {
	m.ppm = ppm
	m.time.set(m.w.k.Now(), ppm)
	m.wakeAt = clock.Never
	m.afterStep()
}

// Wall implements broker.Clock.
func (m *machine) Wall() record.Timestamp { return m.w.wall() + record.Timestamp(m.wallOffset) }

// Log implements broker.Logger.
func (m *machine) Log(level slog.Level, msg string, attrs ...slog.Attr) {
	if !m.w.k.Trace.Wanted() {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "log %s %s", level, msg)
	for _, a := range attrs {
		fmt.Fprintf(&b, " %s=%s", a.Key, a.Value)
	}
	m.w.k.Trace.Say(m.who, b.String())
}

// step gives the node an event, and checks it afterwards.
func (m *machine) step(ev broker.Event) {
	if m.node == nil {
		return
	}
	m.traceEvent(ev)
	if done, ok := ev.(broker.JobDone); ok {
		if _, ok := done.Job.(job.Close); ok && done.Err != nil {
			m.served = false // it stops all the same, without the mark of a clean stop
		}
		m.w.check.Done(m.id, done.Result)
	}
	m.guard(func() { m.node.Step(ev) })
	m.afterStep()
	m.w.afterStep(m, quiet(ev))
}

// quiet says whether an event is about the cluster alone. It does nothing to a
// partition unless it moves the metadata on.
func quiet(ev broker.Event) bool {
	switch ev := ev.(type) {
	case broker.Request:
		switch ev.Body.(type) {
		case *wire.QuorumMessages, *kmsg.BrokerHeartbeatRequest, *kmsg.BrokerRegistrationRequest, *kmsg.AlterPartitionRequest:
			return true
		}
	case broker.JobDone:
		_, ok := ev.Job.(job.SaveQuorum)
		return ok
	}
	return false
}

func (m *machine) traceEvent(ev broker.Event) {
	t := &m.w.k.Trace
	switch ev := ev.(type) {
	case broker.Request:
		t.Event(m.who, "request", ev.Caller.Conn, ev.Caller.Seq, uint64(ev.Body.Key())<<16|uint64(ev.Body.GetVersion()))
	case broker.PeerReply:
		bad := uint64(0)
		if ev.Err != nil {
			bad = 1
		}
		t.Event(m.who, "reply", uint64(ev.From), uint64(ev.Call), bad)
	case broker.PeerDown:
		t.Event(m.who, "peer down", uint64(ev.Peer), 0, 0)
	case broker.JobDone:
		bad := uint64(0)
		if ev.Err != nil {
			bad = 1
			t.Word(uint64(len(ev.Err.Error())))
		}
		what := "done"
		if ev.Early {
			what = "shown"
		}
		t.Event(m.who, what, uint64(ev.Job.Lane()), uint64(ev.View.End())<<1|bad, uint64(ev.Region.Pos)^uint64(ev.Region.Len)<<32)
	case broker.Wake:
		t.Event(m.who, "wake", 0, 0, 0)
	case broker.ConnClosed:
		t.Event(m.who, "conn closed", ev.Conn, 0, 0)
	case broker.Shutdown:
		t.Event(m.who, "shutdown", 0, 0, 0)
	}
	if t.Wanted() {
		t.Text(m.who, ev)
	}
}

// guard runs code of the node or of storage; a failed assertion ends the run.
func (m *machine) guard(f func()) {
	defer func() {
		v := recover() //pawl:allow recover this is the host: it ends the run
		if v == nil {
			return
		}
		check, text := "no panic", fmt.Sprint(v)
		var failure *assert.Failure
		if err, ok := v.(error); ok && errors.As(err, &failure) {
			check, text = "assertion", failure.What
		}
		if m.w.k.Trace.Wanted() {
			m.w.k.Trace.Say(m.who, text+"\n"+string(debug.Stack()))
		}
		m.w.check.Violate(check, "%s", text)
		m.node = nil
	}()
	f()
}

// afterStep does what is due after every step: the node may have stopped, and
// may want to be woken.
func (m *machine) afterStep() {
	if m.node == nil {
		return
	}
	if m.stopped {
		m.exit(m.reason)
		return
	}
	if _, ok := m.node.Ready(); ok {
		m.failures = 0
	}
	if at := m.node.NextWake(); at != clock.Never {
		if due := max(m.time.due(at), m.w.k.Now()); due < m.wakeAt {
			m.wakeAt = due
			m.w.k.At(due, m, whatWake, m.life)
		}
	}
}

// struck counts disk faults that justify a node's giving up.
func (m *machine) struck() int64 {
	n := int64(0)
	for _, f := range []simdisk.Fault{simdisk.ReadError, simdisk.WriteError, simdisk.SyncError, simdisk.BrokenSector} {
		n += m.disk.Hits(f)
	}
	return n
}

// exit is the end of a process that gave up or was asked to stop.
func (m *machine) exit(reason error) {
	var damage *storage.DamageError
	k := m.w.k
	switch {
	case reason == nil && m.stopping:
		m.cleanly = m.served
		m.w.count("clean stop")
	case reason == nil:
		m.w.check.Violate("a node stops only when asked", "it stopped by itself, without a reason")
	case errors.As(reason, &damage):
		m.w.count("stopped over damage")
		if !m.spoiled {
			m.w.check.Violate("nothing is damaged unless something damages it", "stopped: %v", reason)
		}
	case m.struck() > m.excuses, m.spoiled, errors.Is(reason, storage.ErrNoSpace) && m.wasFull:
		m.w.count("stopped over a disk error")
	default:
		m.w.check.Violate("a node stops only over a disk fault", "stopped: %v", reason)
	}
	if k.Trace.Wanted() {
		k.Trace.Say(m.who, fmt.Sprintf("stopped: %v", reason))
	}
	if reason != nil {
		m.failures++
		m.failed = reason
	}
	m.end()
	m.w.net.Exit(m.host())
	// After giving up over its disk a process may be started again at once, and
	// then reads what the page cache holds, synced or not; or the machine is.
	if reason != nil && k.Stream("exit", uint64(m.id), m.life).IntN(2) == 0 {
		m.disk = m.disk.Crash(k.Stream("crash", uint64(m.id), m.life))
	} else {
		m.disk = m.disk.Kill()
	}
	if m.failures >= 8 && m.spoiled {
		if len(m.w.machines) > 1 {
			m.w.count("operator replaced a disk")
			m.w.lost = m.w.lost || m.w.alone(m)
			m.replaceDisk()
			return
		}
		m.dead = true
		k.Trace.Say(m.who, "cannot be started any more")
		return
	}
	m.reboot()
}

// end drops the process.
func (m *machine) end() {
	m.w.beforeEnd(m)
	m.node, m.work, m.peers = nil, runner{}, nil
	m.front, m.back, m.held = door{m: m}, door{m: m}, nil
	m.pausedUntil = 0
	m.life++
}

func (m *machine) reboot() {
	k := m.w.k
	rng := k.Stream("reboot", uint64(m.id), m.life)
	m.after(kernel.Skewed(rng, 5*time.Millisecond, 400*time.Millisecond), whatBoot, 0)
}

// powerOff takes the power away and gives it back after a while.
func (m *machine) powerOff() {
	if m.node == nil && !m.disk.Crashed() {
		return
	}
	m.w.count("power cut")
	m.w.k.Trace.Event(m.who, "power off", 0, 0, 0)
	m.end()
	m.w.net.PowerOff(m.host())
	m.disk = m.disk.Crash(m.w.k.Stream("crash", uint64(m.id), m.life))
	m.reboot()
}

// kill ends the process; the page cache stays.
func (m *machine) kill() {
	if m.node == nil {
		return
	}
	m.w.count("kill")
	m.w.k.Trace.Event(m.who, "kill", 0, 0, 0)
	m.end()
	m.w.net.Exit(m.host())
	m.disk = m.disk.Kill()
	m.reboot()
}

// replaceDisk ends the process, if there is one, and starts another with an empty
// disk.
func (m *machine) replaceDisk() {
	m.w.k.Trace.Event(m.who, "disk replaced", 0, 0, 0)
	m.end()
	m.w.net.Exit(m.host())
	m.disk = m.disk.Wipe()
	m.cleanly, m.closing, m.failures = false, false, 0
	m.wiped, m.spoiled = true, false
	m.w.check.Wiped(m.id)
	m.reboot()
}

// shutdown asks the process to stop.
func (m *machine) shutdown() {
	if m.node == nil || m.stopping || m.paused() {
		return
	}
	m.w.count("restart")
	m.stopping, m.served = true, m.ready()
	m.step(broker.Shutdown{})
}
