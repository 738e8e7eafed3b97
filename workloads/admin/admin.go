// Package admin is the workload of topics: clients create and delete topics, all
// of few names, and set and get a configuration that tells one state of a topic
// from every other. At the end every name is looked at once more.
package admin

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/workloads"
)

// Config is the shape of the load.
type Config struct {
	// Topics are the names. No topics of these names exist.
	Topics []string
	// Clients is how many clients take part.
	Clients int
	// OperationsPerClient is after how many operations a client rests for good;
	// 0 is no limit.
	OperationsPerClient int
	// CreatePerMille, DeletePerMille and SetPerMille are how often in a thousand
	// turns a client does that; it gets the configuration otherwise.
	CreatePerMille, DeletePerMille, SetPerMille int
}

// DefaultConfig is a small load on topics of the given names.
func DefaultConfig(topics ...string) Config {
	return Config{Topics: topics, Clients: 3, CreatePerMille: 200, DeletePerMille: 100, SetPerMille: 200}
}

// ErrConfig says a configuration makes no sense.
var ErrConfig = errors.New("admin configuration")

// Validate returns ErrConfig with the field that is wrong.
func (c Config) Validate() error {
	seen := make(map[string]bool)
	for _, name := range c.Topics {
		if seen[name] {
			return fmt.Errorf("%w: topic %s twice", ErrConfig, name)
		}
		seen[name] = true
	}
	switch {
	case len(c.Topics) == 0:
		return fmt.Errorf("%w: no topics", ErrConfig)
	case c.Clients < 1, c.OperationsPerClient < 0:
		return fmt.Errorf("%w: %d clients of %d operations", ErrConfig, c.Clients, c.OperationsPerClient)
	case c.CreatePerMille < 0, c.DeletePerMille < 0, c.SetPerMille < 0, c.CreatePerMille+c.DeletePerMille+c.SetPerMille > 1000:
		return fmt.Errorf("%w: %d creations, %d deletions and %d changes in a thousand", ErrConfig, c.CreatePerMille, c.DeletePerMille, c.SetPerMille)
	}
	return nil
}

// Workload is the running load. It is a workloads.Workload.
type Workload struct {
	config  Config
	clients []client
	history history.History
	loading int // operations of the load that are in flight
	final   []look
}

type client struct {
	turns  int
	tokens uint64
}

// look is the last look at a name.
type look struct {
	owner history.Client // who looks now; nobody if negative
	done  bool
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
	if w.final != nil {
		return w.nextLook(id)
	}
	c := &w.clients[id]
	if limit := w.config.OperationsPerClient; limit > 0 && c.turns >= limit {
		return nil, false
	}
	c.turns++
	w.loading++
	name, dice := w.config.Topics[rng.IntN(len(w.config.Topics))], rng.IntN(1000)
	if dice -= w.config.DeletePerMille; dice < 0 {
		return workloads.DeleteTopic{Topic: name}, true
	}
	token := workloads.MakeValue(id, c.tokens)
	if dice -= w.config.CreatePerMille; dice < 0 {
		c.tokens++
		return workloads.CreateTopic{Topic: name, Token: token}, true
	}
	if dice -= w.config.SetPerMille; dice < 0 {
		c.tokens++
		return workloads.SetConfig{Topic: name, Token: token}, true
	}
	return workloads.GetConfig{Topic: name}, true
}

// nextLook is the last look at a name that nobody has had or is having.
func (w *Workload) nextLook(id history.Client) (workloads.Op, bool) {
	if w.loading > 0 {
		return nil, false
	}
	for i := range w.final {
		if l := &w.final[i]; !l.done && l.owner < 0 {
			l.owner = id
			return workloads.GetConfig{Topic: w.config.Topics[i], Now: true}, true
		}
	}
	return nil, false
}

// Done records how the client's operation ended.
func (w *Workload) Done(id history.Client, op workloads.Op, call, ret history.Time, r workloads.Result) {
	workloads.Record(&w.history, id, op, call, ret, r)
	for i := range w.final {
		if l := &w.final[i]; l.owner == id {
			l.owner, l.done = -1, r.Outcome == history.OK
			return
		}
	}
	w.loading--
}

// Finish makes the clients look at every name, once.
func (w *Workload) Finish() {
	if w.final == nil {
		w.final = make([]look, len(w.config.Topics))
		for i := range w.final {
			w.final[i].owner = -1
		}
	}
}

// Finished reports whether every name has been looked at.
func (w *Workload) Finished() bool {
	for _, l := range w.final {
		if !l.done {
			return false
		}
	}
	return w.final != nil
}

// History is what the clients remember.
func (w *Workload) History() *history.History { return &w.history }
