// Package partition is the table of a node's partitions and the requests that
// are about them: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, one file
// each. It knows requests that wait (for the disk, for data, for a lookup) and
// nothing of where answers go: it fills an Out.
//
// What a single partition may do is decided by packages replica and producer;
// here requests are taken apart into partitions and answers are put together.
//
// What the metadata make of partitions comes by assign.go; what a leader does for
// its followers is in lead.go, what a follower does in follow.go.
//
// Everything an event costs is in proportion to what it touches: no event looks
// at all partitions, but for one in ten minutes that forgets old producers, and a
// new registration of this node.
package partition

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/producer"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/broker/session"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
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
	// FollowMaxBytes is how many bytes that were fetched from leaders may be on
	// their way to the disk before no more are fetched, about.
	FollowMaxBytes int64
	// MaxLag is how long an in-sync follower may be behind before its leader has it
	// taken out. Kafka: replica.lag.time.max.ms.
	MaxLag time.Duration
	// Retry is how long a leader waits before it asks the controller again that
	// did not answer, and a follower before it says again how far its disk is.
	Retry time.Duration
	// RackAware lets consumers that name their rack read from an in-sync follower
	// in it, whose end of the log may be an older one than the leader's. Kafka:
	// replica.selector.class.
	RackAware bool
	// Sessions is how fetch sessions are kept.
	Sessions session.Config
}

// DefaultConfig is Kafka's; but for RackAware, which means nothing unless both
// brokers and consumers name racks.
func DefaultConfig() Config {
	return Config{
		ProducerExpiry: 24 * time.Hour, FetchMaxBytes: 55 << 20, FollowMaxBytes: 64 << 20, MaxLag: 30 * time.Second, Retry: 200 * time.Millisecond,
		RackAware: true, Sessions: session.DefaultConfig(),
	}
}

// Validate returns an error that names the first field out of range.
func (c Config) Validate() error {
	switch {
	case c.ProducerExpiry < time.Second:
		return fmt.Errorf("producer.id.expiration.ms %v, want at least 1 s", c.ProducerExpiry)
	case c.FetchMaxBytes < 1024:
		return fmt.Errorf("fetch.max.bytes %d, want at least 1024", c.FetchMaxBytes)
	case c.FollowMaxBytes < 1024:
		return fmt.Errorf("bytes on their way to a follower's disk %d, want at least 1024", c.FollowMaxBytes)
	case c.MaxLag < time.Second:
		return fmt.Errorf("replica.lag.time.max.ms %v, want at least 1 s", c.MaxLag)
	case c.Retry < time.Millisecond:
		return fmt.Errorf("retry %v, want at least 1 ms", c.Retry)
	}
	return c.Sessions.Validate()
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

	AlterISR []ISRProposal   // for the controller
	Follow   []Follow        // for the fetcher; of one partition the last counts
	Progress []ProgressTo    // for leaders
	Damaged  []storage.LogID // that were found damaged: they cannot lead, nor be in sync
}

// Reply is an answer to a request.
type Reply = wire.Reply

// Line is one line for the operator.
type Line struct {
	Level slog.Level
	Text  string
	Attrs []slog.Attr
}

func (o *Out) reply(c wire.Caller, r wire.Response) {
	o.Replies = append(o.Replies, Reply{Caller: c, Response: r})
}

// Stats counts what the table did. The node owns it; it is never reset.
type Stats struct {
	ProduceRequests int64
	FetchRequests   int64
	FetchLooks      int64 // at partitions, for fetches
	BytesIn         int64 // accepted batches
	BatchesIn       int64
	RecordsIn       int64
	Duplicates      int64
	BytesOut        int64 // to consumers

	ReplicatedBatches  int64 // from leaders
	ReplicatedBytes    int64 // from leaders
	ReplicatedBytesOut int64 // to followers
	ISRProposals       int64
	StaleReports       int64 // of followers, that counted for nothing
	Truncations        int64
}

// A Partition is one replica of one partition, and who waits for it.
type Partition struct {
	topic     *topic
	replica   replica.Replica
	producers producer.State
	view      storage.View
	damage    error         // why nothing may be served, or nil
	begun     *begun        // what the log is to begin with that is being reset
	watch     session.Watch // who fetches it
	// leaderStart is where the log of a leader that it followed began.
	leaderStart record.Offset
	reviewAt    clock.Instant // when it is in Table.reviews, or clock.Never
	index       int32         // of the partition
	shortAt     int32         // where it is in Table.short, or -1
	dirty       bool          // changed since the last checkpoint began
	fetched     bool          // the fetcher was told to
	spare       bool          // the metadata count on other replicas only
	resetting   bool          // a job to reset it is out
}

// log is the id of the partition's log.
func (p *Partition) log() storage.LogID { return storage.LogID{Topic: p.topic.ID, Partition: p.index} }

type topic struct {
	Topic
	partitions []*Partition // by index; nil where this node has no replica
	open       int          // how many are not nil
}

// Table is the partitions of one node.
//
// Invariants: topics and ids hold the same topics; dirty holds the partitions
// whose dirty is set, in the order they became so; short holds those that are led
// and have replicas that are not in sync.
type Table struct {
	cfg    Config
	topics map[string]*topic
	ids    map[metadata.TopicID]*topic
	dirty  []*Partition
	short  []*Partition

	node    replica.Node
	brokers []BrokerInfo // by id
	image   metadata.Image
	lease   clock.Instant // consumers are answered until then

	promises   promises
	expiring   []*produce // answered or not, oldest first
	sweepAt    clock.Instant
	reviews    clock.Deadlines[*Partition]
	reads      map[job.Ticket]read
	lookups    map[job.Ticket]lookup
	lastTicket job.Ticket
	expireAt   clock.Instant         // when old producers are forgotten next
	followed   int64                 // bytes of appends in flight that leaders sent
	held       []*Partition          // to be fetched again when those are fewer; some may be gone
	leaving    map[storage.LogID]int // results to come of partitions that were dropped

	sessions    *session.Cache
	fetches     map[*session.Session]*fetch // that are not answered yet
	peers       map[metadata.NodeID]*fetch  // of those, the last of each node
	conns       map[uint64][]*fetch         // that wait, by connection
	deadlines   clock.Deadlines[*expiry]
	woken       []*session.Entry // used again
	starving    []*fetch         // wait for the lease, or did
	starvingMax int              // length at which those that do not are dropped

	deletions deletions

	listing       []*listOffsets // wait for the lease
	listDeadlines clock.Deadlines[*listOffsets]

	Stats Stats
}

// expireEvery is how often producers that stopped writing are looked for.
const expireEvery = 10 * time.Minute

// New returns an empty table. What must not be guessed is drawn from rng.
func New(cfg Config, rng *rand.Rand) *Table {
	return &Table{
		cfg:     cfg,
		topics:  make(map[string]*topic),
		ids:     make(map[metadata.TopicID]*topic),
		node:    replica.Node{Self: metadata.NoNode, MaxLag: cfg.MaxLag, Retry: cfg.Retry},
		reads:   make(map[job.Ticket]read),
		lookups: make(map[job.Ticket]lookup),
		leaving: make(map[storage.LogID]int),

		sessions: session.New(cfg.Sessions, rng),
		fetches:  make(map[*session.Session]*fetch),
		peers:    make(map[metadata.NodeID]*fetch),
		conns:    make(map[uint64][]*fetch),
		sweepAt:  clock.Never, expireAt: clock.Never,
	}
}

// Configure gives a topic another configuration. The image that it comes from is
// the table's.
func (t *Table) Configure(name string, cfg metadata.TopicConfig, at Moment, out *Out) {
	tp := t.topics[name]
	if tp == nil {
		return
	}
	tp.Config = cfg
	for _, p := range tp.partitions {
		if p == nil || !p.replica.Leading() {
			continue
		}
		if mp, ok := t.image.Partition(tp.ID, p.index); ok {
			was := p.marks()
			var ro replica.Out
			p.replica.SetMinISR(max(1, t.image.EffectiveMinISR(mp)), &t.node, at.Now, &ro)
			t.moved(p, was, &ro, at, out)
		}
	}
}

// Done takes the result of a job the table asked for.
func (t *Table) Done(res job.Result, at Moment, out *Out) {
	switch j := res.Job.(type) {
	case job.Append:
		if res.Early {
			t.shown(j, res, at, out)
			return
		}
		t.appended(j, res, at, out)
	case job.Read:
		t.readDone(j, res, at, out)
	case job.Lookup:
		t.lookupDone(j, res, at, out)
	case job.Truncate:
		t.truncated(j.Log, res, at, out)
	case job.Reset:
		t.truncated(j.Log, res, at, out)
	case job.RaiseStart:
		t.raised(j, res, at, out)
	}
}

// NextWake is when the table wants to be woken, or clock.Never.
func (t *Table) NextWake() clock.Instant {
	return min(t.deadlines.Next(), t.sweepAt, t.expireAt, t.reviews.Next(), t.listDeadlines.Next(), t.deletions.next())
}

// Wake does what is due.
func (t *Table) Wake(at Moment, out *Out) {
	for {
		x, ok := t.deadlines.Due(at.Now)
		if !ok {
			break
		}
		if x.fetch != nil {
			t.serve(x.fetch, at, out)
		}
	}
	t.listsDue(at, out)
	t.reviewDue(at, out)
	if at.Now >= t.deletions.next() {
		t.checkDeletions(at, out)
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

// Snapshots returns what a checkpoint keeps of every partition that changed since
// the last call. Each belongs to its log as it is once every append that was
// handed out before has been done.
func (t *Table) Snapshots() []storage.Snapshot {
	var out []storage.Snapshot
	dirty := t.dirty
	t.dirty = t.dirty[:0]
	for _, p := range dirty {
		p.dirty = false
		switch {
		case t.partition(p.log()) != p:
		case p.resetting: // what is known of it now is nothing by then
			p.dirty = true
			t.dirty = append(t.dirty, p)
		default:
			out = append(out, storage.Snapshot{Log: p.log(), Data: p.snapshot()})
		}
	}
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
