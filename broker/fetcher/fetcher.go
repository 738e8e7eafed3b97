// Package fetcher is the follower's side of replication: it keeps Fetch requests
// going to the leaders of the partitions that this node follows. Each leader has
// one fetch session and at most one Fetch that waits there. What it costs to
// follow thousands of idle partitions is nothing, and of others as much as there
// is news of them.
//
// Where a partition is to be fetched from comes as a Follow, whenever it changes;
// what was fetched goes out as Received. A partition of which something was
// received that changes its log is not fetched again before the next Follow.
//
// A Fetch waits at the leader for up to Config.MaxWait. A partition that is to be
// fetched meanwhile does not wait so long: if the Fetch has not come back after
// Config.NudgeAfter, the leader is sent an empty Fetch without a session. A leader
// ends the wait of a node's Fetch when another one comes from that node, and so
// answers both.
//
// A Fetch without an answer may have been handled or not, so the session begins
// anew. Leaders that do not answer, and partitions that the leader has an error
// for, are tried again after a time that doubles.
//
// Sources: KIP-227 (sessions), KIP-595 (divergence is found by fetching), KIP-903
// (the broker epoch in each Fetch).
package fetcher

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// Config of a Fetcher.
type Config struct {
	Self metadata.NodeID
	// MaxWait is how long a Fetch waits at the leader for records. Kafka:
	// replica.fetch.wait.max.ms.
	MaxWait time.Duration
	// MinBytes is how many bytes of records end that wait. Kafka:
	// replica.fetch.min.bytes.
	MinBytes int32
	// MaxBytes bounds one answer, but for its first batch. Kafka:
	// replica.fetch.response.max.bytes.
	MaxBytes int32
	// PartitionMaxBytes bounds what one answer has of a partition, likewise.
	// Kafka: replica.fetch.max.bytes.
	PartitionMaxBytes int32
	// MinBackoff is how long after an error a leader or a partition is tried
	// again. It doubles with each error in a row, up to MaxBackoff. Kafka has
	// replica.fetch.backoff.ms, which is MaxBackoff, from the first error on.
	MinBackoff, MaxBackoff time.Duration
	// NudgeAfter is how long a partition waits for a Fetch to come back on which
	// it is not.
	NudgeAfter time.Duration
}

// DefaultConfig is Kafka's, where Kafka has it.
func DefaultConfig() Config {
	return Config{
		MaxWait: 500 * time.Millisecond, MinBytes: 1, MaxBytes: 10 << 20, PartitionMaxBytes: 1 << 20,
		MinBackoff: 20 * time.Millisecond, MaxBackoff: time.Second, NudgeAfter: 5 * time.Millisecond,
	}
}

// Validate returns an error that names the first field out of range.
func (c Config) Validate() error {
	switch {
	case c.MaxWait < 0:
		return fmt.Errorf("replica.fetch.wait.max.ms %v, want at least 0", c.MaxWait)
	case c.MinBytes < 0:
		return fmt.Errorf("replica.fetch.min.bytes %d, want at least 0", c.MinBytes)
	case c.MaxBytes < 0:
		return fmt.Errorf("replica.fetch.response.max.bytes %d, want at least 0", c.MaxBytes)
	case c.PartitionMaxBytes < 0:
		return fmt.Errorf("replica.fetch.max.bytes %d, want at least 0", c.PartitionMaxBytes)
	case c.MinBackoff <= 0 || c.MaxBackoff < c.MinBackoff:
		return fmt.Errorf("replica.fetch.backoff.ms %v, want at least %v, which must be positive", c.MaxBackoff, c.MinBackoff)
	case c.NudgeAfter < 0:
		return fmt.Errorf("nudge after %v, want at least 0", c.NudgeAfter)
	}
	return nil
}

// Follow is whom a partition is to be fetched from, and from where on. It takes
// the place of what was said of the partition before; an answer to a Fetch from
// elsewhere is dropped.
type Follow struct {
	Log              storage.LogID
	Leader           metadata.NodeID // NoNode: from nobody any more
	LeaderEpoch      record.LeaderEpoch
	Offset           record.Offset      // log end offset
	LastFetchedEpoch record.LeaderEpoch // of the record before Offset, or NoEpoch
	LogStart         record.Offset
	HighWatermark    record.Offset
	Paused           bool // not now; another Follow will come
}

// Out is what a call decided. The caller acts on it and resets it.
type Out struct {
	Calls    []Call
	Received []Received
	Lines    []Line
}

// Call is a request to a leader.
type Call struct {
	To  metadata.NodeID
	Seq uint64 // comes back with the answer
	Req *kmsg.FetchRequest
}

// Received is news of a partition that this node follows, from where its last
// Follow said.
type Received struct {
	From        metadata.NodeID
	LeaderEpoch record.LeaderEpoch // of the Follow
	wire.FetchedPartition
}

// Line is one line for the operator.
type Line struct {
	Level slog.Level
	Text  string
	Attrs []slog.Attr
}

// Stats counts what the fetcher did.
type Stats struct {
	Fetches     int64 // that were sent; nudges not among them
	FullFetches int64 // of those, such as named all their partitions
	Named       int64 // partitions in them
	Forgotten   int64
	Answered    int64 // partitions in answers
	Nudges      int64
	Failures    int64 // fetches that had no answer, or one that could not be used
}

// Fetcher is the partitions that a node follows.
//
// Invariants: links has each followed partition's link, which is not gone;
// leaders ascend by node.
type Fetcher struct {
	cfg     Config
	epoch   metadata.BrokerEpoch
	links   map[storage.LogID]*link
	leaders []*leader
	retries clock.Deadlines[*link]
	seq     uint64

	Stats Stats
}

// New returns a fetcher that follows nothing.
func New(cfg Config) *Fetcher {
	return &Fetcher{cfg: cfg, epoch: -1, links: make(map[storage.LogID]*link)}
}

// Register says under which epoch this node is registered as a broker; -1 if it
// is not.
func (f *Fetcher) Register(epoch metadata.BrokerEpoch) { f.epoch = epoch }

// Follow takes in where a partition is to be fetched. Fetches are sent by Wake.
func (f *Fetcher) Follow(p Follow, now clock.Instant) {
	old := f.links[p.Log]
	if old != nil && old.leader.node != p.Leader {
		delete(f.links, p.Log)
		old.leader.leave(old)
		old.changed(f, now)
		old = nil
	}
	if p.Leader == metadata.NoNode {
		return
	}
	k := f.leader(p.Leader).follow(p.Log)
	f.links[p.Log] = k
	at := placeOf(p)
	if !k.want.same(at) {
		k.failures, k.retryAt = 0, 0
	}
	k.want, k.paused, k.held = at, p.Paused, false
	k.changed(f, now)
}

// leader returns a leader, to whom nothing needs to be followed yet.
func (f *Fetcher) leader(node metadata.NodeID) *leader {
	i, ok := slices.BinarySearchFunc(f.leaders, node, func(l *leader, n metadata.NodeID) int { return int(l.node) - int(n) })
	if !ok {
		f.leaders = slices.Insert(f.leaders, i, &leader{node: node, links: make(map[storage.LogID]*link)})
	}
	return f.leaders[i]
}

// Answer takes in what came of a call: an answer, or an error that says that
// there is none.
func (f *Fetcher) Answer(from metadata.NodeID, seq uint64, resp *wire.Fetched, err error, now clock.Instant, out *Out) {
	for _, l := range f.leaders {
		if l.node != from || l.inFlight != seq {
			continue
		}
		l.inFlight = 0
		if err == nil && resp == nil {
			err = errAnswer
		}
		if err != nil {
			l.lost(f, err, now, out)
		} else {
			l.answered(f, seq, resp, now, out)
		}
	}
}

// NextWake is when the fetcher wants to be woken: at once (0) if there is
// something to send, and clock.Never if there is nothing to do.
func (f *Fetcher) NextWake() clock.Instant {
	next := f.retries.Next()
	for _, l := range f.leaders {
		next = min(next, l.nextWake())
	}
	return next
}

// Wake does what is due, and sends what can be sent. It is called when NextWake
// says so, and costs little when there is nothing to do.
func (f *Fetcher) Wake(now clock.Instant, out *Out) {
	for {
		k, ok := f.retries.Due(now)
		if !ok {
			break
		}
		if k.retryAt != 0 && k.retryAt <= now {
			k.retryAt = 0
			k.changed(f, now)
		}
	}
	for _, l := range f.leaders {
		if l.nextWake() <= now {
			l.send(f, now, out)
		}
	}
	f.leaders = slices.DeleteFunc(f.leaders, (*leader).done)
}

func (f *Fetcher) call(to metadata.NodeID, req *kmsg.FetchRequest, out *Out) uint64 {
	f.seq++
	req.Version = fetchVersion
	req.ReplicaState.ID, req.ReplicaState.Epoch = int32(f.cfg.Self), int64(f.epoch)
	out.Calls = append(out.Calls, Call{to, f.seq, req})
	return f.seq
}

// fetchVersion is the version of Fetch that followers speak.
const fetchVersion = 17

// backoff is how long to wait after so many failures in a row.
func (f *Fetcher) backoff(failures int) time.Duration {
	d := f.cfg.MinBackoff
	for i := 1; i < failures && d < f.cfg.MaxBackoff; i++ {
		d *= 2
	}
	return min(d, f.cfg.MaxBackoff)
}
