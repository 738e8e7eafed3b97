package storage

import (
	"fmt"
	"sort"

	"github.com/pawlbroker/pawl/storage/codec"
	"github.com/pawlbroker/pawl/storage/record"
)

// maxBatchBytes bounds what a batch may decompress to. A client's largest
// request is far below it.
const maxBatchBytes = 1 << 30

// notFound is what a lookup gives when no record matches.
var notFound = TimestampOffset{Offset: -1, Timestamp: record.NoTimestamp, Epoch: record.NoEpoch}

// OffsetForTimestamp finds the first record whose timestamp is at least at and
// whose offset is below limit. Offset is -1 if there is none.
//
// Source: KIP-79.
func (v View) OffsetForTimestamp(at record.Timestamp, limit record.Offset) (TimestampOffset, error) {
	s := v.s
	if s == nil {
		return notFound, nil
	}
	if s.damage != nil {
		return notFound, s.damage
	}
	for i := range s.parts() {
		p := s.part(i)
		if p.size == 0 || p.maxTime < at || p.next <= s.start {
			continue
		}
		if p.seg.base >= limit {
			break
		}
		found, err := p.firstAtLeast(at, s.start, limit)
		if err != nil || found.Offset >= 0 {
			return found, p.unlessGone(err)
		}
	}
	return notFound, nil
}

func (p part) firstAtLeast(at record.Timestamp, start, limit record.Offset) (TimestampOffset, error) {
	ix := p.reader()
	var err error
	i := sort.Search(int(ix.total()), func(i int) bool {
		if err != nil {
			return true
		}
		var e indexEntry
		e, err = ix.entry(int64(i))
		return err != nil || e.maxTime >= at
	})
	if err != nil {
		return notFound, err
	}
	e, err := ix.entry(int64(i))
	if err != nil {
		return notFound, err
	}
	found := notFound
	_, err = p.each(max(e.first, start), true, func(b record.Batch) (bool, error) {
		if b.BaseOffset() >= limit {
			return false, nil
		}
		if b.MaxTimestamp() < at {
			return true, nil
		}
		err := eachRecord(b, func(offset record.Offset, t record.Timestamp) {
			if found.Offset < 0 && t >= at && offset >= start && offset < limit {
				found = TimestampOffset{offset, t, b.LeaderEpoch()}
			}
		})
		return found.Offset < 0, err
	})
	return found, err
}

// MaxTimestamp finds, of the records below limit that have the greatest
// timestamp, the first. Offset is -1 if there is no record.
//
// Source: KIP-734.
func (v View) MaxTimestamp(limit record.Offset) (TimestampOffset, error) {
	s := v.s
	if s == nil || limit <= s.start {
		return notFound, nil
	}
	if s.damage != nil {
		return notFound, s.damage
	}
	greatest, any := record.NoTimestamp, false
	for i := range s.parts() {
		p := s.part(i)
		if p.size == 0 || p.next <= s.start {
			continue
		}
		if p.seg.base >= limit {
			break
		}
		t, err := p.greatest(s.start, limit)
		if err != nil {
			return notFound, p.unlessGone(err)
		}
		greatest, any = max(greatest, t), true
	}
	if !any {
		return notFound, nil
	}
	return v.OffsetForTimestamp(greatest, limit)
}

// greatest is the greatest timestamp of the part's records in [start, limit).
func (p part) greatest(start, limit record.Offset) (record.Timestamp, error) {
	greatest, from := record.NoTimestamp, max(start, p.seg.base)
	if start <= p.seg.base {
		if limit >= p.next {
			return p.maxTime, nil
		}
		ix := p.reader()
		i, e, err := ix.locate(limit)
		if err != nil {
			return greatest, err
		}
		from = e.first
		if i > 0 {
			if e, err = ix.entry(i - 1); err != nil {
				return greatest, err
			}
			greatest = e.maxTime
		}
	}
	_, err := p.each(from, true, func(b record.Batch) (bool, error) {
		if b.BaseOffset() >= limit {
			return false, nil
		}
		if b.BaseOffset() >= start && b.NextOffset() <= limit {
			greatest = max(greatest, b.MaxTimestamp())
			return true, nil
		}
		return true, eachRecord(b, func(offset record.Offset, t record.Timestamp) {
			if offset >= start && offset < limit {
				greatest = max(greatest, t)
			}
		})
	})
	return greatest, err
}

// eachRecord tells f every record's offset and timestamp.
func eachRecord(b record.Batch, f func(record.Offset, record.Timestamp)) error {
	payload := b.Payload()
	if b.Codec() != 0 {
		var err error
		if payload, err = codec.Decompress(b.Codec(), payload, maxBatchBytes); err != nil {
			return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
		}
	}
	err := record.Walk(payload, b.Count(), func(r record.Record) error {
		t := b.BaseTimestamp() + record.Timestamp(r.TimestampDelta)
		if b.LogAppendTime() {
			t = b.MaxTimestamp()
		}
		f(b.BaseOffset()+record.Offset(r.OffsetDelta), t)
		return nil
	})
	if err != nil {
		return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
	}
	return nil
}
