package standalone_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/standalone"
)

// header is a request header of version 1, with its frame's length.
func header(key, version int16, body ...byte) []byte {
	p := binary.BigEndian.AppendUint32(nil, uint32(10+len(body)))
	p = binary.BigEndian.AppendUint16(p, uint16(key))
	p = binary.BigEndian.AppendUint16(p, uint16(version))
	p = binary.BigEndian.AppendUint32(p, 1)
	p = binary.BigEndian.AppendUint16(p, 0xffff) // no client id
	return append(p, body...)
}

// TestWhatCannotBeReadEndsItsConnectionOnly sends what has no answer.
func TestWhatCannotBeReadEndsItsConnectionOnly(t *testing.T) {
	b := serve(t)
	other := dial(t, b)
	other.topic("t")
	tooLong := func(req kmsg.Request, at int) []byte { // with a length in it that cannot be
		f := (&wire{}).frame(req)
		binary.BigEndian.PutUint32(f[at:], 1<<31-1)
		return f
	}
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Topics = append(metadata.Topics, kmsg.NewMetadataRequestTopic())
	produce := produceOf("t", plain("x"))
	produce.Version = 7
	requestEnd := 4 + 8 + 2 + len("raw")
	cases := []struct {
		name  string
		bytes []byte
	}{
		{"TLS", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")},
		{"HTTP 2", []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
		{"a frame of length 0", []byte{0, 0, 0, 0}},
		{"a frame of negative length", []byte{0xff, 0xff, 0xff, 0xff}},
		{"a frame shorter than a header", []byte{0, 0, 0, 4, 0, 18, 0, 0}},
		{"a frame above socket.request.max.bytes", binary.BigEndian.AppendUint32(nil, 100<<20+1)},
		{"a Metadata of 64 MiB", append(binary.BigEndian.AppendUint32(nil, 64<<20), 0, 3, 0, 9)},
		{"an unknown API", header(999, 0)},
		{"a negative API", header(-1, 0)},
		{"an API of the ZooKeeper days", header(4, 0)},
		{"an API that is not served", header(kmsg.JoinGroup.Int16(), 5)},
		{"Metadata 99", header(kmsg.Metadata.Int16(), 99)},
		{"Metadata -1", header(kmsg.Metadata.Int16(), -1)},
		{"Fetch 3", header(kmsg.Fetch.Int16(), 3)},
		{"Fetch 99", header(kmsg.Fetch.Int16(), 99)},
		{"Produce 99", header(kmsg.Produce.Int16(), 99)},
		{"a body that is missing", header(kmsg.Fetch.Int16(), 11)},
		{"a body that is cut", header(kmsg.Metadata.Int16(), 1, 0, 0, 0, 1, 0, 9, 'x')},
		{"two billion topics in Metadata", tooLong(metadata, requestEnd)},
		{"two billion topics in Produce", tooLong(produce, requestEnd+2+2+4)},
		{"a client id longer than the frame", append(header(kmsg.ApiVersions.Int16(), 0)[:12], 0x7f, 0xff)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := dial(t, b)
			grown := allocated(func() {
				w.put(c.bytes)
				w.closed()
			})
			if grown > 1<<20 {
				t.Errorf("%d bytes allocated for it", grown)
			}
			other.alive()
		})
	}
	if end := other.end("t"); end != 0 {
		t.Errorf("log end %d, want 0", end)
	}
}

// TestGarbageDoesNotStopTheBroker sends noise: alone, and in the body of a
// request that is served.
func TestGarbageDoesNotStopTheBroker(t *testing.T) {
	b := serve(t)
	rnd := rand.New(rand.NewPCG(1, 1))
	noise := func(n int) []byte {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(rnd.Uint32())
		}
		return p
	}
	for range 100 {
		w := dial(t, b)
		w.Write(noise(rnd.IntN(2000))) // it may be closed by then
		w.Close()
	}
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata, kmsg.ApiVersions, kmsg.CreateTopics, kmsg.DeleteTopics,
		kmsg.InitProducerID, kmsg.OffsetForLeaderEpoch, kmsg.DescribeACLs, kmsg.DescribeConfigs, kmsg.DescribeCluster} {
		for range 40 {
			w := dial(t, b)
			w.Write(header(key.Int16(), int16(rnd.IntN(13)), noise(rnd.IntN(200))...))
			w.Close()
		}
	}
	dial(t, b).alive()
}

// TestHalfAFrameThenSilence: who does not finish a request is cut off in time,
// and nobody else waits for it.
func TestHalfAFrameThenSilence(t *testing.T) {
	b := serve(t, func(c *standalone.Config) { c.TCP.FrameTimeout, c.TCP.MinBytesPerSecond = 300*time.Millisecond, 1<<40 })
	for _, n := range []int{2, 5, 12} {
		w := dial(t, b)
		w.put(w.frame(kmsg.NewPtrMetadataRequest())[:n])
		dial(t, b).alive()
		w.closed()
	}
}

// TestBigFramesThatDoNotArriveHoldBackNobody: a handful of clients announce all
// the memory there is for requests, and send nothing more.
func TestBigFramesThatDoNotArriveHoldBackNobody(t *testing.T) {
	b := serve(t)
	for range 5 {
		dial(t, b).put(append(binary.BigEndian.AppendUint32(nil, 90<<20), 0, 0, 0, 9))
	}
	w := dial(t, b)
	w.topic("t")
	for range 100 { // by then they have what they wait for
		w.write("t", string(make([]byte, 30_000)))
	}
	if p := w.fetch(fetchOf("t", 0)); p.ErrorCode != 0 || len(p.RecordBatches) < 30_000 {
		t.Errorf("error %d, %d bytes", p.ErrorCode, len(p.RecordBatches))
	}
}

// TestAnswersComeInTheOrderOfTheRequests: kafka-python sends the second before
// the first is answered, and a Metadata that creates a topic takes longer than
// the ApiVersions behind it.
func TestAnswersComeInTheOrderOfTheRequests(t *testing.T) {
	w := dial(t, serve(t))
	metadata := func(topic string) *kmsg.MetadataRequest {
		req := kmsg.NewPtrMetadataRequest()
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &topic
		req.Topics = append(req.Topics, rt)
		return req
	}
	sent := []kmsg.Request{
		kmsg.NewPtrApiVersionsRequest(), kmsg.NewPtrMetadataRequest(), metadata("made"),
		kmsg.NewPtrApiVersionsRequest(), metadata("made too"), produceOf("made", plain("x")), fetchOf("made", 0), kmsg.NewPtrApiVersionsRequest(),
	}
	var all []byte
	for _, req := range sent {
		all = append(all, w.frame(req)...)
	}
	w.put(all)
	for i, req := range sent {
		correlation, p := w.get()
		if correlation != int32(i+1) {
			t.Fatalf("answer %d has correlation id %d", i+1, correlation)
		}
		resp := req.ResponseKind()
		if resp.IsFlexible() {
			p = p[1:]
		}
		if err := resp.ReadFrom(p); err != nil {
			t.Errorf("answer %d: %v", i+1, err)
		}
	}
}

// TestAFrameMayArriveByteByByte, and several in one packet.
func TestAFrameMayArriveByteByByte(t *testing.T) {
	w := dial(t, serve(t))
	w.topic("t")
	req := produceOf("t", plain("x"))
	for _, c := range w.frame(req) {
		w.put([]byte{c})
	}
	if p := w.response(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 {
		t.Errorf("error %d", p.ErrorCode)
	}
}

// TestApiVersions: what is too new is answered in version 0, with the one range
// that helps (KIP-511).
func TestApiVersions(t *testing.T) {
	w := dial(t, serve(t))
	for _, version := range []int16{5, 99, 32767} {
		w.put(header(kmsg.ApiVersions.Int16(), version, 0, 'x', 'y'))
		_, p := w.get()
		want := []byte{0, unsupportedVersion, 0, 0, 0, 1, 0, byte(kmsg.ApiVersions), 0, 0, 0, 4}
		if !bytes.Equal(p, want) {
			t.Errorf("version %d: %v, want %v", version, p, want)
		}
	}
	for version := range int16(5) {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, "a-client", "1.2.3"
		resp := ask[*kmsg.ApiVersionsResponse](w, req)
		if resp.ErrorCode != 0 {
			t.Fatalf("version %d: error %d", version, resp.ErrorCode)
		}
		ranges := map[int16][2]int16{}
		for _, k := range resp.ApiKeys {
			ranges[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
		}
		// librdkafka compresses only for a broker with Produce 0; kafka-python
		// 2.0.2 takes one without these for an old one.
		if r := ranges[kmsg.Produce.Int16()]; r[0] != 0 {
			t.Errorf("version %d: Produce from %d", version, r[0])
		}
		if r := ranges[kmsg.DescribeACLs.Int16()]; r[0] > 2 || r[1] < 2 {
			t.Errorf("version %d: DescribeACLs %v", version, r)
		}
	}
	for _, name := range []string{"", " ", "a b", "-a", "a-", "ä", "a\n"} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, name, "1"
		if resp := ask[*kmsg.ApiVersionsResponse](w, req); resp.ErrorCode != invalidRequest {
			t.Errorf("client software name %q: error %d", name, resp.ErrorCode)
		}
		req.ClientSoftwareName, req.ClientSoftwareVersion = "a", name
		if resp := ask[*kmsg.ApiVersionsResponse](w, req); resp.ErrorCode != invalidRequest {
			t.Errorf("client software version %q: error %d", name, resp.ErrorCode)
		}
	}
	w.alive()
}
