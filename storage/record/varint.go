package record

// Zig-zag varints, as records use them for every length and delta. A decoder
// returns how many bytes it took, or 0 when the bytes end inside the number or
// the number does not fit its type. Encodings longer than need be are accepted,
// as Kafka does.

// Varint reads an int32 from the front of p.
func Varint(p []byte) (v int32, n int) { return signed32(uvarint(p)) }

// Varlong reads an int64 from the front of p.
func Varlong(p []byte) (v int64, n int) { return signed64(uvarint(p)) }

func signed32(u uint64, n int) (int32, int) {
	if u >= 1<<32 || n > maxVarintBytes {
		return 0, 0
	}
	return int32(uint32(u)>>1) ^ -int32(u&1), n
}

func signed64(u uint64, n int) (int64, int) { return int64(u>>1) ^ -int64(u&1), n }

// uvarint reads a number that is still in zig-zag order.
func uvarint(p []byte) (u uint64, n int) {
	if u, n = oneByte(p); n == 0 {
		return longUvarint(p)
	}
	return u, n
}

// oneByte is uvarint for the usual case, small enough to be inlined. Reading
// records tries it itself, which makes a record a third cheaper.
func oneByte(p []byte) (u uint64, n int) {
	if len(p) > 0 && p[0] < 0x80 {
		return uint64(p[0]), 1
	}
	return 0, 0
}

const (
	maxVarintBytes  = 5  // of 32 bits
	maxVarlongBytes = 10 // of 64 bits
)

//go:noinline
func longUvarint(p []byte) (u uint64, n int) {
	if len(p) > 1 && p[1] < 0x80 {
		return uint64(p[0]&0x7f) | uint64(p[1])<<7, 2
	}
	for i, c := range p[:min(len(p), maxVarlongBytes)] {
		u |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if i == maxVarlongBytes-1 && c > 1 {
				return 0, 0
			}
			return u, i + 1
		}
	}
	return 0, 0
}

// AppendVarint appends the shortest encoding of v, which Varlong reads too.
func AppendVarint(dst []byte, v int32) []byte { return AppendVarlong(dst, int64(v)) }

// AppendVarlong appends the shortest encoding of v.
func AppendVarlong(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

// VarintSize is how many bytes AppendVarlong appends for v.
func VarintSize(v int64) int {
	n := 1
	for u := uint64(v)<<1 ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
