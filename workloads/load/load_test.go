package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/workloads/load/nullbroker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker serves a null broker for one test, with a topic of three partitions.
func broker(t *testing.T, mode nullbroker.Mode) (*nullbroker.Broker, Config) {
	t.Helper()
	b, err := nullbroker.Start("127.0.0.1:0", nullbroker.Config{Mode: mode, Dir: t.TempDir(), Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := Config{
		Brokers: []string{b.Addr()}, Topic: "orders", Partitions: 3,
		Connections: 2, Depth: 3, Records: 10, RecordSize: 100, Acks: -1, Count: 40,
	}
	if err := CreateTopic(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return b, cfg
}

func TestProduceIsAnsweredInEveryMode(t *testing.T) {
	for _, mode := range nullbroker.Modes {
		t.Run(string(mode), func(t *testing.T) {
			b, cfg := broker(t, mode)
			r, err := Produce(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if r.Requests != 40 || r.Records != 400 || r.Bytes != 40_000 || r.Latency.Samples != 40 {
				t.Errorf("%+v", r)
			}
			if synced := b.Syncs() > 0; synced != (mode == nullbroker.Fsync) {
				t.Errorf("%d syncs", b.Syncs())
			}
		})
	}
}

func TestEveryBrokerOfAClusterHasWhatOneTakes(t *testing.T) {
	const brokers = 3
	var addrs, dirs []string
	for range brokers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addrs, dirs = append(addrs, l.Addr().String()), append(dirs, t.TempDir())
		l.Close()
	}
	var all []*nullbroker.Broker
	for i := range brokers {
		b, err := nullbroker.Start(addrs[i], nullbroker.Config{Mode: nullbroker.Fsync, Dir: dirs[i], Cluster: addrs, Self: i})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		all = append(all, b)
	}
	cfg := Config{
		Brokers: addrs[:1], Topic: "orders", Partitions: 4, Replication: brokers,
		Connections: 2, Depth: 3, Records: 10, RecordSize: 100, Acks: -1, Count: 40,
	}
	if err := Reach(t.Context(), addrs[0], brokers); err != nil {
		t.Fatal(err)
	}
	if err := CreateTopic(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	led, err := leaders(t.Context(), cfg)
	if err != nil || len(led) != brokers {
		t.Fatalf("leaders %v, %v", led, err)
	}
	r, err := Produce(t.Context(), cfg)
	if err != nil || r.Requests != 40 {
		t.Fatalf("%+v, %v", r, err)
	}
	want := int64(40 * len(encodeBatch(cfg.Records, cfg.RecordSize, 0)))
	for i, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil {
			t.Fatal(err)
		}
		var size int64
		for _, f := range files {
			st, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			size += st.Size()
		}
		if size != want || all[i].Syncs() == 0 {
			t.Errorf("broker %d: %d bytes, want %d; %d syncs", i, size, want, all[i].Syncs())
		}
	}
}

func TestFetchReadsWhatProduceWrote(t *testing.T) {
	for _, mode := range []nullbroker.Mode{nullbroker.Write, nullbroker.Sendfile, nullbroker.Fsync} {
		t.Run(string(mode), func(t *testing.T) {
			_, cfg := broker(t, mode)
			if _, err := Produce(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			// Less than two batches fit, so that reads end between batches; every
			// partition is read through several times.
			cfg.Verify, cfg.FetchBytes, cfg.Count = true, 2000, 120
			r, err := Fetch(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if r.Requests != 120 || r.Records != 1200 {
				t.Errorf("%+v, want one batch of 10 records in each of 120 answers", r)
			}
		})
	}
}

func TestFramesLargerThanTheReadBufferArriveWhole(t *testing.T) {
	_, cfg := broker(t, nullbroker.Fsync)
	cfg.Records, cfg.RecordSize, cfg.Count = 100, 1500, 12
	if _, err := Produce(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Verify = true
	r, err := Fetch(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Records < 1200 {
		t.Errorf("%+v", r)
	}
}

func TestFranzGoProducesAndConsumes(t *testing.T) {
	for _, mode := range []nullbroker.Mode{nullbroker.Write, nullbroker.Fsync} {
		t.Run(string(mode), func(t *testing.T) {
			_, cfg := broker(t, mode)
			cfg.Count = 500
			r, err := FranzProduce(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if r.Records != 500 || r.Latency.Samples != 500 {
				t.Errorf("produced %+v", r)
			}
			if r, err = FranzConsume(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			if r.Records != 500 || r.Bytes != 50_000 {
				t.Errorf("consumed %+v", r)
			}
		})
	}
}

func TestFranzGoMeasuresOneRecordAtATime(t *testing.T) {
	_, cfg := broker(t, nullbroker.Null)
	cfg.Count = 20
	r, err := FranzLatency(t.Context(), cfg, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if r.Latency.Samples != 20 || r.Latency.P50 <= 0 || r.Latency.Max < r.Latency.P99 {
		t.Errorf("%+v", r.Latency)
	}
}

func TestTimedRunsEndAndCallBothHooks(t *testing.T) {
	_, cfg := broker(t, nullbroker.CRC)
	var calls []string
	cfg.Count, cfg.Warmup, cfg.Duration = 0, 10*time.Millisecond, 30*time.Millisecond
	cfg.Begin = func() { calls = append(calls, "begin") }
	cfg.End = func() { calls = append(calls, "end") }
	r, err := Produce(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(calls, []string{"begin", "end"}) || r.Elapsed <= 0 {
		t.Errorf("hooks %v, result %+v", calls, r)
	}
}

func TestCancelledRunsEnd(t *testing.T) {
	_, cfg := broker(t, nullbroker.Null)
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Count, cfg.Duration, cfg.Begin = 0, time.Hour, cancel
	if _, err := Produce(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestCorruptBatchesAreRefused(t *testing.T) {
	b, cfg := broker(t, nullbroker.CRC)
	l, err := dial(t.Context(), b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer l.sock.Close()
	batch := encodeBatch(1, 10, 0)
	batch[len(batch)-1] ^= 1
	p := newProducer(l, cfg, batch, newTurn([]int32{0}, 0, 1))
	buf, err := p.send(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.sock.Write(buf); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.receive(); !errors.Is(err, kerr.CorruptMessage) {
		t.Errorf("got %v, want %v", err, kerr.CorruptMessage)
	}
}

func TestFetchWaitsForData(t *testing.T) {
	_, cfg := broker(t, nullbroker.Sendfile)
	client, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.ConsumeTopics(cfg.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	polled := make(chan string)
	go func() {
		fetches := client.PollFetches(t.Context())
		polled <- fmt.Sprint(fetches.NumRecords(), fetches.Err0())
	}()
	cfg.Connections, cfg.Count = 1, 1
	if _, err := Produce(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if got, want := <-polled, fmt.Sprint(10, error(nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPercentilesAreExact(t *testing.T) {
	var samples []time.Duration
	for i := range 1000 {
		samples = append(samples, time.Duration(1000-i))
	}
	got := latencyOf(samples)
	want := Latency{Samples: 1000, P50: 500, P90: 900, P99: 990, P999: 999, Max: 1000}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := latencyOf([]time.Duration{7}); got.P50 != 7 || got.P999 != 7 {
		t.Errorf("one sample: %+v", got)
	}
}
