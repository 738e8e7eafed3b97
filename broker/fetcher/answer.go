package fetcher

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// errAnswer says a leader's answer cannot be one to what it was asked.
var errAnswer = errors.New("answer to another question")

// lost takes in that a call has no answer.
func (l *leader) lost(f *Fetcher, err error, now clock.Instant, out *Out) {
	if l.closing {
		l.closed()
		return
	}
	f.Stats.Failures++
	l.sessionEpoch = fullEpoch // the id stays, so that the leader drops what it may have of it
	l.failures++
	l.retryAt = now.Add(f.backoff(l.failures))
	l.complain(err, out)
}

// complain tells the operator, once, that a leader cannot be fetched from.
func (l *leader) complain(err error, out *Out) {
	if l.silent {
		return
	}
	l.silent = true
	out.Lines = append(out.Lines, Line{slog.LevelWarn, "leader cannot be fetched from", []slog.Attr{
		slog.Int("leader", int(l.node)), slog.Int("partitions", l.followed), slog.String("error", err.Error())}})
}

// answered takes in an answer.
func (l *leader) answered(f *Fetcher, seq uint64, resp *wire.Fetched, now clock.Instant, out *Out) {
	if l.closing {
		l.closed()
		return
	}
	if resp.ErrorCode != wire.CodeNone {
		l.refused(f, resp.ErrorCode, now, out)
		return
	}
	if err := l.verify(seq, resp); err != nil {
		if resp.SessionID != 0 {
			l.sessionID = resp.SessionID // which is given up with the next Fetch
		}
		l.lost(f, err, now, out)
		return
	}
	if l.silent {
		out.Lines = append(out.Lines, Line{slog.LevelInfo, "leader can be fetched from again", []slog.Attr{slog.Int("leader", int(l.node))}})
	}
	l.failures, l.retryAt, l.silent = 0, 0, false
	switch {
	case resp.SessionID == 0:
		l.sessionID, l.sessionEpoch = 0, fullEpoch
	case l.full || l.sessionEpoch == lastEpoch:
		l.sessionID, l.sessionEpoch = resp.SessionID, firstEpoch
	default:
		l.sessionEpoch++
	}
	f.Stats.Answered += int64(len(resp.Partitions))
	for i := range resp.Partitions {
		p := &resp.Partitions[i]
		l.links[storage.LogID{Topic: p.Topic, Partition: p.Index}].answer(f, p, now, out)
	}
}

// refused takes in an answer that says that the request does not fit a session.
func (l *leader) refused(f *Fetcher, code int16, now clock.Instant, out *Out) {
	assert.Reached("fetcher: session refused")
	f.Stats.Failures++
	if code == wire.Code(wire.ErrFetchSessionNotFound) {
		l.sessionID = 0
	}
	l.sessionEpoch = fullEpoch
	l.failures++
	if l.full || l.failures > 1 { // else it is asked in full, at once
		l.retryAt = now.Add(f.backoff(l.failures))
		l.complain(fmt.Errorf("error code %d", code), out)
	}
}

// verify returns an error unless resp can be an answer to the last Fetch: to a
// full one with every partition, to another with none that is not in the session,
// and with none twice. seq is the Fetch's.
func (l *leader) verify(seq uint64, resp *wire.Fetched) error {
	if !l.full && resp.SessionID != 0 && resp.SessionID != l.sessionID {
		return fmt.Errorf("%w: session %d, want %d", errAnswer, resp.SessionID, l.sessionID)
	}
	for i := range resp.Partitions {
		p := &resp.Partitions[i]
		log := storage.LogID{Topic: p.Topic, Partition: p.Index}
		k := l.links[log]
		if k == nil || !k.inTold {
			return fmt.Errorf("%w: partition %v, which was not asked for", errAnswer, log)
		}
		if k.answered == seq {
			return fmt.Errorf("%w: partition %v twice", errAnswer, log)
		}
		k.answered = seq
	}
	if l.full && len(resp.Partitions) != l.named {
		return fmt.Errorf("%w: %d partitions, asked for %d", errAnswer, len(resp.Partitions), l.named)
	}
	return nil
}

// answer takes in what the leader said of a partition. It is of no use if the
// partition is to be fetched from elsewhere by now; the leader tells all of it
// again if it is named again.
func (k *link) answer(f *Fetcher, p *wire.FetchedPartition, now clock.Instant, out *Out) {
	if !k.active() || !k.told.same(k.want) {
		k.missed = true
		k.changed(f, now)
		return
	}
	moved := len(p.Batches) > 0 || p.Diverging.Epoch != record.NoEpoch
	switch {
	case p.Err != nil || p.Bad != nil && !moved:
		k.failures++
		k.retryAt = now.Add(f.backoff(k.failures))
		f.retries.Add(k.retryAt, k)
	case moved:
		k.failures, k.held = 0, true
		k.leader.order.remove(k)
		k.leader.order.push(k)
	default:
		k.failures = 0
	}
	k.changed(f, now)
	out.Received = append(out.Received, Received{k.leader.node, k.want.leaderEpoch, *p})
}
