//go:build interop

package interop

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Clients write, and find, records with key k-I, value v-I and then padding,
// and one header h=I where a client knows headers: I counts from 0.

func franz(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr), kgo.AllowAutoTopicCreation())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// codecs are a batch's compression, as records tell it.
var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// verify reads n records of partition 0 with franz-go. They must be compressed
// with codec, unless that is "any"; a batch that would not get smaller need not
// be, which is how librdkafka and sarama treat a first batch of one record.
func verify(t *testing.T, addr, topic string, n int, codec string) {
	t.Helper()
	c := franz(t, addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	compressed := false
	for i := 0; i < n; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%s: record %d of %d: %v", topic, i, n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			value := fmt.Sprintf("v-%d", i)
			if r.Offset != int64(i) || string(r.Key) != fmt.Sprintf("k-%d", i) || len(r.Value) < len(value) || string(r.Value[:len(value)]) != value {
				t.Fatalf("%s: record %d has offset %d, key %q, value %.20q", topic, i, r.Offset, r.Key, r.Value)
			}
			got := codecs[r.Attrs.CompressionType()]
			compressed = compressed || got == codec
			if codec != "any" && got != codec && got != "none" {
				t.Fatalf("%s: record %d is compressed with %s, want %s", topic, i, got, codec)
			}
			if len(r.Headers) > 1 || len(r.Headers) == 1 && (r.Headers[0].Key != "h" || string(r.Headers[0].Value) != fmt.Sprint(i)) {
				t.Fatalf("%s: record %d has headers %v", topic, i, r.Headers)
			}
			i++
		})
	}
	if codec != "any" && !compressed {
		t.Fatalf("%s: nothing is compressed with %s", topic, codec)
	}
}

// fill writes n records to partition 0 of a topic, with franz-go.
func fill(t *testing.T, addr, topic string, n int, opts ...kgo.Opt) {
	t.Helper()
	c := franz(t, addr, append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	defer c.Close()
	for i := range n {
		c.Produce(t.Context(), numbered(topic, i), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("%s: record %d: %v", topic, i, err)
			}
		})
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func numbered(topic string, i int) *kgo.Record {
	pad := make([]byte, 100)
	for j := range pad {
		pad[j] = '.'
	}
	return &kgo.Record{
		Topic: topic, Key: fmt.Appendf(nil, "k-%d", i), Value: append(fmt.Appendf(nil, "v-%d", i), pad...),
		Headers: []kgo.RecordHeader{{Key: "h", Value: fmt.Append(nil, i)}},
	}
}
