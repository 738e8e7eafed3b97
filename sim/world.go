// Package sim runs nodes, their disks, their network and their clients on one
// goroutine, from one seed: the same seed and configuration give the same run,
// to the bit. The nodes, storage and the wire codec are the ones that ship;
// what surrounds them is made here, and fails as FAULTS.md says.
package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
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
	"github.com/pawlbroker/pawl/workloads/admin"
	"github.com/pawlbroker/pawl/workloads/appendlog"
)

const (
	topicName = "log"
	clusterID = "c2ltdWxhdGVkLWNsdXN0ZQ" // 22 characters of URL-safe base64

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
	k        *kernel.Kernel
	cfg      swarm.Config
	net      *simnet.Net
	machines []*machine
	mind     func(*machine, broker.Env) mind
	check    *check.Checker
	faults   faults

	load     workloads.Workload
	admin    workloads.Workload // may be nil
	clusters []*client.Cluster  // as clients see it; several may share one
	actors   []*client.Actor
	pipes    []*client.Pipeline
	passer   *client.Passer   // may be nil
	operator *client.Operator // may be nil
	gambler  *client.Gambler  // may be nil
	tail     *client.Tail

	counts  map[string]int64 // what happened, by name
	reached map[string]int64
	steps   int64
	created int    // topics
	lost    bool   // a disk was replaced that alone had everything of a partition
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

// Run makes a run. trace, if not nil, gets a line for everything that happens, or
// for what happens to those in only: n1 is a node, c0 a client; and there are
// net, image (the metadata), fault and world.
// Only one run may go on in a process at a time, because marks are counted in
// one place.
func Run(seed uint64, cfg swarm.Config, trace io.Writer, only ...string) (Result, error) {
	w := newWorld(seed, cfg)
	if trace != nil {
		w.k.Trace.Print(trace)
		w.k.Trace.Only(only)
		w.check.Say = func(what string) { w.k.Trace.Say("image", what) }
	}
	assert.CountReached(func(mark string) { w.reached[mark]++ })
	defer assert.CountReached(nil)
	for _, m := range w.machines {
		m.boot()
	}
	if w.setUp() {
		w.loaded()
		w.healed()
	}
	w.judge()
	result := w.result(seed)
	return result, w.k.Trace.Flush()
}

// newWorld returns a world whose machines are not started.
func newWorld(seed uint64, cfg swarm.Config) *World {
	w := &World{
		k: kernel.New(seed), cfg: cfg, check: check.New(int(cfg.Nodes)),
		counts: map[string]int64{}, reached: map[string]int64{},
	}
	w.mind = func(m *machine, env broker.Env) mind { return broker.New(w.nodeConfig(m), env) }
	w.net = simnet.New(w.k, simnet.Config{
		MinDelay: 20 * time.Microsecond, MaxDelay: time.Duration(cfg.NetMicros) * time.Microsecond, SplitPercent: int(cfg.SplitPercent),
	})
	for i := range int(cfg.Nodes) {
		m := &machine{w: w, id: i, disk: simdisk.New()}
		m.who = who(m.nodeID())
		w.machines = append(w.machines, m)
	}
	return w
}

// clientHost is where a client runs.
func clientHost(i int) simnet.Host { return simnet.Host(swarm.MostNodes + i) }

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

// runWhile is runUntil, with a limit that begins anew whenever there is progress.
func (w *World) runWhile(limit time.Duration, progress func() int64, done func() bool) bool {
	for {
		was := progress()
		if w.runUntil(limit, done) {
			return true
		}
		if w.ended() || progress() == was {
			return false
		}
	}
}

// setUp waits for the nodes and creates the topic.
func (w *World) setUp() bool {
	var hosts []simnet.Host
	for _, m := range w.machines {
		hosts = append(hosts, m.host())
	}
	for i := range int(w.cfg.Sessions) {
		w.clusters = append(w.clusters, client.NewCluster(w.k, w.net, i, clientHost(i), hosts,
			time.Duration(w.cfg.PatienceMillis)*time.Millisecond, w.breach))
	}
	topic := w.topic(topicName, w.partitions())
	if len(w.machines) > 1 {
		if !w.runUntil(setupLimit, w.joined) && !w.ended() {
			w.stuck = "the cluster was not formed in time"
			return false
		}
	}
	topics := []client.NewTopic{topic}
	if w.lax() {
		topics = append(topics, w.laxTopic())
	}
	for _, t := range topics {
		client.CreateTopic(w.k, w.clusters[0], t, func() { w.created++ })
	}
	if !w.runUntil(setupLimit, func() bool { return w.created == len(topics) && w.knows(topics) }) && !w.ended() {
		w.stuck = "the topic was not created in time"
		return false
	}
	return !w.ended()
}

// topic is one as the configuration wants it.
func (w *World) topic(name string, partitions int) client.NewTopic {
	t := client.NewTopic{Name: name, Partitions: int32(partitions), Replication: int16(w.cfg.Replication),
		Configs: map[string]string{"segment.bytes": fmt.Sprint(w.cfg.SegmentBytes)}}
	if len(w.machines) > 1 {
		t.Configs["min.insync.replicas"] = fmt.Sprint(w.cfg.MinISR)
	}
	return t
}

// joined says whether every node serves, and the cluster takes all of them for
// good.
func (w *World) joined() bool {
	for _, m := range w.machines {
		if m.node == nil || !m.ready() {
			return false
		}
		if b, ok := w.check.Newest().Broker(m.nodeID()); !ok || b.Fenced {
			return false
		}
	}
	return true
}

// knows says whether every node knows the topics.
func (w *World) knows(topics []client.NewTopic) bool {
	for _, m := range w.machines {
		if m.node == nil {
			return false
		}
		for _, t := range topics {
			if _, ok := m.node.Image().Topic(t.Name); !ok {
				return false
			}
		}
	}
	return true
}

func (w *World) breach(what string) { w.check.Violate("the protocol is kept", "%s", what) }

// loaded runs clients and faults.
func (w *World) loaded() {
	cfg := appendlog.DefaultConfig()
	for i := range w.cfg.Partitions {
		cfg.Partitions = append(cfg.Partitions, history.Partition{Topic: topicName, Index: int32(i)})
	}
	cfg.Producers, cfg.IdempotentProducers, cfg.Readers = int(w.cfg.Producers), int(w.cfg.Idempotent), int(w.cfg.Readers)
	cfg.Deleters = int(w.cfg.Deleters)
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
		Topic: w.topic("", 1),
	}
	for i := range load.Clients() {
		w.actors = append(w.actors, client.NewActor(w.k, w.cluster(i), i, history.Client(i), load, w.check, clients))
	}
	for i := range int(w.cfg.Pipelines) {
		id := load.Clients() + i
		w.pipes = append(w.pipes, client.NewPipeline(w.k, w.cluster(id), history.Client(id), w.pipePartition(), w.check, clients))
	}
	w.tail = client.NewTail(w.k, w.cluster(load.Clients()+len(w.pipes)), topicName, w.partitions(), w.check, clients)
	if id := load.Clients() + len(w.pipes) + 1; w.cfg.Passers > 0 {
		w.passer = client.NewPasser(w.k, w.cluster(id), history.Client(id), w.topic("", 1), w.check, clients,
			func(what string) { w.check.Violate("a new topic has nothing of an old one", "%s", what) })
	}
	if w.cfg.Admins > 0 {
		w.administer(load.Clients()+len(w.pipes)+3, clients)
	}
	w.gamble(load.Clients()+len(w.pipes)+3+int(w.cfg.Admins), clients)
	if id := load.Clients() + len(w.pipes) + 2; w.cfg.Operators > 0 {
		w.operator = client.NewOperator(w.k, w.cluster(id), history.Client(id), w.operatorConfig())
	}
	w.faults.begin(w)
	w.runUntil(time.Duration(w.cfg.DurationMillis)*time.Millisecond, func() bool { return false })
	w.faults.end()
}

// administer adds clients that create, delete and configure topics, numbered from
// first.
func (w *World) administer(first int, clients client.Config) {
	cfg := admin.DefaultConfig("admin-0", "admin-1")
	cfg.Clients, cfg.OperationsPerClient = int(w.cfg.Admins), adminOperations
	load, err := admin.New(cfg)
	if err != nil {
		panic(err) // the configuration was validated
	}
	w.admin = load
	for i := range load.Clients() {
		w.actors = append(w.actors, client.NewActor(w.k, w.cluster(first+i), first+i, history.Client(i), load, w.check, clients))
	}
}

// adminOperations is how much an admin does at most: what it does is judged by
// search.
const adminOperations = 100

// operatorConfig is what an operator may do. Voters are left alone where one disk
// too many could be gone: each of two that vote is needed.
func (w *World) operatorConfig() client.OperatorConfig {
	c := client.OperatorConfig{
		Every: time.Duration(w.cfg.OperateMillis) * time.Millisecond, Topic: topicName, Partitions: w.partitions(), Replication: int(w.cfg.Replication),
	}
	if w.cfg.Voters >= 3 || !w.cfg.Destroys() {
		c.Voters = int(w.cfg.Voters)
	}
	return c
}

// partitions is how many the topic has: those of the workload, and one for the
// pipelines.
func (w *World) partitions() int { return int(w.cfg.Partitions) + 1 }

func (w *World) pipePartition() history.Partition {
	return history.Partition{Topic: topicName, Index: int32(w.cfg.Partitions)}
}

// cluster is the one that a client has, perhaps with others.
func (w *World) cluster(i int) *client.Cluster { return w.clusters[i%len(w.clusters)] }

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
	if w.operator != nil {
		w.operator.Retire()
	}
	if w.gambler != nil {
		w.gambler.Retire()
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
	return (w.passer == nil || w.passer.Idle()) && (w.operator == nil || w.operator.Idle()) && (w.gambler == nil || w.gambler.Idle())
}

func (m *machine) ready() bool {
	_, ok := m.node.Ready()
	return ok
}

// afterStep looks at a node; at its partitions only if the event may have been
// about them.
func (w *World) afterStep(m *machine, quiet bool) {
	w.steps++
	if m.node == nil {
		return
	}
	if m.ready() {
		w.check.Serves(m.id)
	}
	moved := w.check.Image(m.id, m.node.Image())
	if q := m.node.Quorum(); q != nil && q.Leading() {
		w.check.Leading(m.id, q.Leader().Term)
	}
	switch {
	case w.steps%tableEvery == 0:
		w.check.Table(m.id, m.node.Table())
	case moved || !quiet:
		w.check.Step(m.id, m.node.Table())
	}
}

// beforeEnd looks at a node that is about to be no more.
func (w *World) beforeEnd(m *machine) {
	if m.node != nil {
		w.check.Table(m.id, m.node.Table())
	}
	w.check.Ended(m.id)
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

func (w *World) nodeConfig(m *machine) broker.Config {
	c := broker.DefaultConfig(m.nodeID(), clusterID)
	if len(w.machines) > 1 {
		c.Host, c.Port = m.who, clientPort
		c.PeerHost, c.PeerPort = m.who, peerPort
		c.Rack = client.Rack(m.id)
		set := []metadata.Config{
			{Name: "broker.session.timeout.ms", Value: fmt.Sprint(w.cfg.SessionMillis)},
			{Name: "leader.imbalance.check.interval.seconds", Value: fmt.Sprint(w.cfg.RebalanceSeconds)},
		}
		var err error
		if c.Broker, err = metadata.NewBrokerConfig(set); err != nil {
			panic(err) // the configuration was validated
		}
		for _, v := range w.machines[:w.cfg.Voters] {
			c.Controllers = append(c.Controllers, wire.Peer{ID: v.nodeID(), Host: v.who, Port: peerPort})
		}
	}
	c.Partition.MaxLag = time.Duration(w.cfg.LagMillis) * time.Millisecond
	c.CheckpointBytes, c.SnapshotEntries = w.cfg.CheckpointBytes, uint64(w.cfg.SnapshotEntries)
	return c
}

func (w *World) storageConfig() storage.Config {
	c := storage.DefaultConfig()
	c.LargeAppend, c.JournalFileBytes = w.cfg.LargeAppend, w.cfg.JournalFileBytes
	c.JournalGrowBytes, c.IndexIntervalBytes = w.cfg.JournalGrowBytes, w.cfg.IndexIntervalBytes
	return c
}
