package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/host"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// places are ports of this machine that were free a moment ago, as controllers.
func places(t *testing.T, n int) (list []wire.Peer) {
	t.Helper()
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		list = append(list, wire.Peer{ID: metadata.NodeID(i + 1), Host: "127.0.0.1", Port: int32(l.Addr().(*net.TCPAddr).Port)})
	}
	return list
}

// startAs starts the broker with the place i.
func startAs(t *testing.T, i int, controllers []wire.Peer, dirs []string, listen string) *Broker {
	t.Helper()
	cfg := DefaultConfig(controllers[i].ID)
	cfg.DataDir, cfg.Listen, cfg.Cluster.Controllers = dirs[i], listen, controllers
	cfg.Node.Membership.ShutdownTimeout = time.Second // the last ones have nobody to hand over to
	b, err := Start(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// startAll starts a broker for each place and waits until they serve.
func startAll(t *testing.T, controllers []wire.Peer, dirs []string) (brokers []*Broker) {
	t.Helper()
	for i := range controllers {
		brokers = append(brokers, startAs(t, i, controllers, dirs, "127.0.0.1:0"))
	}
	for _, b := range brokers {
		<-b.Ready()
	}
	return brokers
}

// stopAll stops brokers at the same time.
func stopAll(t *testing.T, brokers []*Broker) {
	t.Helper()
	var stopped sync.WaitGroup
	for _, b := range brokers {
		stopped.Go(func() {
			if err := b.Shutdown(); err != nil {
				t.Error(err)
			}
		})
	}
	stopped.Wait()
}

// TestThreeBrokersAreOneClusterAndHandOver: what was acknowledged is read after
// each of the brokers in turn was stopped in good order and started again, without
// an error that a client would be told.
func TestThreeBrokersAreOneClusterAndHandOver(t *testing.T) {
	ctx := t.Context()
	controllers, dirs := places(t, 3), []string{t.TempDir(), t.TempDir(), t.TempDir()}
	brokers := startAll(t, controllers, dirs)
	if a, b := brokers[0].dir.ClusterID, brokers[2].dir.ClusterID; a != b {
		t.Errorf("clusters %s and %s", a, b)
	}
	var seeds []string
	for _, b := range brokers {
		seeds = append(seeds, b.Addr())
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic("t"), kgo.MetadataMinAge(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	create := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "t", 1, 3
	create.Topics = append(create.Topics, topic)
	if resp, err := create.RequestWith(ctx, c); err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatal(err, resp)
	}
	write := func(n int) {
		t.Helper()
		if err := c.ProduceSync(ctx, &kgo.Record{Value: []byte(strconv.Itoa(n))}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range brokers {
		write(3 * i)
		if err := brokers[i].Shutdown(); err != nil {
			t.Errorf("broker %d: %v", i+1, err)
		}
		write(3*i + 1)
		brokers[i] = startAs(t, i, controllers, dirs, seeds[i])
		<-brokers[i].Ready()
		write(3*i + 2)
	}
	r, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for want := 0; want < 9; {
		fetches := r.PollFetches(ctx)
		fetches.EachRecord(func(rec *kgo.Record) {
			if string(rec.Value) != strconv.Itoa(want) {
				t.Fatalf("offset %d has %q, want %d", rec.Offset, rec.Value, want)
			}
			want++
		})
	}
	c.Close()
	r.Close()
	stopAll(t, brokers)
}

func TestNodeMustBeToldWhereItIsReached(t *testing.T) {
	two := []wire.Peer{{ID: 1, Host: "127.0.0.1", Port: 1}, {ID: 2, Host: "192.0.2.1", Port: 1}}
	for name, x := range map[string]struct {
		self metadata.NodeID
		set  func(*Config)
		want string
	}{
		"no controller":     {3, func(c *Config) {}, "set --peer-listen"},
		"another machine's": {2, func(c *Config) {}, "set --peer-listen to an address of this machine"},
		"every address":     {3, func(c *Config) { c.Cluster.Listen = "0.0.0.0:0" }, "set --peer-advertise"},
		"clients":           {1, func(c *Config) { c.Listen = ":0" }, "set --advertise"},
	} {
		cfg := DefaultConfig(x.self)
		cfg.DataDir, cfg.Listen, cfg.Cluster.Controllers = t.TempDir(), "127.0.0.1:0", two
		x.set(&cfg)
		if b, err := Start(cfg, slog.New(slog.NewTextHandler(io.Discard, nil))); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
			if err == nil {
				b.Shutdown()
			}
		}
	}
}

func TestWhatOthersAreToldToConnectTo(t *testing.T) {
	at := places(t, 1)[0]
	for name, x := range map[string]struct {
		cluster Cluster
		want    string
	}{
		"as the controllers say": {Cluster{Controllers: []wire.Peer{at}}, at.String()},
		"as it was told":         {Cluster{Controllers: []wire.Peer{at}, Host: "outside", Port: 7}, "1@outside:7"},
		"where it listens":       {Cluster{Listen: net.JoinHostPort("127.0.0.1", strconv.Itoa(int(at.Port)))}, at.String()},
	} {
		l, err := x.cluster.listen(1)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if got := (wire.Peer{ID: 1, Host: x.cluster.Host, Port: x.cluster.Port}).String(); got != x.want {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
}

func TestControllersInAnyOrderAreOneCluster(t *testing.T) {
	a, b, c := wire.Peer{ID: 1, Host: "a", Port: 1}, wire.Peer{ID: 2, Host: "b", Port: 1}, wire.Peer{ID: 2, Host: "c", Port: 1}
	id := func(list ...wire.Peer) string { return (&Cluster{Controllers: list}).clusterID() }
	if id(a, b) != id(b, a) || id(a, b) == id(a, c) || id() != "" || id(a) != "" {
		t.Errorf("%s %s %s %s %s", id(a, b), id(b, a), id(a, c), id(), id(a))
	}
	for _, x := range []struct {
		cluster Cluster
		want    bool
	}{
		{Cluster{}, true}, {Cluster{Controllers: []wire.Peer{a}}, true}, {Cluster{Controllers: []wire.Peer{b}}, false},
		{Cluster{Controllers: []wire.Peer{a, b}}, false}, {Cluster{Listen: ":1"}, false}, {Cluster{Controllers: []wire.Peer{a}, Listen: ":1"}, false},
	} {
		if got := x.cluster.alone(1); got != x.want {
			t.Errorf("%+v: alone %t", x.cluster, got)
		}
	}
}

// heard is the lines of a log.
type heard struct {
	mu sync.Mutex
	strings.Builder
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Builder.Write(p)
}

func TestAddressesThatLeadNowhereAreOneLine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	refused := places(t, 1)[0]
	nowhere := net.JoinHostPort(refused.Host, strconv.Itoa(int(refused.Port)))
	for name, x := range map[string]struct {
		addr        string
		controllers []wire.Peer
		want        string // of the line, or none
	}{
		"reached":          {l.Addr().String(), nil, ""},
		"reached, at home": {l.Addr().String(), []wire.Peer{{Host: "127.0.0.1"}}, ""},
		"refused":          {nowhere, nil, "connection refused"},
		"loopback":         {l.Addr().String(), []wire.Peer{{Host: "192.0.2.1", Port: 9093}}, "the controller at 192.0.2.1:9093 is on another"},
	} {
		var h heard
		checkReach(context.Background(), slog.New(slog.NewTextHandler(&h, nil)), map[string]string{"clients": x.addr}, x.controllers)
		if lines := strings.Count(h.String(), "\n"); (x.want == "") != (lines == 0) || !strings.Contains(h.String(), x.want) {
			t.Errorf("%s: %s", name, h.String())
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	var h heard
	checkReach(ended, slog.New(slog.NewTextHandler(&h, nil)), map[string]string{"clients": nowhere}, nil)
	if h.String() != "" {
		t.Errorf("after the end: %s", h.String())
	}
}

func TestDirectoryOfAnotherNodeIsRefused(t *testing.T) {
	dir := t.TempDir()
	d, err := host.OpenDirectory(dir, 1, "", "")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	cfg := DefaultConfig(2)
	cfg.DataDir, cfg.Listen = dir, "127.0.0.1:0"
	if _, err := Start(cfg, slog.New(slog.NewTextHandler(io.Discard, nil))); !errors.Is(err, host.ErrDirectory) || !strings.Contains(fmt.Sprint(err), "node 1, not 2") {
		t.Errorf("%v", err)
	}
}
