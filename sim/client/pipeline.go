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

// maxInFlight is how many batches a Pipeline has on their way at a time.
// Kafka: max.in.flight.requests.per.connection, at most 5 with idempotence.
const maxInFlight = 5

// Pipeline is an idempotent producer that does not wait for one batch before it
// sends the next. What it sends is no part of the history; the Watcher judges
// it. It never gives a batch up, so that at the end every batch is stored once
// and in order.
type Pipeline struct {
	k       *kernel.Kernel
	cluster *Cluster
	watch   Watcher
	cfg     Config
	rng     *rand.Rand
	part    history.Partition
	id      history.Client

	producer record.Producer
	issued   bool
	next     record.Sequence // of the next batch
	values   uint64
	flight   []*sent // not acknowledged yet, oldest first
	round    uint64  // counts attempts to send everything again
	resend   bool    // one is due
	resting  bool    // for good
	acked    int64
}

type sent struct {
	batch record.Batch
	asked bool // in this round
	to    int  // the leader then, or -1
}

const (
	whatSend kernel.What = iota
	whatResend
)

// NewPipeline returns a producer to one partition, whose values are those of
// client id.
func NewPipeline(k *kernel.Kernel, c *Cluster, id history.Client, part history.Partition, watch Watcher, cfg Config) *Pipeline {
	p := &Pipeline{k: k, cluster: c, watch: watch, cfg: cfg, rng: k.Stream("client", uint64(id), 2), part: part, id: id}
	k.After(kernel.Between(p.rng, 0, cfg.Think), p, whatSend, 0)
	return p
}

// Retire makes the pipeline make no new batches.
func (p *Pipeline) Retire() { p.resting = true }

// Idle says whether everything it has made is acknowledged.
func (p *Pipeline) Idle() bool { return len(p.flight) == 0 }

// Happen is for the kernel.
func (p *Pipeline) Happen(what kernel.What, round uint64) {
	switch {
	case what == whatSend:
		if p.resting && p.Idle() {
			return
		}
		p.k.After(kernel.Between(p.rng, 0, p.cfg.Think), p, whatSend, 0)
		p.make()
	case round == p.round:
		p.resend = false
		p.send()
	}
}

func (p *Pipeline) make() {
	if p.resting || len(p.flight) == maxInFlight {
		return
	}
	if !p.issued {
		if !p.resend {
			p.resend = true
			p.initProducer()
		}
		return
	}
	b := record.NewBuilder()
	for range 1 + p.rng.IntN(3) {
		v := workloads.MakeValue(p.id, p.values)
		p.values++
		b.Append(p.cfg.Wall(), workloads.RecordKey(v), workloads.AppendPayload(nil, v, 12+p.rng.IntN(200)))
	}
	producer := p.producer
	producer.BaseSequence = p.next
	p.next = p.next.Add(b.Count())
	p.flight = append(p.flight, &sent{batch: b.Build(record.Options{Producer: &producer})})
	if !p.resend {
		p.send()
	}
}

// send asks for every batch of the flight that this round has not asked for. As
// clients do, it sends nothing to a leader while what was sent before is with
// another: whoever never heard of the producer takes any batch for its first.
func (p *Pipeline) send() {
	leader := p.cluster.Leader(p.part)
	for _, s := range p.flight {
		switch {
		case s.asked && s.to != leader:
			return
		case s.asked:
			continue
		}
		s.asked, s.to = true, leader
		req := kmsg.NewPtrProduceRequest()
		req.Acks = -1
		req.TimeoutMillis = int32(p.cluster.patience / time.Millisecond / 2)
		part := kmsg.NewProduceRequestTopicPartition()
		part.Partition, part.Records = p.part.Index, s.batch
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = p.part.Topic
		topic.Partitions = append(topic.Partitions, part)
		req.Topics = append(req.Topics, topic)
		round := p.round
		p.k.Trace.Event(p.cluster.who, "pipeline sends", uint64(s.batch.ProducerID()), uint64(s.batch.BaseSequence()), round)
		// What waits to be sent must not overtake what is sent anew before it.
		p.cluster.AskLeader(p.part, func() bool { return round != p.round }, req,
			func(resp kmsg.Response, err error) { p.answered(s, round, resp, err) })
	}
}

// again sends the whole flight once more, after a while, in order.
func (p *Pipeline) again() {
	p.round++
	p.resend = true
	for _, s := range p.flight {
		s.asked = false
	}
	p.k.After(kernel.Between(p.rng, time.Millisecond, 50*time.Millisecond), p, whatResend, p.round)
}

func (p *Pipeline) answered(s *sent, round uint64, resp kmsg.Response, err error) {
	p.k.Trace.Event(p.cluster.who, "pipeline hears", uint64(s.batch.ProducerID()), uint64(s.batch.BaseSequence()), round)
	if round != p.round {
		return // everything is sent again already, and will be answered again
	}
	if err != nil {
		p.again()
		return
	}
	r := resp.(*kmsg.ProduceResponse)
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		p.cluster.broken("Produce answers for other partitions than asked")
		p.again()
		return
	}
	got := r.Topics[0].Partitions[0]
	if p.k.Trace.Wanted() && got.ErrorCode != 0 {
		p.k.Trace.Say(p.cluster.who, codeNote(got.ErrorCode))
	}
	switch {
	case got.ErrorCode == 0 && s == p.flight[0]:
		p.watch.Acked(p.part, record.Offset(got.BaseOffset), s.batch)
		p.flight = p.flight[1:]
		p.acked++
		p.send()
	case got.ErrorCode == 0:
		p.watch.Refused(p.part, "a batch was stored before the one before it")
		p.again()
	default:
		// Batches behind one that was refused are refused too; but the first has
		// nothing before it that is not acknowledged.
		if code := got.ErrorCode; s == p.flight[0] && (code == codeOutOfOrder || code == codeDuplicate || code == codeUnknownProducer) {
			p.watch.Refused(p.part, codeNote(code))
		}
		if _, moved := passes(got.ErrorCode); moved {
			p.cluster.Moved(p.part)
		}
		p.again()
	}
}

func (p *Pipeline) initProducer() {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = 60_000
	req.ProducerID, req.ProducerEpoch = -1, -1
	p.cluster.Ask(req, func(resp kmsg.Response, err error) {
		p.resend = false
		if err != nil {
			return
		}
		r := resp.(*kmsg.InitProducerIDResponse)
		if r.ErrorCode == 0 {
			p.producer = record.Producer{ID: record.ProducerID(r.ProducerID), Epoch: record.ProducerEpoch(r.ProducerEpoch)}
			p.issued = true
			p.watch.Issued(p.producer.ID, p.producer.Epoch)
		}
	})
}
