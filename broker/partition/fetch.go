package partition

// Fetch (key 1), versions 4 to 12.
//
// Behaviour:
//   - Answered at once if any partition has an error or if at least min bytes
//     are there over all partitions; else parked until there are, or until
//     max wait has passed.
//   - Whole batches only, from the one that holds the asked offset: a client
//     skips what it did not ask for. The first batch found is given even if it
//     is larger than max bytes (KIP-74), so that a fetch always progresses.
//   - Consumers see what is committed: nothing at or above the high watermark.
//     Offsets between it and the log end are waited for, not refused.
//   - Sessions (KIP-227) are declined with session id 0; a request that names a
//     session is answered FETCH_SESSION_ID_NOT_FOUND, and the client starts over.
//   - Records that are not in memory are looked for, and checked the first time
//     since the start, by a job; damage is answered KAFKA_STORAGE_ERROR.
//
// Versions: 5 adds the log start offset, 7 sessions, 9 the current leader epoch
// (KIP-320), 11 the client's rack (KIP-392, ignored), 12 is flexible.

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

// maxFetchWait bounds how long a fetch may be parked, whatever it asks for.
const maxFetchWait = 5 * time.Minute

type fetchState uint8

const (
	waiting  fetchState = iota // for data
	reading                    // for jobs
	answered                   // done with
)

// fetch is one Fetch request that is being answered.
type fetch struct {
	caller   wire.Caller
	state    fetchState
	minBytes int64
	maxBytes int64
	deadline clock.Instant
	failed   bool // a partition has an error: do not wait
	parts    []fetchPart
	jobs     int // reads that are out
	resp     wire.FetchResponse
}

// fetchPart is one partition of a fetch.
type fetchPart struct {
	part   *Partition // nil if there is an error
	offset record.Offset
	max    int64
	cold   bool // must be read by a job
	entry  *wire.FetchPartition
}

// read is a job that a fetch waits for.
type read struct {
	fetch *fetch
	index int
}

// Fetch handles a Fetch request.
func (t *Table) Fetch(c wire.Caller, req *wire.Request, at Moment, out *Out) {
	body := req.Body.(*kmsg.FetchRequest)
	t.Stats.FetchRequests++
	f := &fetch{
		caller:   c,
		minBytes: min(int64(body.MinBytes), int64(max(body.MaxBytes, 0))),
		maxBytes: min(int64(max(body.MaxBytes, 0)), t.cfg.FetchMaxBytes),
		deadline: at.Now.Add(min(time.Duration(max(body.MaxWaitMillis, 0))*time.Millisecond, maxFetchWait)),
		resp:     wire.FetchResponse{Version: body.Version},
	}
	if body.SessionID != 0 && body.SessionEpoch != -1 {
		f.resp.ErrorCode = wire.Code(wire.ErrFetchSessionNotFound)
		out.reply(c, wire.Response{Body: &f.resp})
		return
	}
	n := 0
	for i := range body.Topics {
		n += len(body.Topics[i].Partitions)
	}
	f.parts = make([]fetchPart, 0, n)
	entries := make([]wire.FetchPartition, n)
	f.resp.Topics = make([]wire.FetchTopic, len(body.Topics))
	for i := range body.Topics {
		top := &body.Topics[i]
		f.resp.Topics[i].Topic = top.Topic
		f.resp.Topics[i].Partitions, entries = entries[:len(top.Partitions)], entries[len(top.Partitions):]
		for j := range top.Partitions {
			f.add(t, top.Topic, &top.Partitions[j], &f.resp.Topics[i].Partitions[j])
		}
	}
	t.serve(f, at, out)
}

// add takes in one partition of the request.
func (f *fetch) add(t *Table, name string, ask *kmsg.FetchRequestTopicPartition, entry *wire.FetchPartition) {
	entry.Partition = ask.Partition
	fp := fetchPart{offset: record.Offset(ask.FetchOffset), max: int64(max(ask.PartitionMaxBytes, 0)), entry: entry}
	p, err := t.find(name, ask.Partition)
	if err == nil {
		err = p.replica.CheckEpoch(record.LeaderEpoch(ask.CurrentLeaderEpoch))
	}
	if err == nil && (fp.offset < p.replica.LogStart() || fp.offset > p.replica.LogEnd()) {
		err = storage.ErrOutOfRange
	}
	if err != nil {
		f.fail(entry, err)
	} else {
		fp.part = p
	}
	f.parts = append(f.parts, fp)
}

// fail makes err the answer for one partition.
func (f *fetch) fail(entry *wire.FetchPartition, err error) {
	f.failed = true
	entry.ErrorCode = wire.Code(err)
	entry.HighWatermark, entry.LastStableOffset, entry.LogStartOffset = -1, -1, -1
	entry.Records = storage.Region{}
}

// serve answers a fetch if it need not wait any longer; else it is parked.
func (t *Table) serve(f *fetch, at Moment, out *Out) {
	if f.state != waiting {
		return
	}
	found, cold := int64(0), 0
	for i := range f.parts {
		fp := &f.parts[i]
		if fp.part == nil {
			continue
		}
		if err := fp.part.damage; err != nil {
			f.fail(fp.entry, err)
			fp.part = nil
			continue
		}
		limit := fp.part.replica.HighWatermark()
		fp.cold, fp.entry.Records = false, storage.Region{}
		if fp.offset >= limit {
			continue
		}
		region, hot := fp.part.view.Find(fp.offset, limit, min(fp.max, f.maxBytes-found))
		if !hot {
			fp.cold = true
			cold++
			continue
		}
		fp.entry.Records = region
		found += region.Len
	}
	if !f.failed && cold == 0 && found < f.minBytes && at.Now < f.deadline {
		t.park(f)
		return
	}
	if cold == 0 {
		t.answer(f, out)
		return
	}
	f.state = reading
	budget := f.maxBytes - found
	for i := range f.parts {
		if fp := &f.parts[i]; fp.cold {
			t.lastTicket++
			t.reads[t.lastTicket] = read{f, i}
			f.jobs++
			out.Jobs = append(out.Jobs, job.Read{
				Ticket: t.lastTicket, View: fp.part.view, From: fp.offset,
				Limit: fp.part.replica.HighWatermark(), MaxBytes: min(fp.max, max(budget, 0)),
			})
		}
	}
}

// park makes a fetch wait for data on each of its partitions.
func (t *Table) park(f *fetch) {
	for i := range f.parts {
		p := f.parts[i].part
		if p == nil {
			continue
		}
		if contains(p.waiting(), f) {
			continue
		}
		if p.parked == nil {
			p.parked = &parked{}
		}
		if len(p.parked.fetches) >= p.parked.sweepAt {
			p.parked.sweep()
		}
		p.parked.fetches = append(p.parked.fetches, f)
	}
	if !contains(t.conns[f.caller.Conn], f) {
		t.conns[f.caller.Conn] = append(t.conns[f.caller.Conn], f)
		t.deadlines.Add(f.deadline, f)
	}
}

func contains(fs []*fetch, f *fetch) bool {
	for _, g := range fs {
		if g == f {
			return true
		}
	}
	return false
}

// parked is the fetches that wait for a partition's data. Some may be answered
// already.
type parked struct {
	fetches []*fetch
	sweepAt int // length of fetches at which the answered are dropped
}

func (p *parked) sweep() {
	kept := p.fetches[:0]
	for _, f := range p.fetches {
		if f.state == waiting {
			kept = append(kept, f)
		}
	}
	clear(p.fetches[len(kept):])
	p.fetches = kept
	p.sweepAt = 2*len(kept) + 4
}

// waiting is the partition's parked fetches.
func (p *Partition) waiting() []*fetch {
	if p.parked == nil {
		return nil
	}
	return p.parked.fetches
}

// wakeParked serves the fetches that wait for the partition's records.
func (t *Table) wakeParked(p *Partition, at Moment, out *Out) {
	fetches := p.waiting()
	if len(fetches) == 0 {
		return
	}
	for _, f := range fetches {
		t.serve(f, at, out)
	}
	p.parked.sweep()
}

// readDone takes the result of a read.
func (t *Table) readDone(j job.Read, res job.Result, out *Out) {
	r, ok := t.reads[j.Ticket]
	assert.That(ok, "partition: a read came back twice")
	delete(t.reads, j.Ticket)
	fp := &r.fetch.parts[r.index]
	if res.Err != nil {
		if t.partition(fp.part.log) == fp.part {
			fp.part.spoilIfDamaged(res.Err, out)
		}
		r.fetch.fail(fp.entry, res.Err)
		fp.part = nil
	} else {
		fp.entry.Records = res.Region
	}
	if r.fetch.jobs--; r.fetch.jobs == 0 {
		t.answer(r.fetch, out)
	}
}

// answer sends what was found. Only the first partition with records may go
// over the request's limit.
func (t *Table) answer(f *fetch, out *Out) {
	if f.state == answered {
		return
	}
	f.state = answered
	t.unpark(f)
	left, first := f.maxBytes, true
	for i := range f.parts {
		fp := &f.parts[i]
		if fp.part == nil {
			continue
		}
		e := fp.entry
		e.HighWatermark = fp.part.replica.HighWatermark()
		e.LastStableOffset = e.HighWatermark // no transactions: everything committed is stable
		e.LogStartOffset = fp.part.replica.LogStart()
		if e.Records.Len > left && !first {
			e.Records = storage.Region{}
		}
		if e.Records.Len > 0 {
			first = false
			left -= e.Records.Len
			t.Stats.BytesOut += e.Records.Len
		}
	}
	out.reply(f.caller, wire.Response{Body: &f.resp})
}

// unpark forgets that a connection has the fetch parked. The partitions' lists
// are swept later.
func (t *Table) unpark(f *fetch) {
	fs := t.conns[f.caller.Conn]
	for i, g := range fs {
		if g != f {
			continue
		}
		if len(fs) == 1 {
			delete(t.conns, f.caller.Conn)
			return
		}
		t.conns[f.caller.Conn] = append(fs[:i], fs[i+1:]...)
		return
	}
}
