package partition

// DeleteRecords (key 21), versions 0 to 2.
//
// Behaviour:
//   - A partition's log begins at the offset that is asked for, or at the high
//     watermark for -1. The answer comes when every replica on a broker that
//     lives begins there or later, durably, and tells where the last of them
//     begins; without it a leader that comes would have the records again
//     (KIP-107). Hence every replica that may be elected counts, on whatever
//     broker: while fewer than min.insync.replicas are in sync, those too that may
//     be elected when they come back (KIP-966).
//   - An offset above the high watermark, or below -1, is OFFSET_OUT_OF_RANGE.
//     One at or below the log start is granted.
//   - A topic without delete in cleanup.policy is POLICY_VIOLATION, an internal
//     one INVALID_TOPIC_EXCEPTION. A partition that is named twice is refused the
//     second time, with INVALID_REQUEST.
//   - Whoever does not lead says NOT_LEADER_OR_FOLLOWER, also if that comes to be
//     while the request waits. What is not done in the time that the request
//     gives, at most a minute, is REQUEST_TIMED_OUT; it may still be done.
//   - A batch is sent whole, so a fetch may give records below the log start, as
//     in Kafka.
//
// Versions: 2 is flexible.

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/broker/session"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

const (
	// deletionWait is how long a DeleteRecords waits at most.
	deletionWait = time.Minute
	// deletionCheck is how often those that wait are looked at: brokers are
	// fenced, leaders change, and followers say where they begin without anybody
	// being told.
	deletionCheck = 20 * time.Millisecond
	// toHighWatermark is the offset that stands for the high watermark.
	toHighWatermark = -1
)

// deletions are the DeleteRecords that wait, and the log starts that are being
// raised.
type deletions struct {
	waiting []*deletion
	checkAt clock.Instant // 0 if none waits
	raising map[*Partition]raising
}

// raising is the jobs that raise the start of a log.
type raising struct {
	to   record.Offset // of the last
	jobs int           // results to come
}

// deletion is one DeleteRecords that is being answered.
type deletion struct {
	caller   wire.Caller
	resp     *kmsg.DeleteRecordsResponse
	deadline clock.Instant
	open     []deletionPart
}

// deletionPart is a partition that is not answered yet.
type deletionPart struct {
	part         *Partition
	offset       record.Offset // where it is to begin
	topic, index int           // of its entry in the response
	err          error         // why it will not
}

// DeleteRecords handles a DeleteRecords request.
func (t *Table) DeleteRecords(c wire.Caller, req *wire.Request, at Moment, out *Out) {
	body := req.Body.(*kmsg.DeleteRecordsRequest)
	d := &deletion{caller: c, resp: kmsg.NewPtrDeleteRecordsResponse()}
	d.resp.SetVersion(body.Version)
	d.deadline = at.Now.Add(min(time.Duration(max(body.TimeoutMillis, 0))*time.Millisecond, deletionWait))
	seen := map[*Partition]bool{}
	for i := range body.Topics {
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic = body.Topics[i].Topic
		for j := range body.Topics[i].Partitions {
			asked := &body.Topics[i].Partitions[j]
			rp := kmsg.NewDeleteRecordsResponseTopicPartition()
			rp.Partition, rp.LowWatermark = asked.Partition, -1
			p, offset, err := t.deleteBelow(rt.Topic, asked)
			if err == nil && seen[p] {
				err = errAskedTwice
			}
			if err == nil {
				seen[p] = true
				t.raise(p, offset, out)
				d.open = append(d.open, deletionPart{p, offset, i, j, nil})
			}
			rp.ErrorCode = wire.Code(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		d.resp.Topics = append(d.resp.Topics, rt)
	}
	if t.settleDeletion(d, at, out) {
		return
	}
	t.deletions.waiting = append(t.deletions.waiting, d)
	t.deletions.schedule(at.Now)
}

// deleteBelow is the partition that records are to be deleted of, and the offset
// below which.
func (t *Table) deleteBelow(name string, asked *kmsg.DeleteRecordsRequestTopicPartition) (*Partition, record.Offset, error) {
	p, err := t.find(name, asked.Partition)
	if err == nil {
		err = p.replica.CheckLeader(record.NoEpoch)
	}
	switch {
	case err != nil:
		return nil, 0, err
	case metadata.IsInternal(name):
		return nil, 0, fmt.Errorf("%w: brokers write %s", metadata.ErrInvalidTopic, name)
	case !p.topic.Config.Delete:
		return nil, 0, fmt.Errorf("%w: cleanup.policy of %s has no delete", metadata.ErrPolicyViolation, name)
	}
	offset := record.Offset(asked.Offset)
	if offset == toHighWatermark {
		offset = p.replica.HighWatermark()
	}
	if offset < 0 || offset > p.replica.HighWatermark() {
		return nil, 0, fmt.Errorf("%w: %d, high watermark %d", storage.ErrOutOfRange, offset, p.replica.HighWatermark())
	}
	return p, offset, nil
}

// raise has a log begin at start, if it begins before and nothing else is about
// to have it so.
func (t *Table) raise(p *Partition, start record.Offset, out *Out) {
	r := t.deletions.raising[p]
	if start <= max(p.replica.LogStart(), r.to) || p.damage != nil {
		return
	}
	if t.deletions.raising == nil {
		t.deletions.raising = make(map[*Partition]raising)
	}
	t.deletions.raising[p] = raising{start, r.jobs + 1}
	out.Jobs = append(out.Jobs, job.RaiseStart{Log: p.log(), Start: start, Deleted: p.deletion(start)})
}

// raiseAfter has a follower's log begin where its leader's does, as far as it
// knows the records before to be committed.
func (t *Table) raiseAfter(p *Partition, out *Out) {
	if r := &p.replica; r.Following() {
		t.raise(p, min(p.leaderStart, r.HighWatermark()), out)
	}
}

// raised takes the result of a job that raised the start of a log.
func (t *Table) raised(j job.RaiseStart, res job.Result, at Moment, out *Out) {
	p := t.partition(j.Log)
	if t.left(j.Log) || p == nil {
		return
	}
	if r := t.deletions.raising[p]; r.jobs > 1 {
		t.deletions.raising[p] = raising{r.to, r.jobs - 1}
	} else {
		delete(t.deletions.raising, p)
	}
	if res.Err == nil {
		p.view = res.View
		if p.replica.Raised(res.View.Start(), epochsOf(res.View)) {
			assert.Reached("partition: records deleted")
			t.news(p, false, at, out)
			t.follow(p, at, out)
		}
	}
	for _, d := range t.deletions.waiting {
		for i := range d.open {
			if o := &d.open[i]; res.Err != nil && o.part == p && o.offset <= j.Start {
				o.err = res.Err
			}
		}
	}
	t.checkDeletions(at, out)
	if errors.As(res.Err, new(*storage.DamageError)) {
		t.spoil(p, res.Err, at, out)
	}
}

// forget says that a partition is none any more, and returns how many results of
// it are to come.
func (ds *deletions) forget(p *Partition) int {
	n := ds.raising[p].jobs
	delete(ds.raising, p)
	return n
}

// lowWatermark is where the log begins that begins first, of a led partition's
// replicas on brokers that live, and of those that may lead; 0 if one has not said.
func (t *Table) lowWatermark(p *Partition) record.Offset {
	low := p.replica.LogStart()
	p.replica.Lags(func(l replica.Lag) {
		if b := t.broker(l.Node); !l.MayLead && (b == nil || !b.Active) {
			return
		}
		start := l.LogStart
		p.watch.Followers(func(node metadata.NodeID, ask *session.Ask) {
			if node == l.Node && ask.LeaderEpoch == p.replica.Epoch() {
				start = max(start, ask.LogStart)
			}
		})
		low = min(low, start)
	})
	return low
}

// checkDeletions answers the DeleteRecords that need not wait any longer.
func (t *Table) checkDeletions(at Moment, out *Out) {
	ds := &t.deletions
	ds.waiting = slices.DeleteFunc(ds.waiting, func(d *deletion) bool { return t.settleDeletion(d, at, out) })
	ds.checkAt = 0
	if len(ds.waiting) > 0 {
		ds.schedule(at.Now)
	}
}

// settleDeletion answers what can be answered of a DeleteRecords, and reports
// whether that is all of it.
func (t *Table) settleDeletion(d *deletion, at Moment, out *Out) bool {
	late := at.Now >= d.deadline
	d.open = slices.DeleteFunc(d.open, func(o deletionPart) bool {
		entry := &d.resp.Topics[o.topic].Partitions[o.index]
		err := o.err
		if t.partition(o.part.log()) != o.part || !o.part.replica.Leads() {
			err = fmt.Errorf("%w: not any more", replica.ErrNotLeader)
		}
		switch low := t.lowWatermark(o.part); {
		case err != nil:
		case low >= o.offset:
			entry.LowWatermark = int64(low)
			return true
		case late:
			assert.Reached("partition: records not deleted in time")
			err = wire.ErrTimedOut
		default:
			return false
		}
		entry.ErrorCode = wire.Code(err)
		return true
	})
	if len(d.open) > 0 {
		return false
	}
	out.reply(d.caller, wire.Response{Body: d.resp})
	return true
}

// schedule has those that wait looked at again.
func (ds *deletions) schedule(now clock.Instant) {
	at := now.Add(deletionCheck)
	for _, d := range ds.waiting {
		at = min(at, d.deadline)
	}
	if ds.checkAt == 0 || at < ds.checkAt {
		ds.checkAt = max(at, now)
	}
}

// next is when those that wait are to be looked at.
func (ds *deletions) next() clock.Instant {
	if ds.checkAt == 0 {
		return clock.Never
	}
	return ds.checkAt
}
