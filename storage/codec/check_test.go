package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/pawlbroker/pawl/storage/record"
)

func ptr(p record.Producer) *record.Producer { return &p }

// stored is a batch of three records compressed by id.
func stored(t testing.TB, id int8) record.Batch {
	t.Helper()
	b, err := record.NewBuilder().Append(1000, []byte("k"), []byte("v")).Append(900, nil, []byte("w")).
		Append(1100, []byte("k"), nil, record.Header{Key: "h"}).
		Compressed(record.Options{Producer: ptr(record.Producer{ID: 5, Epoch: 1, BaseSequence: 10})}, id, Compress)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// seal makes the CRC right again.
func seal(b record.Batch) record.Batch {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func put(b record.Batch, at int, v any) record.Batch {
	_, _ = binary.Encode(b[at:], binary.BigEndian, v)
	return b
}

func TestCheckFindsTheFactsUnderEveryCodec(t *testing.T) {
	for _, id := range all {
		b := stored(t, id)
		before := slices.Clone(b)
		got, err := Check(b, 1<<20)
		if want := (record.Facts{MinTimestamp: 900, MaxTimestamp: 1100, NullKey: 1}); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", Name(id), got, err, want)
		}
		if !slices.Equal(b, before) {
			t.Errorf("%s: a right batch was changed", Name(id))
		}
	}
}

func TestCheckCorrectsTheMaxTimestamp(t *testing.T) {
	for _, id := range all {
		for _, wrong := range []int64{-1, 0, 1099, 1 << 62} {
			b := seal(put(stored(t, id), 35, wrong))
			if _, err := Check(b, 1<<20); err != nil {
				t.Fatalf("%s: %v", Name(id), err)
			}
			if _, _, err := record.Cut(b); err != nil || b.MaxTimestamp() != 1100 {
				t.Errorf("%s with %d: %d, %v", Name(id), wrong, b.MaxTimestamp(), err)
			}
		}
	}
}

// What sarama and kafkajs send without idempotence.
func TestCheckMindsNoSequenceWithoutProducer(t *testing.T) {
	for _, p := range []record.Producer{{ID: -1, Epoch: -1, BaseSequence: -1}, {ID: -1}, {ID: -1, Epoch: -1, BaseSequence: 7}} {
		b := record.NewBuilder().Append(1, nil, nil).Build(record.Options{Producer: &p})
		if _, err := Check(b, 1<<20); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestCheckRefusesWhatAProducerMayNotSend(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(b record.Batch)
		want  error
	}{
		{"codec 5", func(b record.Batch) { b[22] |= 5 }, ErrUnknownCodec},
		{"codec 7", func(b record.Batch) { b[22] |= 7 }, ErrUnknownCodec},
		{"gzip that is not", func(b record.Batch) { b[22] |= 1 }, ErrCorrupt},
		{"snappy that is not", func(b record.Batch) { b[22] |= 2 }, ErrCorrupt},
		{"lz4 that is not", func(b record.Batch) { b[22] |= 3 }, ErrCorrupt},
		{"zstd that is not", func(b record.Batch) { b[22] |= 4 }, ErrCorrupt},
		{"log append time", func(b record.Batch) { b[22] |= 1 << 3 }, ErrTimestampType},
		{"control", func(b record.Batch) { b[22] |= 1 << 5 }, ErrControl},
		{"delete horizon", func(b record.Batch) { b[22] |= 1 << 6 }, record.ErrInvalid},
		{"base offset", func(b record.Batch) { b.Assign(1, 0) }, record.ErrInvalid},
		{"no records", func(b record.Batch) { put(b, 57, int32(0)) }, record.ErrInvalid},
		{"count negative", func(b record.Batch) { put(b, 57, int32(-3)) }, record.ErrInvalid},
		{"count and delta smallest", func(b record.Batch) { put(put(b, 57, int32(-1<<31)), 23, int32(1<<31-1)) }, record.ErrInvalid},
		{"count and delta greatest", func(b record.Batch) { put(put(b, 57, int32(1<<31-1)), 23, int32(1<<31-2)) }, record.ErrInvalid},
		{"last offset delta greater", func(b record.Batch) { put(b, 23, int32(3)) }, record.ErrInvalid},
		{"last offset delta zero", func(b record.Batch) { put(b, 23, int32(0)) }, record.ErrInvalid},
		{"one record less", func(b record.Batch) { put(put(b, 57, int32(2)), 23, int32(1)) }, record.ErrInvalid},
		{"one record more", func(b record.Batch) { put(put(b, 57, int32(4)), 23, int32(3)) }, record.ErrInvalid},
		{"offset delta of the first", func(b record.Batch) { b[61+3] = 2 }, record.ErrInvalid},
		{"length of the first", func(b record.Batch) { b[61] = 1 }, record.ErrInvalid},
		{"producer id -2", func(b record.Batch) { put(b, 43, int64(-2)) }, ErrProducer},
		{"epoch -1", func(b record.Batch) { put(b, 51, int16(-1)) }, ErrProducer},
		{"sequence -1", func(b record.Batch) { put(b, 53, int32(-1)) }, ErrProducer},
		{"transactional without producer", func(b record.Batch) { put(b, 43, int64(-1)); b[22] |= 1 << 4 }, ErrProducer},
	} {
		b := stored(t, None)
		c.spoil(b)
		cut, _, err := record.Cut(seal(b))
		if err != nil {
			t.Fatalf("%s: the frame is bad: %v", c.name, err)
		}
		facts, err := Check(cut, 1<<20)
		if !errors.Is(err, c.want) || facts != (record.Facts{}) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestCheckBoundsTheRecords(t *testing.T) {
	for _, id := range all {
		b := record.NewBuilder().Append(1, nil, make([]byte, 100_000))
		size := b.Size() - record.HeaderSize
		batch, err := b.Compressed(record.Options{}, id, Compress)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Check(batch, size); err != nil {
			t.Errorf("%s with as much as it needs: %v", Name(id), err)
		}
		if _, err := Check(batch, size-1); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s with a byte less: %v", Name(id), err)
		}
	}
}

func TestCheckOfAnUncompressedBatchDoesNotAllocate(t *testing.T) {
	b := stored(t, None)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := Check(b, 1<<20); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRecordsHaveTheirOffsetsAndTimes(t *testing.T) {
	for _, id := range all {
		b := stored(t, id)
		b.Assign(500, 3)
		if got, want := list(b), `500@1000 "k" 501@900 "" 502@1100 "k" `; got != want {
			t.Errorf("%s: %s, want %s", Name(id), got, want)
		}
		b.SetLogAppendTime(7777)
		if got, want := list(b), `500@7777 "k" 501@7777 "" 502@7777 "k" `; got != want {
			t.Errorf("%s: %s, want %s", Name(id), got, want)
		}
	}
}

func list(b record.Batch) (s string) {
	for e, err := range Records(b, 1<<20) {
		if err != nil {
			return s + err.Error()
		}
		s += fmt.Sprintf("%d@%d %q ", e.Offset, e.Timestamp, e.Key)
	}
	return s
}

func TestRecordsMayStopAndStay(t *testing.T) {
	for _, id := range all {
		var kept [][]byte
		for e, err := range Records(stored(t, id), 1<<20) {
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, e.Value)
			if e.Offset == 1 {
				break
			}
		}
		if _, err := Check(stored(t, id), 1<<20); err != nil { // would use a pooled buffer again
			t.Fatal(err)
		}
		if len(kept) != 2 || string(kept[0]) != "v" || string(kept[1]) != "w" {
			t.Errorf("%s: %q", Name(id), kept)
		}
	}
}

func TestRecordsEndWithWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name string
		b    record.Batch
		seen int
		want error
	}{
		{"an unknown codec", seal(put(stored(t, None), 21, int16(6))), 0, ErrUnknownCodec},
		{"a count too great", seal(put(stored(t, None), 57, int32(4))), 3, record.ErrInvalid},
		{"an offset past the last", seal(put(stored(t, None), 23, int32(1))), 2, record.ErrInvalid},
	} {
		seen, last := 0, error(nil)
		for _, err := range Records(c.b, 1<<20) {
			if last = err; err == nil {
				seen++
			}
		}
		if seen != c.seen || !errors.Is(last, c.want) {
			t.Errorf("%s: %d records, %v", c.name, seen, last)
		}
	}
}
