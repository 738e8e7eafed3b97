package record

// Zig-zag varints, as records use them for every length and delta. A decoder
// returns how many bytes it took, or 0 when the bytes end inside the number or
// the number does not fit its type. Encodings longer than need be are accepted,
// as Kafka does.

const (
	maxVarintBytes  = 5  // of an int32
	maxVarlongBytes = 10 // of an int64
)

// Varint reads an int32 from the front of p.
func Varint(p []byte) (v int32, n int) {
	if len(p) > 0 && p[0] < 0x80 {
		return int32(p[0]>>1) ^ -int32(p[0]&1), 1
	}
	return longVarint(p)
}

func longVarint(p []byte) (int32, int) {
	var u uint64
	for i := 0; i < len(p) && i < maxVarintBytes; i++ {
		u |= uint64(p[i]&0x7f) << (7 * i)
		if p[i] < 0x80 {
			if u > 1<<32-1 {
				return 0, 0
			}
			return int32(u>>1) ^ -int32(u&1), i + 1
		}
	}
	return 0, 0
}

// Varlong reads an int64 from the front of p.
func Varlong(p []byte) (v int64, n int) {
	if len(p) > 0 && p[0] < 0x80 {
		return int64(p[0]>>1) ^ -int64(p[0]&1), 1
	}
	return longVarlong(p)
}

func longVarlong(p []byte) (int64, int) {
	var u uint64
	for i := 0; i < len(p) && i < maxVarlongBytes; i++ {
		if i == maxVarlongBytes-1 && p[i] > 1 {
			return 0, 0
		}
		u |= uint64(p[i]&0x7f) << (7 * i)
		if p[i] < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i + 1
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
