package codec

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var all = []int8{None, Gzip, Snappy, LZ4, Zstd}

// payloads are inputs of every kind of size and entropy.
func payloads() [][]byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 300_000)
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	var json []byte
	for i := range 5000 {
		json = fmt.Appendf(json, `{"id":%d,"user":"user-%d","amount":%d}`, i, rnd.IntN(100), rnd.IntN(1e6))
	}
	return [][]byte{{}, {7}, []byte("hello"), make([]byte, 65536), make([]byte, 5<<20), noise[:100], noise, json[:1000], json}
}

func TestDecompressGivesBackWhatCompressTook(t *testing.T) {
	for _, id := range all {
		for i, p := range payloads() {
			packed, err := Compress(id, []byte("before"), p)
			if err != nil || !bytes.HasPrefix(packed, []byte("before")) {
				t.Fatalf("%s payload %d: compress: %v", Name(id), i, err)
			}
			packed = packed[len("before"):]
			for _, limit := range []int{len(p), len(p) + 1, 2*len(p) + 1000} {
				got, err := Decompress(id, packed, limit)
				if err != nil || !bytes.Equal(got, p) {
					t.Fatalf("%s payload %d limit %d: %d bytes, want %d: %v", Name(id), i, limit, len(got), len(p), err)
				}
			}
			if len(p) == 0 {
				continue
			}
			if _, err := Decompress(id, packed, len(p)-1); !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%s payload %d with a byte too few: %v", Name(id), i, err)
			}
		}
	}
}
