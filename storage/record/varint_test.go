package record

import (
	"encoding/binary"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestVarintsAreThoseOfProtocolBuffers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64().Draw(t, "v")
		p := AppendVarlong(nil, v)
		if want := binary.AppendVarint(nil, v); string(p) != string(want) || VarintSize(v) != len(want) {
			t.Fatalf("%d became % x of size %d, want % x", v, p, VarintSize(v), want)
		}
		if got, n := Varlong(append(p, 0xff)); got != v || n != len(p) {
			t.Fatalf("% x is %d in %d bytes, want %d in %d", p, got, n, v, len(p))
		}
		small := int32(v)
		p = AppendVarint(nil, small)
		if got, n := Varint(append(p, 0xff)); got != small || n != len(p) {
			t.Fatalf("% x is %d in %d bytes, want %d in %d", p, got, n, small, len(p))
		}
	})
}

func TestVarintsStayInTheirType(t *testing.T) {
	for _, c := range []struct {
		bytes    string
		v        int64
		n        int // of Varint
		longSize int // of Varlong
	}{
		{"", 0, 0, 0},
		{"\x80", 0, 0, 0},
		{"\x80\x80\x80\x80", 0, 0, 0},
		{"\x80\x80\x80\x80\x00", 0, 5, 5}, // longer than need be
		{"\xff\xff\xff\xff\x0f", math.MinInt32, 5, 5},
		{"\xfe\xff\xff\xff\x0f", math.MaxInt32, 5, 5},
		{"\x80\x80\x80\x80\x10", math.MaxInt32 + 1, 0, 5},
		{"\x80\x80\x80\x80\x80\x00", 0, 0, 6},
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", math.MinInt64, 0, 10},
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 0, 0, 0},
		{"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 0, 0, 0},
	} {
		if v, n := Varint([]byte(c.bytes)); n != c.n || n > 0 && int64(v) != c.v {
			t.Errorf("Varint(% x) is %d in %d bytes, want %d in %d", c.bytes, v, n, c.v, c.n)
		}
		if v, n := Varlong([]byte(c.bytes)); n != c.longSize || n > 0 && v != c.v {
			t.Errorf("Varlong(% x) is %d in %d bytes, want %d in %d", c.bytes, v, n, c.v, c.longSize)
		}
	}
}
