// Package harness runs nodes of Maelstrom's kafka workload as Maelstrom does,
// without a JVM: it starts them, carries their messages, makes the network and
// the nodes fail, drives the workload, and judges what its clients saw.
//
// Faults between nodes: latency, partitions, also such that a node is heard and
// hears nothing, or the other way round. Faults of nodes: kill -9 and a restart with their
// data kept, of one or of all at once; SIGSTOP and SIGCONT; death. Not modelled:
// power cuts (a killed process keeps its page cache), lost or duplicated messages
// outside partitions, Maelstrom's services (lin-kv and its like), clocks.
//
// Draws come from the seed, but the nodes run in real time: a seed gives the
// same faults and the same load, not the same run.
package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlbroker/pawl/maelstrom/checker"
	"github.com/pawlbroker/pawl/maelstrom/protocol"
)

// Fault is a kind of fault the nemesis may cause.
type Fault string

// The kinds of fault.
const (
	Partition Fault = "partition"
	OneWay    Fault = "one-way"  // a partition that lets through what goes the other way; Maelstrom has none
	Kill      Fault = "kill"     // of one node
	KillAll   Fault = "kill-all" // at once
	Pause     Fault = "pause"    // of one node
)

// Config is what to run. The names are Maelstrom's.
type Config struct {
	Seed         uint64
	NodeCount    int
	Concurrency  int           // clients; client i talks to node i mod NodeCount
	Rate         int           // operations a second, over all clients
	TimeLimit    time.Duration // of the main phase
	KeyCount     int           // live keys
	MaxWrites    int           // per key
	AssignEvery  int           // one operation in so many is an assign
	CrashEvery   time.Duration // mean time between crashes of one client
	RPCTimeout   time.Duration
	Latency      time.Duration // mean, between nodes
	Faults       []Fault       // none: no nemesis
	FaultEvery   time.Duration // mean length of a fault, and of the peace after it
	Deaths       int           // how many nodes, from the first on, are killed for good, soon after the middle of the main phase
	Settle       time.Duration // after the last fault is healed
	FinalTime    time.Duration // at most, for the final polls of a client
	Availability float64       // least fraction of operations that must be ok
}

// DefaultConfig has Maelstrom's defaults, with two clients a node.
func DefaultConfig() Config {
	return Config{
		Seed: 1, NodeCount: 1, Concurrency: 2, Rate: 100, TimeLimit: 20 * time.Second,
		KeyCount: 10, MaxWrites: 16, AssignEvery: 64, CrashEvery: 30 * time.Second,
		RPCTimeout: 5 * time.Second, FaultEvery: 5 * time.Second,
		Settle: 10 * time.Second, FinalTime: 10 * time.Second,
	}
}

// Result is what came out of a run.
type Result struct {
	Config    Config
	History   checker.History
	Verdict   checker.Verdict
	Muted     []string // nodes that were not listened to further, and why
	Malformed []string // answers that broke the schema
	Faults    map[Fault]int
	Messages  int // carried
	Between   int // of them, from node to node
}

// Valid reports whether the run is good: Maelstrom's verdict, ours, and nothing
// in what Maelstrom only logs.
func (r Result) Valid() bool {
	return r.Verdict.Valid(r.Config.Availability) && len(r.Muted) == 0 && len(r.Malformed) == 0
}

func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d operations, %d commits, %d lists, %d messages (%d between nodes), faults %v\n%s",
		r.Config.Seed, len(r.History.Ops), len(r.History.Commits), len(r.History.Lists), r.Messages, r.Between, r.Faults, r.Verdict)
	for _, m := range r.Muted {
		fmt.Fprintf(&b, "\nmuted: %s", m)
	}
	if len(r.Malformed) > 0 {
		fmt.Fprintf(&b, "\nmalformed answers: %d, first %s", len(r.Malformed), r.Malformed[0])
	}
	return b.String()
}

// run is a run under way.
type run struct {
	cfg          Config
	net          *network
	keys         *keys
	began        time.Time
	stop         chan struct{} // closed when the run is broken
	clientNumber atomic.Int64
	mu           sync.Mutex
	history      checker.History
	malformed    []string
	faults       map[Fault]int
	dead         int // so many nodes, from the first on
}

func (r *run) now() time.Duration { return time.Since(r.began) }

// Run runs nodes under cfg. It returns an error, and no verdict, if a node does
// not start or ends by itself.
func Run(cfg Config, launch Launcher) (Result, error) {
	var names []string
	for i := range cfg.NodeCount {
		names = append(names, "n"+strconv.Itoa(i))
	}
	r := &run{
		cfg: cfg, began: time.Now(), stop: make(chan struct{}), faults: map[Fault]int{},
		net:  newNetwork(launch, names, cfg.Latency, cfg.Seed),
		keys: newKeys(cfg.KeyCount, cfg.MaxWrites, cfg.Seed),
	}
	defer r.net.close()
	if err := r.bootAll(); err != nil {
		return Result{}, err
	}
	r.began = time.Now()
	var clients, nemesis sync.WaitGroup
	peace := make(chan struct{}) // closed when the main phase ends
	nemesis.Go(func() { r.nemesis(peace) })
	clients.Go(r.watch)
	for i := range cfg.Concurrency {
		clients.Go(func() { r.work(i) })
	}
	clients.Wait()
	close(peace)
	nemesis.Wait()
	if err := r.net.broken(); err != nil {
		return Result{}, err
	}
	time.Sleep(cfg.Settle)
	for i := range cfg.Concurrency {
		clients.Go(func() { r.finish(i) })
	}
	clients.Wait()
	r.audit()
	if err := r.net.broken(); err != nil {
		return Result{}, err
	}
	r.net.mu.Lock()
	defer r.net.mu.Unlock()
	return Result{
		Config: cfg, History: r.history, Verdict: checker.Check(r.history),
		Muted: r.net.muted, Malformed: r.malformed, Faults: r.faults,
		Messages: r.net.carried, Between: r.net.between,
	}, nil
}

// bootTime is how long a node has to answer init.
const bootTime = 10 * time.Second

// bootAll boots all nodes at once.
func (r *run) bootAll() error {
	errs := make([]error, len(r.net.names))
	var boots sync.WaitGroup
	for i, name := range r.net.names {
		boots.Go(func() { errs[i] = r.boot(name) })
	}
	boots.Wait()
	return errors.Join(errs...)
}

// boot starts a node and waits until it knows who it is.
func (r *run) boot(name string) error {
	if err := r.net.start(name); err != nil {
		return err
	}
	c := r.newClient(-1, name)
	defer c.close()
	request := protocol.InitRequest{Header: protocol.Header{Type: protocol.Init}, NodeID: name, NodeIDs: r.net.names}
	var answer protocol.Header
	if err := c.call(&request, &request.Header, protocol.InitOK, &answer, bootTime); err != nil {
		return errors.Join(fmt.Errorf("init of %s: %w", name, err), r.net.broken())
	}
	return nil
}

// watch ends the run early if it is broken.
func (r *run) watch() {
	for r.now() < r.cfg.TimeLimit {
		time.Sleep(100 * time.Millisecond)
		if r.net.broken() != nil {
			close(r.stop)
			return
		}
	}
}

func (r *run) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// work is one worker's main phase.
func (r *run) work(i int) {
	rnd := rand.New(rand.NewPCG(r.cfg.Seed, 100+uint64(i)))
	process := i
	c := r.newClient(process, r.home(i))
	defer func() { c.close() }()
	next := func() {
		c.close()
		process += r.cfg.Concurrency
		c = r.newClient(process, r.home(i))
	}
	crashAt := r.drawn(rnd, r.cfg.CrashEvery)
	for {
		time.Sleep(time.Duration(rnd.Int64N(2*int64(time.Second)*int64(r.cfg.Concurrency)/int64(r.cfg.Rate) + 1)))
		if r.now() >= r.cfg.TimeLimit || r.stopped() {
			return
		}
		if c.node != r.home(i) {
			next()
		}
		var outcome checker.Outcome
		switch {
		case r.now() > crashAt:
			c.crash()
			next()
			crashAt = r.now() + r.drawn(rnd, r.cfg.CrashEvery)
			continue
		case rnd.IntN(r.cfg.AssignEvery) == 0 || len(c.next) == 0 && rnd.IntN(4) == 0:
			outcome = c.assign(r.keys.assignment())
		case rnd.IntN(2) == 0:
			outcome = c.send()
		default:
			outcome = c.poll()
		}
		if outcome == checker.Info {
			next()
		}
	}
}

// living are the nodes that have not died.
func (r *run) living() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.net.names[r.dead:]
}

// home is the node that worker i talks to: its own, or if that has died another.
func (r *run) home(i int) string {
	living, at := r.living(), i%len(r.net.names)
	if dead := len(r.net.names) - len(living); at >= dead {
		return r.net.names[at]
	}
	return living[i%len(living)]
}

// drawn is a time from nothing to twice the mean.
func (r *run) drawn(rnd *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(rnd.Int64N(2*int64(mean) + 1))
}

// pollEvery is the pace of the final polls.
const pollEvery = 200 * time.Millisecond

// finish is one worker's end: a fresh client takes every key from the
// beginning and polls until it has passed all that is known.
func (r *run) finish(i int) {
	process := 1_000_000 + i
	end := r.now() + r.cfg.FinalTime
	for r.now() < end && !r.stopped() {
		c := r.newClient(process, r.home(i))
		process += r.cfg.Concurrency
		c.rewind(r.keys.all())
		for r.now() < end && !r.stopped() {
			if c.poll() == checker.Info {
				break
			}
			if r.keys.reached(c.next) {
				c.close()
				return
			}
			time.Sleep(pollEvery)
		}
		c.close()
	}
}

// audit lists every key's committed offset at the end.
func (r *run) audit() {
	for _, node := range r.living() {
		c := r.newClient(-1, node)
		for attempt := 0; attempt < 3 && c.list(r.keys.all()) != nil; attempt++ {
		}
		c.close()
	}
}
