// Package host runs a node for real. It owns the event loop, the lanes of disk
// work, the clock and the data directory; sockets are broker/tcp's.
//
// One goroutine, the loop, steps the node. Everything else posts events into
// its inbox and never waits for it. What a run of Steps asked for is handed on
// at its end: jobs to their lanes, answers to the network.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/job"
)

// ErrCrashed says the node or a lane panicked: an assertion failed. Nothing it
// says can be trusted from then on, so the process must end.
var ErrCrashed = errors.New("node crashed")

// Node is what a host runs. Its methods are called by one goroutine.
type Node interface {
	Step(broker.Event)
	NextWake() clock.Instant
}

// Network takes a node's answers. Only the loop calls it, and it must not
// block.
type Network interface {
	broker.Network
	// Flush comes after the last Reply of a run of Steps: what was replied may
	// be sent.
	Flush()
}

// Peers carries a node's requests to other nodes, whose answers go where Open
// says; it comes before anything else.
type Peers interface {
	broker.Peers
	Open(post func(...broker.Event))
}

// Config is what a host needs.
type Config struct {
	// Run does jobs of one lane, in order, and returns a result for each. Jobs of
	// the lane Reads come one by one and on several goroutines, those of any
	// other lane on one.
	Run func([]job.Job) []job.Result
	// Begin starts the first jobs of the lane of logs as one commit group, and
	// returns the jobs behind, if such groups may overlap; else it returns nil
	// and all the jobs. It does not keep them. A nil Begin overlaps nothing.
	Begin func([]job.Job) (Flight, []job.Job)
	// Readers is how many goroutines look things up in logs.
	Readers int
	Network Network
	Peers   Peers // nil for a node that is alone
	Logger  *slog.Logger
	Rand    *rand.Rand // nil for one seeded by the operating system
}

// Flight is a commit group that was begun.
type Flight interface {
	Early() []job.Result  // what can be said at once
	Large() bool          // SyncSegments takes a while
	SyncSegments()        // may run beside other flights
	Finish() []job.Result // after the flights begun before
}

// Host is a running node.
type Host struct {
	cfg   Config
	inbox inbox
	lanes [job.Lanes]*lane
	clock wallClock
	jobs  [job.Lanes][]job.Job // submitted in this run of Steps

	stopped bool  // Env.Stop was called; the loop's
	reason  error // why; the loop's until done is closed

	crash struct {
		sync.Mutex
		err error
	}
	done chan struct{}
}

// Start makes a node with newNode, on the loop's goroutine, and runs it until
// it stops.
func Start(cfg Config, newNode func(broker.Env) Node) *Host {
	h := &Host{cfg: cfg, clock: newClock(), done: make(chan struct{})}
	h.inbox.wake = make(chan struct{}, 1)
	if h.cfg.Rand == nil {
		h.cfg.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if cfg.Peers != nil {
		cfg.Peers.Open(h.Post)
	}
	var lanes sync.WaitGroup
	for i := range h.lanes {
		h.lanes[i] = newLane()
		work, workers := h.runAll, 1
		switch job.Lane(i) {
		case job.Reads:
			work, workers = h.runOne, max(1, cfg.Readers)
		case job.Logs:
			work = h.runLogs
		}
		for range workers {
			lanes.Go(func() { work(h.lanes[i]) })
		}
	}
	go func() {
		defer close(h.done)
		h.loop(newNode)
		for _, l := range h.lanes {
			l.close()
		}
		lanes.Wait()
		if err := h.crashed(); err != nil {
			h.reason = err
		}
	}()
	return h
}

// Post gives the node an event. It never blocks. Events of one goroutine are
// stepped in the order of their Posts; what is posted after the node stopped is
// forgotten.
func (h *Host) Post(events ...broker.Event) { h.inbox.post(events) }

// Shutdown asks the node to stop in good order; Wait says when it has.
func (h *Host) Shutdown() { h.Post(broker.Shutdown{}) }

// Done is closed once the node has stopped and no job is running.
func (h *Host) Done() <-chan struct{} { return h.done }

// Wait returns once the node has stopped and no job is running. It returns nil
// after a shutdown that was asked for and otherwise why the node gave up; the
// process should then end with a non-zero status.
func (h *Host) Wait() error {
	<-h.done
	return h.reason
}

func (h *Host) loop(newNode func(broker.Env) Node) {
	defer h.recoverCrash("loop")
	defer h.inbox.close()
	h.clock.fix()
	node := newNode(h.env())
	var events []broker.Event
	for {
		h.handOn()
		if h.stopped || h.crashed() != nil {
			return
		}
		events = h.inbox.take(events, func() (clock.Instant, clock.Instant) {
			return h.clock.fix(), node.NextWake()
		})
		for i, ev := range events {
			if h.stopped {
				break
			}
			events[i] = nil
			h.clock.fix()
			node.Step(ev)
		}
		if !h.stopped && node.NextWake() <= h.clock.fix() {
			node.Step(broker.Wake{})
		}
	}
}

// handOn passes on what the Steps since the last call asked for. Jobs of a node
// that has stopped are not run.
func (h *Host) handOn() {
	for i := range h.jobs {
		if len(h.jobs[i]) > 0 && !h.stopped {
			h.lanes[i].add(h.jobs[i])
			clear(h.jobs[i])
			h.jobs[i] = h.jobs[i][:0]
		}
	}
	h.cfg.Network.Flush()
}

// recoverCrash turns a panic of the goroutine into the end of the node.
func (h *Host) recoverCrash(where string) {
	v := recover()
	if v == nil {
		return
	}
	err := fmt.Errorf("%w: %s: %v", ErrCrashed, where, v)
	h.cfg.Logger.Error("node crashed", slog.String("where", where), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
	h.crash.Lock()
	if h.crash.err == nil {
		h.crash.err = err
	}
	h.crash.Unlock()
	h.inbox.nudge()
}

func (h *Host) crashed() error {
	h.crash.Lock()
	defer h.crash.Unlock()
	return h.crash.err
}

func (h *Host) env() broker.Env {
	var peers broker.Peers
	if h.cfg.Peers != nil {
		peers = h.cfg.Peers // and not an interface that holds nil
	}
	return broker.Env{
		Clock:   &h.clock,
		Disk:    disk{h},
		Network: h.cfg.Network,
		Peers:   peers,
		Rand:    h.cfg.Rand,
		Log:     logger{h.cfg.Logger},
		Stop: func(reason error) {
			if !h.stopped {
				h.stopped, h.reason = true, reason
			}
		},
	}
}

// disk is the Env's. Only the loop calls it.
type disk struct{ h *Host }

func (d disk) Submit(j job.Job) { d.h.jobs[j.Lane()] = append(d.h.jobs[j.Lane()], j) }

type logger struct{ l *slog.Logger }

func (l logger) Log(level slog.Level, msg string, attrs ...slog.Attr) {
	l.l.LogAttrs(context.Background(), level, msg, attrs...)
}

// Nowhere is a Network for a node that nobody talks to.
type Nowhere struct{}

// Reply forgets the answer.
func (Nowhere) Reply(wire.Caller, wire.Response) {}

// Flush does nothing.
func (Nowhere) Flush() {}
