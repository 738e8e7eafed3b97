package workloads

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// A record's value in bytes, big endian:
//
//	| value uint64 | crc32 IEEE uint32 of the value and the padding | padding |
//
// The padding is a function of the value, so that a reader can tell a record
// whose bytes were changed, cut or mixed up, without knowing what was sent.
const (
	valueAt   = 0
	crcAt     = 8
	paddingAt = 12
)

// MinPayload is the least size of a payload in bytes.
const MinPayload = paddingAt

// ErrPayload says that a record's bytes are not what any client has sent.
var ErrPayload = errors.New("not a workload's record")

// AppendPayload appends the bytes of v to dst: size bytes, or MinPayload if
// that is more.
func AppendPayload(dst []byte, v history.Value, size int) []byte {
	start := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	dst = append(dst, 0, 0, 0, 0)
	for x := scramble(uint64(v)); len(dst) < start+size; x = scramble(x) {
		var word [8]byte
		binary.BigEndian.PutUint64(word[:], x)
		dst = append(dst, word[:min(8, start+size-len(dst))]...)
	}
	b := dst[start:]
	binary.BigEndian.PutUint32(b[crcAt:], payloadCRC(b))
	return dst
}

// ParsePayload returns the value whose bytes b are, or ErrPayload.
func ParsePayload(b []byte) (history.Value, error) {
	if len(b) < MinPayload {
		return 0, fmt.Errorf("%w: %d bytes, want at least %d", ErrPayload, len(b), MinPayload)
	}
	if got, want := payloadCRC(b), binary.BigEndian.Uint32(b[crcAt:]); got != want {
		return 0, fmt.Errorf("%w: crc %#08x, payload says %#08x", ErrPayload, got, want)
	}
	return history.Value(binary.BigEndian.Uint64(b[valueAt:])), nil
}

func payloadCRC(b []byte) uint32 {
	c := crc32.ChecksumIEEE(b[valueAt:crcAt])
	return crc32.Update(c, crc32.IEEETable, b[paddingAt:])
}

// scramble is one step of xorshift*, away from zero.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	return x * 0x2545f4914f6cdd1d
}

// RecordKey is the key of v's record: its client, so that a client's records
// share one key.
func RecordKey(v history.Value) []byte {
	return strconv.AppendUint([]byte("c"), uint64(v)>>clientShift, 10)
}

// clientShift is where the client's number begins in a value.
const clientShift = 40

// MakeValue is the n-th value of a client, n counted from 0: unique in a run of
// up to 2^24 clients and 2^40 values each, and never 0.
func MakeValue(client history.Client, n uint64) history.Value {
	return history.Value(uint64(client+1)<<clientShift | n)
}

// FormatToken is the commit metadata string that carries a token.
func FormatToken(t history.Value) string { return "token " + strconv.FormatUint(uint64(t), 16) }

// ParseToken is FormatToken's inverse. An empty string is token 0.
func ParseToken(s string) (history.Value, error) {
	if s == "" {
		return 0, nil
	}
	var t uint64
	if n, err := fmt.Sscanf(s, "token %x", &t); err != nil || n != 1 || FormatToken(history.Value(t)) != s {
		return 0, fmt.Errorf("%w: commit metadata %q", ErrPayload, s)
	}
	return history.Value(t), nil
}
