package kafkaclient_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/linearizability"
	"github.com/pawlbroker/pawl/linearizability/anomaly"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/workloads"
	"github.com/pawlbroker/pawl/workloads/appendlog"
	"github.com/pawlbroker/pawl/workloads/kafkaclient"
	"github.com/pawlbroker/pawl/workloads/offsets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func cluster(t *testing.T) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(2, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// load is a workload that rests after a few hundred operations.
func load(t *testing.T) *appendlog.Workload {
	t.Helper()
	c := appendlog.DefaultConfig(history.Partition{Topic: "log"}, history.Partition{Topic: "log", Index: 1})
	c.OperationsPerClient = 60
	c.ReadMaxBytes = 2000 // so that readers fall behind
	w, err := appendlog.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// untilRest is a configuration whose load ends when the clients rest.
func untilRest(c *kfake.Cluster) kafkaclient.Config {
	config := kafkaclient.DefaultConfig(c.ListenAddrs()...)
	config.Duration = 0
	config.MaxWait, config.Backoff = time.Millisecond, time.Millisecond
	return config
}

func run(t *testing.T, c *kfake.Cluster, w *appendlog.Workload) *linearizability.Verdict {
	t.Helper()
	if err := kafkaclient.Run(context.Background(), untilRest(c), w); err != nil {
		t.Fatal(err)
	}
	return linearizability.Check(w.History(), linearizability.DefaultOptions())
}

func TestSoundClusterIsJudgedSound(t *testing.T) {
	w := load(t)
	v := run(t, cluster(t), w)
	if v.Status != linearizability.OK {
		t.Error(v)
	}
	ok, failed, unknown := w.History().Count()
	if failed != 0 || unknown != 0 || ok < 7*60 {
		t.Errorf("%d operations ok, %d failed, %d unknown, want all ok", ok, failed, unknown)
	}
	records := 0
	for _, f := range w.History().Final {
		records += len(f.Records)
	}
	if records < 4*60 {
		t.Errorf("%d records in the final logs, want at least one for each append", records)
	}
}

func TestCommittedOffsetsAreJudgedSound(t *testing.T) {
	c := offsets.DefaultConfig("group", history.Partition{Topic: "log"}, history.Partition{Topic: "log", Index: 1})
	c.OperationsPerClient = 60
	w, err := offsets.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := kafkaclient.Run(context.Background(), untilRest(cluster(t)), w); err != nil {
		t.Fatal(err)
	}
	if v := linearizability.Check(w.History(), linearizability.DefaultOptions()); v.Status != linearizability.OK {
		t.Error(v)
	}
	if ok, failed, unknown := w.History().Count(); failed != 0 || unknown != 0 || ok != 5*60+2 {
		t.Errorf("%d operations ok, %d failed, %d unknown, want all ok", ok, failed, unknown)
		for _, o := range w.History().Operations {
			if o.Outcome != history.OK {
				t.Logf("%s: %s", &o, o.Note)
			}
		}
	}
}

// every calls fn for every n-th request of the key, and lets the others pass.
func every(c *kfake.Cluster, n int32, key int16, fn func(kmsg.Request) (kmsg.Response, error, bool)) {
	var seen atomic.Int32
	c.ControlKey(key, func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if seen.Add(1)%n != 0 {
			return nil, nil, false
		}
		return fn(req)
	})
}

var errCut = errors.New("the connection is cut")

func TestCutConnectionsLeaveOutcomesUnknownAndNothingElse(t *testing.T) {
	c := cluster(t)
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets} {
		every(c, 7, int16(key), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errCut, true })
	}
	w := load(t)
	if v := run(t, c, w); v.Status != linearizability.OK {
		t.Error(v)
	}
	ok, failed, unknown := w.History().Count()
	if ok == 0 || failed == 0 || unknown == 0 {
		t.Errorf("%d operations ok, %d failed, %d unknown, want some of each", ok, failed, unknown)
	}
	for _, o := range w.History().Operations {
		if o.Outcome == history.Unknown && (o.Return != history.Never || o.Kind != history.Append) {
			t.Errorf("%s: only appends can be unknown, and those have not returned", &o)
		}
	}
}

// acknowledge is an answer to a produce request that nobody has carried out.
func acknowledge(base int64) func(kmsg.Request) (kmsg.Response, error, bool) {
	return func(req kmsg.Request) (kmsg.Response, error, bool) {
		p := req.(*kmsg.ProduceRequest)
		resp := p.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range p.Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition, sp.BaseOffset = rp.Partition, base
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	}
}

func TestLyingClusterIsCaught(t *testing.T) {
	c := cluster(t)
	every(c, 50, int16(kmsg.Produce), acknowledge(3))
	v := run(t, c, load(t))
	if v.Status != linearizability.Violation || !slices.Contains(anomaly.Kinds(v.Findings), anomaly.LostWrite) || len(v.Disagreements) > 0 {
		t.Errorf("want lost-write, got %s", v)
	}
}

func TestUnreachableClusterIsSaidUnfinished(t *testing.T) {
	c := cluster(t)
	config := untilRest(c)
	config.OperationTimeout, config.FinalWithin = 10*time.Millisecond, 50*time.Millisecond
	c.Close()
	w := load(t)
	if err := kafkaclient.Run(context.Background(), config, w); !errors.Is(err, kafkaclient.ErrUnfinished) {
		t.Errorf("got %v, want ErrUnfinished", err)
	}
	if ok, _, _ := w.History().Count(); ok != 0 {
		t.Errorf("%d operations ok with no cluster", ok)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	config := untilRest(cluster(t))
	w := load(t)
	watched := &cancelling{Workload: w, after: 30, cancel: cancel}
	if err := kafkaclient.Run(ctx, config, watched); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// cancelling ends the run after some operations.
type cancelling struct {
	workloads.Workload
	after  int
	cancel func()
}

func (c *cancelling) Done(id history.Client, op workloads.Op, call, ret history.Time, r workloads.Result) {
	c.Workload.Done(id, op, call, ret, r)
	if c.after--; c.after == 0 {
		c.cancel()
	}
}
