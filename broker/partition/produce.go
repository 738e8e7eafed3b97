package partition

// Produce (key 0), versions 3 to 11.
//
// Behaviour:
//   - Each partition entry is judged by itself; an entry is stored whole or not
//     at all.
//   - acks=0 is answered by nothing, when the batch is stored: until then it
//     takes the memory it was admitted with. If an entry could not be stored the
//     connection is closed, so that the client notices.
//   - acks=1 waits until the batch is durable here (pawl.flush=os: in the page
//     cache), acks=-1 (all) until it is on every in-sync replica. With fewer of
//     those than min.insync.replicas the latter is refused,
//     NOT_ENOUGH_REPLICAS, and if they become fewer while it waits,
//     NOT_ENOUGH_REPLICAS_AFTER_APPEND: its records may or may not stay.
//   - A sequence that does not fit is refused, for which a producer gives up, by a
//     leader with a lease only. One without may have been replaced, and another
//     have the batches that it misses: it answers NOT_LEADER_OR_FOLLOWER.
//   - A batch that repeats one of a producer's last five is answered with the
//     first one's offset, and only once that is durable.
//   - A request that is not done within its timeout is answered
//     REQUEST_TIMED_OUT: its records may or may not be stored.
//   - A node that does not lead says who does, and where that is.
//
// Versions: 5 adds the log start offset, 8 errors per record (KIP-467), 9 is
// flexible, 10 the leader's address on errors (KIP-951).

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

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

// sweepEvery is how often produces that take too long are looked for, and so
// how late a timeout may come.
const sweepEvery = 200 * time.Millisecond

// acks is how many replicas must have a batch before the client is answered.
type acks int16

const (
	acksAll    acks = -1 // every in-sync replica
	acksNone   acks = 0  // do not answer
	acksLeader acks = 1
)

var (
	errNullKey       = fmt.Errorf("%w: a compacted topic takes no record without a key", wire.ErrInvalidRecord)
	errTransactional = fmt.Errorf("%w: the broker has no transactions", wire.ErrInvalidTxnState)
)

// produce is one Produce request that is being answered.
type produce struct {
	caller   wire.Caller
	acks     acks
	left     int // entries not decided yet
	failed   bool
	inUse    bool // an append may be on its way that nobody waits for
	answered bool
	deadline clock.Instant
	resp     kmsg.ProduceResponse
	tickets  []replica.Ticket // of the promises that were made for it

	// Room for the usual case of one partition, so that it costs no more
	// allocations.
	topic     [1]kmsg.ProduceResponseTopic
	partition [1]kmsg.ProduceResponseTopicPartition
	ticket    [1]replica.Ticket
}

// promise is one entry of a produce that waits for its replica.
type promise struct {
	produce *produce
	entry   *kmsg.ProduceResponseTopicPartition
	part    *Partition
}

// promises are the promises made to replicas, by ticket.
type promises struct {
	slots []promise
	free  []replica.Ticket
}

func (ps *promises) add(p promise) replica.Ticket {
	if n := len(ps.free); n > 0 {
		k := ps.free[n-1]
		ps.free = ps.free[:n-1]
		ps.slots[k] = p
		return k
	}
	ps.slots = append(ps.slots, p)
	return replica.Ticket(len(ps.slots) - 1)
}

func (ps *promises) take(k replica.Ticket) promise {
	p := ps.slots[k]
	assert.That(p.produce != nil, "partition: a promise was kept twice")
	ps.slots[k] = promise{}
	ps.free = append(ps.free, k)
	return p
}

// Produce handles a Produce request.
func (t *Table) Produce(c wire.Caller, req *wire.Request, at Moment, out *Out) {
	body := req.Body.(*kmsg.ProduceRequest)
	t.Stats.ProduceRequests++
	p := &produce{caller: c, acks: acks(body.Acks), deadline: at.Now.Add(time.Duration(max(body.TimeoutMillis, 0)) * time.Millisecond)}
	p.resp.Default()
	p.resp.SetVersion(body.Version)
	p.resp.Topics, p.tickets = p.topic[:0], p.ticket[:0]
	p.left = 1 // holds the answer back until every entry was looked at
	i := 0
	for _, top := range body.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = top.Topic
		if len(body.Topics) == 1 && len(top.Partitions) == 1 {
			rt.Partitions = p.partition[:1]
		} else {
			rt.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(top.Partitions))
		}
		for j := range top.Partitions {
			entry := &rt.Partitions[j]
			entry.Default()
			entry.Partition, entry.BaseOffset = top.Partitions[j].Partition, -1
			p.left++
			if err := t.produceOne(p, entry, top.Topic, req.Produce[i], body.TransactionID != nil, at, out); err != nil {
				p.refuse(entry, req.Produce[i], err)
				t.redirectProduce(p, entry, top.Topic, err)
			}
			i++
		}
		p.resp.Topics = append(p.resp.Topics, rt)
	}
	p.left--
	if t.finish(p, out); !p.answered {
		t.expiring = append(t.expiring, p)
		t.sweepAt = min(t.sweepAt, at.Now.Add(sweepEvery))
	}
}

// produceOne decides one entry. If it returns no error, the entry is filled and
// counted down later.
func (t *Table) produceOne(p *produce, entry *kmsg.ProduceResponseTopicPartition, name string, e wire.ProduceEntry, transaction bool, at Moment, out *Out) error {
	switch p.acks {
	case acksAll, acksLeader, acksNone:
	default:
		return fmt.Errorf("%w: %d", wire.ErrInvalidRequiredAcks, p.acks)
	}
	part, err := t.find(name, entry.Partition)
	if part == nil {
		return err
	}
	if err == nil {
		err = part.takes(p.acks, e, transaction, at)
	}
	if err != nil {
		if e.Err == nil {
			part.producers.Refused(producer.Of(e.Batch), at.Now)
		}
		return err
	}
	cfg := &part.topic.Config
	info := producer.Of(e.Batch)
	base, next, err := part.producers.Check(info, part.replica.LogEnd() == 0)
	if err != nil && !t.leased(at) {
		assert.Reached("partition: a sequence refused by who may not lead any more")
		return fmt.Errorf("%w: the lease is over, and %v", replica.ErrNotLeader, err)
	}
	if err != nil {
		return err
	}
	entry.LogStartOffset = int64(part.replica.LogStart())
	ticket := t.promises.add(promise{p, entry, part})
	p.tickets = append(p.tickets, ticket)
	if base >= 0 {
		t.Stats.Duplicates++
		var ro replica.Out
		part.replica.Await(base, next, p.acks == acksAll, ticket, &ro)
		t.keep(ro.Done, out)
		return nil
	}
	_, err = part.replica.Produce(e.Batch, p.acks == acksAll, ticket)
	assert.That(err == nil, "partition: a leader refuses a batch")
	info.Base, info.Next = e.Batch.BaseOffset(), e.Batch.NextOffset()
	part.producers.Add(info, at.Now)
	w := storage.Write{
		Log: part.log(), Batches: []record.Batch{e.Batch}, SegmentBytes: cfg.SegmentBytes,
		PageCache: cfg.PageCache, AppendTime: record.NoTimestamp,
	}
	if cfg.TimestampType == metadata.LogAppendTime {
		w.AppendTime = at.Wall
		entry.LogAppendTime = int64(at.Wall)
	}
	out.Jobs = append(out.Jobs, job.Append{Write: w, Early: part.replica.Followed()})
	t.touch(part)
	t.Stats.BatchesIn++
	t.Stats.BytesIn += int64(len(e.Batch))
	t.Stats.RecordsIn += int64(e.Batch.Count())
	return nil
}

// takes reports why an entry cannot be written now, whatever its producer wrote
// before.
func (p *Partition) takes(a acks, e wire.ProduceEntry, transaction bool, at Moment) error {
	if !p.replica.Leads() {
		return replica.ErrNotLeader
	}
	if a == acksAll && p.replica.UnderMinISR() {
		return wire.ErrNotEnoughReplicas
	}
	if e.Err != nil {
		return e.Err
	}
	if err := allowed(&p.topic.Config, e, at.Wall); err != nil {
		return err
	}
	if transaction || e.Batch.Transactional() {
		return errTransactional
	}
	return nil
}

// allowed judges a batch by its topic's configuration.
func allowed(c *metadata.TopicConfig, e wire.ProduceEntry, wall record.Timestamp) error {
	if n := int64(len(e.Batch)); n > int64(c.MaxMessageBytes) {
		return fmt.Errorf("%w: batch of %d bytes, max.message.bytes is %d", wire.ErrMessageTooLarge, n, c.MaxMessageBytes)
	}
	if c.Compact && e.Facts.NullKey >= 0 {
		return errNullKey
	}
	if c.TimestampType == metadata.LogAppendTime || e.Facts.MinTimestamp == record.NoTimestamp {
		return nil
	}
	// Neither difference overflows, whatever the client says: a limit is not
	// negative, and nor is the broker's time.
	if least := int64(wall) - c.TimestampBeforeMax; int64(e.Facts.MinTimestamp) < least {
		return fmt.Errorf("%w: %d is more than %d ms before the broker's time", wire.ErrInvalidTimestamp, e.Facts.MinTimestamp, c.TimestampBeforeMax)
	}
	if e.Facts.MaxTimestamp > wall && int64(e.Facts.MaxTimestamp-wall) > c.TimestampAfterMax {
		return fmt.Errorf("%w: %d is more than %d ms after the broker's time", wire.ErrInvalidTimestamp, e.Facts.MaxTimestamp, c.TimestampAfterMax)
	}
	return nil
}

// refuse fills an entry that was not stored.
func (p *produce) refuse(entry *kmsg.ProduceResponseTopicPartition, e wire.ProduceEntry, err error) {
	p.failed = true
	p.left--
	entry.ErrorCode = wire.Code(err)
	entry.BaseOffset, entry.LogAppendTime, entry.LogStartOffset = -1, -1, -1
	entry.ErrorMessage = kmsg.StringPtr(err.Error())
	if errors.Is(err, errNullKey) {
		re := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		re.RelativeOffset = e.Facts.NullKey
		re.ErrorMessage = kmsg.StringPtr(err.Error())
		entry.ErrorRecords = append(entry.ErrorRecords, re)
	}
}

// touch notes that the partition has something for the next checkpoint.
func (t *Table) touch(p *Partition) {
	if !p.dirty {
		p.dirty = true
		t.dirty = append(t.dirty, p)
	}
}

// shown takes the early result of an append: followers may have it.
func (t *Table) shown(j job.Append, res job.Result, at Moment, out *Out) {
	if t.leaving[j.Log] > 0 {
		assert.Reached("partition: early result of a replica before this one")
		return
	}
	p := t.partition(j.Log)
	was := p.marks()
	p.see(res.View)
	p.replica.Show(j.Batches[len(j.Batches)-1].NextOffset())
	t.moved(p, was, &replica.Out{}, at, out)
}

// see takes the view that came with an append's result. One that was early may
// have been of more.
func (p *Partition) see(v storage.View) {
	if v.End() >= p.view.End() {
		p.view = v
	}
}

// appended takes the result of an append.
func (t *Table) appended(j job.Append, res job.Result, at Moment, out *Out) {
	if j.Fetched {
		for _, b := range j.Batches {
			t.followed -= int64(len(b))
		}
	}
	t.letGo(at, out)
	p := t.partition(j.Log)
	if t.left(j.Log) || p == nil {
		return // the partition is gone, and everyone who waited was told
	}
	was := p.marks()
	var ro replica.Out
	switch {
	case res.Err == nil:
		p.see(res.View)
		p.replica.Written(at.Now, &ro)
	case j.Fetched:
		p.producers.Cut(p.replica.Rejected(res.Err, at.Now.Add(spaceRetry), &ro))
	default:
		p.producers.Rollback(p.replica.Rejected(res.Err, at.Now.Add(spaceRetry), &ro))
	}
	t.moved(p, was, &ro, at, out)
	if res.Err == nil {
		return
	}
	t.follow(p, at, out)
	if errors.As(res.Err, new(*storage.DamageError)) {
		t.spoil(p, res.Err, at, out)
	}
}

// keep fills the entries whose promises were kept, or broken.
func (t *Table) keep(done []replica.Done, out *Out) {
	for _, d := range done {
		pr := t.promises.take(d.Ticket)
		p := pr.produce
		if p.answered {
			continue
		}
		if d.Err != nil {
			p.inUse = true
			err := d.Err
			if errors.Is(err, replica.ErrUnderMinISR) {
				err = wire.ErrNotEnoughReplicasAfter
			}
			p.refuse(pr.entry, wire.ProduceEntry{}, err)
			t.redirectProduce(p, pr.entry, pr.part.topic.Name, err)
		} else {
			pr.entry.BaseOffset = int64(d.Base)
			p.left--
		}
		t.finish(p, out)
	}
}

// finish answers a produce once nothing is left to wait for.
func (t *Table) finish(p *produce, out *Out) {
	if p.left > 0 || p.answered {
		return
	}
	p.answered = true
	if p.acks == acksNone {
		out.reply(p.caller, wire.Response{Close: p.failed, InUse: p.inUse})
		return
	}
	out.reply(p.caller, wire.Response{Body: &p.resp, InUse: p.inUse})
}

// timeOut answers the produces that have waited too long, and forgets those
// that were answered.
func (t *Table) timeOut(at Moment, out *Out) {
	kept := t.expiring[:0]
	for _, p := range t.expiring {
		if !p.answered && p.deadline <= at.Now {
			assert.Reached("partition: produce timed out")
			t.expire(p, out)
		}
		if !p.answered {
			kept = append(kept, p)
		}
	}
	clear(t.expiring[len(kept):])
	t.expiring, t.sweepAt = kept, clock.Never
	if len(kept) > 0 {
		t.sweepAt = at.Now.Add(sweepEvery)
	}
}

// expire answers a produce whose entries are not all decided.
func (t *Table) expire(p *produce, out *Out) {
	for _, k := range p.tickets {
		if pr := t.promises.slots[k]; pr.produce == p { // else it was kept, and the ticket is another's
			p.refuse(pr.entry, wire.ProduceEntry{}, wire.ErrTimedOut)
		}
	}
	p.left, p.inUse = 0, true
	t.finish(p, out)
}
