// Package sim runs a node, its disk, its network and its clients on one
// goroutine, from one seed: the same seed and configuration give the same run,
// to the bit. The node, storage and the wire codec are the ones that ship;
// what surrounds them is made here, and fails as FAULTS.md says.
package sim

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/partition"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/sim/check"
	"github.com/pawlbroker/pawl/sim/client"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/sim/simnet"
	"github.com/pawlbroker/pawl/sim/swarm"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/workloads"
	"github.com/pawlbroker/pawl/workloads/appendlog"
)

const (
	topicName = "log"
	clusterID = "c2ltdWxhdGVkLWNsdXN0ZQ" // 22 characters of URL-safe base64
	nodeID    = 1

	setupLimit = 60 * time.Second // simulated, for a topic to be created
	healLimit  = 60 * time.Second // simulated, for everything to end well once faults have
	// spoiledLimit is healLimit where bits have flipped or sectors broken. One
	// node cannot repair that, so an end is not owed, only nothing false.
	spoiledLimit = 3 * time.Second
	// settle is how long, in simulated time, anything sent can be on its way once
	// faults have ended.
	settle    = 3 * time.Second
	wallStart = 1_780_000_000_000

	// tableEvery is after how many steps of the node its producers' state is
	// looked at, beside at every end of a process. Everything else is at each.
	tableEvery = 64
)

// World is one run.
type World struct {
	k       *kernel.Kernel
	cfg     swarm.Config
	net     *simnet.Net
	machine *machine
	check   *check.Checker
	faults  faults

	load     workloads.Workload
	sessions []*client.Session
	actors   []*client.Actor
	pipes    []*client.Pipeline
	passer   *client.Passer // may be nil
	tail     *client.Tail

	counts  map[string]int64 // what happened, by name
	reached map[string]int64
	steps   int64
	created bool
	stuck   string // why the run did not end well
}

// Result is what came of a run.
type Result struct {
	Seed       uint64
	Config     swarm.Config
	Verdict    string // "ok", "violation" or "stuck"
	Violation  *check.Violation
	At         clock.Instant // when it was noticed
	Hash       uint64
	Simulated  time.Duration
	Events     int64
	OK         int
	Failed     int
	Unknown    int
	Faults     map[string]int64
	Reached    map[string]int64
	History    *history.History
	Recoveries int64
}

// Run makes a run. trace, if not nil, gets a line for everything that happens.
// Only one run may go on in a process at a time, because marks are counted in
// one place.
func Run(seed uint64, cfg swarm.Config, trace io.Writer) (Result, error) {
	w := &World{
		k: kernel.New(seed), cfg: cfg, check: check.New(),
		counts: map[string]int64{}, reached: map[string]int64{},
	}
	if trace != nil {
		w.k.Trace.Print(trace)
	}
	assert.CountReached(func(mark string) { w.reached[mark]++ })
	defer assert.CountReached(nil)
	w.net = simnet.New(w.k, simnet.Config{
		MinDelay: 20 * time.Microsecond, MaxDelay: time.Duration(cfg.NetMicros) * time.Microsecond, SplitPercent: int(cfg.SplitPercent),
	})
	w.machine = &machine{w: w, id: 0, who: "n1", disk: simdisk.New()}
	w.machine.boot()
	if w.setUp() {
		w.loaded()
		w.healed()
	}
	w.judge()
	result := w.result(seed)
	return result, w.k.Trace.Flush()
}

// ended says whether there is no point in going on.
func (w *World) ended() bool { return w.check.First() != nil }

// runUntil steps the world until done says so, and reports whether that came
// before the limit.
func (w *World) runUntil(limit time.Duration, done func() bool) bool {
	end := w.k.Now().Add(limit)
	for !w.ended() {
		if done() {
			return true
		}
		if w.k.Next() > end {
			return false
		}
		w.k.Step()
	}
	return false
}

// setUp waits for the node and creates the topic.
func (w *World) setUp() bool {
	for i := range w.cfg.Sessions {
		w.sessions = append(w.sessions, client.NewSession(w.k, w.net, int(i), 0,
			time.Duration(w.cfg.PatienceMillis)*time.Millisecond, w.breach))
	}
	client.CreateTopic(w.k, w.sessions[0], topicName, int32(w.partitions()), map[string]string{
		"segment.bytes": fmt.Sprint(w.cfg.SegmentBytes),
	}, func() { w.created = true })
	if !w.runUntil(setupLimit, func() bool { return w.created }) && !w.ended() {
		w.stuck = "the topic was not created in time"
		return false
	}
	return !w.ended()
}

func (w *World) breach(what string) { w.check.Violate("the protocol is kept", "%s", what) }

// loaded runs clients and faults.
func (w *World) loaded() {
	cfg := appendlog.DefaultConfig()
	for i := range w.cfg.Partitions {
		cfg.Partitions = append(cfg.Partitions, history.Partition{Topic: topicName, Index: int32(i)})
	}
	cfg.Producers, cfg.IdempotentProducers, cfg.Readers = int(w.cfg.Producers), int(w.cfg.Idempotent), int(w.cfg.Readers)
	cfg.MaxBatch, cfg.MaxSize = int(w.cfg.MaxBatch), int(w.cfg.MaxRecord)
	cfg.ReadMaxBytes, cfg.Acks = int32(w.cfg.ReadBytes), workloads.Acks(w.cfg.Acks)
	load, err := appendlog.New(cfg)
	if err != nil {
		panic(err) // the configuration was validated
	}
	w.load = load
	clients := client.Config{
		Think: time.Duration(w.cfg.ThinkMicros) * time.Microsecond, MaxWait: 500 * time.Millisecond,
		RestartPercent: int(w.cfg.RestartPercent), CompressedIn10: int(w.cfg.Compressed), Wall: w.wall,
	}
	for i := range load.Clients() {
		w.actors = append(w.actors, client.NewActor(w.k, w.session(i), history.Client(i), load, w.check, clients))
	}
	for i := range int(w.cfg.Pipelines) {
		id := load.Clients() + i
		w.pipes = append(w.pipes, client.NewPipeline(w.k, w.session(id), history.Client(id), w.pipePartition(), w.check, clients))
	}
	w.tail = client.NewTail(w.k, w.session(load.Clients()+len(w.pipes)), topicName, w.partitions(), w.check, clients)
	if id := load.Clients() + len(w.pipes) + 1; w.cfg.Passers > 0 {
		w.passer = client.NewPasser(w.k, w.session(id), history.Client(id), w.cfg.SegmentBytes, w.check, clients,
			func(what string) { w.check.Violate("a new topic has nothing of an old one", "%s", what) })
	}
	w.faults.begin(w)
	w.runUntil(time.Duration(w.cfg.DurationMillis)*time.Millisecond, func() bool { return false })
	w.faults.end()
}

// partitions is how many the topic has: those of the workload, and one for the
// pipelines.
func (w *World) partitions() int { return int(w.cfg.Partitions) + 1 }

func (w *World) pipePartition() history.Partition {
	return history.Partition{Topic: topicName, Index: int32(w.cfg.Partitions)}
}

// session is the one that a client has, perhaps with others.
func (w *World) session(i int) *client.Session { return w.sessions[i%len(w.sessions)] }

// healed waits until every operation has ended and everything is read, without
// faults; then stops the node in good order and starts it once more.
func (w *World) healed() {
	if w.ended() {
		return
	}
	m := w.machine
	limit := healLimit
	if m.spoiled {
		limit = spoiledLimit // what cannot be read will not be, however long one waits
	}
	w.rest(true)
	if m.node != nil && !m.spoiled && w.anyDamage() {
		// A read failed, and the log was not served from then on. An operator
		// starts the node again.
		w.count("started again after a read error")
		m.kill()
	}
	done := w.runUntil(limit, func() bool { return w.idle() || m.dead })
	if done && !m.dead {
		// Requests that nobody waits for any more are still on their way.
		w.runUntil(settle, func() bool { return false })
		w.load.Finish()
		w.rest(false)
		w.tail.Steady()
		w.tail.Forget()
		done = w.runUntil(limit, func() bool {
			return w.load.Finished() && w.idle() && w.tail.Done(int(w.cfg.Partitions)) || m.dead
		})
	}
	if w.ended() {
		return
	}
	for _, a := range w.actors {
		a.Retire()
	}
	w.tail.Retire()
	if !done || m.dead {
		if !m.spoiled {
			w.stuck = w.whatIsStuck()
		}
		for _, a := range w.actors {
			a.GiveUp()
		}
		return
	}
	m.shutdown()
	stopped := w.runUntil(healLimit, func() bool { return !m.stopping || m.node == nil })
	if w.ended() {
		return
	}
	if !stopped {
		w.stuck = "the node did not stop when asked"
		return
	}
	if !w.runUntil(healLimit, func() bool { return m.dead || m.node != nil && m.ready() }) && !w.ended() && !m.dead {
		w.stuck = "the node did not start again after it had stopped"
	}
	if m.node != nil {
		w.check.Table(m.node.Table())
	}
}

func (w *World) anyDamage() bool {
	return slices.ContainsFunc(w.machine.node.Table().Status(), func(s partition.Status) bool { return s.Damage != nil })
}

func (w *World) rest(resting bool) {
	for _, a := range w.actors {
		a.Rest(resting)
	}
	for _, p := range w.pipes {
		p.Retire() // for good: only the workload has something left to do
	}
	if w.passer != nil {
		w.passer.Retire()
	}
}

func (w *World) idle() bool {
	for _, a := range w.actors {
		if _, busy := a.Busy(); busy {
			return false
		}
	}
	for _, p := range w.pipes {
		if !p.Idle() {
			return false
		}
	}
	return w.passer == nil || w.passer.Idle()
}

func (w *World) whatIsStuck() string {
	state := "is not running"
	if w.machine.node != nil {
		state, _ = w.machine.node.Ready()
	}
	for i, a := range w.actors {
		if op, busy := a.Busy(); busy {
			return fmt.Sprintf("the node is %s; client %d waits for %s", state, i, op)
		}
	}
	for i, p := range w.pipes {
		if !p.Idle() {
			return fmt.Sprintf("the node is %s; pipeline %d has batches that are not acknowledged", state, i)
		}
	}
	if w.passer != nil && !w.passer.Idle() {
		return "the node is " + state + "; a topic that is to be deleted is not"
	}
	return "the node is " + state + "; not everything could be read"
}

func (m *machine) ready() bool {
	_, ok := m.node.Ready()
	return ok
}

// afterStep looks at a node.
func (w *World) afterStep(m *machine) {
	w.steps++
	switch {
	case m.node == nil:
	case w.steps%tableEvery == 0:
		w.check.Table(m.node.Table())
	default:
		w.check.Step(m.node.Table())
	}
}

// beforeEnd looks at a node that is about to be no more.
func (w *World) beforeEnd(m *machine) {
	if m.node != nil {
		w.check.Table(m.node.Table())
	}
}

func (w *World) noteRecovery(r *storage.Recovered) {
	w.counts["recovery"]++
	if r.Groups > 0 {
		w.counts["recovery replayed the journal"]++
	}
}

func (w *World) count(what string) { w.counts[what]++ }

// wall is the true time of day.
func (w *World) wall() record.Timestamp {
	return wallStart + record.Timestamp(w.k.Now()/clock.Instant(time.Millisecond))
}

func (w *World) nodeConfig() broker.Config {
	c := broker.DefaultConfig(nodeID, clusterID)
	c.CheckpointBytes, c.SnapshotEntries = w.cfg.CheckpointBytes, uint64(w.cfg.SnapshotEntries)
	return c
}

func (w *World) storageConfig() storage.Config {
	c := storage.DefaultConfig()
	c.LargeAppend, c.JournalFileBytes = w.cfg.LargeAppend, w.cfg.JournalFileBytes
	c.JournalGrowBytes, c.IndexIntervalBytes = w.cfg.JournalGrowBytes, w.cfg.IndexIntervalBytes
	return c
}
