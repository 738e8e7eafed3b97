package client

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/workloads"
)

// Passer creates a topic, writes to it, reads it, deletes it and begins again,
// under the same name. Nobody else does anything with the topic, so it knows at
// every point what must be in it: nothing of a topic that had the name before,
// neither records nor what its producers had sent.
//
// A request that it gave up, and that may still arrive and tell of the topic by
// name alone, would be carried out on the next topic of that name. After one the
// next topic has another name.
type Passer struct {
	k       *kernel.Kernel
	cluster *Cluster
	watch   Watcher
	cfg     Config
	rng     *rand.Rand
	id      history.Client
	wrong   func(what string) // told of what must not be
	segment string            // segment.bytes
	copies  int16             // replication factor

	name    string
	names   int
	topic   [16]byte // zero if it is not known
	late    bool     // something given up may still arrive
	state   passing
	tries   int // refused in a row
	node    int // that is asked next whether it has forgotten the topic
	retired bool

	producer record.Producer
	values   uint64
	batches  []record.Batch // that the topic must hold
	want     int            // how many there are to be
	end      record.Offset
	read     []byte

	// Passed is how many topics were deleted, and Again how many of them were
	// created under a name that another had.
	Passed, Again int64
}

var errNotWritten = errors.New("a batch that was not written to this topic")

// passing is what a Passer does next.
type passing uint8

const (
	introducing passing = iota // itself: it gets a producer id
	creating
	looking // whether the topic is empty
	writing
	reading
	deleting
	forgetting // until no node knows the topic that was deleted
)

// refusals is after how many refusals in a row a topic is given up.
const refusals = 40

// NewPasser returns a Passer that begins within its think time. wrong is told
// of what must not be.
func NewPasser(k *kernel.Kernel, c *Cluster, id history.Client, segmentBytes int64, replication int16, watch Watcher, cfg Config, wrong func(string)) *Passer {
	p := &Passer{k: k, cluster: c, id: id, watch: watch, cfg: cfg, rng: k.Stream("client", uint64(id), 3),
		wrong: wrong, segment: fmt.Sprint(segmentBytes), copies: replication}
	p.rename()
	p.rest(cfg.Think)
	return p
}

// Retire makes the Passer begin no other topic.
func (p *Passer) Retire() { p.retired = true }

// Idle says whether it has nothing left to do.
func (p *Passer) Idle() bool { return p.retired && p.state <= creating }

func (p *Passer) rename() {
	p.name, p.late = fmt.Sprintf("passing-%d", p.names), false
	p.names++
}

func (p *Passer) rest(d time.Duration) { p.k.After(kernel.Between(p.rng, 0, d), p, 0, 0) }

// next goes on to a state, in a while.
func (p *Passer) next(s passing) {
	p.state, p.tries = s, 0
	p.rest(p.cfg.Think + time.Millisecond)
}

// again tries once more, in a while. After many times the topic goes.
func (p *Passer) again(err error, byName bool) {
	switch {
	case errors.Is(err, ErrNoAnswer):
		p.late = p.late || byName
	case err == nil:
		p.tries++
	}
	if p.tries > refusals && p.state == forgetting {
		p.rename()
		p.next(creating)
		return
	}
	if p.tries > refusals && p.state > creating && p.state < deleting {
		p.next(deleting)
		return
	}
	p.rest(50 * time.Millisecond)
}

// Happen is for the kernel.
func (p *Passer) Happen(kernel.What, uint64) {
	if p.Idle() {
		return
	}
	p.k.Trace.Event(p.cluster.who, "passing", uint64(p.state), uint64(p.names), uint64(len(p.batches)))
	switch p.state {
	case introducing:
		p.introduce()
	case creating:
		p.create()
	case looking, reading:
		p.fetch()
	case writing:
		p.write()
	case deleting:
		p.remove()
	case forgetting:
		p.ask()
	}
}

// part is the only one that a topic has.
func (p *Passer) part() history.Partition { return history.Partition{Topic: p.name} }

// refused tries once more after an error, perhaps elsewhere. One that leaves
// open what becomes of the request is one that may still arrive.
func (p *Passer) refused(code int16, byName bool) {
	if _, moved := passes(code); moved {
		p.cluster.Moved(p.part())
	}
	if code == codeTimedOut || code == codeUnknownServer {
		p.late = p.late || byName
	}
	p.again(nil, byName)
}

func (p *Passer) introduce() {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = 60_000
	req.ProducerID, req.ProducerEpoch = -1, -1
	p.cluster.Ask(req, func(resp kmsg.Response, err error) {
		if r, ok := resp.(*kmsg.InitProducerIDResponse); ok && r.ErrorCode == 0 {
			p.producer = record.Producer{ID: record.ProducerID(r.ProducerID), Epoch: record.ProducerEpoch(r.ProducerEpoch)}
			p.watch.Issued(p.producer.ID, p.producer.Epoch)
			p.next(creating)
			return
		}
		p.again(err, false)
	})
}

func (p *Passer) create() {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = p.name, 1, p.copies
	config := kmsg.NewCreateTopicsRequestTopicConfig()
	config.Name, config.Value = "segment.bytes", &p.segment
	topic.Configs = append(topic.Configs, config)
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 5000
	req.Topics = append(req.Topics, topic)
	p.cluster.Ask(req, func(resp kmsg.Response, err error) {
		// One that was given up and arrives late creates what is to be there, or
		// what is there; and if nothing is, what is to be there next.
		if err != nil {
			p.again(err, false)
			return
		}
		r := resp.(*kmsg.CreateTopicsResponse)
		if len(r.Topics) != 1 || r.Topics[0].ErrorCode != 0 && r.Topics[0].ErrorCode != codeTopicExists {
			p.again(nil, false)
			return
		}
		p.cluster.Moved(p.part())
		p.topic = r.Topics[0].TopicID // of version 7 on
		if r.Topics[0].ErrorCode != 0 {
			p.topic = [16]byte{}
		}
		p.batches, p.end, p.want = nil, 0, p.rng.IntN(5)
		p.next(looking)
	})
}

// fetch reads everything, and holds it against what was written.
func (p *Passer) fetch() {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MinBytes, req.MaxBytes = 1, 1<<20
	req.SessionEpoch = -1
	part := kmsg.NewFetchRequestTopicPartition()
	at := p.end
	if len(p.read) == 0 {
		at = 0
	} else if last, ok := lastBatch(p.read); ok {
		at = last.NextOffset()
	}
	part.FetchOffset, part.PartitionMaxBytes, part.CurrentLeaderEpoch = int64(at), 1<<20, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.Partitions = p.name, append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	p.cluster.AskLeader(p.part(), nil, req, func(resp kmsg.Response, err error) {
		r, ok := resp.(*kmsg.FetchResponse)
		if !ok || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
			p.again(err, false) // one that arrives late changes nothing
			return
		}
		got := r.Topics[0].Partitions[0]
		switch {
		case got.ErrorCode == codeUnknownTopic && p.cluster.Nodes() == 1:
			p.wrong(fmt.Sprintf("%s is not there: it was created and not deleted", p.name))
		case got.ErrorCode != 0:
			p.refused(got.ErrorCode, false)
			return
		case record.Offset(got.HighWatermark) != p.end:
			p.wrong(fmt.Sprintf("%s ends at %d, want %d", p.name, got.HighWatermark, p.end))
		}
		p.read = append(p.read, got.RecordBatches...)
		if !p.same() {
			return
		}
		if last, ok := lastBatch(p.read); p.end > 0 && (!ok || last.NextOffset() < p.end) {
			p.again(nil, false) // there is more
			return
		}
		p.read = nil
		if p.state == looking {
			p.next(writing)
		} else {
			p.next(deleting)
		}
	})
}

func lastBatch(b []byte) (last record.Batch, ok bool) {
	for len(b) > 0 {
		batch, rest, err := record.Cut(b)
		if err != nil {
			return last, ok
		}
		last, ok, b = batch, true, rest
	}
	return last, ok
}

// same holds what was read against what was written.
func (p *Passer) same() bool {
	rest, at := p.read, record.Offset(0)
	for i := 0; len(rest) > 0; i++ {
		b, after, err := record.Cut(rest)
		if err == nil && (i >= len(p.batches) || b.BaseOffset() != at || b.CRC() != p.batches[i].CRC()) {
			err = errNotWritten
		}
		if err != nil {
			p.watch.Spoiled(history.Partition{Topic: p.name}, at, err.Error())
			p.read = nil
			p.again(nil, false)
			return false
		}
		rest, at = after, b.NextOffset()
	}
	return true
}

// write writes one batch, until it is acknowledged. The producer begins at
// sequence 0 in every topic.
func (p *Passer) write() {
	if len(p.batches) >= p.want {
		p.next(reading)
		return
	}
	b := record.NewBuilder()
	for i := range 1 + p.values%3 {
		v := workloads.MakeValue(p.id, p.values<<2|i)
		b.Append(record.Timestamp(1_780_000_000_000), workloads.RecordKey(v), workloads.AppendPayload(nil, v, 100))
	}
	producer := p.producer
	producer.BaseSequence = record.Sequence(p.end)
	batch := b.Build(record.Options{Producer: &producer})
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	req.TimeoutMillis = int32(p.cluster.patience / time.Millisecond / 2)
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = bytes.Clone(batch)
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.Partitions = p.name, append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	p.cluster.AskLeader(p.part(), nil, req, func(resp kmsg.Response, err error) {
		r, ok := resp.(*kmsg.ProduceResponse)
		if !ok || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
			p.again(err, true)
			return
		}
		got := r.Topics[0].Partitions[0]
		switch code := got.ErrorCode; {
		case code == codeUnknownTopic && p.cluster.Nodes() == 1, code == codeOutOfOrder, code == codeDuplicate, code == codeUnknownProducer:
			p.wrong(fmt.Sprintf("%s refuses sequence %d: %s", p.name, producer.BaseSequence, codeNote(code)))
		case code != 0:
			p.refused(code, true)
		case record.Offset(got.BaseOffset) != p.end:
			p.wrong(fmt.Sprintf("%s has put a batch at %d, want %d", p.name, got.BaseOffset, p.end))
		default:
			p.batches = append(p.batches, batch)
			p.end += record.Offset(batch.Count())
			p.values++
			p.next(writing)
		}
	})
}

func (p *Passer) remove() {
	topic := kmsg.NewDeleteTopicsRequestTopic()
	if topic.TopicID = p.topic; p.topic == [16]byte{} {
		topic.Topic = &p.name
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 5000
	req.Topics = append(req.Topics, topic)
	req.TopicNames = []string{p.name} // before version 6
	p.cluster.Ask(req, func(resp kmsg.Response, err error) {
		r, ok := resp.(*kmsg.DeleteTopicsResponse)
		if !ok || len(r.Topics) != 1 {
			p.again(err, req.Version < 6 || topic.Topic != nil)
			return
		}
		switch r.Topics[0].ErrorCode {
		case 0, codeUnknownTopic, codeUnknownTopicID: // or one that was given up has done it
		default:
			p.refused(r.Topics[0].ErrorCode, req.Version < 6 || topic.Topic != nil)
			return
		}
		p.Passed++
		p.node = 0
		if p.late || p.cluster.Nodes() == 1 {
			p.recur()
		} else {
			p.next(forgetting)
		}
	})
}

// recur begins again, with the same name if that is safe.
func (p *Passer) recur() {
	if p.late {
		p.rename()
	} else {
		p.Again++
	}
	p.next(creating)
}

// ask asks one node after another whether it knows the topic. What is sent by
// name to a node that does means the topic that was deleted.
func (p *Passer) ask() {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &p.name
	req.Topics = append(req.Topics, topic)
	p.cluster.AskNode(p.node, req, func(resp kmsg.Response, err error) {
		r, ok := resp.(*kmsg.MetadataResponse)
		if !ok || len(r.Topics) != 1 || r.Topics[0].ErrorCode != codeUnknownTopic {
			p.again(nil, false)
			return
		}
		if p.node++; p.node < p.cluster.Nodes() {
			p.rest(time.Millisecond)
			return
		}
		p.recur()
	})
}
