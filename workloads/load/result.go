// Package load puts load on a broker that speaks Kafka and measures what comes
// back.
//
// It has two kinds of drivers. Produce and Fetch send raw frames that were
// encoded once, so that the client costs next to nothing and the broker is the
// limit. The others go through franz-go and show what a user sees; there the
// client takes most of the processor.
//
// Its yardstick is in package nullbroker, and package contest runs the two
// side by side.
package load

import (
	"fmt"
	"slices"
	"time"
)

// Result is what one run measured, within its window.
type Result struct {
	Elapsed  time.Duration `json:"elapsed_ns"`
	Requests int64         `json:"requests"` // 0: not known, franz-go makes its own
	Records  int64         `json:"records"`
	Bytes    int64         `json:"bytes"` // produce: of record values; fetch: of record batches
	Latency  Latency       `json:"latency"`
}

// MBPerSecond is the throughput in 10^6 bytes per second.
func (r Result) MBPerSecond() float64 { return r.perSecond(r.Bytes) / 1e6 }

// RecordsPerSecond is the throughput in records per second.
func (r Result) RecordsPerSecond() float64 { return r.perSecond(r.Records) }

// RequestsPerSecond is the throughput in requests per second.
func (r Result) RequestsPerSecond() float64 { return r.perSecond(r.Requests) }

func (r Result) perSecond(n int64) float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(n) / r.Elapsed.Seconds()
}

func (r Result) String() string {
	return fmt.Sprintf("%.1f MB/s, %.0f records/s, %.0f requests/s, p50 %v p99 %v",
		r.MBPerSecond(), r.RecordsPerSecond(), r.RequestsPerSecond(), r.Latency.P50, r.Latency.P99)
}

// Latency is the exact distribution of the times from request to answer: no
// buckets, every sample counted.
type Latency struct {
	Samples int           `json:"samples"`
	P50     time.Duration `json:"p50_ns"`
	P90     time.Duration `json:"p90_ns"`
	P99     time.Duration `json:"p99_ns"`
	P999    time.Duration `json:"p999_ns"`
	Max     time.Duration `json:"max_ns"`
}

// latencyOf sorts the samples.
func latencyOf(samples []time.Duration) Latency {
	if len(samples) == 0 {
		return Latency{}
	}
	slices.Sort(samples)
	return Latency{
		Samples: len(samples),
		P50:     rank(samples, 500), P90: rank(samples, 900), P99: rank(samples, 990), P999: rank(samples, 999),
		Max: samples[len(samples)-1],
	}
}

// rank is the smallest sample that at least perMille thousandths of all do not
// exceed.
func rank(sorted []time.Duration, perMille int) time.Duration {
	n := (len(sorted)*perMille + 999) / 1000
	return sorted[max(n, 1)-1]
}
