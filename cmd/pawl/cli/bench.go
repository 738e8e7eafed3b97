package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/pawlbroker/pawl/workloads/load"
)

func (a *App) bench() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure a broker, or pawl beside the null broker",
		Example: `  pawl bench produce --record-size 100 --duration 10s
  pawl bench both --driver raw --connections 4 --partitions 8
  pawl bench table`,
	}
	Within(cmd)
	cmd.AddCommand(
		a.benchOne("produce", "Measure producing", []string{"produce"}),
		a.benchOne("consume", "Measure consuming a topic that holds records", []string{"consume"}),
		a.benchOne("both", "Measure producing, then consuming", []string{"produce", "consume"}),
		a.benchTable(),
	)
	return cmd
}

type benchFlags struct {
	load.Config
	acks, driver string
	every        time.Duration
}

// benched is one line of the result.
type benched struct {
	What              string  `json:"what"`
	Driver            string  `json:"driver"`
	MBPerSecond       float64 `json:"mb_per_second"`
	RecordsPerSecond  float64 `json:"records_per_second"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	load.Result
}

func (a *App) benchOne(name, short string, parts []string) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use: name, Short: short, Args: Positional(),
		Long: short + `.

The driver franz shows what a user of franz-go sees; raw sends batches that were
encoded once, so that the broker is the limit.`,
		Example: "  pawl bench " + name + " --record-size 100 --records 1000000 --partitions 8",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if f.Acks, err = parseAcks(f.acks); err != nil {
				return err
			}
			if f.driver != "franz" && f.driver != "raw" {
				return Usage("--driver %s: want franz or raw", f.driver)
			}
			if f.Config.Count > 0 {
				f.Duration = 0
			}
			f.Brokers = a.brokers
			return a.runBench(cmd.Context(), f, parts)
		},
	}
	a.ClientFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.driver, "driver", "franz", "franz or raw")
	flags.StringVar(&f.Topic, "topic", "pawl-bench", "the topic; created if there is none")
	flags.IntVar(&f.Partitions, "partitions", 1, "partitions of the topic")
	flags.IntVar(&f.Replication, "replication", 1, "replicas of the topic")
	flags.IntVar(&f.RecordSize, "record-size", 100, "bytes of a record's value")
	flags.Int64Var(&f.Count, "records", 0, "how many records (default as many as fit the duration)")
	flags.DurationVar(&f.Duration, "duration", 5*time.Second, "how long to measure")
	flags.DurationVar(&f.Warmup, "warmup", time.Second, "how long to run before measuring; not with --records")
	flags.StringVar(&f.acks, "acks", "all", "0, 1 or all")
	flags.IntVar(&f.Connections, "connections", 4, "raw: connections")
	flags.IntVar(&f.Depth, "depth", 1, "raw: requests under way on each connection")
	flags.IntVar(&f.Records, "batch", 1000, "raw: records in a batch")
	flags.DurationVar(&f.every, "one-at-a-time", 0, "franz: produce one record this often, to measure latency")
	return cmd
}

func (a *App) runBench(ctx context.Context, f benchFlags, parts []string) error {
	if err := a.benchTopic(ctx, f); err != nil {
		return err
	}
	results := []benched{}
	for _, part := range parts {
		r, err := f.run(ctx, part, a)
		if err != nil {
			if errors.Is(err, load.ErrConfig) {
				return Usage("%v", err)
			}
			return a.explain(err, f.Topic)
		}
		results = append(results, benched{part, f.driver, r.MBPerSecond(), r.RecordsPerSecond(), r.RequestsPerSecond(), r})
	}
	return a.Print(results, func(w io.Writer) {
		Row(w, "", "MB/s", "records/s", "requests/s", "p50", "p99", "max")
		for _, r := range results {
			l := r.Latency
			Row(w, r.What, fmt.Sprintf("%.1f", r.MBPerSecond), fmt.Sprintf("%.0f", r.RecordsPerSecond),
				measured(r.Requests > 0, fmt.Sprintf("%.0f", r.RequestsPerSecond)),
				latencyText(l, l.P50), latencyText(l, l.P99), latencyText(l, l.Max))
		}
	})
}

// measured is a cell of the table, or a dash for what the driver cannot know.
func measured(known bool, text string) string {
	if !known {
		return "-"
	}
	return text
}

func latencyText(l load.Latency, value time.Duration) string {
	return measured(l.Samples > 0, value.Round(time.Microsecond).String())
}

// benchTopic creates the topic if there is none.
func (a *App) benchTopic(ctx context.Context, f benchFlags) error {
	if f.driver == "raw" {
		if len(a.properties) > 0 {
			return Usage("-X needs --driver franz: raw speaks plain TCP")
		}
		ctx, cancel := context.WithTimeout(ctx, a.timeout.Duration)
		defer cancel()
		return a.explain(load.CreateTopic(ctx, f.Config), f.Topic)
	}
	return a.WithAdmin(ctx, f.Topic, func(ctx context.Context, admin *kadm.Client) error {
		made, err := admin.CreateTopic(ctx, int32(f.Partitions), int16(f.Replication), nil, f.Topic)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return Because(err, made.ErrMessage)
		}
		return nil
	})
}

func (f benchFlags) run(ctx context.Context, part string, a *App) (load.Result, error) {
	cfg := f.Config
	if f.driver == "raw" {
		if cfg.Count > 0 {
			cfg.Count = (cfg.Count + int64(cfg.Records) - 1) / int64(cfg.Records)
		}
		if part == "produce" {
			return load.Produce(ctx, cfg)
		}
		return load.Fetch(ctx, cfg)
	}
	opts, err := a.security()
	if err != nil {
		return load.Result{}, err
	}
	switch {
	case part == "consume":
		return load.FranzConsume(ctx, cfg, opts...)
	case f.every > 0:
		return load.FranzLatency(ctx, cfg, f.every, opts...)
	}
	return load.FranzProduce(ctx, cfg, opts...)
}
