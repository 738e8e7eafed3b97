// Package digest sums up a run: two runs that did the same things in the same
// order have the same digest. It is fast, not secure.
package digest

import (
	"encoding/binary"
	"math/bits"
)

// Digest is the sum so far. The zero Digest is ready to use.
type Digest uint64

// Word adds one number: multiply, then fold the high half in.
func (d *Digest) Word(w uint64) {
	hi, lo := bits.Mul64(uint64(*d)^w^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	*d = Digest(bits.RotateLeft64(hi^lo, 29) + 0xa0761d6478bd642f)
}

// Bytes adds p and its length.
func (d *Digest) Bytes(p []byte) {
	d.Word(uint64(len(p)))
	for len(p) >= 8 {
		d.Word(binary.LittleEndian.Uint64(p))
		p = p[8:]
	}
	if len(p) > 0 {
		var last [8]byte
		copy(last[:], p)
		d.Word(binary.LittleEndian.Uint64(last[:]))
	}
}

// String adds s and its length.
func (d *Digest) String(s string) {
	d.Word(uint64(len(s)))
	for len(s) >= 8 {
		d.Word(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)
		s = s[8:]
	}
	w := uint64(0)
	for i := range len(s) {
		w |= uint64(s[i]) << (8 * i)
	}
	if len(s) > 0 {
		d.Word(w)
	}
}
