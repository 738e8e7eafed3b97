package host

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a Node that does what the test says.
type node struct {
	env  broker.Env
	wake clock.Instant
	step func(*node, broker.Event)
}

func (n *node) Step(ev broker.Event)    { n.step(n, ev) }
func (n *node) NextWake() clock.Instant { return n.wake }

// run does no disk work.
func run(jobs []job.Job) []job.Result {
	results := make([]job.Result, len(jobs))
	for i, j := range jobs {
		results[i] = job.Result{Job: j}
	}
	return results
}

func config(t *testing.T) Config {
	return Config{Run: run, Readers: 2, Network: Nowhere{}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

func start(cfg Config, step func(*node, broker.Event)) *Host {
	return Start(cfg, func(env broker.Env) Node { return &node{env: env, wake: clock.Never, step: step} })
}

func TestEventsOfOneGoroutineStayInOrder(t *testing.T) {
	const posters, each = 4, 500
	next := map[uint64]uint64{}
	seen := 0
	h := start(config(t), func(n *node, ev broker.Event) {
		c := ev.(broker.Request).Caller
		if c.Seq != next[c.Conn] {
			t.Errorf("conn %d: seq %d, want %d", c.Conn, c.Seq, next[c.Conn])
		}
		next[c.Conn]++
		if seen++; seen == posters*each {
			n.env.Stop(nil)
		}
	})
	for conn := range uint64(posters) {
		go func() {
			for seq := range uint64(each) {
				h.Post(broker.Request{Caller: wire.Caller{Conn: conn, Seq: seq}})
			}
		}()
	}
	if err := h.Wait(); err != nil {
		t.Error(err)
	}
	h.Post(broker.Wake{}) // forgotten
}

func TestResultsOfALaneComeBackInOrderAndAJobsGroupWaitsForTheOneBefore(t *testing.T) {
	const n = 200
	cfg := config(t)
	groups, running := 0, false
	cfg.Run = func(jobs []job.Job) []job.Result {
		if jobs[0].Lane() == job.Logs {
			if running {
				t.Error("two groups of one lane at once")
			}
			running = true
			groups++
			defer func() { running = false }()
		}
		return run(jobs)
	}
	logs, reads := 0, 0
	h := start(cfg, func(no *node, ev broker.Event) {
		switch ev := ev.(type) {
		case broker.Wake:
			for i := range n {
				no.env.Disk.Submit(job.Truncate{End: record.Offset(i)})
				no.env.Disk.Submit(job.Read{Ticket: job.Ticket(i)})
			}
		case broker.JobDone:
			switch j := ev.Job.(type) {
			case job.Truncate:
				if j.End != record.Offset(logs) {
					t.Errorf("result %d is of %v", logs, j)
				}
				logs++
			case job.Read:
				reads++
			}
			if logs == n && reads == n {
				no.env.Stop(nil)
			}
		}
	})
	h.Post(broker.Wake{})
	if err := h.Wait(); err != nil {
		t.Fatal(err)
	}
	if groups != 1 {
		t.Errorf("%d groups of jobs that were submitted in one Step", groups)
	}
}

func TestWakeComesWhenItIsDueAndTheClockStandsStillInAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		wakes := 0
		h := Start(config(t), func(env broker.Env) Node {
			return &node{env: env, wake: clock.Instant(3 * time.Second), step: func(n *node, ev broker.Event) {
				if _, ok := ev.(broker.Wake); !ok {
					return
				}
				if now := n.env.Clock.Now(); now != n.wake || time.Since(began) != time.Duration(now) {
					t.Errorf("woken at %d, due %d", now, n.wake)
				}
				if wall := time.UnixMilli(int64(n.env.Clock.Wall())); !wall.Equal(time.Now()) {
					t.Errorf("wall %v want %v", wall, time.Now())
				}
				n.wake = n.wake.Add(2 * time.Second)
				if wakes++; wakes == 3 {
					n.env.Stop(nil)
				}
			}}
		})
		time.Sleep(4 * time.Second)
		h.Post(broker.ConnClosed{}) // an event in between changes nothing
		if err := h.Wait(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("three wakes took %v", took)
		}
	})
}

func TestFailedAssertionEndsTheNodeWithAnError(t *testing.T) {
	for name, where := range map[string]struct { // any order
		step func(*node, broker.Event)
		run  func([]job.Job) []job.Result
	}{
		"step": {step: func(*node, broker.Event) { assert.That(false, "the sky is blue") }, run: run},
		"lane": {
			step: func(n *node, _ broker.Event) { n.env.Disk.Submit(job.FinishCheckpoint{}) },
			run:  func([]job.Job) []job.Result { panic(&assert.Failure{What: "the sky is blue"}) },
		},
		"reads": {
			step: func(n *node, _ broker.Event) { n.env.Disk.Submit(job.Read{}) },
			run:  func([]job.Job) []job.Result { panic("the sky is blue") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			cfg := config(t)
			cfg.Run = where.run
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			h := start(cfg, where.step)
			h.Post(broker.ConnClosed{})
			if err := h.Wait(); !errors.Is(err, ErrCrashed) || !strings.Contains(err.Error(), "the sky is blue") {
				t.Errorf("err %v", err)
			}
			if !strings.Contains(log.String(), "host_test.go") {
				t.Errorf("the log lacks the stack: %s", log.String())
			}
		})
	}
}

func TestNudgeBeforeTheLoopFallsAsleepIsNotLost(t *testing.T) {
	q := inbox{wake: make(chan struct{}, 1)}
	never := func() (now, wake clock.Instant) { return 0, clock.Never }
	q.nudge() // a lane crashed just after the loop had looked
	if events := q.take(nil, never); len(events) != 0 {
		t.Errorf("%v", events)
	}
	falling := func() (now, wake clock.Instant) { q.nudge(); return 0, clock.Never }
	if events := q.take(nil, falling); len(events) != 0 {
		t.Errorf("%v", events)
	}
}

func TestShutdownWaitsForTheNode(t *testing.T) {
	var order []string
	var mu sync.Mutex
	note := func(s string) { mu.Lock(); order = append(order, s); mu.Unlock() }
	cfg := config(t)
	cfg.Run = func(jobs []job.Job) []job.Result { note("closed"); return run(jobs) }
	h := start(cfg, func(n *node, ev broker.Event) {
		switch ev.(type) {
		case broker.Shutdown:
			note("asked")
			n.env.Disk.Submit(job.Close{})
		case broker.JobDone:
			note("done")
			n.env.Stop(nil)
			n.env.Stop(errors.New("too late to matter"))
		}
	})
	h.Shutdown()
	if err := h.Wait(); err != nil {
		t.Error(err)
	}
	if got := strings.Join(order, " "); got != "asked closed done" {
		t.Error(got)
	}
	<-h.Done()
}

func TestWaitReturnsWhyTheNodeGaveUp(t *testing.T) {
	why := errors.New("fsync failed")
	steps := 0
	h := start(config(t), func(n *node, ev broker.Event) {
		steps++
		n.env.Disk.Submit(job.FinishCheckpoint{}) // never run
		n.env.Stop(why)
	})
	h.Post(broker.Wake{}, broker.Wake{}, broker.Wake{})
	if err := h.Wait(); !errors.Is(err, why) {
		t.Error(err)
	}
	if steps != 1 {
		t.Errorf("%d steps of a node that stopped in the first", steps)
	}
}

// network counts.
type network struct {
	Nowhere
	replies, flushes int
	unflushed        int
}

func (n *network) Reply(wire.Caller, wire.Response) { n.replies++; n.unflushed++ }
func (n *network) Flush()                           { n.flushes++; n.unflushed = 0 }

func TestRepliesAreFlushedOnceForManyEvents(t *testing.T) {
	net := &network{}
	cfg := config(t)
	cfg.Network = net
	const events = 100
	h := start(cfg, func(n *node, ev broker.Event) {
		n.env.Network.Reply(wire.Caller{}, wire.Response{})
		if net.replies == events {
			n.env.Stop(nil)
		}
	})
	posted := make([]broker.Event, events)
	for i := range posted {
		posted[i] = broker.Wake{}
	}
	h.Post(posted...)
	if err := h.Wait(); err != nil {
		t.Error(err)
	}
	if net.replies != events || net.unflushed != 0 || net.flushes > 3 {
		t.Errorf("%d replies, %d flushes, %d left", net.replies, net.flushes, net.unflushed)
	}
}

func BenchmarkHandOff(b *testing.B) {
	h := Start(Config{Run: run, Network: Nowhere{}, Logger: slog.New(slog.DiscardHandler)}, func(env broker.Env) Node {
		left := b.N
		return &node{env: env, wake: clock.Never, step: func(n *node, ev broker.Event) {
			if left--; left == 0 {
				n.env.Stop(nil)
			}
		}}
	})
	b.ReportAllocs()
	var ev broker.Event = broker.ConnClosed{}
	for g := range 16 {
		n := b.N / 16
		if g == 0 {
			n += b.N % 16
		}
		go func() {
			for range n {
				h.Post(ev)
			}
		}()
	}
	if err := h.Wait(); err != nil {
		b.Fatal(err)
	}
}
