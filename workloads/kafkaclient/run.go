// Package kafkaclient carries a workload's operations to a real cluster, over
// TCP, by franz-go: any cluster that speaks Kafka's protocol.
//
// Appends go through franz-go's producers, idempotent or not. A producer that
// is not idempotent sends once; one whose answer does not come in time is
// closed, and its successor is a new producer. Reads, list-ends and commits are
// single requests to the leader or coordinator, so that each claim in a history
// was made during its operation; a consumer that fetches ahead could not say
// so.
package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/workloads"
)

// Config says whom to load, and how long.
type Config struct {
	// Seeds are addresses of brokers, host:port. Kafka: bootstrap.servers.
	Seeds []string
	// Duration is how long the load lasts; 0 is until all clients rest.
	Duration time.Duration
	// OperationTimeout is after how long an operation is given up, its outcome
	// unknown.
	OperationTimeout time.Duration
	// FinalWithin is how long the last phase may take. The cluster must be whole
	// again by then: what fails is tried again until then.
	FinalWithin time.Duration
	// MaxWait is how long a read waits at the end of a log. Kafka:
	// fetch.max.wait.ms.
	MaxWait time.Duration
	// Backoff is how long a client waits after an operation that was not OK.
	Backoff time.Duration
	// Seed is where the clients' draws come from.
	Seed uint64
	// Options go to every franz-go client: TLS, SASL.
	Options []kgo.Opt
}

// DefaultConfig loads for ten seconds.
func DefaultConfig(seeds ...string) Config {
	return Config{
		Seeds:            seeds,
		Duration:         10 * time.Second,
		OperationTimeout: 5 * time.Second,
		FinalWithin:      time.Minute,
		MaxWait:          20 * time.Millisecond,
		Backoff:          20 * time.Millisecond,
	}
}

// ErrUnfinished says that the last phase did not end in time, so that the
// history cannot be judged in full.
var ErrUnfinished = errors.New("the final read did not end")

// Run lets the workload's clients take turns until the load is over and all is
// read, or ctx ends. The history is w's. The error is ErrUnfinished, ctx's, or
// that of an unusable configuration.
func Run(ctx context.Context, c Config, w workloads.Workload) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &runner{config: c, workload: w, start: time.Now()}
	r.turn.L = &r.mu
	requests, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.Seeds...), kgo.RequestRetries(0),
	}, c.Options...)...)
	if err != nil {
		return fmt.Errorf("kafka client: %w", err)
	}
	defer requests.Close()
	r.requests = &requester{client: requests, maxWait: c.MaxWait, routes: make(map[history.Partition]route)}
	r.resting = make(chan struct{}, 1)

	var running sync.WaitGroup
	for id := range w.Clients() {
		running.Go(func() { r.runClient(ctx, history.Client(id)) })
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	stop := context.AfterFunc(ctx, r.wake)
	defer stop()
	r.awaitLoad(ctx)
	r.mu.Lock()
	w.Finish()
	r.mu.Unlock()
	r.wake()
	select {
	case <-done:
	case <-time.After(c.FinalWithin):
	}
	outer := context.Cause(ctx)
	cancel()
	<-done
	switch {
	case w.Finished():
		return nil
	case outer != nil:
		return outer
	}
	return fmt.Errorf("%w within %s", ErrUnfinished, c.FinalWithin)
}

// runner gives clients their turns.
type runner struct {
	config   Config
	requests *requester
	start    time.Time
	resting  chan struct{} // told when every client rests

	mu       sync.Mutex // guards what follows
	turn     sync.Cond  // somebody who rested may have something to do
	workload workloads.Workload
	idle     int
}

func (r *runner) now() history.Time { return history.Time(time.Since(r.start)) }

func (r *runner) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn.Broadcast()
}

func (r *runner) awaitLoad(ctx context.Context) {
	var over <-chan time.Time
	if r.config.Duration > 0 {
		over = time.After(r.config.Duration)
	}
	select {
	case <-ctx.Done():
	case <-over:
	case <-r.resting:
	}
}

// runClient takes one client's turns.
func (r *runner) runClient(ctx context.Context, id history.Client) {
	rng := rand.New(rand.NewPCG(r.config.Seed, uint64(id)))
	p := &producers{config: r.config}
	defer p.close()
	for {
		op, ok := r.next(ctx, id, rng)
		if !ok {
			return
		}
		call := r.now()
		result := r.do(ctx, p, op)
		ret := r.now()
		if result.Outcome == history.Unknown {
			ret = history.Never
		}
		r.mu.Lock()
		r.workload.Done(id, op, call, ret, result)
		r.turn.Broadcast()
		r.mu.Unlock()
		if result.Outcome != history.OK {
			pause(ctx, r.config.Backoff)
		}
	}
}

// next waits for the client's next operation; false means that the run is over.
func (r *runner) next(ctx context.Context, id history.Client, rng *rand.Rand) (workloads.Op, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ctx.Err() == nil && !r.workload.Finished() {
		if op, ok := r.workload.Next(id, r.now(), rng); ok {
			return op, true
		}
		if r.idle++; r.idle == r.workload.Clients() {
			select {
			case r.resting <- struct{}{}:
			default:
			}
		}
		r.turn.Wait()
		r.idle--
	}
	r.turn.Broadcast()
	return nil, false
}

func (r *runner) do(ctx context.Context, p *producers, op workloads.Op) workloads.Result {
	ctx, cancel := context.WithTimeout(ctx, r.config.OperationTimeout)
	defer cancel()
	if a, ok := op.(workloads.Append); ok {
		return p.append(ctx, a)
	}
	return r.requests.do(ctx, op)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
