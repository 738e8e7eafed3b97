package partition

// ListOffsets (key 2), versions 1 to 10.
//
// Behaviour:
//   - Timestamp -1 is the end of what a consumer may read (high watermark, or
//     last stable offset for read_committed), -2 the log start offset, -3 (from
//     version 7) the first record that has the greatest timestamp, -4 (from
//     version 8) the log start offset too: nothing is kept elsewhere. Hence
//     nothing is found for -5 (from version 9).
//   - Any other timestamp gives the first record at or after it, exactly, inside
//     a compressed batch too; offset -1 if there is none.
//   - Answers reflect every produce that was acknowledged before, whoever led
//     then: the node must hold its lease, which is waited for, and a new leader
//     must know all that was committed before its time. Until it does, only what
//     is found below its high watermark is answered; else OFFSET_NOT_AVAILABLE
//     (KIP-207), before version 5 LEADER_NOT_AVAILABLE.
//
// Versions: 2 adds the isolation level, 4 leader epochs (KIP-320), 6 is
// flexible, 7 adds -3 (KIP-734), 8 -4 (KIP-405), 9 -5 (KIP-1005), 10 a time limit.

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

// The timestamps that mean something else.
const (
	latest        = -1
	earliest      = -2
	maxTimestamp  = -3
	earliestLocal = -4
	latestTiered  = -5
)

// listOffsets is one ListOffsets request that is being answered.
type listOffsets struct {
	caller  wire.Caller
	body    *kmsg.ListOffsetsRequest
	started bool
	jobs    int
	resp    kmsg.ListOffsetsResponse
}

// lookup is a job that a listOffsets waits for.
type lookup struct {
	list  *listOffsets
	part  *Partition
	entry *kmsg.ListOffsetsResponseTopicPartition
	// unsettled says that the leader did not know all that is committed: nothing
	// found means nothing.
	unsettled bool
}

// ListOffsets handles a ListOffsets request.
func (t *Table) ListOffsets(c wire.Caller, req *wire.Request, at Moment, out *Out) {
	l := &listOffsets{caller: c, body: req.Body.(*kmsg.ListOffsetsRequest)}
	if t.leased(at) || !t.leadsAny(l.body) {
		t.list(l, at, out)
	} else {
		t.listLater(l, at)
	}
}

// leadsAny reports whether this node leads a partition that is asked for.
func (t *Table) leadsAny(body *kmsg.ListOffsetsRequest) bool {
	for i := range body.Topics {
		for j := range body.Topics[i].Partitions {
			if p, err := t.find(body.Topics[i].Topic, body.Topics[i].Partitions[j].Partition); err == nil && p.replica.Leading() {
				return true
			}
		}
	}
	return false
}

// list answers a ListOffsets, perhaps with jobs.
func (t *Table) list(l *listOffsets, at Moment, out *Out) {
	if l.started {
		return
	}
	l.started, l.jobs = true, 1
	l.resp.Default()
	l.resp.SetVersion(l.body.Version)
	leased := t.leased(at)
	for _, top := range l.body.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = top.Topic
		rt.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(top.Partitions))
		for i := range top.Partitions {
			entry := &rt.Partitions[i]
			entry.Default()
			entry.Partition = top.Partitions[i].Partition
			if err := t.listOne(l, entry, top.Topic, &top.Partitions[i], leased, out); err != nil {
				entry.ErrorCode = wire.Code(l.known(err))
			}
		}
		l.resp.Topics = append(l.resp.Topics, rt)
	}
	l.done(out)
}

// known is an error that the client's version knows.
func (l *listOffsets) known(err error) error {
	if l.body.Version < 5 && errors.Is(err, wire.ErrOffsetNotAvailable) {
		return metadata.ErrLeaderNotAvailable
	}
	return err
}

func (t *Table) listOne(l *listOffsets, entry *kmsg.ListOffsetsResponseTopicPartition, name string, ask *kmsg.ListOffsetsRequestTopicPartition, leased bool, out *Out) error {
	p, err := t.find(name, ask.Partition)
	if err != nil {
		return err
	}
	r := &p.replica
	if err := r.CheckLeader(record.LeaderEpoch(ask.CurrentLeaderEpoch)); err != nil {
		return err
	}
	if !leased {
		return errLeaseless
	}
	end, version := r.HighWatermark(), l.body.Version
	look := job.Lookup{View: p.view, Timestamp: record.Timestamp(ask.Timestamp), Limit: end}
	switch {
	case ask.Timestamp == latest:
		if !r.Settled() {
			return wire.ErrOffsetNotAvailable
		}
		entry.Offset, entry.LeaderEpoch = int64(end), int32(r.Epoch())
		return nil
	case ask.Timestamp == earliest, ask.Timestamp == earliestLocal && version >= 8:
		start := r.LogStart()
		entry.Offset, entry.LeaderEpoch = int64(start), int32(r.EpochOf(start))
		return nil
	case ask.Timestamp == latestTiered && version >= 9:
		return nil
	case ask.Timestamp == maxTimestamp && version >= 7:
		if !r.Settled() {
			return wire.ErrOffsetNotAvailable
		}
		look.Latest = true
	case ask.Timestamp < 0:
		return fmt.Errorf("%w: timestamp %d in version %d", wire.ErrUnsupportedVersion, ask.Timestamp, version)
	}
	if end == r.LogStart() {
		if !r.Settled() {
			return wire.ErrOffsetNotAvailable
		}
		return nil // nothing to find: offset and timestamp stay -1
	}
	t.lastTicket++
	look.Ticket = t.lastTicket
	t.lookups[look.Ticket] = lookup{l, p, entry, !r.Settled()}
	l.jobs++
	out.Jobs = append(out.Jobs, look)
	return nil
}

// lookupDone takes the result of a lookup.
func (t *Table) lookupDone(j job.Lookup, res job.Result, at Moment, out *Out) {
	l, ok := t.lookups[j.Ticket]
	assert.That(ok, "partition: a lookup came back twice")
	delete(t.lookups, j.Ticket)
	switch {
	case res.Err != nil:
		if t.partition(l.part.log()) == l.part {
			t.spoilIfDamaged(l.part, res.Err, at, out)
		}
		l.entry.ErrorCode = wire.Code(res.Err)
	case res.Found.Offset == job.NotFound && l.unsettled:
		l.entry.ErrorCode = wire.Code(l.list.known(wire.ErrOffsetNotAvailable))
	default:
		l.entry.Offset, l.entry.Timestamp, l.entry.LeaderEpoch = int64(res.Found.Offset), int64(res.Found.Timestamp), int32(res.Found.Epoch)
	}
	l.list.done(out)
}

// done counts one thing that was waited for, and answers after the last.
func (l *listOffsets) done(out *Out) {
	if l.jobs--; l.jobs == 0 {
		out.reply(l.caller, wire.Response{Body: &l.resp})
	}
}
