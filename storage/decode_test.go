package storage

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/pawlbroker/pawl/storage/record"
)

func someLog() *Log {
	g := &segment{base: 3, generation: 1}
	v := newSnapshot(g)
	b := record.NewBuilder().Append(5, nil, []byte("v")).Build(record.Options{})
	b.Assign(3, 2)
	v.add(b, 1)
	v.indexed, v.pending = 1, nil
	v.roll(&segment{base: 4, generation: 1})
	b.Assign(4, 2)
	v.add(b, 4096)
	return &Log{view: v, snapshot: []byte("snapshot"), upTo: 4}
}

// FuzzCheckpoint: a checkpoint's contents decode or are refused, and what they
// decode to encodes to the same.
func FuzzCheckpoint(f *testing.F) {
	f.Add(someLog().appendTo(encodeCheckpointHead(4096, 7, 9, 1)))
	l := someLog()
	l.view.damage = &DamageError{File: "f", Pos: 1, What: "w"}
	f.Add(l.appendTo(encodeCheckpointHead(4096, 7, 9, 1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &Store{}
		c, err := s.decode(b)
		if err != nil {
			return
		}
		again := encodeCheckpointHead(c.interval, c.seq, c.last, len(c.logs))
		for _, l := range c.logs {
			again = l.appendTo(again)
		}
		s2 := &Store{}
		if c2, err := s2.decode(again); err != nil || len(c2.logs) != len(c.logs) || len(again) != len(b) {
			t.Fatalf("%x became %x, %v", b, again, err)
		}
	})
}

func FuzzIndexEntry(f *testing.F) {
	f.Add(indexEntry{1, 2, 100, 4, 5, 6}.appendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := decodeEntry(b); err == nil && !bytes.Equal(e.appendTo(nil), b[:entrySize]) {
			t.Fatalf("%x became %v", b, e)
		}
	})
}

func FuzzLogRecord(f *testing.F) {
	at := place{log: LogID{Partition: 3}, base: 4, generation: 5, pos: 6}
	last := indexEntry{1, 2, 100, 4, 5, 6}
	for _, r := range []logRecord{
		{kind: kindBatches, place: at, batches: []byte("x")},
		{kind: kindExtent, place: at, len: 9, first: 1, offset: 2, headers: 3},
		{kind: kindTruncate, place: at, offset: 2, next: 1, cut: true, entries: 1, last: last},
		{kind: kindTruncate, place: place{log: at.log}, offset: 2, next: 1},
		{kind: kindDelete, place: place{log: at.log}},
		{kind: kindStart, place: place{log: at.log}, offset: 2},
		{kind: kindStart, place: place{log: at.log}, offset: 2, deleted: []byte("snapshot")},
		{kind: kindReset, place: place{log: at.log}, offset: 2, next: 7},
	} {
		f.Add(r.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		if got := r.encode(); !bytes.Equal(got, b) && !(r.kind == kindTruncate && !r.cut && len(got) == len(b)) {
			t.Fatalf("%x became %x", b, got)
		}
		_ = describeRecord(b)
	})
}

func TestConfigPrintsAndParses(t *testing.T) {
	c := Config{LargeAppend: 5, JournalFileBytes: 2048, JournalGrowBytes: 0, IndexIntervalBytes: 7}
	got, err := ParseConfig(c.String())
	if err != nil || got != c {
		t.Fatalf("%v, %v", got, err)
	}
	for _, bad := range []string{"nonsense=1", "large-append=x", "large-append=0"} {
		if _, err := ParseConfig(bad); err == nil {
			t.Fatalf("%q is taken", bad)
		}
	}
}

func TestSegmentNamesParse(t *testing.T) {
	g := &segment{log: LogID{Topic: [16]byte{0xab, 15: 1}, Partition: 12}, base: 34, generation: 5}
	id, at, generation, index, ok := parseSegmentName(base(g.indexName()))
	if !ok || id != g.log || at != g.base || generation != 5 || !index {
		t.Fatal(id, at, generation, index, ok)
	}
}

// TestOlderCheckpoints decodes a checkpoint without what was deleted, which version 3
// added, and one without index entries, which version 2 did.
func TestOlderCheckpoints(t *testing.T) {
	s := &Store{volume: &volume{interval: 100}, logs: map[LogID]*Log{}}
	id := LogID{Topic: [16]byte{7}, Partition: 3}
	v := newSnapshot(s.newSegment(id, 5, 2))
	v.end, v.size, v.indexed = 9, 400, 2
	v.pending = []indexEntry{{first: 7, pos: 200, len: 200, batches: 1}}
	s.logs[id] = &Log{view: v, upTo: 5, deleted: []byte("before")}
	head := encodeCheckpointHead(100, 1, 0, 1)
	three := s.logs[id].appendTo(slices.Clone(head))
	c, err := s.decode(three)
	if err != nil || string(c.logs[0].deleted) != "before" {
		t.Fatal(c, err)
	}
	two := slices.Clone(three[:len(three)-4-len("before")])
	binary.BigEndian.PutUint32(two, 2)
	c, err = s.decode(two)
	if err != nil || !slices.Equal(c.logs[0].view.pending, v.pending) || c.logs[0].view.indexed != 2 {
		t.Fatal(c, err)
	}
	const pendingAt = 16 + 4 + 8 + 8 + 4 + 1 + 4 + 8 + 4 + 8 + 8 + 8 // in a log without sealed segments
	at := len(head) + pendingAt
	one := slices.Delete(slices.Clone(two), at, at+4+entrySize)
	binary.BigEndian.PutUint32(one, 1)
	c, err = s.decode(one)
	if err != nil || len(c.logs[0].view.pending) > 0 || c.logs[0].view.end != 9 || c.logs[0].upTo != 5 {
		t.Fatal(c, err)
	}
	two[at+4] ^= 1
	if _, err := s.decode(two); err == nil {
		t.Fatal("a damaged entry is taken")
	}
}
