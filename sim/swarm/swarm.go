// Package swarm draws what a run is like: its load, its sizes, its speeds and
// its faults. Every seed has a different subset of faults and different sizes,
// because a run in which everything happens hides what needs something to be
// absent.
//
// Source: Groce et al., "Swarm Testing", ISSTA 2012.
package swarm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlbroker/pawl/sim/kernel"
)

// Config is one run apart from its seed. It prints as name=value words and
// parses from them, so a run can be repeated from text alone.
type Config struct {
	// DurationMillis is how long there is load and faults.
	DurationMillis int64
	// Nodes is how many nodes there are, the first Voters of which vote.
	Nodes, Voters int64
	// Replication is how many replicas a partition has, MinISR how many of them
	// must be in sync for what is produced with acks=all. Kafka:
	// min.insync.replicas.
	Replication, MinISR int64
	// LagMillis is how long a follower may be behind and in sync. Kafka:
	// replica.lag.time.max.ms.
	LagMillis int64
	// SessionMillis is how long a broker may be silent. Kafka:
	// broker.session.timeout.ms.
	SessionMillis int64
	// RebalanceSeconds is how often leaders are given back. Kafka:
	// leader.imbalance.check.interval.seconds.
	RebalanceSeconds int64
	// Producers, Idempotent and Readers are how many clients of each kind.
	Producers, Idempotent, Readers int64
	// Deleters is how many clients delete records of what the others write.
	Deleters int64
	// Pipelines is how many idempotent producers there are that send several
	// batches before the first is answered, to a partition of their own.
	Pipelines int64
	// Passers is how many clients create and delete topics of one name: 0 or 1.
	Passers int64
	// Admins is how many clients create, delete and configure topics of few names.
	Admins int64
	// Operators is how many clients move partitions, leaders and voters: 0 or 1.
	// OperateMillis is the longest pause of one.
	Operators, OperateMillis int64
	// Lax says whether there is a topic that anybody may lead: 1 by its
	// configuration, 2 because an operator says so. It has LaxReplicas.
	Lax, LaxReplicas int64
	// Sessions is over how many connections they are spread.
	Sessions int64
	// Partitions of the one topic.
	Partitions int64
	// Acks of the producers that are not idempotent: -1, 0 or 1.
	Acks int64
	// MaxBatch is the most records in a batch, MaxRecord their values' most bytes.
	MaxBatch, MaxRecord int64
	// ReadBytes is what a read asks for at most. Kafka: max.partition.fetch.bytes.
	ReadBytes int64
	// ThinkMicros is the longest pause of a client.
	ThinkMicros int64
	// PatienceMillis is how long a client waits for an answer.
	PatienceMillis int64
	// Compressed is how many of 10 batches are.
	Compressed int64

	// SegmentBytes is the topic's segment.bytes.
	SegmentBytes int64
	// LargeAppend, JournalFileBytes, JournalGrowBytes and IndexIntervalBytes are
	// the store's.
	LargeAppend, JournalFileBytes, JournalGrowBytes, IndexIntervalBytes int64
	// CheckpointBytes is after how many bytes the node begins a checkpoint.
	CheckpointBytes int64
	// SnapshotEntries is how long the metadata log becomes before it is replaced by
	// the image it comes to.
	SnapshotEntries int64

	// NetMicros and DiskMicros are the longest usual delay of a packet, and of a
	// job that waits for its turn.
	NetMicros, DiskMicros int64
	// SplitPercent is how many sends arrive in pieces.
	SplitPercent int64
	// RestartPercent is how many of an idempotent producer's retries are restarts.
	RestartPercent int64

	// Faults is how long it is between two faults of each kind, on average, in
	// milliseconds; 0 is never.
	Faults [FaultKinds]int64
}

// MostNodes is how many nodes a run has at most.
const MostNodes = 7

// Fault is a kind of fault that the run's schedule can have.
type Fault int

// The faults.
const (
	Kill       Fault = iota // the process dies; the page cache stays
	Power                   // the machine dies between two calls of the file system, or within a write
	Restart                 // the process is asked to stop, and is started again
	SyncError               // a sync fails, and what it did not write is lost
	ReadError               // a read fails
	WriteError              // a write fails, after a part of it
	DiskFull                // no room, for a while
	SlowDisk                // everything on disk takes long, for a while
	BitRot                  // a durable bit flips
	BadSector               // a durable sector cannot be read any more
	Reset                   // a connection is reset
	HalfOpen                // one direction of a link is silent, for a while
	Cut                     // both are
	SlowLink                // a link is slow, for a while
	LostReply               // a response is lost with its connection
	Pause                   // the process does not run, for a while
	WallStep                // the wall clock jumps

	// Those from here on need more than one node.

	Isolate   // a node that leads something is cut off from the other nodes
	Partition // the nodes are in two parts that do not hear each other
	Bridge    // only some nodes can hear all others
	OneWay    // a node does not hear another, but is heard
	PeerReset // a connection between two nodes is reset
	SlowPeer  // the way between two nodes is slow, for a while
	Rolling   // one node after another is asked to stop, and is started again
	LongPause // a process does not run for longer than its session lasts
	Drift     // a clock is faster or slower from here on, within the bound
	Wipe      // a node loses its disk, and is started again without

	// Beyond takes clocks out of the bound that reads rest on. It is never drawn
	// unless it is asked for by name.
	Beyond

	FaultKinds
)

// firstOfMany is the first fault that needs more than one node.
const firstOfMany = Isolate

// destroys says whether a fault takes away what was durable. Only one node of a
// run has such faults.
func (f Fault) destroys() bool { return f == BitRot || f == BadSector || f == Wipe }

var faultNames = [FaultKinds]string{
	"kill", "power", "restart", "sync-error", "read-error", "write-error", "disk-full", "slow-disk",
	"bit-rot", "bad-sector", "reset", "half-open", "cut", "slow-link", "lost-reply", "pause", "wall-step",
	"isolate", "partition", "bridge", "one-way", "peer-reset", "slow-peer", "rolling", "long-pause", "drift", "wipe", "clock-beyond",
}

// String is the fault's name on the command line.
func (f Fault) String() string { return faultNames[f] }

// FaultNames lists every fault by name.
func FaultNames() []string { return slices.Clone(faultNames[:]) }

// ErrConfig says that a configuration cannot be read or makes no sense.
var ErrConfig = errors.New("run configuration")

// field is one number by name, with its range.
type field struct {
	name     string
	value    *int64
	min, max int64
}

// fields lists everything, in printing order.
func (c *Config) fields() []field {
	out := []field{
		{"duration_ms", &c.DurationMillis, 1, 1 << 40},
		{"nodes", &c.Nodes, 1, MostNodes},
		{"voters", &c.Voters, 1, MostNodes},
		{"replication", &c.Replication, 1, MostNodes},
		{"min_isr", &c.MinISR, 1, MostNodes},
		{"lag_ms", &c.LagMillis, 1000, 1 << 30},
		{"session_ms", &c.SessionMillis, 1, 1 << 30},
		{"rebalance_s", &c.RebalanceSeconds, 1, 1 << 20},
		{"producers", &c.Producers, 0, 1000},
		{"idempotent", &c.Idempotent, 0, 1000},
		{"readers", &c.Readers, 0, 1000},
		{"deleters", &c.Deleters, 0, 100},
		{"pipelines", &c.Pipelines, 0, 100},
		{"passers", &c.Passers, 0, 1},
		{"admins", &c.Admins, 0, 100},
		{"operators", &c.Operators, 0, 1},
		{"operate_ms", &c.OperateMillis, 1, 1 << 30},
		{"lax", &c.Lax, 0, 2},
		{"lax_replicas", &c.LaxReplicas, 1, MostNodes},
		{"sessions", &c.Sessions, 1, 1000},
		{"partitions", &c.Partitions, 1, 10000},
		{"acks", &c.Acks, -1, 1},
		{"max_batch", &c.MaxBatch, 1, 10000},
		{"max_record", &c.MaxRecord, 12, 1 << 20},
		{"read_bytes", &c.ReadBytes, 1, 1 << 30},
		{"think_us", &c.ThinkMicros, 1, 1 << 40},
		{"patience_ms", &c.PatienceMillis, 1, 1 << 30},
		{"compressed", &c.Compressed, 0, 10},
		{"segment_bytes", &c.SegmentBytes, 14, 1 << 31},
		{"large_append", &c.LargeAppend, 1, 1 << 40},
		{"journal_file_bytes", &c.JournalFileBytes, 1 << 10, 1 << 31},
		{"journal_grow_bytes", &c.JournalGrowBytes, 0, 1 << 30},
		{"index_interval_bytes", &c.IndexIntervalBytes, 1, 1 << 30},
		{"checkpoint_bytes", &c.CheckpointBytes, 1, 1 << 40},
		{"snapshot_entries", &c.SnapshotEntries, 1, 1 << 40},
		{"net_us", &c.NetMicros, 1, 1 << 40},
		{"disk_us", &c.DiskMicros, 1, 1 << 40},
		{"split_percent", &c.SplitPercent, 0, 100},
		{"restart_percent", &c.RestartPercent, 0, 100},
	}
	for f := range FaultKinds {
		out = append(out, field{"every_ms." + f.String(), &c.Faults[f], 0, 1 << 40})
	}
	return out
}

// String is the configuration as words; a fault that never happens is left out.
func (c Config) String() string {
	var b strings.Builder
	for _, f := range c.fields() {
		if *f.value == 0 && strings.HasPrefix(f.name, "every_ms.") {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(f.name)
		b.WriteByte('=')
		b.WriteString(strconv.FormatInt(*f.value, 10))
	}
	return b.String()
}

// Set changes what text names, as String prints it.
func (c *Config) Set(text string) error {
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		i := slices.IndexFunc(c.fields(), func(f field) bool { return f.name == name })
		if i < 0 {
			return fmt.Errorf("%w: no field %q", ErrConfig, name)
		}
		v, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("%w: %s: %q is no number", ErrConfig, name, value)
		}
		*c.fields()[i].value = v
	}
	return c.Validate()
}

// Parse reads what String prints. What is not named is as in Base.
func Parse(text string) (Config, error) {
	c := Base()
	err := c.Set(text)
	return c, err
}

// Validate returns ErrConfig with the first field that is out of range.
func (c Config) Validate() error {
	for _, f := range c.fields() {
		if *f.value < f.min || *f.value > f.max {
			return fmt.Errorf("%w: %s=%d, want %d to %d", ErrConfig, f.name, *f.value, f.min, f.max)
		}
	}
	for f, every := range c.Faults {
		if every > 0 && Fault(f) >= firstOfMany && c.Nodes == 1 {
			return fmt.Errorf("%w: %s needs more than one node", ErrConfig, Fault(f))
		}
	}
	switch {
	case c.Producers+c.Idempotent+c.Readers == 0:
		return fmt.Errorf("%w: no clients", ErrConfig)
	case c.Voters > c.Nodes || c.Replication > c.Nodes || c.MinISR > c.Replication:
		return fmt.Errorf("%w: %d nodes, %d voters, %d replicas, %d in sync", ErrConfig, c.Nodes, c.Voters, c.Replication, c.MinISR)
	}
	return nil
}

// Base is a small run without faults.
func Base() Config {
	return Config{
		DurationMillis: 2000, Nodes: 1, Voters: 1, Replication: 1, MinISR: 1, LagMillis: 30_000, SessionMillis: 9000, RebalanceSeconds: 300, Producers: 2, Idempotent: 2, Readers: 2, Deleters: 1, Pipelines: 1, Passers: 1, Admins: 1, OperateMillis: 500, LaxReplicas: 2, Sessions: 6, Partitions: 3, Acks: -1,
		MaxBatch: 4, MaxRecord: 300, ReadBytes: 16 << 10, ThinkMicros: 40_000, PatienceMillis: 1000, Compressed: 1,
		SegmentBytes: 16 << 10, LargeAppend: 4 << 10, JournalFileBytes: 32 << 10, JournalGrowBytes: 4 << 10,
		IndexIntervalBytes: 1 << 10, CheckpointBytes: 24 << 10, SnapshotEntries: 20,
		NetMicros: 2000, DiskMicros: 2000, SplitPercent: 10, RestartPercent: 5,
	}
}

// Draw makes the run of a seed, of a given length; faults are those it may
// have. If nodes is 0 that is drawn too, and without a duration one node has two
// seconds and more have ten.
func Draw(seed uint64, nodes int, duration time.Duration, faults []Fault) Config {
	c := Base()
	c.DurationMillis = duration.Milliseconds()
	rng := kernel.Stream(seed, "swarm")
	one := func(choices ...int64) int64 { return choices[rng.IntN(len(choices))] }
	c.Producers, c.Idempotent, c.Readers = one(0, 1, 2, 3), one(1, 2, 3), one(1, 2, 3)
	c.Sessions = one(1, 2, c.Producers+c.Idempotent+c.Readers)
	c.Partitions = one(1, 2, 3, 8)
	c.Acks = one(-1, -1, -1, -1, 0, 1)
	c.MaxBatch, c.MaxRecord = one(1, 4, 16), one(12, 100, 300, 3000)
	c.ReadBytes = one(1, 1000, 16<<10, 64<<10)
	c.ThinkMicros = one(2_000, 20_000, 60_000, 200_000)
	c.PatienceMillis = one(100, 500, 1000)
	c.Compressed = one(0, 0, 2)
	c.SegmentBytes = one(1000, 4000, 16<<10, 64<<10)
	c.LargeAppend = one(1, 500, 4<<10, 128<<10)
	c.JournalFileBytes = one(1<<10, 8<<10, 32<<10, 128<<10)
	c.JournalGrowBytes = one(0, 512, 4<<10, 64<<10)
	c.IndexIntervalBytes = one(1, 300, 1<<10, 4<<10)
	c.CheckpointBytes = one(1, 2<<10, 8<<10, 64<<10, 1<<20)
	c.NetMicros = one(200, 1000, 3000, 20_000)
	c.DiskMicros = one(100, 1000, 5000, 20_000)
	c.SplitPercent = one(0, 10, 60)
	c.RestartPercent = one(0, 5, 30)
	c.Pipelines = one(0, 1, 1, 2)
	c.SnapshotEntries = one(1, 5, 20, 10_000)
	c.Passers = one(0, 1)
	c.Admins = one(0, 1, 2, 3)
	c.Deleters = []int64{0, 0, 1, 2}[kernel.Stream(seed, "swarm deletions").IntN(4)]
	c.drawCluster(seed, int64(nodes))
	if duration == 0 {
		c.DurationMillis = 2000
		if c.Nodes > 1 {
			c.DurationMillis = 10_000
		}
	}
	for _, f := range faults {
		if c.Nodes > 1 || f < firstOfMany {
			c.Faults[f] = drawRate(seed, f)
		}
	}
	if c.Nodes > 1 {
		c.drawReplication(seed)
	}
	return c
}

// drawCluster draws how many nodes there are, and how many vote.
func (c *Config) drawCluster(seed uint64, nodes int64) {
	rng := kernel.Stream(seed, "swarm cluster")
	drawn := []int64{1, 2, 3, 3, 3, 3, 4, 5, 7}[rng.IntN(9)]
	if c.Nodes = nodes; nodes == 0 {
		c.Nodes = drawn
	}
	voters := []int64{3, 3, 3, 5, 1}[rng.IntN(5)]
	for voters > c.Nodes {
		voters -= 2
	}
	c.Voters = voters
}

// drawReplication draws how often things are stored. What destroys a disk is
// survived only by what is on two.
func (c *Config) drawReplication(seed uint64) {
	rng := kernel.Stream(seed, "swarm replication")
	c.Replication = min(c.Nodes, []int64{3, 3, 3, 2, 1}[rng.IntN(5)])
	c.MinISR = 1 + rng.Int64N(c.Replication)
	c.Operators, c.OperateMillis = rng.Int64N(2), []int64{100, 500, 2000}[rng.IntN(3)]
	c.LagMillis = []int64{1000, 1500, 5000, 30_000}[rng.IntN(4)]
	c.SessionMillis = []int64{600, 1000, 3000, 9000}[rng.IntN(4)]
	c.RebalanceSeconds = []int64{1, 5, 300}[rng.IntN(3)]
	rng = kernel.Stream(seed, "swarm lax")
	c.Lax, c.LaxReplicas = []int64{0, 0, 0, 1, 2}[rng.IntN(5)], []int64{2, 2, 3}[rng.IntN(3)]
	if c.Destroys() {
		c.Replication = max(c.Replication, 2)
		c.MinISR = max(c.MinISR, 2)
	}
}

// Destroys says whether a run has faults that take away what was durable.
func (c *Config) Destroys() bool {
	for f, every := range c.Faults {
		if every > 0 && Fault(f).destroys() {
			return true
		}
	}
	return false
}

// drawRate is how often a fault happens in the run of a seed: in most runs
// never. It does not depend on which others are allowed.
func drawRate(seed uint64, f Fault) int64 {
	rng := kernel.Stream(seed, "swarm fault", uint64(f))
	if rng.IntN(3) != 0 {
		return 0
	}
	rates := []int64{100, 300, 600, 1500}
	switch f {
	case SyncError, ReadError, WriteError, BitRot, BadSector:
		rates = []int64{600, 1500, 4000}
	case Reset, LostReply:
		rates = []int64{50, 150, 500}
	case PeerReset:
		rates = []int64{100, 300, 1000}
	case Isolate, Partition, Bridge, OneWay, SlowPeer, Drift, Beyond:
		rates = []int64{300, 1000, 3000}
	case Rolling, LongPause, Wipe:
		rates = []int64{2000, 5000}
	}
	return rates[rng.IntN(len(rates))]
}

// ParseFaults reads a list of fault names, "all" or "none".
func ParseFaults(text string) ([]Fault, error) {
	switch text {
	case "none", "":
		return nil, nil
	case "all":
		all := make([]Fault, Beyond)
		for i := range all {
			all[i] = Fault(i)
		}
		return all, nil
	}
	var out []Fault
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(faultNames[:], name)
		if i < 0 {
			return nil, fmt.Errorf("%w: no fault %q; there are %s", ErrConfig, name, strings.Join(faultNames[:], ", "))
		}
		out = append(out, Fault(i))
	}
	return out, nil
}
