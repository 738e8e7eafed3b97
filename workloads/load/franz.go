package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Options turns a load into options of a franz-go client; extra ones (security)
// may be added.
func (c Config) options(extra []kgo.Opt) []kgo.Opt {
	acks := kgo.AllISRAcks()
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.DisableClientMetrics(),
		kgo.DefaultProduceTopic(c.Topic),
	}
	switch c.Acks {
	case 0:
		acks = kgo.NoAck()
	case 1:
		acks = kgo.LeaderAck()
	}
	if c.Acks != -1 {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	return append(append(opts, kgo.RequiredAcks(acks)), extra...)
}

// randomBytes are the same in every run.
func randomBytes(size int) []byte {
	var seed [32]byte
	value := make([]byte, size)
	rand.NewChaCha8(seed).Read(value)
	return value
}

// FranzProduce produces records through franz-go as fast as they are taken.
// Latency is from Produce to the record's promise, queueing included.
func FranzProduce(ctx context.Context, cfg Config, extra ...kgo.Opt) (Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Result{}, err
	}
	client, err := kgo.NewClient(cfg.options(extra)...)
	if err != nil {
		return Result{}, err
	}
	defer client.Close()
	if err := reach(ctx, client); err != nil {
		return Result{}, err
	}
	value := randomBytes(cfg.RecordSize)
	win := cfg.window()
	var tally tally
	done := make(chan struct{})
	go func() {
		defer close(done)
		var sent int64
		for now := time.Now(); tally.failed.Load() == nil && ctx.Err() == nil && !win.over(now); now = time.Now() {
			if win.count > 0 && sent == win.count {
				break
			}
			sent++
			client.Produce(ctx, &kgo.Record{Value: value}, func(r *kgo.Record, err error) {
				tally.add(win, now, int64(len(r.Value)), err)
			})
		}
		if err := client.Flush(ctx); err != nil {
			tally.failed.CompareAndSwap(nil, &err)
		}
	}()
	elapsed := win.attend(cfg.Begin, cfg.End, done)
	return tally.result(ctx, elapsed, "produce to "+cfg.Topic)
}

// FranzLatency produces one record at a time, a pause between the sendings of
// two. Nothing waits for company: linger is 0.
func FranzLatency(ctx context.Context, cfg Config, every time.Duration, extra ...kgo.Opt) (Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Result{}, err
	}
	client, err := kgo.NewClient(append(cfg.options(extra), kgo.ProducerLinger(0))...)
	if err != nil {
		return Result{}, err
	}
	defer client.Close()
	if err := reach(ctx, client); err != nil {
		return Result{}, err
	}
	value := randomBytes(cfg.RecordSize)
	win := cfg.window()
	var tally tally
	done := make(chan struct{})
	go func() {
		defer close(done)
		next := time.NewTicker(every)
		defer next.Stop()
		for sent := int64(0); ; sent++ {
			select {
			case <-ctx.Done():
				return
			case <-next.C:
			}
			now := time.Now()
			if win.over(now) || win.count > 0 && sent == win.count {
				return
			}
			err := client.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr()
			tally.add(win, now, int64(len(value)), err)
			if err != nil {
				return
			}
		}
	}()
	elapsed := win.attend(cfg.Begin, cfg.End, done)
	r, err := tally.result(ctx, elapsed, "produce to "+cfg.Topic)
	r.Requests = r.Records // nothing else is under way
	return r, err
}

// FranzConsume reads the topic from its start, again and again if it is shorter
// than the load. There is no latency.
func FranzConsume(ctx context.Context, cfg Config, extra ...kgo.Opt) (Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Result{}, err
	}
	end, err := topicLength(ctx, cfg, extra)
	if err != nil {
		return Result{}, err
	}
	if end == 0 {
		return Result{}, fmt.Errorf("consume %s: %w: the topic is empty", cfg.Topic, io.EOF)
	}
	win := cfg.window()
	var tally tally
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !win.over(time.Now()) && ctx.Err() == nil && tally.failed.Load() == nil {
			if !consumeOnce(ctx, cfg, win, end, &tally, extra) {
				return
			}
		}
	}()
	elapsed := win.attend(cfg.Begin, cfg.End, done)
	return tally.result(ctx, elapsed, "consume "+cfg.Topic)
}

// consumeOnce reads the topic through, and reports whether to go on.
func consumeOnce(ctx context.Context, cfg Config, win window, end int64, tally *tally, extra []kgo.Opt) bool {
	client, err := kgo.NewClient(append(cfg.options(extra),
		kgo.ConsumeTopics(cfg.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		tally.failed.CompareAndSwap(nil, &err)
		return false
	}
	defer client.Close()
	for read := int64(0); read < end; {
		fetches := client.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			err := fmt.Errorf("partition %d: %w", e.Partition, e.Err)
			tally.failed.CompareAndSwap(nil, &err)
			return false
		}
		now := time.Now()
		var records, bytes int64
		fetches.EachRecord(func(r *kgo.Record) {
			records++
			bytes += int64(len(r.Value))
		})
		read += records
		if win.has(now) {
			tally.records += records
			tally.bytes += bytes
		}
		if win.over(now) || win.count > 0 && tally.records >= win.count {
			return false
		}
	}
	return true
}

// topicLength is how many records a topic holds, or offsets at least.
func topicLength(ctx context.Context, cfg Config, extra []kgo.Opt) (int64, error) {
	client, err := kgo.NewClient(cfg.options(extra)...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return length(ctx, client, cfg.Topic)
}

// reach makes sure that there is a broker: a client by itself tries for ever.
func reach(ctx context.Context, client *kgo.Client) error {
	if err := client.Ping(ctx); err != nil {
		return fmt.Errorf("reach a broker: %w", err)
	}
	return nil
}

// tally counts what promises report, from whatever goroutine they come.
type tally struct {
	failed atomic.Pointer[error]
	mu     sync.Mutex
	spent  []time.Duration

	records, bytes int64
}

func (t *tally) add(win window, since time.Time, bytes int64, err error) {
	now := time.Now()
	if err != nil {
		t.failed.CompareAndSwap(nil, &err)
		return
	}
	if !win.has(now) {
		return
	}
	t.mu.Lock()
	t.records++
	t.bytes += bytes
	t.spent = append(t.spent, now.Sub(since))
	t.mu.Unlock()
}

func (t *tally) result(ctx context.Context, elapsed time.Duration, what string) (Result, error) {
	if err := t.failed.Load(); err != nil {
		return Result{}, fmt.Errorf("%s: %w", what, *err)
	}
	if err := ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return Result{}, fmt.Errorf("%s: %w", what, err)
	}
	return Result{
		Elapsed: elapsed, Records: t.records, Bytes: t.bytes, Latency: latencyOf(t.spent),
	}, nil
}

// partitions.
func length(ctx context.Context, client *kgo.Client, topic string) (total int64, err error) {
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("start of %s: %w", topic, err)
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("end of %s: %w", topic, err)
	}
	ends.Each(func(end kadm.ListedOffset) {
		if start, ok := starts.Lookup(topic, end.Partition); ok {
			total += end.Offset - start.Offset
		}
	})
	return total, nil
}
