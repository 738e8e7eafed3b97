package partition

// ListOffsets (key 2), versions 1 to 7.
//
// Behaviour:
//   - Timestamp -1 is the end of what a consumer may read (high watermark, or
//     last stable offset for read_committed), -2 the log start offset, -3 (from
//     version 7) the first record that has the greatest timestamp.
//   - Any other timestamp gives the first record at or after it, exactly, inside
//     a compressed batch too; offset -1 if there is none.
//   - Answers reflect every produce that was acknowledged before.
//
// Versions: 2 adds the isolation level, 4 leader epochs (KIP-320), 6 is
// flexible, 7 adds -3 (KIP-734).

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

// The timestamps that mean something else.
const (
	latest       = -1
	earliest     = -2
	maxTimestamp = -3
)

// listOffsets is one ListOffsets request that is being answered.
type listOffsets struct {
	caller wire.Caller
	jobs   int
	resp   kmsg.ListOffsetsResponse
}

// lookup is a job that a listOffsets waits for.
type lookup struct {
	list  *listOffsets
	part  *Partition
	entry *kmsg.ListOffsetsResponseTopicPartition
}

// ListOffsets handles a ListOffsets request.
func (t *Table) ListOffsets(c wire.Caller, req *wire.Request, out *Out) {
	body := req.Body.(*kmsg.ListOffsetsRequest)
	l := &listOffsets{caller: c, jobs: 1}
	l.resp.Default()
	l.resp.SetVersion(body.Version)
	for _, top := range body.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = top.Topic
		rt.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(top.Partitions))
		for i := range top.Partitions {
			entry := &rt.Partitions[i]
			entry.Default()
			entry.Partition = top.Partitions[i].Partition
			if err := t.listOne(l, entry, top.Topic, &top.Partitions[i], body.Version, out); err != nil {
				entry.ErrorCode = wire.Code(err)
			}
		}
		l.resp.Topics = append(l.resp.Topics, rt)
	}
	l.done(out)
}

func (t *Table) listOne(l *listOffsets, entry *kmsg.ListOffsetsResponseTopicPartition, name string, ask *kmsg.ListOffsetsRequestTopicPartition, version int16, out *Out) error {
	p, err := t.find(name, ask.Partition)
	if err != nil {
		return err
	}
	if err := p.replica.CheckEpoch(record.LeaderEpoch(ask.CurrentLeaderEpoch)); err != nil {
		return err
	}
	end := p.replica.HighWatermark()
	look := job.Lookup{View: p.view, Timestamp: record.Timestamp(ask.Timestamp), Limit: end}
	switch {
	case ask.Timestamp == latest:
		entry.Offset, entry.LeaderEpoch = int64(end), int32(p.replica.Epoch())
		return nil
	case ask.Timestamp == earliest:
		start := p.replica.LogStart()
		entry.Offset, entry.LeaderEpoch = int64(start), int32(p.replica.EpochOf(start))
		return nil
	case ask.Timestamp == maxTimestamp && version >= 7:
		look.Latest = true
	case ask.Timestamp < 0:
		return fmt.Errorf("%w: timestamp %d in version %d", wire.ErrUnsupportedVersion, ask.Timestamp, version)
	}
	if end == p.replica.LogStart() {
		return nil // nothing to find: offset and timestamp stay -1
	}
	t.lastTicket++
	look.Ticket = t.lastTicket
	t.lookups[look.Ticket] = lookup{l, p, entry}
	l.jobs++
	out.Jobs = append(out.Jobs, look)
	return nil
}

// lookupDone takes the result of a lookup.
func (t *Table) lookupDone(j job.Lookup, res job.Result, out *Out) {
	l, ok := t.lookups[j.Ticket]
	assert.That(ok, "partition: a lookup came back twice")
	delete(t.lookups, j.Ticket)
	if res.Err != nil {
		if t.partition(l.part.log) == l.part {
			l.part.spoilIfDamaged(res.Err, out)
		}
		l.entry.ErrorCode = wire.Code(res.Err)
	} else {
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

// spoilIfDamaged makes a read that found damage close the partition. Any other
// error of a read is told to the one who asked, and is worth a line.
func (p *Partition) spoilIfDamaged(err error, out *Out) {
	var d *storage.DamageError
	if errors.As(err, &d) {
		p.spoil(err, out)
		return
	}
	if errors.Is(err, storage.ErrOutOfRange) {
		return
	}
	out.Lines = append(out.Lines, Line{slog.LevelError, "read failed", []slog.Attr{
		slog.String("topic", p.topic.Name), slog.Int("partition", int(p.log.Partition)), slog.String("error", err.Error()),
	}})
}
