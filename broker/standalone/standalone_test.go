package standalone_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/broker/standalone"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("runtime.runFinalizers")) // which closes files that are garbage
}

func start(t *testing.T, dir string) *standalone.Broker {
	t.Helper()
	cfg := standalone.DefaultConfig(1)
	cfg.DataDir, cfg.Listen = dir, "127.0.0.1:0"
	b, err := standalone.Start(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	<-b.Ready()
	return b
}

func client(t *testing.T, b *standalone.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.Addr()), kgo.AllowAutoTopicCreation())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestRecordsSurviveARestart produces with franz-go, restarts the broker twice
// and consumes.
func TestRecordsSurviveARestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	const records = 500
	for life := range 2 {
		b := start(t, dir)
		c := client(t, b)
		for i := range records {
			c.Produce(ctx, &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "%d-%d", life, i)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := c.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if err := b.Shutdown(); err != nil {
			t.Fatal(err)
		}
	}
	b := start(t, dir)
	c := client(t, b, kgo.ConsumeTopics("t"))
	for want := 0; want < 2*records; {
		fetches := c.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			t.Fatal(errs)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if v := fmt.Sprintf("%d-%d", want/records, want%records); string(r.Value) != v || r.Offset != int64(want) {
				t.Fatalf("offset %d has %q, want %q at %d", r.Offset, r.Value, v, want)
			}
			want++
		})
	}
	c.Close()
	if err := b.Shutdown(); err != nil {
		t.Fatal(err)
	}
}
