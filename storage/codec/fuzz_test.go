package codec

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pawlbroker/pawl/storage/record"
)

// Whatever the bytes, the result is within the bound, the error is one of three,
// and what was decompressed survives another round.
func FuzzDecompress(f *testing.F) {
	for _, id := range all {
		packed, _ := Compress(id, nil, []byte("some some some some bytes"))
		f.Add(id, packed)
	}
	files, err := filepath.Glob("testdata/vectors/*")
	if err != nil {
		f.Fatal(err)
	}
	for i, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(int8(i%4+1), src[:min(len(src), 300)])
	}
	f.Add(Snappy, xerial([]byte("one"), []byte("two")))
	const limit = 1 << 16
	f.Fuzz(func(t *testing.T, id int8, src []byte) {
		out, err := Decompress(id, src, limit)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrUnknownCodec) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		if len(out) > limit {
			t.Fatalf("%d bytes", len(out))
		}
		packed, err := Compress(id, nil, out)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Decompress(id, packed, len(out)); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("another round: %v", err)
		}
	})
}

// What Check accepts is intact, true to its header, and stays accepted.
func FuzzCheck(f *testing.F) {
	for _, id := range all {
		f.Add([]byte(stored(f, id)))
	}
	const limit = 1 << 16
	f.Fuzz(func(t *testing.T, in []byte) {
		in = slices.Clone(in)
		if len(in) >= record.HeaderSize {
			seal(in) // else hardly an input gets past Cut
		}
		b, _, err := record.Cut(in)
		if err != nil {
			return
		}
		n := 0
		var walkErr error
		for _, err := range Records(b, limit) {
			if walkErr = err; err == nil {
				n++
			}
		}
		facts, err := Check(b, limit)
		if err != nil {
			return
		}
		if walkErr != nil || n != int(b.Count()) {
			t.Fatalf("%d records of %d: %v", n, b.Count(), walkErr)
		}
		if again, _, err := record.Cut(b); err != nil || again.MaxTimestamp() != facts.MaxTimestamp {
			t.Fatalf("max timestamp %d, want %d: %v", b.MaxTimestamp(), facts.MaxTimestamp, err)
		}
		if again, err := Check(b, limit); err != nil || again != facts {
			t.Fatalf("the second time %+v, %v, first %+v", again, err, facts)
		}
	})
}
