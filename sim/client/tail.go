package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/storage/record"
)

// Rack is where a node stands.
func Rack(node int) string { return fmt.Sprintf("r%d", node%3) }

var errDeleted = errors.New("deleted before it was asked for")

// Tail reads all partitions of a topic with one fetch at a time, as a consumer
// does, and starts anew now and then. What it reads is no part of the history;
// the Watcher judges it. It is also who asks for metadata.
type Tail struct {
	k       *kernel.Kernel
	cluster *Cluster
	watch   Watcher
	cfg     Config
	rng     *rand.Rand
	topic   string
	next    []record.Offset // by partition
	ends    []record.Offset // high watermarks last heard of, -1 before
	begins  []record.Offset // where the log began at least, as far as anybody knew at the last fetch
	lost    []bool          // its place: the log begins later
	retired bool
	steady  bool // goes only forward
}

// NewTail returns a reader of a topic with the given number of partitions.
func NewTail(k *kernel.Kernel, c *Cluster, topic string, partitions int, watch Watcher, cfg Config) *Tail {
	t := &Tail{k: k, cluster: c, watch: watch, cfg: cfg, rng: k.Stream("tail"), topic: topic,
		next: make([]record.Offset, partitions), ends: make([]record.Offset, partitions),
		begins: make([]record.Offset, partitions), lost: make([]bool, partitions)}
	t.Forget()
	k.After(cfg.Think, t, 0, 0)
	return t
}

// Forget makes Done mean: read to an end that is heard of from here on.
func (t *Tail) Forget() {
	for i := range t.ends {
		t.ends[i] = -1
	}
}

// Steady makes the tail only go forward from here on.
func (t *Tail) Steady() { t.steady = true }

// Retire makes the tail ask nothing more.
func (t *Tail) Retire() { t.retired = true }

// Done says whether a partition is read to its end.
func (t *Tail) Done(partition int) bool {
	return t.ends[partition] >= 0 && t.next[partition] >= t.ends[partition]
}

// Read is how far it has read, all partitions together.
func (t *Tail) Read() (n int64) {
	for _, next := range t.next {
		n += int64(next)
	}
	return n
}

// Happen is for the kernel.
func (t *Tail) Happen(kernel.What, uint64) {
	switch {
	case t.retired:
	case slices.Contains(t.lost, true):
		t.find(slices.Index(t.lost, true))
	case t.rng.IntN(20) == 0:
		t.metadata()
	default:
		t.fetch()
	}
}

func (t *Tail) rest() {
	if t.steady {
		t.k.After(5*time.Millisecond, t, 0, 0)
		return
	}
	t.k.After(kernel.Between(t.rng, 5*time.Millisecond, t.cfg.Think+60*time.Millisecond), t, 0, 0)
}

func (t *Tail) fetch() {
	if !t.steady && t.rng.IntN(10) == 0 {
		i := t.rng.IntN(len(t.next))
		t.next[i] = record.Offset(t.rng.Int64N(int64(t.next[i]) + 1))
	}
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(t.rng.IntN(100))
	req.MinBytes, req.MaxBytes = 1, int32(1+t.rng.IntN(64<<10))
	req.SessionEpoch = int32(t.rng.IntN(2)) - 1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = t.topic
	first := t.rng.IntN(len(t.next)) // so that none starves behind the others
	leader := t.cluster.Leader(t.part(first))
	if leader < 0 {
		t.cluster.Learn(t.part(first))
		t.rest()
		return
	}
	node := leader
	if n := t.cluster.Nodes(); n > 1 && !t.steady && t.rng.IntN(4) == 0 {
		node = t.rng.IntN(n)
		req.Rack = Rack(node)
	}
	for i := range t.next {
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition = int32((first + i) % len(t.next))
		if t.cluster.Leader(t.part(int(part.Partition))) != leader {
			continue
		}
		part.FetchOffset = int64(t.next[part.Partition])
		t.begins[part.Partition] = t.watch.Begins(t.part(int(part.Partition)))
		part.PartitionMaxBytes = int32(1 + t.rng.IntN(16<<10))
		if t.steady {
			part.PartitionMaxBytes, req.MaxBytes = 1<<20, 1<<20
		}
		part.CurrentLeaderEpoch = -1
		topic.Partitions = append(topic.Partitions, part)
	}
	req.Topics = append(req.Topics, topic)
	t.cluster.AskNode(node, req, func(resp kmsg.Response, err error) {
		t.rest()
		if err != nil {
			for _, p := range topic.Partitions {
				t.cluster.Moved(t.part(int(p.Partition)))
			}
			return
		}
		for _, top := range resp.(*kmsg.FetchResponse).Topics {
			for i := range top.Partitions {
				t.took(&top.Partitions[i])
			}
		}
	})
}

func (t *Tail) took(p *kmsg.FetchResponseTopicPartition) {
	if p.Partition < 0 || int(p.Partition) >= len(t.next) {
		t.cluster.broken("Fetch answers for other partitions than asked")
		return
	}
	part := t.part(int(p.Partition))
	if _, moved := passes(p.ErrorCode); moved {
		t.cluster.Moved(part)
	}
	if p.ErrorCode == codeOutOfRange {
		t.watch.OutOfRange(part, t.next[p.Partition])
		t.lost[p.Partition] = true
	}
	if p.ErrorCode != 0 {
		return
	}
	t.ends[p.Partition] = record.Offset(p.HighWatermark)
	for rest := p.RecordBatches; len(rest) > 0; {
		b, after, err := record.Cut(rest)
		if err != nil {
			t.watch.Spoiled(part, t.next[p.Partition], err.Error())
			return
		}
		rest = after
		if at := t.next[p.Partition]; b.NextOffset() <= at || b.BaseOffset() > at {
			t.watch.Spoiled(part, at, errNotAsked.Error())
			return
		}
		if b.NextOffset() <= t.begins[p.Partition] {
			t.watch.Spoiled(part, b.BaseOffset(), errDeleted.Error())
			return
		}
		t.watch.Served(part, b)
		t.next[p.Partition] = b.NextOffset()
	}
}

// find asks where a partition begins.
func (t *Tail) find(i int) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Partition, part.Timestamp, part.CurrentLeaderEpoch = int32(i), earliest, -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = t.topic
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	t.cluster.AskLeader(t.part(i), nil, req, func(resp kmsg.Response, err error) {
		t.rest()
		r, ok := resp.(*kmsg.ListOffsetsResponse)
		if err != nil || !ok || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
			return
		}
		got := r.Topics[0].Partitions[0]
		if _, moved := passes(got.ErrorCode); moved {
			t.cluster.Moved(t.part(i))
		}
		if got.ErrorCode == 0 {
			t.next[i], t.lost[i] = max(t.next[i], record.Offset(got.Offset)), false
		}
	})
}

func (t *Tail) part(i int) history.Partition {
	return history.Partition{Topic: t.topic, Index: int32(i)}
}

func (t *Tail) metadata() {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = true // it is there
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(t.topic)
	req.Topics = append(req.Topics, topic)
	t.cluster.Ask(req, func(resp kmsg.Response, err error) {
		t.rest()
		if err != nil {
			return
		}
		r := resp.(*kmsg.MetadataResponse)
		t.cluster.learnIDs(r)
		switch {
		case len(r.Topics) != 1:
			t.cluster.broken("Metadata answers for other topics than asked")
		case r.Topics[0].ErrorCode == codeUnknownTopic:
			t.cluster.broken("Metadata has lost the topic")
		case r.Topics[0].ErrorCode == 0 && len(r.Topics[0].Partitions) != len(t.next):
			t.cluster.broken("Metadata has other partitions than there are")
		case t.cluster.Nodes() == 1 && len(r.Brokers) != 1:
			t.cluster.broken("Metadata has other brokers than there are")
		}
	})
}
