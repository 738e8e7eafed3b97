package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

type produceFlags struct {
	key, separator    string
	keyed             bool // --key was given
	acks, compression string
	file              string
	partition         int32
	headers           []string
}

func (a *App) produce() *cobra.Command {
	var f produceFlags
	cmd := &cobra.Command{
		Use: "produce TOPIC", Short: "Write lines as records", Args: Positional("TOPIC"),
		Long: "Write lines as records: one line of the standard input, or of a file, is the value of one record.",
		Example: `  echo '{"id":7}' | pawl produce orders --key 7
  pawl produce orders --file orders.txt --compression zstd --acks all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.keyed = cmd.Flags().Changed("key")
			opts, err := f.options(args[0])
			if err != nil {
				return err
			}
			in := a.In
			if f.file != "" && f.file != "-" {
				file, err := os.Open(f.file)
				if err != nil {
					return fmt.Errorf("%w: name a file that can be read, or - for the standard input", err)
				}
				defer file.Close()
				in = file
			}
			return a.produceLines(cmd.Context(), args[0], in, f, opts)
		},
	}
	a.ClientFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.key, "key", "", "key of every record (default none)")
	flags.StringVar(&f.separator, "key-separator", "", "what separates key and value in each line")
	flags.StringVar(&f.acks, "acks", "all", "who must have a record before it counts: 0, 1 or all")
	flags.StringVar(&f.compression, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	flags.StringVar(&f.file, "file", "-", "read lines from this file; - is the standard input")
	flags.Int32Var(&f.partition, "partition", -1, "write to this partition (default by key)")
	flags.StringArrayVar(&f.headers, "header", nil, "header of every record, key=value")
	return cmd
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// parseAcks reads --acks: 0, 1, or -1 for all.
func parseAcks(s string) (int16, error) {
	switch s {
	case "all", "-1":
		return -1, nil
	case "1":
		return 1, nil
	case "0":
		return 0, nil
	}
	return 0, Usage("--acks %s: want 0, 1 or all", s)
}

func (f produceFlags) options(topic string) ([]kgo.Opt, error) {
	codec, ok := codecs[f.compression]
	if !ok {
		return nil, Usage("--compression %s: want one of %s", f.compression,
			strings.Join(slices.Sorted(maps.Keys(codecs)), ", "))
	}
	if f.keyed && f.separator != "" {
		return nil, Usage("--key and --key-separator exclude each other")
	}
	acks, err := parseAcks(f.acks)
	if err != nil {
		return nil, err
	}
	if _, err := pairs("--header", f.headers); err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec), kgo.AllowAutoTopicCreation(),
	}
	if f.partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	switch acks {
	case 0:
		return append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()), nil
	case 1:
		return append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()), nil
	}
	return append(opts, kgo.RequiredAcks(kgo.AllISRAcks())), nil
}

// record makes a record of one line.
func (f produceFlags) record(line []byte, number int64) (*kgo.Record, error) {
	r := &kgo.Record{Value: line, Partition: f.partition}
	if f.keyed {
		r.Key = []byte(f.key)
	}
	if f.separator != "" {
		key, value, ok := bytes.Cut(line, []byte(f.separator))
		if !ok {
			return nil, fmt.Errorf("line %d: no key separator %q in it: add one, or change --key-separator", number, f.separator)
		}
		r.Key, r.Value = key, value
	}
	for _, h := range f.headers {
		key, value, _ := strings.Cut(h, "=")
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
	}
	return r, nil
}

// produced counts acknowledged records.
type produced struct {
	Topic   string `json:"topic"`
	Records int64  `json:"records"`
	Bytes   int64  `json:"bytes"` // of keys and values
	// Partitions has the offsets by partition; records of other producers may lie
	// between them.
	Partitions map[int32]*span `json:"partitions"`

	mu     sync.Mutex
	failed error // the first
}

type span struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

func (p *produced) acknowledge(r *kgo.Record, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if p.failed == nil {
			p.failed = err
		}
		return
	}
	p.Records++
	p.Bytes += int64(len(r.Key) + len(r.Value))
	if s := p.Partitions[r.Partition]; s != nil {
		s.First, s.Last = min(s.First, r.Offset), max(s.Last, r.Offset)
	} else {
		p.Partitions[r.Partition] = &span{r.Offset, r.Offset}
	}
}

func (p *produced) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// produceLines sends every line of in and waits for the answers. The first
// failure ends it; what was acknowledged until then is still reported.
func (a *App) produceLines(ctx context.Context, topic string, in io.Reader, f produceFlags, opts []kgo.Opt) error {
	client, err := a.connect(ctx, append(opts, kgo.RecordDeliveryTimeout(a.timeout.Duration))...)
	if err != nil {
		return err
	}
	defer client.Close()
	result := &produced{Topic: topic, Partitions: map[int32]*span{}}
	readErr := eachLine(in, func(line []byte, number int64) error {
		r, err := f.record(line, number)
		if err != nil {
			return err
		}
		client.Produce(ctx, r, result.acknowledge)
		return errors.Join(result.err(), ctx.Err())
	})
	flushErr := client.Flush(ctx)
	if err := result.err(); err != nil {
		return fmt.Errorf("%s acknowledged before: %w", count(result.Records, "record"), a.explain(err, topic))
	}
	if err := errors.Join(readErr, flushErr); err != nil {
		return err
	}
	return a.Print(result, func(w io.Writer) {
		fmt.Fprintf(w, "produced %s, %s, to topic %s\n",
			count(result.Records, "record"), count(result.Bytes, "byte"), topic)
	})
}

// eachLine calls f with every line, without its end, numbered from 1.
func eachLine(in io.Reader, f func(line []byte, number int64) error) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for number := int64(1); ; number++ {
		line, err := r.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("read line %d: %w", number, err)
		}
		if err := f(bytes.TrimSuffix(line, []byte("\n")), number); err != nil {
			return err
		}
		if err == io.EOF {
			return nil
		}
	}
}
