// Package kill9 kills a real broker under load with SIGKILL, again and again,
// and judges what its clients saw: nothing acknowledged may be lost, moved or
// doubled.
package kill9

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/linearizability"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/workloads"
	"github.com/pawlbroker/pawl/workloads/appendlog"
	"github.com/pawlbroker/pawl/workloads/kafkaclient"
)

var (
	kills = flag.Int("kills", 5, "how often the broker is killed")
	seed  = flag.Uint64("seed", 1, "what the moments of the kills are drawn from")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	topic      = "log"
	partitions = 4
)

// TestKill9LosesNothingAcknowledged has franz-go produce, idempotent and not,
// and read, while the broker is killed and started again.
func TestKill9LosesNothingAcknowledged(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute+time.Duration(*kills)*20*time.Second)
	defer cancel()
	b := newBroker(t, build(t))
	b.start(ctx)
	createTopic(ctx, t, 1, b.addr)

	w, done := startLoad(ctx, t, b.addr)

	rng := rand.New(rand.NewPCG(*seed, 9))
	for range *kills {
		w.appends(ctx, t, 20+rng.IntN(200))
		b.kill()
		b.start(ctx)
	}
	w.rest()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b.kill()
	judge(t, w, *kills)
}

// startLoad has clients produce and read until they are told to rest.
func startLoad(ctx context.Context, t *testing.T, seeds ...string) (*watched, <-chan error) {
	var parts []history.Partition
	for i := range partitions {
		parts = append(parts, history.Partition{Topic: topic, Index: int32(i)})
	}
	load := appendlog.DefaultConfig(parts...)
	load.Producers, load.IdempotentProducers, load.Readers = 2, 3, 3
	inner, err := appendlog.New(load)
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{Workload: inner, acked: make(chan struct{}, 1)}
	cfg := kafkaclient.DefaultConfig(seeds...)
	cfg.Duration, cfg.Seed = 0, *seed // until the clients rest
	done := make(chan error, 1)
	go func() { done <- kafkaclient.Run(ctx, cfg, w) }()
	return w, done
}

// judge says whether what the clients saw is what a log may show.
func judge(t *testing.T, w *watched, faults int) {
	t.Helper()
	h := w.History()
	ok, failed, unknown := h.Count()
	records := 0
	for _, f := range h.Final {
		records += len(f.Records)
	}
	t.Logf("%d faults: %d operations ok, %d failed, %d unknown, %d records in the logs", faults, ok, failed, unknown, records)
	options := linearizability.DefaultOptions()
	// The first append of a new franz-go producer waits until the topic is known,
	// and may then be sent as more than one batch.
	options.Atomic = false
	if v := linearizability.Check(h, options); v.Status != linearizability.OK {
		t.Errorf("seed %d: %v", *seed, v)
	}
}

// watched is a workload that tells of acknowledged appends, and whose load can
// be ended from outside.
type watched struct {
	*appendlog.Workload
	acked chan struct{}

	mu   sync.Mutex
	over bool
}

// Next implements workloads.Workload.
func (w *watched) Next(id history.Client, now history.Time, rng *rand.Rand) (workloads.Op, bool) {
	w.mu.Lock()
	over := w.over
	w.mu.Unlock()
	if over {
		return nil, false
	}
	return w.Workload.Next(id, now, rng)
}

// Done implements workloads.Workload.
func (w *watched) Done(id history.Client, op workloads.Op, call, ret history.Time, res workloads.Result) {
	w.Workload.Done(id, op, call, ret, res)
	if _, ok := op.(workloads.Append); ok && res.Outcome == history.OK {
		select {
		case w.acked <- struct{}{}:
		default:
		}
	}
}

// Finish implements workloads.Workload.
func (w *watched) Finish() {
	w.mu.Lock()
	w.over = false
	w.mu.Unlock()
	w.Workload.Finish()
}

// appends waits until n more appends were acknowledged.
func (w *watched) appends(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-w.acked:
		case <-ctx.Done():
			t.Fatal("the load stands still")
		}
	}
}

// rest ends the load.
func (w *watched) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

// broker is a `pawl serve` on one address and data directory.
type broker struct {
	t      *testing.T
	binary string
	dir    string
	addr   string
	args   []string // beside those of every broker
	cmd    *exec.Cmd
	log    bytes.Buffer
}

// build makes the program and returns where it is.
func build(t *testing.T) string {
	binary := filepath.Join(t.TempDir(), "pawl")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/pawlbroker/pawl/cmd/pawl").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// freeAddress is one where nobody listens.
func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func newBroker(t *testing.T, binary string, args ...string) *broker {
	b := &broker{t: t, binary: binary, dir: t.TempDir(), addr: freeAddress(t), args: args}
	t.Cleanup(func() {
		b.kill()
		if t.Failed() {
			t.Logf("the log of the broker at %s:\n%s", b.addr, b.log.Bytes())
		}
	})
	return b
}

// start runs the broker and returns once it serves.
func (b *broker) start(ctx context.Context) {
	b.t.Helper()
	b.launch(ctx)()
}

// launch runs the broker; what it returns waits until it serves. Checkpoints are
// frequent, so that kills meet them.
func (b *broker) launch(ctx context.Context) (ready func()) {
	b.t.Helper()
	args := append([]string{"serve", "--data-dir", b.dir, "--listen", b.addr, "--http", "",
		"--set", "pawl.checkpoint.bytes=262144", "--set", "log.segment.bytes=1048576"}, b.args...)
	b.cmd = exec.CommandContext(ctx, b.binary, args...)
	b.cmd.Env = os.Environ()
	b.cmd.Stderr = &b.log
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		b.t.Helper()
		line, err := bufio.NewReader(out).ReadString('\n')
		if line != "ready\n" {
			b.cmd.Wait()
			b.t.Fatalf("the broker said %q, %v\n%s", line, err, b.log.Bytes())
		}
	}
}

// kill ends the broker without warning.
func (b *broker) kill() {
	if b.cmd == nil {
		return
	}
	b.cmd.Process.Kill()
	b.cmd.Wait() // an error: it was killed
	b.cmd = nil
}

func createTopic(ctx context.Context, t *testing.T, replicas int16, seeds ...string) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	res, err := kadm.NewClient(c).CreateTopic(ctx, partitions, replicas, nil, topic)
	if err != nil || res.Err != nil {
		t.Fatal(err, res.Err)
	}
}
