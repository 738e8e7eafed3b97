package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type consumeFlags struct {
	partitions []int32
	from       string
	group      string
	count      int64
	untilEnd   bool
	layout     string
	isolation  string
}

func (a *App) consume() *cobra.Command {
	var f consumeFlags
	cmd := &cobra.Command{
		Use: "consume TOPIC", Short: "Print records", Args: Positional("TOPIC"),
		Long: `Print records as they come, until interrupted, or until --count or --until-end is reached.
With a --timeout given, going without a record for that long ends it too: with success if
neither --count nor --until-end was asked for, with failure otherwise.

A format holds ` + formatHelp + `.`,
		Example: `  pawl consume orders --until-end
  pawl consume orders --partition 0 --from 1200 --count 10 --format '%o %k %v\n'
  pawl consume orders --from 15m --json
  pawl consume orders --group billing`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.consumeTopic(cmd.Context(), args[0], f) },
	}
	a.ClientFlags(cmd)
	flags := cmd.Flags()
	flags.Int32SliceVar(&f.partitions, "partition", nil, "only these partitions (default all)")
	flags.StringVar(&f.from, "from", "start", "start, end, an offset, a time (2006-01-02T15:04:05Z, 2006-01-02), or how long ago (15m)")
	flags.StringVar(&f.group, "group", "", "consume as a member of this group; --from counts where it has committed nothing")
	flags.Int64Var(&f.count, "count", 0, "stop after so many records (default never)")
	flags.BoolVar(&f.untilEnd, "until-end", false, "stop at what is the end when it begins")
	flags.StringVar(&f.layout, "format", `%v\n`, "what to print for a record")
	flags.StringVar(&f.isolation, "isolation", "read_committed", "read_committed or read_uncommitted")
	return cmd
}

// position is where to begin: at an offset, kgo's start or end included, or at
// the first record of a time.
type position struct {
	kgo.Offset
	millis int64 // since the Unix epoch; -1: not by time
	end    bool
}

// parseFrom reads --from.
func parseFrom(from string, now time.Time) (position, error) {
	switch from {
	case "start":
		return position{kgo.NewOffset().AtStart(), -1, false}, nil
	case "end":
		return position{kgo.NewOffset().AtEnd(), -1, true}, nil
	}
	if offset, err := strconv.ParseInt(from, 10, 64); err == nil && offset >= 0 {
		return position{kgo.NewOffset().At(offset), -1, false}, nil
	}
	if ago, err := time.ParseDuration(from); err == nil && ago > 0 {
		return atTime(now.Add(-ago)), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, from, now.Location()); err == nil {
			return atTime(t), nil
		}
	}
	return position{}, Usage("--from %s: want start, end, an offset, a time such as 2006-01-02T15:04:05Z, or how long ago, such as 15m", from)
}

func atTime(t time.Time) position {
	return position{kgo.NewOffset().AfterMilli(t.UnixMilli()), t.UnixMilli(), false}
}

func (f consumeFlags) check() error {
	switch {
	case f.count < 0:
		return Usage("--count %d: want 1 or more", f.count)
	case f.group != "" && (len(f.partitions) > 0 || f.untilEnd):
		return Usage("--group excludes --partition and --until-end: the group says who reads what")
	case f.isolation != "read_committed" && f.isolation != "read_uncommitted":
		return Usage("--isolation %s: want read_committed or read_uncommitted", f.isolation)
	}
	return nil
}

func (a *App) consumeTopic(ctx context.Context, topic string, f consumeFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	from, err := parseFrom(f.from, time.Now())
	if err != nil {
		return err
	}
	layout, err := parseFormat(f.layout)
	if err != nil {
		return err
	}
	opts := []kgo.Opt{kgo.FetchMaxWait(500 * time.Millisecond)}
	if f.isolation == "read_committed" {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	remaining, starts, err := a.assign(ctx, topic, f, from)
	if err != nil {
		return err
	}
	if f.untilEnd {
		if len(remaining) == 0 {
			return nil
		}
		// The last offset before the end may be a marker's.
		opts = append(opts, kgo.KeepControlRecords())
		maps.DeleteFunc(starts, func(p int32, _ kgo.Offset) bool { return remaining[p] == 0 })
	}
	if f.group != "" {
		opts = append(opts, kgo.ConsumerGroup(f.group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(from.Offset),
			kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll())
	} else {
		opts = append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}))
	}
	client, err := a.connect(ctx, opts...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	p := &printer{app: a, client: client, topic: topic, flags: f, layout: layout, ends: remaining,
		out: bufio.NewWriterSize(a.Out, 64<<10)}
	return p.run(ctx)
}

// assign finds the partitions to read and where to begin. With --until-end it
// also says where to stop, and leaves out partitions with nothing to read.
func (a *App) assign(ctx context.Context, topic string, f consumeFlags, from position) (ends map[int32]int64, starts map[int32]kgo.Offset, err error) {
	starts = map[int32]kgo.Offset{}
	err = a.WithAdmin(ctx, topic, func(ctx context.Context, admin *kadm.Client) error {
		detail, err := lookup(ctx, admin, topic)
		if err != nil {
			return err
		}
		for _, p := range f.partitions {
			if _, ok := detail.Partitions[p]; !ok {
				return Usage("--partition %d: topic %s has %d partitions", p, topic, len(detail.Partitions))
			}
		}
		for p := range detail.Partitions {
			if len(f.partitions) == 0 || slices.Contains(f.partitions, p) {
				starts[p] = from.Offset
			}
		}
		if f.group != "" || !f.untilEnd && from.millis < 0 {
			return nil
		}
		ends, err = bounds(ctx, admin, topic, from, starts)
		return err
	})
	return ends, starts, err
}

// bounds turns starts into offsets, and drops those at or after the end.
func bounds(ctx context.Context, admin *kadm.Client, topic string, from position, starts map[int32]kgo.Offset) (ends map[int32]int64, err error) {
	first, err := admin.ListStartOffsets(ctx, topic)
	if from.millis >= 0 && err == nil {
		first, err = admin.ListOffsetsAfterMilli(ctx, from.millis, topic)
	}
	if err = errors.Join(err, first.Error()); err != nil {
		return nil, err
	}
	last, err := admin.ListEndOffsets(ctx, topic)
	if err = errors.Join(err, last.Error()); err != nil {
		return nil, err
	}
	ends = map[int32]int64{}
	for p := range starts {
		begin, end := first[topic][p].Offset, last[topic][p].Offset
		if from.millis < 0 {
			begin = max(begin, from.EpochOffset().Offset) // start and end are negative
		}
		starts[p] = kgo.NewOffset().At(begin)
		if begin < end && !from.end {
			ends[p] = end
		}
	}
	return ends, nil
}

// printer prints what a client consumes.
type printer struct {
	app     *App
	client  *kgo.Client
	topic   string
	flags   consumeFlags
	layout  format
	ends    map[int32]int64 // partitions that have not reached their end
	out     *bufio.Writer
	printed int64
	line    []byte
}

func (p *printer) run(ctx context.Context) error {
	for {
		poll, cancel := ctx, context.CancelFunc(func() {})
		if p.app.timeout.given {
			poll, cancel = context.WithTimeout(ctx, p.app.timeout.Duration)
		}
		fetches := p.client.PollFetches(poll)
		cancel()
		done, err := p.print(fetches)
		if flushErr := p.out.Flush(); err == nil {
			err = flushErr
		}
		if p.flags.group != "" {
			p.client.AllowRebalance()
			if commitErr := p.client.CommitMarkedOffsets(context.WithoutCancel(ctx)); err == nil && commitErr != nil {
				err = fmt.Errorf("group %s: commit: %w", p.flags.group, commitErr)
			}
		}
		switch {
		case err != nil:
			return p.app.explain(err, p.topic)
		case done:
			return nil
		case ctx.Err() != nil: // interrupted
			return p.short("interrupted")
		case poll.Err() != nil && fetches.NumRecords() == 0:
			return p.short(fmt.Sprintf("nothing came for %v", p.app.timeout.Duration))
		}
	}
}

// short judges an end that came before what was asked for.
func (p *printer) short(why string) error {
	switch {
	case p.flags.count > 0:
		return fmt.Errorf("topic %s: %s: %d of %d records were printed", p.topic, why, p.printed, p.flags.count)
	case p.flags.untilEnd:
		return fmt.Errorf("topic %s: %s: %d partitions have not reached their end", p.topic, why, len(p.ends))
	}
	return nil
}

// print prints what came, and reports whether that is all that was asked for.
func (p *printer) print(fetches kgo.Fetches) (done bool, err error) {
	for _, e := range fetches.Errors() {
		if !errors.Is(e.Err, context.Canceled) && !errors.Is(e.Err, context.DeadlineExceeded) {
			return false, fmt.Errorf("partition %d: %w", e.Partition, e.Err)
		}
	}
	for iter := fetches.RecordIter(); !iter.Done(); {
		r := iter.Next()
		if p.flags.untilEnd {
			end, ok := p.ends[r.Partition]
			if !ok {
				continue
			}
			if r.Offset+1 >= end {
				delete(p.ends, r.Partition)
			}
			if r.Offset >= end || r.Attrs.IsControl() {
				continue
			}
		}
		if err := p.printRecord(r); err != nil {
			return false, err
		}
		p.printed++
		if p.flags.group != "" {
			p.client.MarkCommitRecords(r)
		}
		if p.printed == p.flags.count {
			return true, nil
		}
	}
	return p.flags.untilEnd && len(p.ends) == 0, nil
}

func (p *printer) printRecord(r *kgo.Record) error {
	if p.app.json {
		encoder := json.NewEncoder(p.out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(toJSON(r))
	}
	p.line = p.layout.append(p.line[:0], r)
	_, err := p.out.Write(p.line)
	return err
}
