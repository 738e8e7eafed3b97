package kill9

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestFailover has franz-go produce with acks=all, a record every 2 ms, while
// each of three brokers in turn is killed. It prints how long no record was
// acknowledged after each kill (GOALS.md P12), and looks for every acknowledged
// record where it was said to be.
func TestFailover(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute+time.Duration(*kills)*30*time.Second)
	defer cancel()
	c := newCluster(ctx, t, 3)
	createTopic(ctx, t, 3, c.addrs()...)
	s := newStream(ctx, t, c.addrs())
	for round := range *kills {
		n := c.nodes[round%len(c.nodes)]
		s.acked(ctx, t, 50)
		s.mark()
		n.kill()
		s.everyPartition(ctx, t)
		n.start(ctx)
		inSync(ctx, t, c.addrs())
	}
	sent := s.stop()
	gaps := s.gaps()
	slices.Sort(gaps)
	t.Logf("%d kills, %d records acknowledged; without an acknowledgement on some partition: p50 %v, most %v",
		*kills, len(sent), gaps[len(gaps)/2], gaps[len(gaps)-1])

	got := readAll(ctx, t, c.addrs())
	for at, value := range sent {
		if got[at] != value {
			t.Errorf("partition %d offset %d: acknowledged %q, there is %q", at.partition, at.offset, value, got[at])
		}
	}
	where := make(map[string]place)
	for at, value := range got {
		if other, twice := where[value]; twice {
			t.Errorf("%q is there twice: %v and %v", value, at, other)
		}
		where[value] = at
	}
	for _, n := range c.nodes {
		n.kill()
	}
}

type place struct {
	partition int32
	offset    int64
}

// stream produces a record every 2 ms, to each partition in turn.
type stream struct {
	client  *kgo.Client
	cancel  context.CancelFunc
	running sync.WaitGroup
	moved   chan struct{} // something was acknowledged

	mu     sync.Mutex
	sent   map[place]string // acknowledged
	last   [partitions]time.Time
	marked time.Time
	seen   [partitions]time.Duration // after the mark; 0 if nothing yet
	all    []time.Duration
}

func newStream(ctx context.Context, t *testing.T, seeds []string) *stream {
	// A client that seldom asks who leads sees nothing of a failover but its own
	// patience.
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{client: client, cancel: cancel, moved: make(chan struct{}, 1), sent: make(map[place]string)}
	s.running.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			r := &kgo.Record{Partition: int32(i % partitions), Value: fmt.Appendf(nil, "record %d", i)}
			client.Produce(context.WithoutCancel(ctx), r, s.done)
		}
	})
	t.Cleanup(func() {
		cancel()
		s.running.Wait()
		client.Close()
	})
	return s
}

func (s *stream) done(r *kgo.Record, err error) {
	if err != nil {
		return // that is no promise
	}
	s.mu.Lock()
	now := time.Now()
	s.sent[place{r.Partition, r.Offset}] = string(r.Value)
	s.last[r.Partition] = now
	if !s.marked.IsZero() && s.seen[r.Partition] == 0 && r.Timestamp.After(s.marked) {
		s.seen[r.Partition] = now.Sub(s.marked)
		s.all = append(s.all, s.seen[r.Partition])
	}
	s.mu.Unlock()
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// mark begins a failure.
func (s *stream) mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marked, s.seen = time.Now(), [partitions]time.Duration{}
}

// until waits for acknowledgements until it is so.
func (s *stream) until(ctx context.Context, t *testing.T, ok func() bool) {
	t.Helper()
	for {
		s.mu.Lock()
		done := ok()
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-s.moved:
		case <-ctx.Done():
			t.Fatal("nothing is acknowledged any more")
		}
	}
}

func (s *stream) acked(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	from := -1
	s.until(ctx, t, func() bool {
		if from < 0 {
			from = len(s.sent)
		}
		return len(s.sent) >= from+n
	})
}

// everyPartition waits until each took a record that was produced after the
// mark.
func (s *stream) everyPartition(ctx context.Context, t *testing.T) {
	t.Helper()
	s.until(ctx, t, func() bool { return !slices.Contains(s.seen[:], 0) })
}

// stop ends the stream and returns what was acknowledged.
func (s *stream) stop() map[place]string {
	s.cancel()
	s.running.Wait()
	s.client.Flush(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

func (s *stream) gaps() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// inSync waits until every replica is in sync.
func inSync(ctx context.Context, t *testing.T, seeds []string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for ctx.Err() == nil {
		m, err := kadm.NewClient(client).Metadata(ctx, topic)
		if err != nil {
			continue
		}
		missing := false
		for _, p := range m.Topics[topic].Partitions {
			missing = missing || len(p.ISR) < 3
		}
		if !missing {
			return
		}
	}
	t.Fatal("replicas do not come back")
}

// readAll is everything in the topic.
func readAll(ctx context.Context, t *testing.T, seeds []string) map[place]string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	var left int64
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	got := make(map[place]string)
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("%d records were not read: %v", left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got[place{r.Partition, r.Offset}] = string(r.Value)
			left--
		})
	}
	return got
}
