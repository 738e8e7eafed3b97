package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// memory is a file of bytes.
type memory struct {
	vfs.File
	*bytes.Reader
}

func (m memory) ReadAt(p []byte, off int64) (int, error) { return m.Reader.ReadAt(p, off) }
func (m memory) Size() (int64, error)                    { return m.Reader.Size(), nil }

// filled is the frame with its holes filled in.
func filled(t *testing.T, f *Frame) []byte {
	t.Helper()
	var out []byte
	at := 0
	for _, h := range f.Holes {
		out = append(out, f.Bytes[at:h.At]...)
		p := make([]byte, h.Region.Len)
		if _, err := h.Region.File.ReadAt(p, h.Region.Pos); err != nil {
			t.Fatal(err)
		}
		out, at = append(out, p...), h.At
	}
	out = append(out, f.Bytes[at:]...)
	if int64(len(out)) != f.Size() {
		t.Fatalf("frame of %d bytes says it has %d", len(out), f.Size())
	}
	return out
}

// random is bytes to send.
func random(rng *rand.Rand) []byte {
	data := make([]byte, 70000)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return data
}

// fetchPair draws a response with regions of data in our form, and the same one
// in kmsg's.
func fetchPair(rng *rand.Rand, data []byte, version int16) (*FetchResponse, *kmsg.FetchResponse) {
	file := memory{Reader: bytes.NewReader(data)}
	ours := &FetchResponse{Version: version}
	theirs := kmsg.NewPtrFetchResponse()
	theirs.Version = version
	if version >= 7 {
		ours.ErrorCode, ours.SessionID = int16(rng.IntN(100)), rng.Int32()
		theirs.ErrorCode, theirs.SessionID = ours.ErrorCode, ours.SessionID
	}
	for range rng.IntN(4) {
		name := "topic-" + string(bytes.Repeat([]byte{'x'}, rng.IntN(200)))
		topic, ktopic := FetchTopic{}, kmsg.NewFetchResponseTopic()
		if version < 13 {
			topic.Topic, ktopic.Topic = name, name
		} else {
			copy(topic.TopicID[:], data)
			ktopic.TopicID = topic.TopicID
		}
		for range rng.IntN(5) {
			p, k := FetchPartition{
				Partition: rng.Int32(), ErrorCode: int16(rng.IntN(100)) - 1,
				HighWatermark: record.Offset(rng.Int64()), LastStableOffset: -1, LogStartOffset: record.Offset(rng.Int64()),
			}, kmsg.NewFetchResponseTopicPartition()
			k.Partition, k.ErrorCode, k.HighWatermark = p.Partition, p.ErrorCode, int64(p.HighWatermark)
			k.LastStableOffset, k.LogStartOffset, k.RecordBatches = int64(p.LastStableOffset), int64(p.LogStartOffset), []byte{}
			if n := []int{0, 1, 126, 127, 128, 16383, 66000}[rng.IntN(7)]; n > 0 {
				pos := rng.IntN(len(data) - n)
				p.Records = storage.Region{File: file, Pos: int64(pos), Len: int64(n)}
				k.RecordBatches = data[pos : pos+n]
			}
			if rng.IntN(2) == 0 {
				p.More = more(rng, &k, version)
			}
			topic.Partitions, ktopic.Partitions = append(topic.Partitions, p), append(ktopic.Partitions, k)
		}
		ours.Topics, theirs.Topics = append(ours.Topics, topic), append(theirs.Topics, ktopic)
	}
	for i := range rng.IntN(3) {
		n, k := Node{ID: metadata.NodeID(i), Host: "host", Port: rng.Int32(), Rack: []string{"", "r"}[i]}, kmsg.NewFetchResponseBroker()
		k.NodeID, k.Host, k.Port = int32(n.ID), n.Host, n.Port
		if n.Rack != "" {
			k.Rack = &n.Rack
		}
		ours.Nodes = append(ours.Nodes, n)
		if version >= 16 {
			theirs.Brokers = append(theirs.Brokers, k)
		}
	}
	return ours, theirs
}

// more draws what a partition says beside records, and has k say it too.
func more(rng *rand.Rand, k *kmsg.FetchResponseTopicPartition, version int16) *FetchMore {
	m := &FetchMore{Diverging: Divergence{record.NoEpoch, -1}, Leader: metadata.NoNode, LeaderEpoch: record.NoEpoch, ReadReplica: metadata.NoNode}
	if rng.IntN(2) == 0 {
		m.ReadReplica = metadata.NodeID(rng.Int32())
		k.PreferredReadReplica = int32(m.ReadReplica)
	}
	if rng.IntN(2) == 0 {
		m.Diverging = Divergence{record.LeaderEpoch(rng.Int32()), record.Offset(rng.Int64())}
	}
	if rng.IntN(2) == 0 {
		m.Leader, m.LeaderEpoch = metadata.NodeID(rng.Int32()), record.LeaderEpoch(rng.Int32())
	}
	if version >= 12 {
		k.DivergingEpoch.Epoch, k.DivergingEpoch.EndOffset = int32(m.Diverging.Epoch), int64(m.Diverging.End)
		k.CurrentLeader.LeaderID, k.CurrentLeader.LeaderEpoch = int32(m.Leader), int32(m.LeaderEpoch)
	}
	return m
}

func TestFetchResponseIsKmsgsWithTheHolesFilled(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	data := random(rng)
	for version := int16(4); version <= 17; version++ {
		var f Frame
		for i := range 50 {
			ours, theirs := fetchPair(rng, data, version)
			var want []byte
			want = binary.BigEndian.AppendUint32(want, uint32(i))
			if theirs.IsFlexible() {
				want = append(want, 0)
			}
			want = theirs.AppendTo(want)
			f.Reset()
			if err := f.Append(int32(i), ours); err != nil {
				t.Fatal(err)
			}
			got := filled(t, &f)
			if size := binary.BigEndian.Uint32(got); int(size) != len(want) {
				t.Fatalf("v%d: length %d, want %d", version, size, len(want))
			}
			if !bytes.Equal(got[PrefixSize:], want) {
				t.Fatalf("v%d: differs from kmsg's", version)
			}
		}
	}
}

func TestResponseHeaders(t *testing.T) {
	for _, c := range []struct {
		name    string
		key     kmsg.Key
		version int16
		tags    bool
	}{
		{"ApiVersions, flexible body", kmsg.ApiVersions, 3, false},
		{"ApiVersions", kmsg.ApiVersions, 0, false},
		{"Metadata", kmsg.Metadata, 8, false},
		{"Metadata, flexible", kmsg.Metadata, 9, true},
	} {
		resp := kmsg.ResponseForKey(c.key.Int16())
		resp.SetVersion(c.version)
		want := []byte{0, 0, 0, 5}
		if c.tags {
			want = append(want, 0)
		}
		want = resp.AppendTo(want)
		var f Frame
		if err := f.Append(5, resp); err != nil {
			t.Fatal(err)
		}
		if got := f.Bytes[PrefixSize:]; !bytes.Equal(got, want) {
			t.Errorf("%s: %v want %v", c.name, got, want)
		}
	}
}

func TestFrameTakesManyResponses(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	data := random(rng)
	var f Frame
	var want []byte
	for i := range int32(20) {
		ours, _ := fetchPair(rng, data, 11)
		plain := APIVersions(3)
		for _, body := range []Body{ours, plain} {
			var one Frame
			if err := one.Append(i, body); err != nil {
				t.Fatal(err)
			}
			want = append(want, filled(t, &one)...)
			if err := f.Append(i, body); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !bytes.Equal(filled(t, &f), want) {
		t.Error("responses together are not the responses one by one")
	}
}

func TestResponseOf2GiBIsRefusedAndLeavesTheFrame(t *testing.T) {
	var f Frame
	if err := f.Append(1, APIVersions(0)); err != nil {
		t.Fatal(err)
	}
	before, size := len(f.Bytes), f.Size()
	huge := storage.Region{File: memory{}, Len: 1 << 31}
	err := f.Append(2, &FetchResponse{Version: 4, Topics: []FetchTopic{{Partitions: []FetchPartition{{Records: huge}}}}})
	if err == nil || len(f.Bytes) != before || len(f.Holes) != 0 || f.Size() != size {
		t.Errorf("err %v, %d bytes, %d holes", err, len(f.Bytes), len(f.Holes))
	}
}

func TestAPIVersionsNamesEveryAPIOnce(t *testing.T) {
	resp := APIVersions(0)
	last := int16(-1)
	for _, k := range resp.ApiKeys {
		if k.ApiKey <= last {
			t.Errorf("key %d after %d", k.ApiKey, last)
		}
		last = k.ApiKey
		r, ok := Served(k.ApiKey)
		if !ok || r.Min > r.Max+1 || r.Advertised > r.Min || k.MinVersion != r.Advertised || k.MaxVersion != r.Max {
			t.Errorf("key %d: %+v", k.ApiKey, r)
		}
		if req := kmsg.RequestForKey(k.ApiKey); req == nil || req.MaxVersion() < r.Max {
			t.Errorf("key %d: kmsg does not know version %d", k.ApiKey, r.Max)
		}
	}
}

func BenchmarkFetchResponse(b *testing.B) {
	file := memory{Reader: bytes.NewReader(make([]byte, 1<<20))}
	resp := &FetchResponse{Version: 11, Topics: []FetchTopic{{Topic: "topic"}}}
	for i := range int32(100) {
		resp.Topics[0].Partitions = append(resp.Topics[0].Partitions,
			FetchPartition{Partition: i, Records: storage.Region{File: file, Len: 1 << 20}})
	}
	var f Frame
	b.ReportAllocs()
	for b.Loop() {
		f.Reset()
		if err := f.Append(1, resp); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeProduce(b *testing.B) {
	frame := frameOf(produceRequest(9, record.NewBuilder().Append(1, nil, make([]byte, 100)).Build(record.Options{})))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Decode(frame, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}
