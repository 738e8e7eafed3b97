package contest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pawlbroker/pawl/workloads/load"
)

// Systems are the contestants.
type Systems struct {
	Pawl func(nodes int) System
	Null func(mode string, nodes int) System // the null broker in a mode
}

const topic = "bench"

// Goals are the contests there are, of P1 to P9. P2-3 is P2 in a cluster.
func Goals(s Systems) []Goal {
	pawl, fsync := s.Pawl(1), s.Null("fsync", 1)
	pawl3, fsync3 := s.Pawl(3), s.Null("fsync", 3)
	return []Goal{
		{
			ID: "P1", Load: "produce, raw, 1000 x 1 KiB, 4 connections, 8 partitions, acks=all",
			Entries: []Entry{{"pawl", pawl, big}, {"null-fsync", fsync, big}},
			Bounds: []Bound{
				{Throughput, "pawl", "null-fsync", true, 0.9},
				{CPUPerM, "pawl", "null-fsync", false, 1.3},
			},
			Columns: []Metric{Throughput, Requests, P50, P99, CPUPerM, PeakMemory, Syncs},
		},
		partitionsGoal("P2", pawl, fsync),
		{
			ID: "P3", Load: "produce, raw, 1 x 100 B, 64 connections x 4, 8 partitions, acks=all",
			Entries: []Entry{{"pawl", pawl, small}, {"null-fsync", fsync, small}},
			Bounds:  []Bound{{Requests, "pawl", "null-fsync", true, 0.9}},
			Columns: []Metric{Requests, P50, P99, CPUPerM, PeakMemory, Syncs, SyncsPerReq},
		},
		{
			ID: "P4", Load: "fetch from the page cache, raw, 1 KiB records, 4 connections, 8 partitions",
			Entries: []Entry{{"pawl", pawl, fetch}, {"null-sendfile", s.Null("sendfile", 1), fetch}},
			Bounds: []Bound{
				{Throughput, "pawl", "null-sendfile", true, 0.9},
				{CPUPerGB, "pawl", "null-sendfile", false, 1.2},
			},
			Columns: []Metric{Throughput, Requests, P50, P99, CPUPerGB, PeakMemory},
		},
		{
			ID: "P5", Load: "latency, franz-go, 1 record of 100 B every 2 ms, acks=all",
			Entries: []Entry{{"pawl", pawl, latency}, {"null-fsync", fsync, latency}},
			Bounds: []Bound{
				{P50, "pawl", "null-fsync", false, 1.2},
				{P99, "pawl", "null-fsync", false, 1.5},
			},
			Columns: []Metric{P50, P99, Records, CPUPerM, PeakMemory},
		},
		{
			ID: "P6", Load: "produce, raw, 1000 x 1 KiB, 4 connections to each of 3 nodes, 9 partitions of 3 replicas, acks=all",
			Entries: []Entry{{"pawl", pawl3, replicated}, {"null-r3-fsync", fsync3, replicated}},
			Bounds:  []Bound{{Throughput, "pawl", "null-r3-fsync", true, 0.8}},
			Columns: []Metric{Throughput, Requests, P50, P99, CPUPerM, PeakMemory, Syncs},
		},
		{
			ID: "P6-franz", Load: "produce, franz-go, 100 B records, 3 nodes, 9 partitions of 3 replicas, acks=all",
			Entries: []Entry{{"pawl", pawl3, replicatedFranz}, {"null-r3-fsync", fsync3, replicatedFranz}},
			Bounds:  []Bound{{Records, "pawl", "null-r3-fsync", true, 0.8}},
			Columns: []Metric{Throughput, Records, P50, P99, CPUPerM, PeakMemory, Syncs},
		},
		partitionsGoal("P2-3", pawl3, fsync3),
		{
			ID: "P8", Load: "start on an empty directory, to the first acknowledged produce",
			Entries: []Entry{{"pawl", pawl, start}, {"null-fsync", fsync, start}},
			Bounds:  []Bound{{StartTime, "pawl", "", false, 25}},
			Columns: []Metric{StartTime, PeakMemory},
		},
		{
			ID: "P9", Load: "nothing",
			Entries: []Entry{{"pawl", pawl, idle}},
			Bounds: []Bound{
				{IdleMemory, "pawl", "", false, 25},
				{PerPartition, "pawl", "", false, 2},
				{IdleCPU, "pawl", "", false, 0.2},
			},
			Columns: []Metric{IdleMemory, PerPartition, IdleCPU},
		},
		{
			ID: "P14", Load: "a hundred topics of 3 replicas on 3 nodes, one of which is killed", Once: true,
			Entries: []Entry{{"pawl", pawl3, many}},
			Bounds:  []Bound{{CreateGrowth, "pawl", "", false, 2}},
			Columns: []Metric{Partitions, CreateTime, CreateGrowth, ListTime, FailoverTime, PerReplica, PeakMemory},
		},
	}
}

// partitionsGoal is P2: the number of partitions does not matter.
func partitionsGoal(id string, pawl, fsync System) Goal {
	g := Goal{
		ID: id, Load: "produce, raw, 16 x 1 KiB, 64 connections, acks=all, over more and more partitions",
		Bounds: []Bound{
			{Throughput, "pawl 1000", "pawl 1", true, 0.8},
			{Syncs, "pawl 1000", "pawl 1", false, 1.1},
		},
		Columns: []Metric{Throughput, Requests, P50, P99, CPUPerM, PeakMemory, Syncs, SyncsPerReq},
	}
	for _, n := range []int{1, 64, 1000} {
		g.Entries = append(g.Entries, Entry{fmt.Sprintf("pawl %d", n), pawl, spread(n)})
	}
	for _, n := range []int{1, 64} {
		g.Entries = append(g.Entries, Entry{fmt.Sprintf("null-fsync %d", n), fsync, spread(n)})
	}
	return g
}

// loadOf is what all produce loads share.
func loadOf(p *Process, cfg Config) load.Config {
	return load.Config{
		Brokers: []string{p.Addr}, Topic: topic, Partitions: 8, Replication: len(p.nodes), Acks: -1,
		Connections: 4, Depth: 1, Records: 1000, RecordSize: 1024,
		Warmup: cfg.Warmup, Duration: cfg.Duration, Count: cfg.Count,
	}
}

func prepare(ctx context.Context, p *Process, cfg load.Config) error {
	if err := p.ready(ctx); err != nil {
		return err
	}
	return load.CreateTopic(ctx, cfg)
}

func big(ctx context.Context, p *Process, cfg Config) (Sample, error) {
	c := loadOf(p, cfg)
	if err := prepare(ctx, p, c); err != nil {
		return nil, err
	}
	return measure(ctx, p, c, load.Produce)
}

func replicated(ctx context.Context, p *Process, cfg Config) (Sample, error) {
	c := loadOf(p, cfg)
	c.Partitions = 9
	if err := prepare(ctx, p, c); err != nil {
		return nil, err
	}
	return measure(ctx, p, c, load.Produce)
}

func replicatedFranz(ctx context.Context, p *Process, cfg Config) (Sample, error) {
	c := loadOf(p, cfg)
	c.Partitions, c.RecordSize = 9, 100
	if err := prepare(ctx, p, c); err != nil {
		return nil, err
	}
	return measure(ctx, p, c, func(ctx context.Context, c load.Config) (load.Result, error) { return load.FranzProduce(ctx, c) })
}

func small(ctx context.Context, p *Process, cfg Config) (Sample, error) {
	c := loadOf(p, cfg)
	c.Connections, c.Depth, c.Records, c.RecordSize = 64, 4, 1, 100
	if err := prepare(ctx, p, c); err != nil {
		return nil, err
	}
	return measure(ctx, p, c, load.Produce)
}

func spread(partitions int) func(context.Context, *Process, Config) (Sample, error) {
	return func(ctx context.Context, p *Process, cfg Config) (Sample, error) {
		c := loadOf(p, cfg)
		c.Partitions, c.Connections, c.Records = partitions, 64, 16
		if err := prepare(ctx, p, c); err != nil {
			return nil, err
		}
		return measure(ctx, p, c, load.Produce)
	}
}

func fetch(ctx context.Context, p *Process, cfg Config) (Sample, error) {
	c := loadOf(p, cfg)
	if err := prepare(ctx, p, c); err != nil {
		return nil, err
	}
	fill := c
	fill.Count = max(cfg.FetchRecords/int64(c.Records), 1)
	if _, err := load.Produce(ctx, fill); err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	return measure(ctx, p, c, load.Fetch)
}

func latency(ctx context.Context, p *Process, cfg Config) (Sample, error) {
	c := loadOf(p, cfg)
	c.Partitions, c.RecordSize = 1, 100
	if err := prepare(ctx, p, c); err != nil {
		return nil, err
	}
	return measure(ctx, p, c, func(ctx context.Context, c load.Config) (load.Result, error) {
		return load.FranzLatency(ctx, c, 2*time.Millisecond)
	})
}

func start(ctx context.Context, p *Process, _ Config) (Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := load.First(ctx, p.Addr, topic); err != nil {
		return nil, err
	}
	s := Sample{StartTime: ms(time.Since(p.started))}
	if peak, err := p.memory("VmHWM"); err == nil {
		s[PeakMemory] = mib(peak)
	}
	return s, nil
}

// idle measures a process that does nothing: without topics, then with idle
// partitions that have held one record each. A partition that was never
// written costs no more.
func idle(ctx context.Context, p *Process, cfg Config) (Sample, error) {
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	if err := sleep(ctx, min(cfg.Settle, 2*time.Second)); err != nil {
		return nil, err
	}
	empty, err := p.memory("VmRSS")
	if err != nil {
		return nil, err
	}
	const perTopic = 100
	topics := max(cfg.IdlePartitions/perTopic, 1)
	for i := range topics {
		c := loadOf(p, cfg)
		c.Topic, c.Partitions = fmt.Sprintf("idle-%d", i), perTopic
		if err := load.CreateTopic(ctx, c); err != nil {
			return nil, err
		}
		c.Connections, c.Records, c.RecordSize, c.Count = 1, 1, 100, perTopic
		if _, err := load.Produce(ctx, c); err != nil {
			return nil, err
		}
	}
	if err := sleep(ctx, cfg.Settle); err != nil {
		return nil, err
	}
	full, err := p.memory("VmRSS")
	if err != nil {
		return nil, err
	}
	before, err := p.cpu()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := sleep(ctx, cfg.Idle); err != nil {
		return nil, err
	}
	after, err := p.cpu()
	if err != nil {
		return nil, err
	}
	return Sample{
		IdleMemory:   mib(empty),
		PerPartition: float64(full-empty) / 1024 / float64(topics*perTopic),
		IdleCPU:      100 * (after - before).Seconds() / time.Since(began).Seconds(),
	}, nil
}

// many measures a cluster with many partitions that hold nothing: what it takes
// to create a topic, to list all, and to fail over what a node led that dies.
func many(ctx context.Context, p *Process, cfg Config) (Sample, error) {
	const topics, few = 100, 10
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	empty, err := p.memory("VmRSS")
	if err != nil {
		return nil, err
	}
	var took [topics]time.Duration
	c := loadOf(p, cfg)
	c.Partitions = max(cfg.ManyPartitions/topics, 1)
	for i := range took {
		c.Topic = fmt.Sprintf("many-%d", i)
		began := time.Now()
		if err := load.CreateTopic(ctx, c); err != nil {
			return nil, err
		}
		took[i] = time.Since(began)
	}
	full, err := p.memory("VmRSS")
	if err != nil {
		return nil, err
	}
	total := topics * c.Partitions
	first, last := middle(took[:few]), middle(took[topics-few:])
	s := Sample{
		Partitions: float64(total), CreateTime: ms(last), CreateGrowth: float64(last) / float64(first),
		PerReplica: float64(full-empty) / 1024 / float64(total*len(p.nodes)),
	}
	began := time.Now()
	if led, err := load.Led(ctx, p.Addr); err != nil || led.Partitions != total {
		return nil, fmt.Errorf("%d partitions are listed, want %d: %w", led.Partitions, total, err)
	}
	s[ListTime] = ms(time.Since(began))
	if peak, err := p.memory("VmHWM"); err == nil {
		s[PeakMemory] = mib(peak)
	}
	began = time.Now()
	victim := p.nodes[len(p.nodes)-1]
	if err := victim.cmd.Process.Kill(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		led, err := load.Led(ctx, p.Addr)
		if err != nil {
			return nil, fmt.Errorf("fail over: %w", err)
		}
		if led.By[victim.Listen] == 0 && led.Nobody == 0 {
			break
		}
	}
	s[FailoverTime] = ms(time.Since(began))
	return s, nil
}

// middle is the median.
func middle(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2]
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
