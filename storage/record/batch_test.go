package record

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

func TestCutRefusesWhatIsNotAnIntactBatch(t *testing.T) {
	good := three().Build(Options{})
	for _, c := range []struct {
		name  string
		spoil func(b Batch) []byte
		want  error
	}{
		{"empty", func(Batch) []byte { return nil }, ErrShort},
		{"part of a header", func(b Batch) []byte { return b[:HeaderSize-1] }, ErrShort},
		{"a byte short", func(b Batch) []byte { return b[:len(b)-1] }, ErrShort},
		{"length one more", func(b Batch) []byte { b[11]++; return b }, ErrShort},
		{"length one less", func(b Batch) []byte { b[11]--; return b }, ErrCorrupt},
		{"length of half a header", func(b Batch) []byte { put32(b, batchLengthAt, 20); return b }, ErrCorrupt},
		{"length negative", func(b Batch) []byte { put32(b, batchLengthAt, -1); return b }, ErrCorrupt},
		{"length smallest", func(b Batch) []byte { put32(b, batchLengthAt, -1<<31); return b }, ErrCorrupt},
		{"length greatest", func(b Batch) []byte { put32(b, batchLengthAt, 1<<31-1); return b }, ErrShort},
		{"magic 0", func(b Batch) []byte { b[magicAt] = 0; return b }, ErrMagic},
		{"magic 1", func(b Batch) []byte { b[magicAt] = 1; return b }, ErrMagic},
		{"magic 3", func(b Batch) []byte { b[magicAt] = 3; return b }, ErrMagic},
		{"another crc", func(b Batch) []byte { b[crcAt]++; return b }, ErrCorrupt},
		{"a changed attribute", func(b Batch) []byte { b[attributesAt+1] ^= 1; return b }, ErrCorrupt},
		{"a changed record", func(b Batch) []byte { b[len(b)-1] ^= 1; return b }, ErrCorrupt},
		{"last offset delta negative", func(b Batch) []byte { put32(b, lastOffsetDeltaAt, -1); b.seal(); return b }, ErrCorrupt},
	} {
		in := c.spoil(slices.Clone(good))
		b, rest, err := Cut(in)
		if !errors.Is(err, c.want) || b != nil || len(rest) != len(in) {
			t.Errorf("%s: batch of %d bytes, %d left, %v; want %v", c.name, len(b), len(rest), err, c.want)
		}
		if errors.Is(err, ErrInvalid) || errors.Is(err, ErrShort) != (c.want == ErrShort) {
			t.Errorf("%s: %v is of the wrong kind", c.name, err)
		}
	}
}

func put32(b Batch, at int, v int32) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }

func TestCutLeavesTheNextBatch(t *testing.T) {
	first, second := three().Build(Options{}), NewBuilder().Append(1, nil, nil).Build(Options{})
	b, rest, err := Cut(append(slices.Clone(first), second...))
	if err != nil || !slices.Equal(b, first) || !slices.Equal(rest, second) {
		t.Errorf("batch of %d bytes, %d left, %v", len(b), len(rest), err)
	}
	if cap(b) != len(b) {
		t.Error("appending to a batch would overwrite the next")
	}
}

func TestWhatTheLeaderWritesKeepsTheBatchIntact(t *testing.T) {
	b := three().Build(Options{Producer: &Producer{1, 2, 1<<31 - 2}})
	b.Assign(1<<40, 12)
	b.SetMaxTimestamp(5)
	if _, _, err := Cut(b); err != nil || b.MaxTimestamp() != 5 || b.LogAppendTime() {
		t.Errorf("%v, max timestamp %d", err, b.MaxTimestamp())
	}
	b.SetLogAppendTime(6)
	if _, _, err := Cut(b); err != nil || b.MaxTimestamp() != 6 || !b.LogAppendTime() {
		t.Errorf("%v, max timestamp %d", err, b.MaxTimestamp())
	}
	if b.BaseOffset() != 1<<40 || b.LastOffset() != 1<<40+2 || b.NextOffset() != 1<<40+3 || b.LeaderEpoch() != 12 {
		t.Errorf("offsets [%d, %d) epoch %d", b.BaseOffset(), b.NextOffset(), b.LeaderEpoch())
	}
	if b.LastSequence() != 0 {
		t.Errorf("last sequence %d did not wrap", b.LastSequence())
	}
}
