// Package appendlog is the workload of a log: producers, idempotent and not,
// append unique values to partitions; readers follow each partition, sometimes
// go back, sometimes ask for its end; deleters delete what is at its front, and ask
// for its start. At the end every partition is read from the start.
package appendlog

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/workloads"
)

// Config is the shape of the load.
type Config struct {
	// Partitions are what is written and read. They exist, and are empty.
	Partitions []history.Partition
	// Producers is how many clients append with no idempotence.
	Producers int
	// IdempotentProducers is how many clients append with it (KIP-98).
	IdempotentProducers int
	// Readers is how many clients read.
	Readers int
	// Deleters is how many clients delete records (KIP-107).
	Deleters int
	// OperationsPerClient is after how many operations a client rests for good;
	// 0 is no limit.
	OperationsPerClient int
	// MaxBatch is the most records in one append.
	MaxBatch int
	// MinSize and MaxSize bound a record's value, in bytes, inclusive.
	MinSize, MaxSize int
	// SeekPerMille is how often in a thousand turns a reader goes back to an
	// offset drawn from those it has passed.
	SeekPerMille int
	// ListEndPerMille is how often in a thousand turns a reader asks for the
	// end instead of reading.
	ListEndPerMille int
	// DeletePerMille is how often in a thousand turns a deleter deletes instead of
	// asking for the start; DeleteAllPerMille how often it deletes all there is.
	DeletePerMille, DeleteAllPerMille int
	// ReadMaxBytes bounds what one read asks for. Kafka: max.partition.fetch.bytes.
	ReadMaxBytes int32
	// Acks is what producers ask for; idempotent ones always ask for all.
	Acks workloads.Acks
}

// DefaultConfig is a small load on the given partitions.
func DefaultConfig(partitions ...history.Partition) Config {
	return Config{
		Partitions:          partitions,
		Producers:           2,
		IdempotentProducers: 2,
		Readers:             3,
		MaxBatch:            4,
		MinSize:             workloads.MinPayload,
		MaxSize:             200,
		SeekPerMille:        50,
		ListEndPerMille:     250,
		DeletePerMille:      600,
		DeleteAllPerMille:   50,
		ReadMaxBytes:        64 << 10,
		Acks:                workloads.AcksAll,
	}
}

// ErrConfig says a configuration makes no sense.
var ErrConfig = errors.New("appendlog configuration")

// Validate returns ErrConfig with the field that is wrong.
func (c Config) Validate() error {
	seen := make(map[history.Partition]bool)
	for _, p := range c.Partitions {
		if seen[p] {
			return fmt.Errorf("%w: partition %s twice", ErrConfig, p)
		}
		seen[p] = true
	}
	switch {
	case len(c.Partitions) == 0:
		return fmt.Errorf("%w: no partitions", ErrConfig)
	case c.Producers < 0, c.IdempotentProducers < 0, c.Readers < 0, c.Deleters < 0, c.OperationsPerClient < 0:
		return fmt.Errorf("%w: a count below zero", ErrConfig)
	case c.clients() == 0:
		return fmt.Errorf("%w: no clients", ErrConfig)
	case c.MaxBatch < 1:
		return fmt.Errorf("%w: max batch %d, want at least 1", ErrConfig, c.MaxBatch)
	case c.MinSize < workloads.MinPayload || c.MaxSize < c.MinSize:
		return fmt.Errorf("%w: sizes %d to %d, want at least %d", ErrConfig, c.MinSize, c.MaxSize, workloads.MinPayload)
	case c.SeekPerMille < 0, c.ListEndPerMille < 0, c.SeekPerMille+c.ListEndPerMille > 1000:
		return fmt.Errorf("%w: seeks %d and list ends %d in a thousand", ErrConfig, c.SeekPerMille, c.ListEndPerMille)
	case c.DeletePerMille < 0, c.DeleteAllPerMille < 0, c.DeletePerMille+c.DeleteAllPerMille > 1000:
		return fmt.Errorf("%w: deletions %d and of all %d in a thousand", ErrConfig, c.DeletePerMille, c.DeleteAllPerMille)
	case c.ReadMaxBytes < 1:
		return fmt.Errorf("%w: read of %d bytes", ErrConfig, c.ReadMaxBytes)
	}
	return nil
}

func (c Config) clients() int { return c.Producers + c.IdempotentProducers + c.Readers + c.Deleters }

// Workload is the running load. It is a workloads.Workload.
type Workload struct {
	config  Config
	clients []client
	history history.History
	loading int                  // operations of the load that are in flight
	known   []history.Offset     // by partition, how far anybody has read
	starts  []history.Offset     // by partition, the latest log start that anybody has heard of
	final   *workloads.FinalRead // nil until Finish
}

// A client is a producer, a reader or a deleter; readers have positions.
type client struct {
	turns     int
	values    uint64           // how many it has drawn
	positions []history.Offset // by partition, where it reads on; nil for producers
	lost      bool             // its place in reading, which begins later than it thought
	reading   int              // the partition of the operation in flight, but for producers
}

var _ workloads.Workload = (*Workload)(nil)

// New returns the load at its beginning, or what is wrong with c.
//
// Clients are numbered: producers, then idempotent producers, then readers, then
// deleters.
func New(c Config) (*Workload, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	w := &Workload{config: c, clients: make([]client, c.clients()),
		known: make([]history.Offset, len(c.Partitions)), starts: make([]history.Offset, len(c.Partitions))}
	for i := c.Producers + c.IdempotentProducers; i < len(w.clients)-c.Deleters; i++ {
		w.clients[i].positions = make([]history.Offset, len(c.Partitions))
	}
	return w, nil
}

// Clients is how many clients take turns.
func (w *Workload) Clients() int { return len(w.clients) }

// Next draws the client's next operation.
func (w *Workload) Next(id history.Client, _ history.Time, rng *rand.Rand) (workloads.Op, bool) {
	if w.final != nil {
		if w.loading > 0 {
			// What ends after the final log's end was asked for may be above it.
			return nil, false
		}
		return w.final.Next(id)
	}
	c := &w.clients[id]
	if limit := w.config.OperationsPerClient; limit > 0 && c.turns >= limit {
		return nil, false
	}
	c.turns++
	w.loading++
	switch {
	case c.positions != nil:
		return w.drawRead(c, rng), true
	case int(id) >= len(w.clients)-w.config.Deleters:
		return w.drawDeletion(c, rng), true
	}
	return w.drawAppend(id, c, rng), true
}

// drawDeletion draws what a deleter does: mostly it deletes a little of what is
// there, now and then it asks for what is not there yet.
func (w *Workload) drawDeletion(c *client, rng *rand.Rand) workloads.Op {
	c.reading = rng.IntN(len(w.config.Partitions))
	p := w.config.Partitions[c.reading]
	switch dice := rng.IntN(1000); {
	case dice < w.config.DeleteAllPerMille:
		return workloads.DeleteRecords{Partition: p, Below: history.NoOffset}
	case dice < w.config.DeleteAllPerMille+w.config.DeletePerMille:
		start := w.starts[c.reading]
		room := max(w.known[c.reading]-start, 0) + 2
		return workloads.DeleteRecords{Partition: p, Below: start + min(history.Offset(rng.Int64N(int64(room))), history.Offset(rng.Int64N(int64(room))))}
	}
	return workloads.ListStart{Partition: p}
}

func (w *Workload) drawAppend(id history.Client, c *client, rng *rand.Rand) workloads.Op {
	op := workloads.Append{
		Partition:  w.config.Partitions[rng.IntN(len(w.config.Partitions))],
		Values:     make([]history.Value, 1+rng.IntN(w.config.MaxBatch)),
		Size:       w.config.MinSize + rng.IntN(w.config.MaxSize-w.config.MinSize+1),
		Idempotent: int(id) >= w.config.Producers,
		Acks:       w.config.Acks,
	}
	if op.Idempotent {
		op.Acks = workloads.AcksAll
	}
	for i := range op.Values {
		op.Values[i] = workloads.MakeValue(id, c.values)
		c.values++
	}
	return op
}

func (w *Workload) drawRead(c *client, rng *rand.Rand) workloads.Op {
	if c.lost {
		return workloads.ListStart{Partition: w.config.Partitions[c.reading]}
	}
	c.reading = rng.IntN(len(w.config.Partitions))
	p := w.config.Partitions[c.reading]
	switch dice := rng.IntN(1000); {
	case dice < w.config.ListEndPerMille:
		return workloads.ListEnd{Partition: p}
	case dice < w.config.ListEndPerMille+w.config.SeekPerMille:
		c.positions[c.reading] = history.Offset(rng.Int64N(int64(c.positions[c.reading]) + 1))
	}
	return workloads.Read{Partition: p, From: c.positions[c.reading], MaxBytes: w.config.ReadMaxBytes}
}

// Done records how the client's operation ended.
func (w *Workload) Done(id history.Client, op workloads.Op, call, ret history.Time, r workloads.Result) {
	workloads.Record(&w.history, id, op, call, ret, r)
	if w.final != nil && w.final.Done(id, op, r) {
		if w.final.Finished() {
			w.history.Final = w.final.Logs()
		}
		return
	}
	w.loading--
	if r.Outcome == history.OK {
		w.learn(&w.clients[id], op, r)
	}
}

// learn takes what an answer says of where a partition begins and ends.
func (w *Workload) learn(c *client, op workloads.Op, r workloads.Result) {
	switch op.(type) {
	case workloads.Read:
		if c.lost = r.OutOfRange; c.lost {
			return
		}
		c.positions[c.reading] = max(c.positions[c.reading], r.Next)
		w.known[c.reading] = max(w.known[c.reading], r.Next)
	case workloads.ListStart, workloads.DeleteRecords:
		w.starts[c.reading] = max(w.starts[c.reading], r.Start)
		if c.positions != nil {
			c.positions[c.reading], c.lost = max(c.positions[c.reading], r.Start), false
		}
	}
}

// finalMaxBytes is how much a read of the last phase asks for at least. What
// small reads do is seen before.
const finalMaxBytes = 64 << 10

// Finish makes the clients read everything, once.
func (w *Workload) Finish() {
	if w.final == nil {
		w.final = workloads.NewFinalRead(w.config.Partitions, max(w.config.ReadMaxBytes, finalMaxBytes))
	}
}

// Finished reports whether everything is read; then History has the final
// logs.
func (w *Workload) Finished() bool { return w.final != nil && w.final.Finished() }

// History is what the clients remember.
func (w *Workload) History() *history.History { return &w.history }
