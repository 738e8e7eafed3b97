package partition

import (
	"errors"
	"fmt"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/broker/session"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// sight is what there is for one entry of a fetch.
type sight struct {
	part      *Partition // nil if there is none here
	code      int16      // of the error, if it is one
	more      *wire.FetchMore
	blocked   error // nothing can be said yet; if it must, then this
	leaseless bool  // for want of the lease
	hasty     bool  // what is to be said does not wait
	cold      bool  // the records must be read by a job

	limit         record.Offset // records below may be sent
	region        storage.Region
	put           int64 // bytes that are there and are put off, for want of room
	highWatermark record.Offset
	logStart      record.Offset
}

// bytes is how many there are to be sent, as far as that is known.
func (v *sight) bytes() int64 { return v.region.Len + v.put }

// told reports whether an answer that may leave partitions out has this one.
func (v *sight) told(e *session.Entry) bool {
	return v.code != wire.CodeNone || v.more != nil || v.cold || v.region.Len > 0 || v.blocked == nil && e.News(v.highWatermark, v.logStart)
}

// fail makes err what is said.
func (v *sight) fail(err error, version int16) {
	if errors.Is(err, wire.ErrOffsetNotAvailable) && version < offsetNotAvailable {
		err = replica.ErrNotLeader
	}
	v.code, v.hasty, v.cold, v.region, v.blocked = wire.Code(err), true, false, storage.Region{}, nil
	if errors.Is(err, storage.ErrOutOfRange) {
		return // where the log begins and ends helps a follower, and librdkafka
	}
	v.highWatermark, v.logStart = -1, -1
}

var errLeaseless = fmt.Errorf("%w: the lease is over", replica.ErrNotLeader)

const (
	readReplica        = 11 // first version whose clients read from followers
	offsetNotAvailable = 11 // first version whose clients know the error
	topicIDs           = 13 // first version that names topics by id
	leaderNamed        = 16 // first version that names who leads
)

// look finds what there is for an entry, at most max bytes of it but one batch.
func (t *Table) look(e *session.Entry, a *asker, max int64, at Moment, out *Out) (v sight) {
	t.Stats.FetchLooks++
	p, err := t.entryOf(e, a.version)
	if p == nil {
		v.fail(err, a.version)
		t.redirect(&v, err, e, a.version)
		return v
	}
	if !e.Watched() && e.Session() != nil {
		p.watch.Add(e)
	}
	v.part = p
	v.highWatermark, v.logStart = p.replica.HighWatermark(), p.replica.LogStart()
	if err == nil {
		if a.peer != wire.NoPeer {
			err = t.lookForFollower(p, e, a, &v, at, out)
		} else {
			err = t.lookForConsumer(p, e, a, &v, at)
		}
	}
	if err != nil {
		v.fail(err, a.version)
		t.redirect(&v, err, e, a.version)
		return v
	}
	if v.blocked != nil || v.more != nil || e.Offset >= v.limit {
		return v
	}
	region, hot := p.view.Find(e.Offset, v.limit, min(int64(e.MaxBytes), max))
	v.region, v.cold = region, !hot
	return v
}

// entryOf is the partition that an entry is about. With an error it may be nil.
func (t *Table) entryOf(e *session.Entry, version int16) (*Partition, error) {
	if version >= topicIDs {
		return t.findByID(e.Topic().ID, e.Index())
	}
	return t.find(e.Topic().Name, e.Index())
}

// lookForFollower decides what a follower gets.
func (t *Table) lookForFollower(p *Partition, e *session.Entry, a *asker, v *sight, at Moment, out *Out) error {
	r := &p.replica
	if e.LeaderEpoch == record.NoEpoch {
		return fmt.Errorf("%w: node %d fetches without one", replica.ErrFencedEpoch, a.peer)
	}
	if err := r.CheckLeader(e.LeaderEpoch); err != nil {
		return err
	}
	if !r.Knows(a.peer, a.process, &t.node) {
		return fmt.Errorf("%w: node %d, registered as %d, has no replica", replica.ErrNotLeader, a.peer, a.process)
	}
	if e.Offset == lostLog {
		var ro replica.Out
		over := r.Lost(a.peer, a.process, &t.node, at.Now, &ro)
		if ro.Propose != nil {
			t.propose(p, ro.Propose, out)
		}
		t.note(p)
		if over {
			return storage.ErrOutOfRange
		}
		v.blocked = wire.ErrOffsetNotAvailable
		return nil
	}
	if v.judge(r, e); v.blocked != nil || v.more != nil {
		return nil
	}
	if r.Forgot(e.LastFetchedEpoch) {
		v.diverge(replica.Divergence{Epoch: e.LastFetchedEpoch})
		return nil
	}
	if e.Offset < r.LogStart() {
		return storage.ErrOutOfRange
	}
	v.limit = r.Shown()
	v.hasty = e.Session().ID() != 0 && e.News(v.highWatermark, v.logStart)
	return nil
}

// judge compares the fetcher's log with the leader's.
func (v *sight) judge(r *replica.Replica, e *session.Entry) {
	switch j, d := r.Judge(e.Offset, e.LastFetchedEpoch); j {
	case replica.Unsure:
		v.blocked = wire.ErrOffsetNotAvailable
	case replica.Diverges:
		v.diverge(d)
	}
}

// diverge says that the fetcher's log is not the leader's.
func (v *sight) diverge(d replica.Divergence) {
	v.hasty = true
	v.more = &wire.FetchMore{
		Diverging: wire.Divergence{Epoch: d.Epoch, End: d.End}, Leader: metadata.NoNode, LeaderEpoch: record.NoEpoch, ReadReplica: metadata.NoNode,
	}
}

// lookForConsumer decides what a consumer gets.
func (t *Table) lookForConsumer(p *Partition, e *session.Entry, a *asker, v *sight, at Moment) error {
	r := &p.replica
	if err := r.CheckEpoch(e.LeaderEpoch); err != nil {
		return err
	}
	v.limit = r.HighWatermark()
	switch {
	case !r.Leading() && !(r.Following() && r.InSync() && a.version >= readReplica && a.rack != ""):
		// A consumer that names no rack means the leader: it may have an old idea of
		// who that is, and is to learn better.
		return replica.ErrNotLeader
	case !t.leased(at):
		assert.Reached("partition: a consumer waits for the lease")
		v.blocked, v.leaseless = errLeaseless, true
		return nil
	case r.Following():
		return lookAtFollower(r, e, v)
	case !r.Leads() || !r.Settled():
		assert.Reached("partition: a consumer waits for a new leader to settle")
		v.blocked = wire.ErrOffsetNotAvailable
		return nil
	}
	if e.LastFetchedEpoch != record.NoEpoch {
		if v.judge(r, e); v.blocked != nil || v.more != nil {
			return nil
		}
	}
	if e.Offset < r.LogStart() || e.Offset > r.LogEnd() {
		return storage.ErrOutOfRange
	}
	if near := t.nearest(p, e.Offset, a); near != metadata.NoNode {
		v.hasty = true
		v.more = &wire.FetchMore{
			Diverging: wire.Divergence{Epoch: record.NoEpoch}, Leader: metadata.NoNode, LeaderEpoch: record.NoEpoch, ReadReplica: near,
		}
	}
	return nil
}

// lookAtFollower decides what a consumer gets from a follower. Its log may end
// before what the consumer knows from the leader; only the leader can say that
// there is no such offset.
func lookAtFollower(r *replica.Replica, e *session.Entry, v *sight) error {
	if e.Offset < r.LogStart() {
		return storage.ErrOutOfRange
	}
	if e.Offset > r.Shown() {
		v.blocked = wire.ErrOffsetNotAvailable
	}
	return nil
}

// nearest is the in-sync follower in the consumer's rack that has most of the
// log, if the leader is not in it; or NoNode.
//
// Source: KIP-392.
func (t *Table) nearest(p *Partition, offset record.Offset, a *asker) metadata.NodeID {
	if a.rack == "" || a.version < readReplica || !t.cfg.RackAware {
		return metadata.NoNode
	}
	if b := t.broker(t.node.Self); b == nil || b.Rack == a.rack {
		return metadata.NoNode
	}
	best, most := metadata.NoNode, offset
	p.replica.Lags(func(l replica.Lag) {
		if b := t.broker(l.Node); l.InSync && l.Durable >= most && b != nil && b.Active && b.Rack == a.rack && (best == metadata.NoNode || l.Durable > most) {
			best, most = l.Node, l.Durable
		}
	})
	return best
}
