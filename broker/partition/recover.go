package partition

import (
	"encoding/binary"
	"fmt"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/producer"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// What a checkpoint keeps of a partition beside its log: version (1 byte), high
// watermark (8), and the producers as package producer encodes them. Version 1 is
// the producers alone.
const (
	snapshotProducers = 1
	snapshotVersion   = 2
	snapshotHead      = 1 + 8
)

// snapshot is what is to be kept of the partition.
func (p *Partition) snapshot() []byte {
	return encodeSnapshot(p.replica.HighWatermark(), p.producers.Snapshot())
}

// deletion is what is to be kept of what is below start, all of which is committed,
// once that is deleted.
func (p *Partition) deletion(start record.Offset) []byte {
	return encodeSnapshot(start, p.producers.SnapshotBelow(start))
}

func encodeSnapshot(committed record.Offset, producers []byte) []byte {
	out := make([]byte, 0, snapshotHead+len(producers))
	out = append(out, snapshotVersion)
	out = binary.BigEndian.AppendUint64(out, uint64(committed))
	return append(out, producers...)
}

// restore is the inverse of snapshot.
func restore(b []byte, now clock.Instant) (producer.State, record.Offset, error) {
	switch {
	case len(b) == 0 || b[0] == snapshotProducers:
		state, err := producer.Restore(b, now)
		return state, 0, err
	case b[0] != snapshotVersion || len(b) < snapshotHead:
		return producer.State{}, 0, fmt.Errorf("%w: version %d in %d bytes", producer.ErrSnapshot, b[0], len(b))
	}
	state, err := producer.Restore(b[snapshotHead:], now)
	return state, record.Offset(binary.BigEndian.Uint64(b[1:])), err
}

// recover takes over what the disk has of the partition.
func (t *Table) recover(p *Partition, rec *storage.RecoveredLog, at Moment, out *Out) {
	p.view = rec.View
	state, committed, err := restore(rec.Snapshot, at.Now)
	p.replica = *replica.New(rec.View.Start(), rec.View.End(), committed, epochsOf(rec.View))
	if err == nil {
		p.producers = state
		replay(&p.producers, rec.View, rec.After, p.replica.HighWatermark(), at.Now)
	}
	if rec.Damage != nil {
		err = rec.Damage
	}
	if err != nil {
		t.spoil(p, err, at, out)
	}
}

func epochsOf(v storage.View) []replica.EpochStart {
	return append([]replica.EpochStart(nil), v.Epochs()...)
}

// replay brings a state that was restored from a snapshot to the log end. The
// snapshot may hold batches that were in flight when it was taken and were
// refused, or cut off; the log says where it really ended. Batches above the high
// watermark may yet be taken back.
func replay(s *producer.State, log storage.View, after []storage.BatchInfo, committed record.Offset, now clock.Instant) {
	end := log.End()
	if len(after) > 0 {
		end = after[0].BaseOffset
	}
	s.Cut(end)
	for _, b := range after {
		s.Settled(min(b.BaseOffset, committed))
		s.Add(batchOf(b), now)
	}
	s.Settled(committed)
}

// Replayed rebuilds the producer state of a log from what was recovered, and
// returns its hash: what Status says after the node has recovered from it.
func Replayed(rec *storage.RecoveredLog) (uint64, error) {
	state, committed, err := restore(rec.Snapshot, 0)
	if err != nil {
		return 0, err
	}
	replay(&state, rec.View, rec.After, committed, 0)
	return state.Hash(rec.View.End()), nil
}
