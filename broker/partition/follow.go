package partition

// What a follower does with what its leader answers.

import (
	"errors"
	"log/slog"
	"time"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/producer"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

// spaceRetry is how long a follower without space on its disk waits before it
// fetches again.
const spaceRetry = time.Second

// Follow is whom a partition is to be fetched from, and from where on. It takes
// the place of what was said of the partition before: an answer to a fetch from
// elsewhere is of no use any more, and must not be given to Received.
type Follow struct {
	Log              storage.LogID
	Leader           metadata.NodeID // NoNode: from nobody any more
	LeaderEpoch      record.LeaderEpoch
	Offset           record.Offset      // log end offset
	LastFetchedEpoch record.LeaderEpoch // of the record before Offset, or NoEpoch
	LogStart         record.Offset
	HighWatermark    record.Offset
	Paused           bool // not now; another Follow will come
}

// ProgressTo is how far one followed partition is on this node's disk, for its
// leader.
type ProgressTo struct {
	To          metadata.NodeID
	Log         storage.LogID
	LeaderEpoch record.LeaderEpoch
	Durable     record.Offset
	LogStart    record.Offset
}

// lostLog is the offset that a follower fetches from whose log is damaged. Its
// leader says that it is out of range, once nobody counts on the log any more:
// until then an operator may want it, for no other replica may have what is in
// it.
const lostLog record.Offset = -1

// follow says from where on the partition is to be fetched.
func (t *Table) follow(p *Partition, at Moment, out *Out) {
	r := &p.replica
	if !r.Following() {
		if p.fetched {
			p.fetched = false
			out.Follow = append(out.Follow, Follow{Log: p.log(), Leader: metadata.NoNode, LeaderEpoch: r.Epoch(), LastFetchedEpoch: record.NoEpoch})
		}
		return
	}
	p.fetched = true
	pos := r.Position(at.Now)
	if p.damage != nil {
		pos.Offset, pos.Last = lostLog, record.NoEpoch
	}
	out.Follow = append(out.Follow, Follow{
		Log: p.log(), Leader: r.Leader(), LeaderEpoch: r.Epoch(), Offset: pos.Offset, LastFetchedEpoch: pos.Last,
		LogStart: pos.LogStart, HighWatermark: pos.HighWatermark, Paused: pos.Paused,
	})
}

// report tells the leader how far the partition is on disk, if it does not know.
func (t *Table) report(p *Partition, at Moment, out *Out) {
	if p.damage != nil {
		return
	}
	if durable, ok := p.replica.Progress(&t.node, at.Now); ok {
		out.Progress = append(out.Progress, ProgressTo{p.replica.Leader(), p.log(), p.replica.Epoch(), durable, p.replica.LogStart()})
		t.note(p) // it may have to be said again
	}
}

// Received takes what a leader answered about a partition to a fetch from where
// the last Follow said, in that leader epoch. Another Follow comes of everything
// that moves the log.
func (t *Table) Received(from metadata.NodeID, epoch record.LeaderEpoch, got *wire.FetchedPartition, at Moment, out *Out) {
	p := t.partition(storage.LogID{Topic: got.Topic, Partition: got.Index})
	if p == nil || !p.replica.Fetches(from, epoch) {
		assert.Reached("partition: answer to a fetch that is of no use")
		return
	}
	was := p.marks()
	var ro replica.Out
	moves := true
	switch {
	case p.damage != nil:
		moves = t.giveUp(p, got, out)
	case errors.Is(got.Err, storage.ErrOutOfRange) && got.LogStart > p.replica.LogEnd():
		t.startOver(p, got, out)
	case got.Err != nil:
		moves = false
	case got.Diverging.Epoch != record.NoEpoch && got.Diverging.End < got.LogStart:
		t.startOver(p, got, out) // nothing that it has is known to be the leader's
	case got.Diverging.Epoch != record.NoEpoch:
		t.cut(p, got, at, out)
	default:
		p.replica.Agreed(got.HighWatermark, &ro)
		t.extend(p, got, at, out)
		p.leaderStart = got.LogStart
		t.raiseAfter(p, out)
		moves = len(got.Batches) > 0 || got.Bad != nil
	}
	t.moved(p, was, &ro, at, out)
	switch {
	case moves && t.followed > t.cfg.FollowMaxBytes:
		t.holdBack(p)
	case moves:
		t.follow(p, at, out)
	}
}

// holdBack lets a partition wait for its turn to be fetched again: the disk is
// behind with what was fetched.
func (t *Table) holdBack(p *Partition) {
	assert.Reached("partition: a follower waits for its disk")
	t.held = append(t.held, p)
}

// letGo has partitions fetched again that were held back, once the disk has
// caught up. The first to be held back is the first.
func (t *Table) letGo(at Moment, out *Out) {
	if len(t.held) == 0 || t.followed > t.cfg.FollowMaxBytes/2 {
		return
	}
	held := t.held
	t.held = nil
	for _, p := range held {
		if t.partition(p.log()) == p {
			t.follow(p, at, out)
		}
	}
}

// extend appends what was fetched. What cannot be a continuation of the log is
// not believed.
func (t *Table) extend(p *Partition, got *wire.FetchedPartition, at Moment, out *Out) {
	bad := got.Bad
	if len(got.Batches) > 0 {
		if p.replica.Empty() && got.Batches[0].BaseOffset() < p.replica.LogEnd() {
			t.beginBefore(p, got, out)
			return
		}
		if err := p.replica.Extend(got.Batches); err != nil {
			bad = err
		} else {
			t.append(p, got.Batches, at, out)
		}
	}
	if bad != nil {
		assert.Reached("partition: batches of a leader refused")
		p.replica.Pause(at.Now.Add(spaceRetry))
		t.note(p)
		out.Lines = append(out.Lines, Line{slog.LevelWarn, "batches from the leader are damaged, and fetched again",
			append(p.attrs(), slog.Int("leader", int(p.replica.Leader())), slog.String("error", bad.Error()))})
	}
}

func (t *Table) append(p *Partition, batches []record.Batch, at Moment, out *Out) {
	cfg := &p.topic.Config
	bytes := int64(0)
	for _, b := range batches {
		p.producers.Add(producer.Of(b), at.Now)
		bytes += int64(len(b))
	}
	t.followed += bytes
	t.Stats.ReplicatedBatches += int64(len(batches))
	t.Stats.ReplicatedBytes += bytes
	t.touch(p)
	out.Jobs = append(out.Jobs, job.Append{Write: storage.Write{
		Log: p.log(), Batches: batches, SegmentBytes: cfg.SegmentBytes, PageCache: cfg.PageCache, AppendTime: record.NoTimestamp,
	}, Fetched: true})
}

// cut drops what the leader's log does not have.
func (t *Table) cut(p *Partition, got *wire.FetchedPartition, at Moment, out *Out) {
	d := got.Diverging
	end, below, err := p.replica.Diverged(replica.Divergence{Epoch: d.Epoch, End: d.End})
	if err != nil {
		p.replica.Pause(at.Now.Add(spaceRetry))
		t.note(p)
		out.Lines = append(out.Lines, Line{slog.LevelError, "the leader's word on where logs diverge makes no sense",
			append(p.attrs(), slog.Int("leader", int(p.replica.Leader())), slog.String("error", err.Error()))})
		return
	}
	level, text := slog.LevelInfo, "log is cut to where the leader's diverges"
	if below {
		assert.Reached("partition: committed records given up for an unclean leader")
		level, text = slog.LevelWarn, "records that were committed are given up: their leader was elected though it was not in sync"
	}
	out.Lines = append(out.Lines, Line{level, text, append(p.attrs(), slog.Int64("offset", int64(end)),
		slog.Int64("log_end", int64(p.replica.LogEnd())), slog.Int("epoch", int(p.replica.Epoch())))})
	t.Stats.Truncations++
	out.Jobs = append(out.Jobs, job.Truncate{Log: p.log(), End: end})
}

// giveUp gives up a damaged log, to fetch it again, if the leader says so. It
// reports whether it did.
func (t *Table) giveUp(p *Partition, got *wire.FetchedPartition, out *Out) bool {
	if !errors.Is(got.Err, storage.ErrOutOfRange) || !p.spare {
		return false
	}
	assert.Reached("partition: damaged log given up")
	out.Lines = append(out.Lines, Line{slog.LevelWarn, "damaged log is given up, to be fetched from the leader", p.attrs()})
	t.reset(p, got.LogStart, out)
	return true
}

// beginBefore has an empty log begin where the leader's first batch does: that one
// holds the offset where the leader's log begins, and cannot be cut. What was fetched
// is appended when that is done.
func (t *Table) beginBefore(p *Partition, got *wire.FetchedPartition, out *Out) {
	assert.Reached("partition: log begins within a batch")
	p.begun = &begun{*got, p.replica.Epoch()}
	t.reset(p, got.Batches[0].BaseOffset(), out)
}

// begun is what a log is to begin with that is being reset, and in which leader
// epoch that was fetched.
type begun struct {
	got   wire.FetchedPartition
	epoch record.LeaderEpoch
}

// beginWith appends what a log that was reset is to begin with, if that is still so.
func (t *Table) beginWith(b *begun, p *Partition, ro *replica.Out, at Moment, out *Out) {
	if r := &p.replica; b != nil && r.Following() && r.Epoch() == b.epoch && r.Empty() && r.LogEnd() == b.got.Batches[0].BaseOffset() {
		r.Agreed(b.got.HighWatermark, ro)
		t.extend(p, &b.got, at, out)
	}
}

// startOver gives up a log that ends before the leader's begins, or of which the leader
// has nothing.
func (t *Table) startOver(p *Partition, got *wire.FetchedPartition, out *Out) {
	assert.Reached("partition: log given up that ends before the leader's")
	out.Lines = append(out.Lines, Line{slog.LevelInfo, "log ends before the leader's begins, and starts over there",
		append(p.attrs(), slog.Int64("offset", int64(got.LogStart)), slog.Int64("log_end", int64(p.replica.LogEnd())))})
	t.Stats.Truncations++
	t.reset(p, got.LogStart, out)
}

// reset lets a log begin anew. What is known of its producers is good until that is
// done, and must not get into a checkpoint that comes after it.
func (t *Table) reset(p *Partition, start record.Offset, out *Out) {
	p.replica.Reset()
	p.resetting = true
	out.Jobs = append(out.Jobs, job.Reset{Log: p.log(), Start: start})
}

// truncated takes the result of a truncation or a reset.
func (t *Table) truncated(id storage.LogID, res job.Result, at Moment, out *Out) {
	p := t.partition(id)
	if t.left(id) || p == nil {
		return
	}
	was := p.marks()
	var ro replica.Out
	begun := p.begun
	p.begun, p.resetting = nil, false
	cut, isCut := res.Job.(job.Truncate)
	if res.Err != nil && cut.Replay == 0 {
		p.replica.TruncateFailed(at.Now.Add(spaceRetry), &ro)
		t.moved(p, was, &ro, at, out)
		t.follow(p, at, out)
		t.spoilIfDamaged(p, res.Err, at, out)
		return
	}
	if isCut && cut.Replay == 0 && !p.producers.Exact(res.View.End()) {
		assert.Reached("partition: producers rebuilt from the log")
		p.view = res.View
		out.Jobs = append(out.Jobs, job.Truncate{Log: id, End: res.View.End(), Replay: producer.Window})
		return
	}
	err := res.Err
	switch {
	case isCut && err == nil:
		err = t.rollback(p, cut, res, at)
	case !isCut:
		p.damage, p.producers = nil, producer.State{}
	}
	p.view = res.View
	p.replica.Truncated(res.View.Start(), res.View.End(), epochsOf(res.View), &ro)
	t.touch(p)
	t.beginWith(begun, p, &ro, at, out)
	t.moved(p, was, &ro, at, out)
	t.follow(p, at, out)
	if err != nil {
		t.spoilIfDamaged(p, err, at, out)
	}
}

// left reports whether a result is of a job of a partition that was dropped and
// that this node has a replica of again.
func (t *Table) left(id storage.LogID) bool {
	n := t.leaving[id]
	switch {
	case n == 0:
		return false
	case n == 1:
		delete(t.leaving, id)
	default:
		t.leaving[id] = n - 1
	}
	assert.Reached("partition: result of a job of a replica before this one")
	return true
}

// rollback makes the producer state that of the log that is left.
func (t *Table) rollback(p *Partition, j job.Truncate, res job.Result, at Moment) error {
	if j.Replay == 0 {
		p.producers.Cut(res.View.End())
		return nil
	}
	state, _, err := restore(res.Snapshot, at.Now)
	if err != nil {
		return err
	}
	replay(&state, res.View, res.After, res.View.Start(), at.Now)
	p.producers = state
	return nil
}
