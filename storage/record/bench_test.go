package record

import (
	"fmt"
	"testing"
)

// batchOf has n records of a 10-byte key and a value of valueBytes.
func batchOf(n, valueBytes int) Batch {
	b := NewBuilder()
	for i := range n {
		b.Append(1_700_000_000_000+Timestamp(i), fmt.Appendf(nil, "key-%06d", i), make([]byte, valueBytes))
	}
	return b.Build(Options{})
}

func BenchmarkCut(bench *testing.B) {
	for _, size := range []int{1, 160, 10_000} {
		b := batchOf(size, 80)
		bench.Run(fmt.Sprintf("bytes=%d", len(b)), func(bench *testing.B) {
			bench.SetBytes(int64(len(b)))
			for bench.Loop() {
				if _, _, err := Cut(b); err != nil {
					bench.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWalk(bench *testing.B) {
	b := batchOf(1000, 80)
	sum := 0
	for bench.Loop() {
		if err := Walk(b.Payload(), b.Count(), func(r Record) error { sum += len(r.Value); return nil }); err != nil {
			bench.Fatal(err)
		}
	}
	perRecord(bench, b)
}

// 32 short records have every varint in one byte; 1000 longer ones half of them
// in two.
func BenchmarkInspect(bench *testing.B) {
	for _, b := range []Batch{batchOf(32, 40), batchOf(1000, 80)} {
		bench.Run(fmt.Sprintf("records=%d", b.Count()), func(bench *testing.B) {
			for bench.Loop() {
				if _, err := Inspect(b.Payload(), b.Count(), b.BaseTimestamp()); err != nil {
					bench.Fatal(err)
				}
			}
			perRecord(bench, b)
		})
	}
}

func perRecord(bench *testing.B, b Batch) {
	bench.ReportMetric(float64(bench.Elapsed().Nanoseconds())/float64(bench.N)/float64(b.Count()), "ns/record")
}

func BenchmarkBuild(bench *testing.B) {
	bench.ReportAllocs()
	for bench.Loop() {
		batchOf(100, 80)
	}
}
