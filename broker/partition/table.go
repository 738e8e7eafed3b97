// Package partition is the table of a node's partitions and the requests that
// are about them: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, one file
// each. It knows requests that wait (for the disk, for data, for a lookup) and
// nothing of where answers go: it fills an Out.
//
// What a single partition may do is decided by packages replica and producer;
// here requests are taken apart into partitions and answers are put together.
package partition

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/producer"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

// Config of a Table.
type Config struct {
	// ProducerExpiry is how long a producer that does not write is remembered.
	// Kafka: producer.id.expiration.ms.
	ProducerExpiry time.Duration
	// FetchMaxBytes bounds what one fetch may ask for. Kafka: fetch.max.bytes.
	FetchMaxBytes int64
}

// DefaultConfig is Kafka's.
func DefaultConfig() Config {
	return Config{ProducerExpiry: 24 * time.Hour, FetchMaxBytes: 55 << 20}
}

// Validate returns an error that names the first field out of range.
func (c Config) Validate() error {
	switch {
	case c.ProducerExpiry < time.Second:
		return fmt.Errorf("producer.id.expiration.ms %v, want at least 1 s", c.ProducerExpiry)
	case c.FetchMaxBytes < 1024:
		return fmt.Errorf("fetch.max.bytes %d, want at least 1024", c.FetchMaxBytes)
	}
	return nil
}

// Topic is what the table must know of a topic.
type Topic struct {
	ID     metadata.TopicID
	Name   string
	Config metadata.TopicConfig
}

// Moment is the time of an event.
type Moment struct {
	Now  clock.Instant
	Wall record.Timestamp
}

// Out is what a call decided.
type Out struct {
	Jobs    []job.Job
	Replies []Reply
	Lines   []Line

	AlterISR []ISRProposal // for the controller
	Follow   []Follow      // for the fetchers
	Progress []ProgressTo  // for leaders
	Damaged  []storage.LogID
}

// Reply is an answer to a request.
type Reply struct {
	Caller   wire.Caller
	Response wire.Response
}

// Line is one line for the operator.
type Line struct {
	Level slog.Level
	Text  string
	Attrs []slog.Attr
}

func (o *Out) reply(c wire.Caller, r wire.Response) { o.Replies = append(o.Replies, Reply{c, r}) }

// Stats counts what the table did. The node owns it; it is never reset.
type Stats struct {
	ProduceRequests int64
	FetchRequests   int64
	BytesIn         int64 // accepted batches
	BatchesIn       int64
	RecordsIn       int64
	Duplicates      int64
	BytesOut        int64
}

// A Partition is one replica of one partition, and who waits for it.
type Partition struct {
	log       storage.LogID
	dirty     bool // changed since the last checkpoint began
	topic     *topic
	replica   replica.Replica
	producers producer.State
	view      storage.View
	damage    error   // why nothing may be served, or nil
	parked    *parked // nil until a fetch has to wait for data: most partitions are idle
}

type topic struct {
	Topic
	partitions []*Partition // by index; nil where this node has no replica
	open       int          // how many are not nil
}

// Table is the partitions of one node.
//
// Invariant: topics and ids hold the same topics; dirty holds the partitions
// whose dirty is set, in the order they became so.
type Table struct {
	cfg    Config
	topics map[string]*topic
	ids    map[metadata.TopicID]*topic
	dirty  []*Partition

	self    metadata.NodeID
	epoch   metadata.BrokerEpoch
	brokers []BrokerInfo // by id
	image   metadata.Image
	lease   clock.Instant // consumers are answered until then

	promises   promises
	expiring   []*produce // answered or not, oldest first
	sweepAt    clock.Instant
	deadlines  clock.Deadlines[*fetch]
	reads      map[job.Ticket]read
	lookups    map[job.Ticket]lookup
	lastTicket job.Ticket
	conns      map[uint64][]*fetch // parked, by connection
	expireAt   clock.Instant       // when old producers are forgotten next

	Stats Stats
}

// expireEvery is how often producers that stopped writing are looked for.
const expireEvery = 10 * time.Minute

// New returns an empty table.
func New(cfg Config) *Table {
	return &Table{
		cfg:     cfg,
		topics:  make(map[string]*topic),
		ids:     make(map[metadata.TopicID]*topic),
		reads:   make(map[job.Ticket]read),
		lookups: make(map[job.Ticket]lookup),
		conns:   make(map[uint64][]*fetch),
		sweepAt: clock.Never, expireAt: clock.Never,
	}
}

// recover takes over what the disk has of the partition.
func (p *Partition) recover(rec *storage.RecoveredLog, at Moment, out *Out) {
	p.view = rec.View
	if rec.Damage != nil {
		p.spoil(rec.Damage, out)
	}
	var epochs []replica.EpochStart
	for _, e := range rec.View.Epochs() {
		epochs = append(epochs, replica.EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	p.replica = *replica.New(rec.View.Start(), rec.View.End(), epochs)
	state, err := producer.Restore(rec.Snapshot, at.Now)
	if err != nil {
		p.spoil(err, out)
		return
	}
	p.producers = state
	replay(&p.producers, rec, at.Now)
}

// replay brings a state that was restored from a snapshot to the log end. The
// snapshot may hold batches that were in flight when it was taken and were
// refused; the log says where it really ended.
func replay(s *producer.State, rec *storage.RecoveredLog, now clock.Instant) {
	end := rec.View.End()
	if len(rec.After) > 0 {
		end = rec.After[0].BaseOffset
	}
	s.Rollback(end)
	s.Durable(end)
	for _, b := range rec.After {
		s.Add(batchOf(b), now)
		s.Durable(b.LastOffset + 1)
	}
}

func batchOf(b storage.BatchInfo) producer.Batch {
	return producer.Batch{
		ID: b.ProducerID, Epoch: b.ProducerEpoch, First: b.BaseSequence,
		Last: b.BaseSequence.Add(int32(b.LastOffset - b.BaseOffset)), Base: b.BaseOffset, Next: b.LastOffset + 1,
	}
}

// spoil makes the partition refuse everything because of err.
func (p *Partition) spoil(err error, out *Out) {
	if p.damage != nil {
		return
	}
	assert.Reached("partition: damaged")
	p.damage = err
	attrs := []slog.Attr{slog.String("topic", p.topic.Name), slog.Int("partition", int(p.log.Partition)), slog.String("error", err.Error())}
	var d *storage.DamageError
	if errors.As(err, &d) {
		attrs = append(attrs, slog.String("file", d.File), slog.Int64("position", d.Pos))
	}
	out.Lines = append(out.Lines, Line{slog.LevelError, "partition is damaged and not served", attrs})
}

// Configure gives a topic another configuration.
func (t *Table) Configure(name string, cfg metadata.TopicConfig) {
	if tp := t.topics[name]; tp != nil {
		tp.Config = cfg
	}
}

// Done takes the result of a job the table asked for.
func (t *Table) Done(res job.Result, at Moment, out *Out) {
	switch j := res.Job.(type) {
	case job.Append:
		t.appended(j, res, at, out)
	case job.Read:
		t.readDone(j, res, out)
	case job.Lookup:
		t.lookupDone(j, res, out)
	}
}

// NextWake is when the table wants to be woken, or clock.Never.
func (t *Table) NextWake() clock.Instant {
	return min(t.deadlines.Next(), t.sweepAt, t.expireAt)
}

// Wake does what is due.
func (t *Table) Wake(at Moment, out *Out) {
	for {
		f, ok := t.deadlines.Due(at.Now)
		if !ok {
			break
		}
		t.serve(f, at, out)
	}
	if at.Now >= t.sweepAt {
		t.timeOut(at, out)
	}
	if at.Now >= t.expireAt {
		t.expireAt = at.Now.Add(expireEvery)
		before := at.Now - clock.Instant(t.cfg.ProducerExpiry)
		for _, p := range t.sorted() {
			p.producers.Expire(before)
		}
	}
}

// ConnClosed forgets the fetches of a connection that wait for data.
func (t *Table) ConnClosed(conn uint64, out *Out) {
	for _, f := range t.conns[conn] {
		f.state = answered
		out.reply(f.caller, wire.Response{})
	}
	delete(t.conns, conn)
}

// Snapshots returns the producer state of every partition that changed since
// the last call. Each belongs to its log as it is once every append that was
// handed out before has been done.
func (t *Table) Snapshots() []storage.Snapshot {
	var out []storage.Snapshot
	for _, p := range t.dirty {
		p.dirty = false
		if t.partition(p.log) == p {
			out = append(out, storage.Snapshot{Log: p.log, Data: p.producers.Snapshot()})
		}
	}
	t.dirty = t.dirty[:0]
	slices.SortFunc(out, func(a, b storage.Snapshot) int { //pawl:total-order by log, which is unique
		if a.Log.Topic != b.Log.Topic {
			return cmp.Compare(string(a.Log.Topic[:]), string(b.Log.Topic[:]))
		}
		return cmp.Compare(a.Log.Partition, b.Log.Partition)
	})
	return out
}

// Touch makes the next Snapshots include these logs: a checkpoint that was given
// theirs came to nothing.
func (t *Table) Touch(logs []storage.LogID) {
	for _, id := range logs {
		if p := t.partition(id); p != nil {
			t.touch(p)
		}
	}
}

// Drain answers every fetch that waits for data, with what there is.
func (t *Table) Drain(at Moment, out *Out) {
	for {
		f, ok := t.deadlines.Due(clock.Never - 1)
		if !ok {
			return
		}
		f.deadline = at.Now
		t.serve(f, at, out)
	}
}

// sorted lists the open partitions by topic name and index.
func (t *Table) sorted() []*Partition {
	var out []*Partition
	for _, name := range sortedKeys(t.topics) {
		for _, p := range t.topics[name].partitions {
			if p != nil {
				out = append(out, p)
			}
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
