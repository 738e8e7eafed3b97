package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/producer"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/codec"
	"github.com/pawlbroker/pawl/storage/record"
)

const decompressed = 1 << 20

// frameOf is the request as a client frames it, without the length.
func frameOf(req kmsg.Request) []byte {
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("tester"))
	return f.AppendRequest(nil, req, 7)[PrefixSize:]
}

func mustDecode(t *testing.T, frame []byte) Request {
	t.Helper()
	req, answer, err := Decode(frame, decompressed)
	if err != nil || answer != nil {
		t.Fatalf("answer %v, err %v", answer, err)
	}
	return req
}

func TestEveryServedVersionDecodes(t *testing.T) {
	for _, r := range APIs() {
		for v := r.Min; v <= r.Max; v++ {
			sent := kmsg.RequestForKey(r.Key.Int16())
			sent.SetVersion(v)
			if b, ok := sent.(*kmsg.ApiVersionsRequest); ok {
				b.ClientSoftwareName, b.ClientSoftwareVersion = "tester", "1.0"
			}
			req := mustDecode(t, append(frameOf(sent), "trailing bytes are tolerated"...))
			if req.Body.Key() != r.Key.Int16() || req.Body.GetVersion() != v || req.Correlation != 7 || req.ClientID != "tester" {
				t.Errorf("%s v%d: got key %d v%d correlation %d client %q", r.Key.Name(), v,
					req.Body.Key(), req.Body.GetVersion(), req.Correlation, req.ClientID)
			}
			if !bytes.Equal(frameOf(req.Body), frameOf(sent)) && r.Key != kmsg.Metadata {
				t.Errorf("%s v%d: decoded is not what was sent", r.Key.Name(), v)
			}
		}
	}
}

func TestAbsentAutoTopicCreationMeansTrue(t *testing.T) {
	for v := int16(0); v <= 12; v++ {
		sent := kmsg.NewPtrMetadataRequest()
		sent.Version = v
		got := mustDecode(t, frameOf(sent)).Body.(*kmsg.MetadataRequest).AllowAutoTopicCreation
		if got != (v < 4) {
			t.Errorf("v%d without the field: %t", v, got)
		}
	}
}

func TestUnknownAPIVersionsVersionIsAnsweredInVersion0(t *testing.T) {
	sent := kmsg.NewPtrApiVersionsRequest()
	sent.Version = 4
	frame := frameOf(sent)
	frame[3] = 99 // a version from the future, whose body nobody can read
	req, answer, err := Decode(frame[:8], decompressed)
	if err != nil || answer == nil {
		t.Fatal(answer, err)
	}
	var f Frame
	if err := f.Append(req.Correlation, answer.Body); err != nil {
		t.Fatal(err)
	}
	want := []byte{
		0, 0, 0, 16, 0, 0, 0, 7, // length, correlation: header version 0
		0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4, // error, one range: key 18 from 0 to 4
	}
	if !bytes.Equal(f.Bytes, want) {
		t.Errorf("got %v want %v", f.Bytes, want)
	}
}

func TestSoftwareNameThatIsNoneIsAnInvalidRequest(t *testing.T) {
	for name, ok := range map[string]bool{ // subtests, in any order
		"franz-go": true, "a": true, "apache-kafka-java": true, "v1.2.3": true,
		"": false, "-a": false, "a-": false, "a b": false, "a\x00": false, ".": false, "é": false,
	} {
		sent := kmsg.NewPtrApiVersionsRequest()
		sent.Version = 3
		sent.ClientSoftwareName, sent.ClientSoftwareVersion = name, "1"
		_, answer, err := Decode(frameOf(sent), decompressed)
		if err != nil || (answer == nil) != ok {
			t.Errorf("%q: answer %v, err %v", name, answer, err)
		}
		if answer != nil && answer.Body.(*kmsg.ApiVersionsResponse).ErrorCode != 42 {
			t.Errorf("%q: %v", name, answer.Body)
		}
	}
}

func TestOldProduceIsRefusedInItsOwnFormat(t *testing.T) {
	for v := int16(0); v < 3; v++ {
		sent := produceRequest(v, []byte("an old message set"))
		req, answer, err := Decode(frameOf(sent), decompressed)
		if err != nil || answer == nil || answer.Close {
			t.Fatal(answer, err)
		}
		var f Frame
		if err := f.Append(req.Correlation, answer.Body); err != nil {
			t.Fatal(err)
		}
		got := kmsg.NewPtrProduceResponse()
		got.Version = v
		if err := got.ReadFrom(f.Bytes[8:]); err != nil {
			t.Fatal(err)
		}
		if p := got.Topics[0].Partitions[0]; got.Topics[0].Topic != "t" || p.Partition != 3 || p.ErrorCode != 35 {
			t.Errorf("v%d: %+v", v, got.Topics)
		}
		sent.Acks = 0
		if _, answer, _ := Decode(frameOf(sent), decompressed); answer == nil || answer.Body != nil || !answer.Close {
			t.Errorf("v%d without acks: %v", v, answer)
		}
	}
}

// librdkafka compresses with lz4 only for a broker that names FindCoordinator 0.
func TestCoordinatorsAreNamedAndNeverFound(t *testing.T) {
	if r, ok := Served(kmsg.FindCoordinator.Int16()); !ok || r.Advertised != 0 {
		t.Fatalf("advertised: %t, from %d", ok, r.Advertised)
	}
	for version := range int16(3) {
		for kind, want := range map[int8]int16{0: 15, 1: 35} {
			sent := kmsg.NewPtrFindCoordinatorRequest()
			sent.Version, sent.CoordinatorKey, sent.CoordinatorType = version, "g", kind
			if version == 0 {
				want = 15 // it does not say what kind
			}
			req, answer, err := Decode(frameOf(sent), decompressed)
			if err != nil || answer == nil {
				t.Fatal(answer, err)
			}
			var f Frame
			if err := f.Append(req.Correlation, answer.Body); err != nil {
				t.Fatal(err)
			}
			if resp := answer.Body.(*kmsg.FindCoordinatorResponse); resp.ErrorCode != want || resp.NodeID != -1 {
				t.Errorf("version %d, kind %d: error %d, node %d", version, kind, resp.ErrorCode, resp.NodeID)
			}
		}
	}
}

func TestWhatCannotBeAnsweredIsAnError(t *testing.T) {
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version = 18
	unknown := frameOf(fetch)
	unknown[1] = 200
	fetch12 := kmsg.NewPtrFetchRequest()
	fetch12.Version = 12
	cut := frameOf(fetch12)
	hostile := append(frameOf(fetch12)[:8], 0, 3, 'a') // client id reaches past the end
	for _, c := range []struct {
		name  string
		frame []byte
		want  error
	}{
		{"version above the range", frameOf(fetch), ErrUnsupportedVersion},
		{"key that is not served", unknown, ErrUnsupportedVersion},
		{"short header", []byte{0, 1, 0, 4}, ErrMalformed},
		{"cut short", cut[:len(cut)-4], ErrMalformed},
		{"client id too long", hostile, ErrMalformed},
	} {
		if _, answer, err := Decode(c.frame, decompressed); answer != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: answer %v, err %v", c.name, answer, err)
		}
	}
}

func produceRequest(version int16, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = version, -1
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "t"
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Partition, partition.Records = 3, records
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	return req
}

func batch(o record.Options) record.Batch {
	return record.NewBuilder().Append(1000, []byte("k"), []byte("v")).Append(1005, nil, []byte("w")).Build(o)
}

// altered returns a batch with one header byte changed and a CRC that agrees.
func altered(at int, value byte) []byte {
	b := batch(record.Options{})
	b[at] = value
	b.SetMaxTimestamp(b.MaxTimestamp())
	return b
}

func TestProduceEntries(t *testing.T) {
	good := batch(record.Options{})
	zstd, err := record.NewBuilder().Append(1, nil, bytes.Repeat([]byte("z"), 300)).Compressed(record.Options{}, codec.Zstd, codec.Compress)
	if err != nil {
		t.Fatal(err)
	}
	bomb, err := record.NewBuilder().Append(1, nil, make([]byte, decompressed)).Compressed(record.Options{}, codec.Zstd, codec.Compress)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	old := make([]byte, 30)
	old[magicAt] = 1
	idempotent := record.Producer{ID: 5, Epoch: 0, BaseSequence: 0}
	noSequence := record.Producer{ID: 5, Epoch: 0, BaseSequence: -1}
	for _, c := range []struct {
		name    string
		version int16
		records []byte
		code    int16
	}{
		{"good", 3, good, 0},
		{"good, flexible", 11, good, 0},
		{"idempotent", 9, batch(record.Options{Producer: &idempotent}), 0},
		{"transactional", 9, batch(record.Options{Producer: &idempotent, Transactional: true}), 0},
		{"zstd", 7, zstd, 0},
		{"zstd too early", 6, zstd, 76},
		{"decompresses to too much", 9, bomb, 10},
		{"null records", 9, nil, 87},
		{"empty records", 9, []byte{}, 87},
		{"bytes after", 9, append(bytes.Clone(good), 0), 87},
		{"two batches", 9, append(bytes.Clone(good), good...), 87},
		{"cut short", 9, good[:len(good)-1], 87},
		{"shorter than a header", 9, good[:20], 87},
		{"crc", 9, flipped, 2},
		{"message set of magic 1", 9, old, 87},
		{"base offset", 9, altered(7, 5), 87},
		{"count", 9, altered(60, 3), 87},
		{"last offset delta", 9, altered(26, 4), 87},
		{"codec 7", 9, altered(22, 7), 76},
		{"claims gzip", 9, altered(22, 1), 87},
		{"log append time", 9, altered(22, 8), 32},
		{"control", 9, batch(record.Options{Producer: &idempotent, Control: true}), 87},
		{"transactional without producer", 9, batch(record.Options{Transactional: true}), 87},
		{"producer without sequence", 9, batch(record.Options{Producer: &noSequence}), 87},
	} {
		req := mustDecode(t, frameOf(produceRequest(c.version, c.records)))
		if len(req.Produce) != 1 {
			t.Fatalf("%s: %d entries", c.name, len(req.Produce))
		}
		e := req.Produce[0]
		if got := Code(e.Err); got != c.code {
			t.Errorf("%s: code %d want %d (%v)", c.name, got, c.code, e.Err)
		}
		if e.Err == nil && !bytes.Equal(e.Batch, c.records) {
			t.Errorf("%s: the batch is not what was sent", c.name)
		}
		if (e.Err != nil) != (e.Batch == nil) {
			t.Errorf("%s: batch and error", c.name)
		}
	}
}

func TestProduceFactsAndTimestamp(t *testing.T) {
	b := batch(record.Options{})
	b.SetMaxTimestamp(9) // a client that counts wrong
	e := mustDecode(t, frameOf(produceRequest(9, b))).Produce[0]
	if e.Err != nil || e.Facts != (record.Facts{MinTimestamp: 1000, MaxTimestamp: 1005, NullKey: 1}) {
		t.Fatalf("%+v", e)
	}
	if got, _, err := record.Cut(e.Batch); err != nil || got.MaxTimestamp() != 1005 {
		t.Errorf("max timestamp %d, err %v", got.MaxTimestamp(), err)
	}
}

func TestProduceOfHostileArraysIsRefusedBeforeMemoryIsMade(t *testing.T) {
	const size = 8<<20 + 64 // and topics for two bytes each
	for _, version := range []int16{3, 9} {
		frame := frameOf(produceRequest(version, nil))
		body := make([]byte, size) // zeros: as many topics of no name as fit
		if version >= 9 {
			copy(body, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 1})
		} else {
			copy(body, []byte{0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0x3f, 0xff, 0xff})
		}
		frame = append(frame[:8+2+6:8+2+6], body...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := Decode(frame, decompressed)
		runtime.ReadMemStats(&after)
		allocated := after.TotalAlloc - before.TotalAlloc
		if _, err := Growth(frame); !errors.Is(err, ErrMalformed) {
			t.Errorf("v%d: growth: %v", version, err)
		}
		if !errors.Is(err, ErrMalformed) || allocated > 64<<10 {
			t.Errorf("v%d: err %v, %d bytes allocated", version, err, allocated)
		}
	}
}

func TestCostBoundsFrames(t *testing.T) {
	header := func(k kmsg.Key) []byte { return []byte{0, byte(k)} }
	if _, err := Cost(header(kmsg.Produce), 100<<20); err != nil {
		t.Error(err)
	}
	if _, err := Cost(header(kmsg.Metadata), MaxPlainFrame+1); !errors.Is(err, ErrFrameSize) {
		t.Error(err)
	}
	many := kmsg.NewPtrFetchRequest()
	many.Topics = make([]kmsg.FetchRequestTopic, 5000)
	for _, body := range []kmsg.Request{
		kmsg.NewPtrFetchRequest(), many, produceRequest(3, nil), produceRequest(3, batch(record.Options{})),
		produceRequest(3, make([]byte, 1<<20)), wideProduce(4, 5000), wideProduce(9, 5000),
	} {
		if body.GetVersion() < 4 {
			body.SetVersion(4)
		}
		frame := frameOf(body)
		req := mustDecode(t, frame)
		checkHeld(t, frame, &req)
	}
}

// checkHeld checks that what a request holds was counted before.
func checkHeld(t *testing.T, frame []byte, req *Request) {
	t.Helper()
	cost, err := Cost(frame, len(frame))
	if err != nil {
		t.Fatal(err)
	}
	growth, err := Growth(frame)
	if err != nil {
		t.Fatal(err)
	}
	heldCost, heldGrowth := req.Held()
	if heldCost < int64(len(frame)) || heldCost > cost || heldGrowth > growth {
		t.Fatalf("%d bytes: cost %d, holds %d; growth %d, holds %d", len(frame), cost, heldCost, growth, heldGrowth)
	}
}

// wideProduce has n topics with a partition each.
func wideProduce(version int16, n int) *kmsg.ProduceRequest {
	req := produceRequest(version, batch(record.Options{}))
	for range n - 1 {
		req.Topics = append(req.Topics, req.Topics[0])
	}
	return req
}

func TestGrowthIsWhatAProducesElementsTake(t *testing.T) {
	for _, version := range []int16{3, 8, 9, 11} {
		growth, err := Growth(frameOf(wideProduce(version, 1000)))
		if err != nil || growth != 2000*elementCost {
			t.Errorf("v%d: %d, %v", version, growth, err)
		}
	}
}

func TestErrorsHaveOneCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int16
	}{
		{nil, 0},
		{errors.New("whatever"), -1},
		{fmt.Errorf("append: %w", storage.ErrNoSpace), 56},
		{fmt.Errorf("read: %w", &storage.DamageError{File: "f", What: "crc"}), 56},
		{storage.ErrOutOfRange, 1},
		{record.ErrInvalid, 87},
		{record.ErrCorrupt, 2},
		{codec.ErrCorrupt, 87},
		{codec.ErrUnknownCodec, 76},
		{replica.ErrNotLeader, 6},
		{replica.ErrFencedEpoch, 74},
		{replica.ErrUnknownEpoch, 75},
		{producer.ErrOutOfOrder, 45},
		{producer.ErrFenced, 47},
		{metadata.ErrUnknownTopic, 3},
		{metadata.ErrTopicExists, 36},
		{metadata.ErrUnknownTopicID, 100},
	} {
		if got := Code(c.err); got != c.code {
			t.Errorf("%v: %d want %d", c.err, got, c.code)
		}
		if m := Message(c.err); (m == nil) != (c.err == nil) {
			t.Errorf("%v: message %v", c.err, m)
		}
	}
	for _, c := range codes {
		if got := Code(c.err); got != c.code {
			t.Errorf("%v: %d, the table says %d", c.err, got, c.code)
		}
	}
}

func TestSplitterCutsAnyStreamIntoItsFrames(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var stream []byte
	var want [][]byte
	for i := range 200 {
		frame := make([]byte, minFrame+rng.IntN(300))
		frame[0] = byte(i)
		want = append(want, frame)
		stream = append(stream, 0, 0, byte(len(frame)>>8), byte(len(frame)))
		stream = append(stream, frame...)
	}
	s := NewSplitter(400)
	var got [][]byte
	for len(stream) > 0 {
		n := min(1+rng.IntN(700), len(stream))
		s.Feed(stream[:n])
		stream = stream[n:]
		for {
			frame, err := s.Next()
			if err != nil {
				t.Fatal(err)
			}
			if frame == nil {
				break
			}
			got = append(got, frame)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d frames, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("frame %d differs", i)
		}
	}
}

func TestSplitterRefusesWhatIsNotKafka(t *testing.T) {
	for _, c := range []struct {
		hello string
		want  error
	}{
		{"\x16\x03\x01\x02\x00\x01", ErrForeign},
		{"GET / HTTP/1.1\r\n", ErrForeign},
		{"POST /topics", ErrForeign},
		{"PRI * HTTP/2.0", ErrForeign},
		{"\x00\x00\x04\x01\x00", ErrFrameSize},
		{"\x00\x00\x00\x07\x00", ErrFrameSize},
		{"\xff\xff\xff\xff\x00", ErrFrameSize},
	} {
		s := NewSplitter(1024)
		s.Feed([]byte(c.hello))
		if frame, err := s.Next(); frame != nil || !errors.Is(err, c.want) {
			t.Errorf("%q: %v %v", c.hello, frame, err)
		}
	}
}
