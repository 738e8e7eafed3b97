package standalone_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/standalone"
	"github.com/pawlbroker/pawl/storage/record"
)

// hang is how long a test waits for what must happen before it fails.
const hang = time.Minute

// serve runs a broker until the test ends, configured as configure says.
func serve(t *testing.T, configure ...func(*standalone.Config)) *standalone.Broker {
	t.Helper()
	cfg := standalone.DefaultConfig(1)
	cfg.DataDir, cfg.Listen = t.TempDir(), "127.0.0.1:0"
	for _, f := range configure {
		f(&cfg)
	}
	b, err := standalone.Start(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Shutdown(); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	<-b.Ready()
	return b
}

// wire is one connection, spoken to byte by byte.
type wire struct {
	t testing.TB
	net.Conn
	correlation int32
}

func dial(t testing.TB, b *standalone.Broker) *wire {
	t.Helper()
	c, err := net.Dial("tcp", b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(hang))
	return &wire{t: t, Conn: c}
}

// frame is the request as a client frames it, with its length.
func (w *wire) frame(req kmsg.Request) []byte {
	w.correlation++
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw")).AppendRequest(nil, req, w.correlation)
}

// put sends bytes as they are.
func (w *wire) put(p []byte) {
	w.t.Helper()
	if _, err := w.Write(p); err != nil {
		w.t.Fatalf("write: %v", err)
	}
}

// get reads one response frame: its correlation id and what follows it.
func (w *wire) get() (int32, []byte) {
	w.t.Helper()
	p, err := readFrame(w.Conn)
	if err != nil {
		w.t.Fatalf("no response: %v", err)
	}
	return int32(binary.BigEndian.Uint32(p)), p[4:]
}

func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	p := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(r, p)
	return p, err
}

// response reads the answer to req.
func (w *wire) response(req kmsg.Request) kmsg.Response {
	w.t.Helper()
	_, p := w.get()
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != kmsg.ApiVersions.Int16() {
		if p[0] != 0 {
			w.t.Fatalf("response header has tags: %d", p[0])
		}
		p = p[1:]
	}
	if err := resp.ReadFrom(p); err != nil {
		w.t.Fatalf("%s version %d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp
}

// ask sends a request and reads its answer.
func ask[R kmsg.Response](w *wire, req kmsg.Request) R {
	w.t.Helper()
	w.put(w.frame(req))
	return w.response(req).(R)
}

// closed fails the test unless the broker closes the connection without saying
// anything more.
func (w *wire) closed() {
	w.t.Helper()
	switch p, err := readFrame(w.Conn); {
	case err == nil:
		w.t.Fatalf("the connection is open, and %d bytes came", len(p))
	case !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET):
		w.t.Fatalf("the connection is open: %v", err)
	}
}

// alive fails the test unless the connection still answers.
func (w *wire) alive() {
	w.t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	if resp := ask[*kmsg.ApiVersionsResponse](w, req); resp.ErrorCode != 0 {
		w.t.Fatalf("ApiVersions: error %d", resp.ErrorCode)
	}
}

// topic makes a topic of one partition. Configurations are name and value in
// turn.
func (w *wire) topic(name string, configs ...string) [16]byte {
	w.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	req.Topics = append(req.Topics, wanted(name, configs...))
	resp := ask[*kmsg.CreateTopicsResponse](w, req)
	if code := resp.Topics[0].ErrorCode; code != 0 {
		w.t.Fatalf("create %s: error %d", name, code)
	}
	return resp.Topics[0].TopicID
}

func wanted(name string, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, 1, 1
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		t.Configs = append(t.Configs, c)
	}
	return t
}

// produceOf is a request of one partition entry for each of records.
func produceOf(topic string, records ...[]byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, -1, int32(hang/time.Millisecond)
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	for i, r := range records {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = int32(i), r
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// produce writes to partition 0 and returns what is said of it.
func (w *wire) produce(req *kmsg.ProduceRequest) kmsg.ProduceResponseTopicPartition {
	w.t.Helper()
	return ask[*kmsg.ProduceResponse](w, req).Topics[0].Partitions[0]
}

// write produces a good batch, which must be stored.
func (w *wire) write(topic string, values ...string) {
	w.t.Helper()
	if p := w.produce(produceOf(topic, plain(values...))); p.ErrorCode != 0 {
		w.t.Fatalf("produce to %s: error %d", topic, p.ErrorCode)
	}
}

// listed asks for one offset of partition 0.
func (w *wire) listed(version int16, topic string, timestamp int64) kmsg.ListOffsetsResponseTopicPartition {
	w.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = version
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = timestamp
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return ask[*kmsg.ListOffsetsResponse](w, req).Topics[0].Partitions[0]
}

// end is the log end of partition 0.
func (w *wire) end(topic string) int64 {
	w.t.Helper()
	p := w.listed(7, topic, -1)
	if p.ErrorCode != 0 {
		w.t.Fatalf("log end of %s: error %d", topic, p.ErrorCode)
	}
	return p.Offset
}

// fetchOf asks for partition 0 from an offset, without waiting.
func fetchOf(topic string, from int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 12, 1<<20, 1, 0
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = from, 1<<20
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (w *wire) fetch(req *kmsg.FetchRequest) kmsg.FetchResponseTopicPartition {
	w.t.Helper()
	return ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0]
}

// Where a batch has its fields, in bytes from its start.
const (
	lengthAt     = 8
	magicAt      = 16
	crcAt        = 17
	attributesAt = 21
	lastDeltaAt  = 23
	producerAt   = 43
	epochAt      = 51
	sequenceAt   = 53
	countAt      = 57
	payloadAt    = 61
)

// plain is a batch of records that have values and keys, as of now.
func plain(values ...string) record.Batch { return stamped(time.Now().UnixMilli(), values...) }

func stamped(at int64, values ...string) record.Batch {
	b := record.NewBuilder()
	for i, v := range values {
		b.Append(record.Timestamp(at), fmt.Appendf(nil, "k%d", i), []byte(v))
	}
	return b.Build(record.Options{})
}

// with is b with a field overwritten and a CRC that is right again.
func with(b record.Batch, at int, field any) record.Batch {
	binary.Encode(b[at:], binary.BigEndian, field)
	binary.BigEndian.PutUint32(b[crcAt:], crc32.Checksum(b[attributesAt:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// allocated is how many bytes the process allocates while f runs.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}
