package digest_test

import (
	"testing"

	"github.com/pawlbroker/pawl/sim/digest"
)

func TestDigestTellsOrderLengthAndContentApart(t *testing.T) {
	seen := map[digest.Digest]string{}
	for name, fill := range map[string]func(d *digest.Digest){
		"nothing":        func(d *digest.Digest) {},
		"zero":           func(d *digest.Digest) { d.Word(0) },
		"two zeros":      func(d *digest.Digest) { d.Word(0); d.Word(0) },
		"1 2":            func(d *digest.Digest) { d.Word(1); d.Word(2) },
		"2 1":            func(d *digest.Digest) { d.Word(2); d.Word(1) },
		"a":              func(d *digest.Digest) { d.Bytes([]byte("a")) },
		"a0":             func(d *digest.Digest) { d.Bytes([]byte("a\x00")) },
		"nine":           func(d *digest.Digest) { d.Bytes([]byte("123456789")) },
		"nine otherwise": func(d *digest.Digest) { d.Bytes([]byte("123456780")) },
	} {
		var d digest.Digest
		fill(&d)
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s are the same", name, other)
		}
		seen[d] = name
	}
}

func TestStringAndBytesAreTheSame(t *testing.T) {
	for _, s := range []string{"", "a", "12345678", "123456789abc"} {
		var a, b digest.Digest
		a.Bytes([]byte(s))
		b.String(s)
		if a != b {
			t.Errorf("%q", s)
		}
	}
}

func BenchmarkFiveWords(b *testing.B) {
	var d digest.Digest
	for i := range b.N {
		d.Word(uint64(i))
		d.Word(2)
		d.Word(3)
		d.Word(4)
		d.Word(5)
	}
}
