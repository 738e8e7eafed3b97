// Package offsets is the workload of committed offsets: clients commit
// positions of groups, each with a token of its own in the commit's metadata,
// and fetch them. At the end every position is fetched once more.
package offsets

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/workloads"
)

// Config is the shape of the load.
type Config struct {
	// Groups are the groups whose positions are committed. They have no members.
	Groups []string
	// Partitions are what positions are in. They exist.
	Partitions []history.Partition
	// Clients is how many clients commit and fetch.
	Clients int
	// OperationsPerClient is after how many operations a client rests for good;
	// 0 is no limit.
	OperationsPerClient int
	// CommitPerMille is how often in a thousand turns a client commits; it
	// fetches otherwise.
	CommitPerMille int
	// MaxOffset is the highest offset committed.
	MaxOffset history.Offset
}

// DefaultConfig is a small load on one group.
func DefaultConfig(group string, partitions ...history.Partition) Config {
	return Config{Groups: []string{group}, Partitions: partitions, Clients: 5, CommitPerMille: 400, MaxOffset: 1 << 40}
}

// ErrConfig says a configuration makes no sense.
var ErrConfig = errors.New("offsets configuration")

// Validate returns ErrConfig with the field that is wrong.
func (c Config) Validate() error {
	switch {
	case len(c.Groups) == 0, len(c.Partitions) == 0:
		return fmt.Errorf("%w: %d groups, %d partitions", ErrConfig, len(c.Groups), len(c.Partitions))
	case c.Clients < 1, c.OperationsPerClient < 0:
		return fmt.Errorf("%w: %d clients of %d operations", ErrConfig, c.Clients, c.OperationsPerClient)
	case c.CommitPerMille < 0, c.CommitPerMille > 1000:
		return fmt.Errorf("%w: %d commits in a thousand turns", ErrConfig, c.CommitPerMille)
	case c.MaxOffset < 0:
		return fmt.Errorf("%w: max offset %d", ErrConfig, c.MaxOffset)
	}
	return nil
}

// Workload is the running load. It is a workloads.Workload.
type Workload struct {
	config  Config
	clients []client
	history history.History
	loading int // operations of the load that are in flight
	last    []workloads.FetchCommitted
	done    []bool // of last, which have been answered
	asked   []int  // by client, which of last it asks for; -1 for none
}

type client struct {
	turns  int
	tokens uint64
}

var _ workloads.Workload = (*Workload)(nil)

// New returns the load at its beginning, or what is wrong with c.
func New(c Config) (*Workload, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Workload{config: c, clients: make([]client, c.Clients)}, nil
}

// Clients is how many clients take turns.
func (w *Workload) Clients() int { return len(w.clients) }

// Next draws the client's next operation.
func (w *Workload) Next(id history.Client, _ history.Time, rng *rand.Rand) (workloads.Op, bool) {
	if w.last != nil {
		return w.nextLast(id)
	}
	c := &w.clients[id]
	if limit := w.config.OperationsPerClient; limit > 0 && c.turns >= limit {
		return nil, false
	}
	c.turns++
	w.loading++
	group := w.config.Groups[rng.IntN(len(w.config.Groups))]
	p := w.config.Partitions[rng.IntN(len(w.config.Partitions))]
	if rng.IntN(1000) >= w.config.CommitPerMille {
		return workloads.FetchCommitted{Group: group, Partition: p}, true
	}
	c.tokens++
	return workloads.Commit{
		Group: group, Partition: p,
		Offset: history.Offset(rng.Int64N(int64(w.config.MaxOffset) + 1)),
		Token:  workloads.MakeValue(id, c.tokens),
	}, true
}

// nextLast is a position that nobody has fetched, or is fetching, at the end.
func (w *Workload) nextLast(id history.Client) (workloads.Op, bool) {
	if w.loading > 0 {
		return nil, false
	}
	taken := make([]bool, len(w.last))
	for _, i := range w.asked {
		if i >= 0 {
			taken[i] = true
		}
	}
	for i := range w.last {
		if !w.done[i] && !taken[i] {
			w.asked[id] = i
			return w.last[i], true
		}
	}
	return nil, false
}

// Done records how the client's operation ended.
func (w *Workload) Done(id history.Client, op workloads.Op, call, ret history.Time, r workloads.Result) {
	workloads.Record(&w.history, id, op, call, ret, r)
	if w.last == nil || w.asked[id] < 0 {
		w.loading--
		return
	}
	w.done[w.asked[id]] = r.Outcome == history.OK
	w.asked[id] = -1
}

// Finish makes the clients fetch every position, once.
func (w *Workload) Finish() {
	if w.last != nil {
		return
	}
	for _, group := range w.config.Groups {
		for _, p := range w.config.Partitions {
			w.last = append(w.last, workloads.FetchCommitted{Group: group, Partition: p})
		}
	}
	w.done = make([]bool, len(w.last))
	w.asked = make([]int, len(w.clients))
	for i := range w.asked {
		w.asked[i] = -1
	}
}

// Finished reports whether every position has been fetched at the end.
func (w *Workload) Finished() bool {
	for _, done := range w.done {
		if !done {
			return false
		}
	}
	return w.last != nil
}

// History is what the clients remember.
func (w *Workload) History() *history.History { return &w.history }
