package client

import (
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/workloads"
)

// Gambler writes to and reads from a topic that would rather lose records than be
// without a leader. What it does is no part of the history, since what is
// acknowledged there may be lost; the Watcher, who knows when, judges it.
type Gambler struct {
	k       *kernel.Kernel
	cluster *Cluster
	watch   Watcher
	cfg     Config
	rng     *rand.Rand
	id      history.Client
	lax     LaxTopic

	values  uint64
	next    []record.Offset // by partition, where it reads on
	refused []int           // by partition, how often in a row it could not write
	busy    bool
	retired bool
	index   int32 // of the partition that it writes to now; any if negative

	// Acked is how many batches of each partition were acknowledged, and Forced how
	// often it had anybody elected.
	Acked  []int64
	Forced int64
}

// LaxTopic is what a Gambler gambles with.
type LaxTopic struct {
	Name       string
	Partitions int
	// Force says that the topic itself does not allow unclean elections, so that the
	// Gambler has to say so, whenever a partition has been without a leader for long.
	// Forcing is told before it does.
	Force   bool
	Forcing func(history.Partition)
}

// patienceWithLeaders is how often in a row a write is refused before an election is
// forced.
const patienceWithLeaders = 6

// uncleanElection is ElectLeaders' type of elections that may lose records.
const uncleanElection = 1

// NewGambler returns a Gambler that begins within its think time.
func NewGambler(k *kernel.Kernel, c *Cluster, id history.Client, lax LaxTopic, watch Watcher, cfg Config) *Gambler {
	g := &Gambler{k: k, cluster: c, id: id, watch: watch, cfg: cfg, rng: k.Stream("client", uint64(id), 5), lax: lax, index: -1,
		next: make([]record.Offset, lax.Partitions), refused: make([]int, lax.Partitions), Acked: make([]int64, lax.Partitions)}
	g.rest()
	return g
}

// Retire makes the Gambler begin nothing more.
func (g *Gambler) Retire() { g.retired = true }

// Idle says whether nothing that it asked for is without an answer.
func (g *Gambler) Idle() bool { return !g.busy }

// Insist makes the Gambler write to one partition only, or to all if that is
// negative.
func (g *Gambler) Insist(index int32) { g.index = index }

func (g *Gambler) rest() {
	g.k.After(kernel.Between(g.rng, 0, g.cfg.Think+20*time.Millisecond), g, 0, 0)
}

// Happen is for the kernel.
func (g *Gambler) Happen(kernel.What, uint64) {
	if g.retired {
		return
	}
	i := g.rng.IntN(g.lax.Partitions)
	if g.index >= 0 {
		i = int(g.index)
	}
	switch {
	case g.lax.Force && g.refused[i] >= patienceWithLeaders:
		g.refused[i] = 0
		g.Elect(int32(i))
		g.rest()
	case g.rng.IntN(3) == 0:
		g.read(i)
	default:
		g.write(i)
	}
}

func (g *Gambler) part(i int) history.Partition {
	return history.Partition{Topic: g.lax.Name, Index: int32(i)}
}

// answered says that a request has its answer, or will not get one.
func (g *Gambler) answered(i int, code int16, err error) {
	g.busy = false
	g.rest()
	if _, moved := passes(code); moved || err != nil {
		g.cluster.Moved(g.part(i))
	}
}

// write makes the one attempt at a batch.
func (g *Gambler) write(i int) {
	b := record.NewBuilder()
	for range 1 + g.rng.IntN(3) {
		v := workloads.MakeValue(g.id, g.values)
		g.values++
		b.Append(g.cfg.Wall(), workloads.RecordKey(v), workloads.AppendPayload(nil, v, 12+g.rng.IntN(200)))
	}
	batch := b.Build(record.Options{})
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	req.TimeoutMillis = int32(g.cluster.patience / time.Millisecond / 2)
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = int32(i), batch
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = g.lax.Name
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	g.busy = true
	g.cluster.AskLeader(g.part(i), nil, req, func(resp kmsg.Response, err error) {
		r, ok := resp.(*kmsg.ProduceResponse)
		if !ok || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
			g.answered(i, 0, err)
			g.refused[i]++
			return
		}
		got := r.Topics[0].Partitions[0]
		g.answered(i, got.ErrorCode, nil)
		if g.refused[i]++; got.ErrorCode == 0 {
			g.watch.Acked(g.part(i), record.Offset(got.BaseOffset), batch)
			g.refused[i] = 0
			g.Acked[i]++
		}
	})
}

// read reads on. What it has read before may be gone, and then it begins anew.
func (g *Gambler) read(i int) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = int32(g.rng.IntN(50)), 1, 1<<20, -1
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes, part.CurrentLeaderEpoch = int32(i), int64(g.next[i]), 1<<20, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = g.lax.Name
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	g.busy = true
	g.cluster.AskLeader(g.part(i), nil, req, func(resp kmsg.Response, err error) {
		r, ok := resp.(*kmsg.FetchResponse)
		if !ok || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
			g.answered(i, 0, err)
			return
		}
		got := r.Topics[0].Partitions[0]
		g.answered(i, got.ErrorCode, nil)
		if got.ErrorCode == codeOutOfRange || g.rng.IntN(20) == 0 {
			g.next[i] = 0
			return
		}
		if got.ErrorCode == 0 {
			g.took(i, got.RecordBatches)
		}
	})
}

func (g *Gambler) took(i int, rest []byte) {
	for len(rest) > 0 {
		b, after, err := record.Cut(rest)
		if at := g.next[i]; err == nil && (b.NextOffset() <= at || b.BaseOffset() > at) {
			err = errNotAsked
		}
		if err != nil {
			g.watch.Spoiled(g.part(i), g.next[i], err.Error())
			return
		}
		g.watch.Served(g.part(i), b)
		rest, g.next[i] = after, b.NextOffset()
	}
}

// Elect has anybody lead a partition that has no leader.
func (g *Gambler) Elect(index int32) {
	p := g.part(int(index))
	g.lax.Forcing(p)
	g.k.Trace.Event(g.cluster.who, "forces an election", uint64(index), 0, 0)
	topic := kmsg.NewElectLeadersRequestTopic()
	topic.Topic = g.lax.Name
	topic.Partitions = []int32{index}
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType, req.TimeoutMillis = uncleanElection, 5000
	req.Topics = append(req.Topics, topic)
	g.cluster.Ask(req, func(resp kmsg.Response, err error) {
		r, ok := resp.(*kmsg.ElectLeadersResponse)
		if ok && r.ErrorCode == 0 && len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 && r.Topics[0].Partitions[0].ErrorCode == 0 {
			g.Forced++
		}
	})
}
