package codec

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pawlbroker/pawl/storage/record"
)

// jsonBatch has records of about 100 bytes of JSON, sizeBytes in all before
// compression.
func jsonBatch(bench *testing.B, id int8, sizeBytes int) (batch record.Batch, payloadBytes int) {
	rnd := rand.New(rand.NewPCG(1, 2))
	b := record.NewBuilder()
	for i := 0; b.Size() < sizeBytes; i++ {
		value := fmt.Appendf(nil, `{"id":%d,"user":"user-%d","amount":%d,"currency":"EUR","state":"%x"}`,
			i, rnd.IntN(1000), rnd.IntN(1e6), rnd.Uint32())
		b.Append(1_700_000_000_000+record.Timestamp(i), fmt.Appendf(nil, "key-%d", i), value)
	}
	batch, err := b.Compressed(record.Options{}, id, Compress)
	if err != nil {
		bench.Fatal(err)
	}
	return batch, b.Size() - record.HeaderSize
}

func BenchmarkCheck(bench *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20} {
		for _, id := range all {
			b, n := jsonBatch(bench, id, size)
			bench.Run(fmt.Sprintf("%s/%dKiB", Name(id), size>>10), func(bench *testing.B) {
				bench.SetBytes(int64(n))
				bench.ReportAllocs()
				for bench.Loop() {
					if _, err := Check(b, 8<<20); err != nil {
						bench.Fatal(err)
					}
				}
				bench.ReportMetric(float64(bench.Elapsed().Nanoseconds())/float64(bench.N)/float64(b.Count()), "ns/record")
			})
		}
	}
}

func BenchmarkDecompress(bench *testing.B) {
	for _, id := range all[1:] {
		b, n := jsonBatch(bench, id, 1<<20)
		bench.Run(Name(id), func(bench *testing.B) {
			bench.SetBytes(int64(n))
			bench.ReportAllocs()
			for bench.Loop() {
				if _, err := Decompress(id, b.Payload(), 8<<20); err != nil {
					bench.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompress(bench *testing.B) {
	for _, id := range all[1:] {
		b, n := jsonBatch(bench, None, 1<<20)
		bench.Run(Name(id), func(bench *testing.B) {
			bench.SetBytes(int64(n))
			dst := make([]byte, 0, 2*n)
			for bench.Loop() {
				if _, err := Compress(id, dst[:0], b.Payload()); err != nil {
					bench.Fatal(err)
				}
			}
		})
	}
}
