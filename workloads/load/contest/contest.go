// Package contest runs brokers beside each other under the same load: each in
// a process of its own, in turn (A B A B), medians of several rounds. Speeds on
// a shared machine mean little; their ratios in one run mean something.
package contest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pawlbroker/pawl/workloads/load"
)

// Metric is a quantity that is measured. Its name has the unit.
type Metric string

// The metrics.
const (
	Throughput   Metric = "MB/s"
	Records      Metric = "records/s"
	Requests     Metric = "requests/s"
	P50          Metric = "p50 ms"
	P99          Metric = "p99 ms"
	CPUPerM      Metric = "CPU s/M records"
	CPUPerGB     Metric = "CPU s/GB"
	PeakMemory   Metric = "peak MiB"
	Syncs        Metric = "fsync/s"
	SyncsPerReq  Metric = "fsync/request"
	StartTime    Metric = "start ms"
	IdleMemory   Metric = "idle MiB"
	PerPartition Metric = "KiB/partition"
	IdleCPU      Metric = "idle CPU %"
	Partitions   Metric = "partitions"
	CreateTime   Metric = "create ms"   // of a topic
	CreateGrowth Metric = "last/first"  // of the same, the last topics to the first
	ListTime     Metric = "list ms"     // of all topics
	FailoverTime Metric = "failover ms" // until all that a node led has other leaders
	PerReplica   Metric = "KiB/replica" // that holds nothing
)

// Sample is what one run measured. A metric that could not be measured is not
// in it.
type Sample map[Metric]float64

// Entry is one system under one load.
type Entry struct {
	Name   string
	System System
	Run    func(ctx context.Context, p *Process, cfg Config) (Sample, error)
}

// Bound is what a goal asks for: a metric of one entry, or its ratio to that of
// another, at least or at most so much.
type Bound struct {
	Metric  Metric
	Entry   string
	Against string // another entry; empty: the value itself is bound
	AtLeast bool   // otherwise at most
	Limit   float64
}

// Goal is one contest.
type Goal struct {
	ID      string
	Load    string
	Entries []Entry
	Bounds  []Bound
	Once    bool // it takes so long that one round is enough
	// Columns are the metrics to show.
	Columns []Metric
}

// Config says how long everything takes.
type Config struct {
	// Dir should be on a disk. Data directories are made below, and emptied but
	// not removed: that is the caller's, when all contests are over.
	Dir              string
	Rounds           int
	Warmup, Duration time.Duration
	Count            int64         // if set, loads end after so many requests instead
	FetchRecords     int64         // of 1 KiB, to be fetched
	IdlePartitions   int           // how many partitions are idle
	ManyPartitions   int           // how many a cluster has when that is much
	Settle           time.Duration // how long a process may come to rest before it counts as idle
	Idle             time.Duration // how long it is watched then
	// Progress, if set, is told what is about to run.
	Progress func(text string)
}

// DefaultConfig takes about ten minutes for all goals. The idle partitions are so
// many that what the first requests of any process take does not count, and a
// broker at rest gives memory back after 10 to 20 s.
func DefaultConfig(dir string) Config {
	return Config{
		Dir: dir, Rounds: 5, Warmup: 500 * time.Millisecond, Duration: 2 * time.Second,
		FetchRecords: 500_000, IdlePartitions: 10_000, ManyPartitions: 100_000, Settle: 22 * time.Second, Idle: 5 * time.Second,
	}
}

// Line is the result of one entry: the medians.
type Line struct {
	Entry   string   `json:"entry"`
	Medians Sample   `json:"medians"`
	Samples []Sample `json:"samples"`
}

// Verdict is a bound and what was measured.
type Verdict struct {
	Text  string  `json:"text"`
	Value float64 `json:"value"`
	Known bool    `json:"known"`
	Met   bool    `json:"met"`
}

// Outcome is the result of one goal.
type Outcome struct {
	Goal     string    `json:"goal"`
	Load     string    `json:"load"`
	Lines    []Line    `json:"lines"`
	Verdicts []Verdict `json:"verdicts"`

	columns []Metric
}

// Run holds one contest.
func Run(ctx context.Context, g Goal, cfg Config) (Outcome, error) {
	samples := make([][]Sample, len(g.Entries))
	if g.Once {
		cfg.Rounds = 1
	}
	for round := range cfg.Rounds {
		for i, e := range g.Entries {
			if cfg.Progress != nil {
				cfg.Progress(fmt.Sprintf("%s %s, round %d of %d", g.ID, e.Name, round+1, cfg.Rounds))
			}
			s, err := e.once(ctx, cfg)
			if err != nil {
				return Outcome{}, fmt.Errorf("%s: %s: %w", g.ID, e.Name, err)
			}
			samples[i] = append(samples[i], s)
		}
	}
	o := Outcome{Goal: g.ID, Load: g.Load, columns: g.Columns}
	medians := map[string]Sample{}
	for i, e := range g.Entries {
		m := median(samples[i])
		medians[e.Name] = m
		o.Lines = append(o.Lines, Line{e.Name, m, samples[i]})
	}
	for _, b := range g.Bounds {
		o.Verdicts = append(o.Verdicts, b.judge(medians))
	}
	return o, nil
}

// once runs an entry in a fresh process.
func (e Entry) once(ctx context.Context, cfg Config) (s Sample, err error) {
	p, err := e.System.Start(ctx, cfg.Dir)
	if err != nil {
		return nil, err
	}
	s, err = e.Run(ctx, p, cfg)
	if err != nil {
		err = p.complaint(err)
		p.Stop()
		return nil, err
	}
	if err := p.Stop(); err != nil {
		return nil, p.complaint(err)
	}
	return s, nil
}

// median is the median of each metric that all samples have.
func median(samples []Sample) Sample {
	m := Sample{}
	for _, metric := range slices.Sorted(maps.Keys(samples[0])) {
		var values []float64
		for _, s := range samples {
			if v, ok := s[metric]; ok {
				values = append(values, v)
			}
		}
		slices.Sort(values)
		middle := len(values) / 2
		m[metric] = values[middle]
		if len(values)%2 == 0 {
			m[metric] = (values[middle-1] + values[middle]) / 2
		}
	}
	return m
}

func (b Bound) judge(medians map[string]Sample) Verdict {
	word := "at most"
	if b.AtLeast {
		word = "at least"
	}
	v := Verdict{Text: fmt.Sprintf("%s of %s, want %s %g", b.Metric, b.Entry, word, b.Limit)}
	v.Value, v.Known = medians[b.Entry][b.Metric]
	if b.Against != "" {
		v.Text = fmt.Sprintf("%s of %s / %s, want %s %g", b.Metric, b.Entry, b.Against, word, b.Limit)
		other, known := medians[b.Against][b.Metric]
		v.Known = v.Known && known && other > 0
		if v.Known {
			v.Value /= other
		}
	}
	v.Met = v.Known && (b.AtLeast && v.Value >= b.Limit || !b.AtLeast && v.Value <= b.Limit)
	return v
}

// measure runs a load against a process and adds what the process took.
func measure(ctx context.Context, p *Process, cfg load.Config, run func(context.Context, load.Config) (load.Result, error)) (Sample, error) {
	var before, after meter
	cfg.Begin = func() { before = read(ctx, p) }
	cfg.End = func() { after = read(ctx, p) }
	r, err := run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s := Sample{
		Throughput: r.MBPerSecond(), Records: r.RecordsPerSecond(), Requests: r.RequestsPerSecond(),
		P50: ms(r.Latency.P50), P99: ms(r.Latency.P99),
	}
	if before.cpuErr == nil && after.cpuErr == nil && r.Records > 0 {
		spent := (after.cpu - before.cpu).Seconds()
		s[CPUPerM] = spent / float64(r.Records) * 1e6
		s[CPUPerGB] = spent / float64(r.Bytes) * 1e9
	}
	if before.syncsErr == nil && after.syncsErr == nil {
		s[Syncs] = (after.syncs - before.syncs) / r.Elapsed.Seconds()
		if r.Requests > 0 { // franz-go makes its own
			s[SyncsPerReq] = (after.syncs - before.syncs) / float64(r.Requests)
		}
	}
	if peak, err := p.memory("VmHWM"); err == nil {
		s[PeakMemory] = mib(peak)
	}
	return s, nil
}

// meter is what a process had taken at one moment. What a system does not tell
// is left out of the table.
type meter struct {
	cpu      time.Duration
	cpuErr   error
	syncs    float64
	syncsErr error
}

func read(ctx context.Context, p *Process) (m meter) {
	m.syncs, m.syncsErr = p.syncs(ctx)
	m.cpu, m.cpuErr = p.cpu()
	return m
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func mib(bytes int64) float64    { return float64(bytes) / (1 << 20) }
