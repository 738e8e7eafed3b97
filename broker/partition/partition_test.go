package partition

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/codec"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

// story is a table on a disk in memory. Jobs are held back until they are run.
type story struct {
	t     *testing.T
	disk  *simdisk.Disk
	jobs  *job.Holder
	table *Table
	at    Moment
	queue []job.Job
	reqs  uint64
	sb    strings.Builder
}

func newStory(t *testing.T) *story {
	s := &story{t: t, disk: simdisk.New(), at: Moment{Wall: 1_000_000}}
	s.start()
	return s
}

// start opens the store, and the topics that have logs in it.
func (s *story) start() *storage.Recovered {
	s.jobs = job.NewHolder(s.disk, storage.DefaultConfig())
	res := job.Run(s.jobs, []job.Job{job.Recover{}})[0]
	if res.Err != nil {
		s.t.Fatal(res.Err)
	}
	s.table = New(DefaultConfig(), rand.New(rand.NewPCG(1, 2)))
	s.queue = nil
	return res.Recovered
}

func topicID(name string) (id metadata.TopicID) {
	copy(id[:], name)
	return id
}

func (s *story) open(name string, configs []metadata.Config, rec *storage.Recovered) {
	configs, err := metadata.ValidateTopicConfigs(configs, metadata.BrokerConfig{})
	if err != nil {
		s.t.Fatal(err)
	}
	top := Topic{ID: topicID(name), Name: name, Config: metadata.TypedTopicConfig(configs, metadata.BrokerConfig{})}
	var log *storage.RecoveredLog
	if rec != nil {
		for i := range rec.Logs {
			if rec.Logs[i].ID.Topic == top.ID {
				log = &rec.Logs[i]
			}
		}
	}
	var out Out
	s.table.SetBrokers(1, 1, []BrokerInfo{{Node: 1, Epoch: 1, Active: true}}, s.at, &out)
	s.table.Lease(clock.Never, s.at, &out)
	s.table.Assign(Assignment{Topic: top, MinISR: 1, Partition: &metadata.Partition{
		Topic: top.ID, Replicas: []metadata.NodeID{1}, ISR: []metadata.NodeID{1}, Leader: 1, LeaderEpoch: 3,
	}}, log, s.at, &out)
	s.act(out)
}

// act prints what was decided and queues its jobs.
func (s *story) act(out Out) {
	for _, j := range out.Jobs {
		fmt.Fprintf(&s.sb, "job %v\n", j)
		s.queue = append(s.queue, j)
	}
	for _, r := range out.Replies {
		fmt.Fprintf(&s.sb, "reply to %d: %s\n", r.Caller.Seq, describe(s.t, r.Response))
	}
	for _, l := range out.Lines {
		fmt.Fprintf(&s.sb, "line: %s\n", l.Text)
	}
}

func describe(t *testing.T, r wire.Response) string {
	var sb strings.Builder
	switch b := r.Body.(type) {
	case nil:
		sb.WriteString("nothing")
	case *kmsg.ProduceResponse:
		for _, p := range b.Topics[0].Partitions {
			fmt.Fprintf(&sb, "produce error=%d base=%d append-time=%d start=%d", p.ErrorCode, p.BaseOffset, p.LogAppendTime, p.LogStartOffset)
			for _, e := range p.ErrorRecords {
				fmt.Fprintf(&sb, " record=%d", e.RelativeOffset)
			}
		}
	case *kmsg.ListOffsetsResponse:
		p := b.Topics[0].Partitions[0]
		fmt.Fprintf(&sb, "list-offsets error=%d offset=%d timestamp=%d epoch=%d", p.ErrorCode, p.Offset, p.Timestamp, p.LeaderEpoch)
	case *kmsg.OffsetForLeaderEpochResponse:
		p := b.Topics[0].Partitions[0]
		fmt.Fprintf(&sb, "epoch error=%d epoch=%d end=%d", p.ErrorCode, p.LeaderEpoch, p.EndOffset)
	case *wire.FetchResponse:
		fmt.Fprintf(&sb, "fetch error=%d", b.ErrorCode)
		for _, top := range b.Topics {
			for _, p := range top.Partitions {
				fmt.Fprintf(&sb, " [error=%d hw=%d start=%d batches=%s]", p.ErrorCode, p.HighWatermark, p.LogStartOffset, batches(t, p.Records))
			}
		}
	default:
		t.Fatalf("response %T", b)
	}
	if r.Close {
		sb.WriteString(", close")
	}
	return sb.String()
}

func batches(t *testing.T, r storage.Region) string {
	if r.Len == 0 {
		return "none"
	}
	buf := make([]byte, r.Len)
	if _, err := r.File.ReadAt(buf, r.Pos); err != nil {
		t.Fatal(err)
	}
	var out []string
	for len(buf) > 0 {
		b, rest, err := record.Cut(buf)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%d-%d", b.BaseOffset(), b.LastOffset()))
		buf = rest
	}
	return strings.Join(out, ",")
}

func (s *story) caller() wire.Caller {
	s.reqs++
	return wire.Caller{Conn: 1, Seq: s.reqs}
}

func (s *story) produce(topic string, acks int16, b record.Batch) {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, acks, 1000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rt.Partitions = append(rt.Partitions, kmsg.NewProduceRequestTopicPartition())
	req.Topics = append(req.Topics, rt)
	facts, err := codec.Check(b, 1<<20)
	var out Out
	s.table.Produce(s.caller(), &wire.Request{Body: req, Produce: []wire.ProduceEntry{{Batch: b, Facts: facts, Err: err}}}, s.at, &out)
	s.act(out)
}

func (s *story) fetch(offset int64, wait, minBytes, maxBytes int32, topics ...string) {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 11, wait, minBytes, maxBytes
	for _, name := range topics {
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic = name
		p := kmsg.NewFetchRequestTopicPartition()
		p.FetchOffset, p.PartitionMaxBytes = offset, maxBytes
		rt.Partitions = append(rt.Partitions, p)
		req.Topics = append(req.Topics, rt)
	}
	var out Out
	s.table.Fetch(s.caller(), &wire.Request{Body: req, Peer: wire.NoPeer}, s.at, &out)
	s.act(out)
}

// run does the first n jobs, as one run of a lane.
func (s *story) run(n int) {
	n = min(n, len(s.queue))
	jobs := s.queue[:n:n]
	s.queue = s.queue[n:]
	for _, res := range job.Run(s.jobs, jobs) {
		var out Out
		s.table.Done(res, s.at, &out)
		s.act(out)
	}
}

// TestStories runs the stories in testdata/lone. Each command is one thing that
// happens; the output is what the table decided. Times are in milliseconds.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/lone", func(t *testing.T, path string) {
		s := newStory(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.sb.Reset()
			s.command(d)
			return s.sb.String()
		})
	})
}

func (s *story) command(d *datadriven.TestData) {
	num := func(name string, def int64) int64 {
		if d.HasArg(name) {
			d.ScanArgs(s.t, name, &def)
		}
		return def
	}
	topic := "t"
	if d.HasArg("topic") {
		d.ScanArgs(s.t, "topic", &topic)
	}
	switch d.Cmd {
	case "open":
		var configs []metadata.Config
		for _, line := range strings.Fields(d.Input) {
			name, value, _ := strings.Cut(line, "=")
			configs = append(configs, metadata.Config{Name: name, Value: value})
		}
		s.open(topic, configs, nil)
	case "close":
		var out Out
		s.table.Drop(storage.LogID{Topic: topicID(topic)}, true, metadata.ErrUnknownTopic, s.at, &out)
		s.act(out)
	case "restart":
		s.open(topic, nil, s.start())
	case "produce":
		b := record.NewBuilder()
		for i := range num("records", 1) {
			key := []byte("k")
			if d.HasArg("null-key") {
				key = nil
			}
			b.Append(record.Timestamp(num("timestamp", int64(s.at.Wall))+i), key, []byte("v"))
		}
		o := record.Options{}
		if d.HasArg("id") {
			o.Producer = &record.Producer{ID: record.ProducerID(num("id", 0)), BaseSequence: record.Sequence(num("first", 0))}
		}
		s.produce(topic, int16(num("acks", -1)), b.Build(o))
	case "fetch":
		s.fetch(num("offset", 0), int32(num("wait", 0)), int32(num("min", 1)), int32(num("max", 1<<20)), strings.Split(topic, "+")...)
	case "list-offsets":
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version = 7
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = num("timestamp", -1)
		rt.Partitions = append(rt.Partitions, p)
		req.Topics = append(req.Topics, rt)
		var out Out
		s.table.ListOffsets(s.caller(), &wire.Request{Body: req, Peer: wire.NoPeer}, s.at, &out)
		s.act(out)
	case "epoch-end":
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version = 3
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = topic
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.LeaderEpoch, p.CurrentLeaderEpoch = int32(num("epoch", 0)), int32(num("current", -1))
		rt.Partitions = append(rt.Partitions, p)
		req.Topics = append(req.Topics, rt)
		var out Out
		s.table.OffsetForLeaderEpoch(s.caller(), &wire.Request{Body: req, Peer: wire.NoPeer}, &out)
		s.act(out)
	case "run":
		s.run(int(num("jobs", int64(len(s.queue)))))
	case "checkpoint":
		for _, res := range job.Run(s.jobs, []job.Job{job.BeginCheckpoint{Snapshots: s.table.Snapshots()}, job.FinishCheckpoint{}}) {
			if res.Err != nil {
				s.t.Fatal(res.Err)
			}
		}
	case "full":
		s.disk.SetCapacity(s.disk.Used())
	case "space":
		s.disk.SetCapacity(-1)
	case "pass":
		ms := num("ms", 0)
		s.at.Now += clock.Instant(time.Duration(ms) * time.Millisecond)
		s.at.Wall += record.Timestamp(ms)
		var out Out
		s.table.Wake(s.at, &out)
		s.act(out)
	case "hang-up":
		var out Out
		s.table.ConnClosed(1, &out)
		s.act(out)
	default:
		s.t.Fatalf("unknown command %s", d.Cmd)
	}
}
