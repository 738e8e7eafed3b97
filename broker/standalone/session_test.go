package standalone_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestConsumerWithASession reads with franz-go, whose fetches have sessions of
// topic ids: some partitions busy, others paused and resumed, a topic deleted and
// created again under its name.
func TestConsumerWithASession(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b := serve(t)
	client := func(opts ...kgo.Opt) *kgo.Client { // which creates no topics
		c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.Addr()))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	admin := kadm.NewClient(client())
	for _, topic := range []string{"t", "u"} {
		if _, err := admin.CreateTopic(ctx, 20, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	writer := client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	write := func(topic string, partition int32, value string) {
		t.Helper()
		if err := writer.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	reader := client(kgo.ConsumeTopics("t", "u"), kgo.FetchMaxWait(100*time.Millisecond), kgo.MetadataMinAge(20*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	read := func(want ...string) {
		t.Helper()
		var got []string
		for len(got) < len(want) {
			fetches := reader.PollFetches(ctx)
			if ctx.Err() != nil {
				t.Fatalf("read %q, want %q", got, want)
			}
			fetches.EachError(func(topic string, p int32, err error) {
				if err != kerr.UnknownTopicID && err != kerr.UnknownTopicOrPartition {
					t.Errorf("%s-%d: %v", topic, p, err)
				}
			})
			fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("read %q, want %q", got, want)
		}
	}
	for round := range 5 {
		var want []string
		for _, p := range []int32{0, 7, 19} {
			v := fmt.Sprintf("t %d %d", p, round)
			write("t", p, v)
			want = append(want, v)
		}
		v := fmt.Sprintf("u %d", round)
		write("u", int32(round), v)
		read(append(want, v)...)
	}
	reader.PauseFetchPartitions(map[string][]int32{"t": {7}})
	write("t", 7, "while paused")
	write("t", 0, "goes on")
	read("goes on")
	reader.ResumeFetchPartitions(map[string][]int32{"t": {7}})
	read("while paused")

	if _, err := admin.DeleteTopics(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateTopic(ctx, 20, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	write("u", 3, "the other topic")
	read("the other topic")
	// franz-go does not take a new topic for the old one unless it is told to.
	reader.PurgeTopicsFromConsuming("t")
	reader.AddConsumeTopics("t")
	write("t", 5, "in the new topic")
	read("in the new topic")
}
