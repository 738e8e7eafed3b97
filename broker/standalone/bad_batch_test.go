package standalone_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/standalone"
	"github.com/pawlbroker/pawl/storage/codec"
	"github.com/pawlbroker/pawl/storage/record"
)

// Kafka's error codes that are expected here, by Kafka's names.
const (
	offsetOutOfRange        = 1
	corruptMessage          = 2
	unknownTopicOrPartition = 3
	messageTooLarge         = 10
	invalidTopic            = 17
	invalidRequiredAcks     = 21
	invalidTimestamp        = 32
	unsupportedVersion      = 35
	topicAlreadyExists      = 36
	invalidPartitions       = 37
	invalidConfig           = 40
	invalidRequest          = 42
	invalidTxnState         = 48
	securityDisabled        = 54
	fetchSessionNotFound    = 70
	unknownLeaderEpoch      = 75
	unsupportedCompression  = 76
	invalidRecord           = 87
	unknownTopicID          = 100
	outOfOrderSequence      = 45
	invalidProducerEpoch    = 47
)

// messageSet is one record in a format from before record batches.
func messageSet(magic byte) []byte {
	b := make([]byte, 12+4+1+1+8+4+4)
	b[lengthAt+3] = byte(len(b) - 12)
	b[magicAt] = magic
	return b
}

// TestBadBatchIsRefusedAndNothingIsStored sends every kind of wrong batch to a
// topic that has one good record, over a connection that stays open.
func TestBadBatchIsRefusedAndNothingIsStored(t *testing.T) {
	b := serve(t)
	w := dial(t, b)
	w.topic("t", "max.message.bytes", "100000")
	w.topic("strict", "message.timestamp.before.max.ms", "60000", "message.timestamp.after.max.ms", "60000")
	w.topic("compacted", "cleanup.policy", "compact")
	for _, topic := range []string{"t", "strict", "compacted"} {
		w.write(topic, "good")
	}
	now := time.Now().UnixMilli()
	two := func() record.Batch { return plain("a", "b") }
	producer := func(id int64, epoch int16, sequence int32) record.Batch {
		return with(with(with(two(), producerAt, id), epochAt, epoch), sequenceAt, sequence)
	}
	flipped := func(at int) []byte { b := two(); b[at] ^= 1; return b }
	cases := []struct {
		name    string
		topic   string
		records []byte
		code    int16
	}{
		{"wrong CRC", "t", flipped(crcAt), corruptMessage},
		{"a bit of a record flipped", "t", flipped(payloadAt + 8), corruptMessage},
		{"a bit of the attributes flipped", "t", flipped(attributesAt + 1), corruptMessage},
		{"length of nothing", "t", with(two(), lengthAt, int32(0)), corruptMessage},
		{"negative length", "t", with(two(), lengthAt, int32(-1)), corruptMessage},
		{"length beyond the request", "t", with(two(), lengthAt, int32(1<<30)), invalidRecord},
		{"cut in the header", "t", two()[:40], invalidRecord},
		{"cut in a record", "t", two()[:70], invalidRecord},
		{"empty", "t", []byte{}, invalidRecord},
		{"null", "t", nil, invalidRecord},
		{"bytes after the batch", "t", append(two(), 0), invalidRecord},
		{"two batches", "t", append(two(), two()...), invalidRecord},
		{"magic 0", "t", messageSet(0), invalidRecord},
		{"magic 1", "t", messageSet(1), invalidRecord},
		{"magic 3", "t", with(two(), magicAt, int8(3)), invalidRecord},
		{"no records", "t", with(with(two()[:payloadAt], lengthAt, int32(payloadAt-12)), countAt, int32(0)), invalidRecord},
		{"fewer records than it says", "t", with(with(two(), countAt, int32(3)), lastDeltaAt, int32(2)), invalidRecord},
		{"more records than it says", "t", with(with(two(), countAt, int32(1)), lastDeltaAt, int32(0)), invalidRecord},
		{"negative count", "t", with(two(), countAt, int32(-1)), invalidRecord},
		{"two billion records", "t", with(with(two(), countAt, int32(1<<31-1)), lastDeltaAt, int32(1<<31-2)), invalidRecord},
		{"last offset delta of fewer", "t", with(two(), lastDeltaAt, int32(0)), invalidRecord},
		{"last offset delta of more", "t", with(two(), lastDeltaAt, int32(7)), invalidRecord},
		{"negative last offset delta", "t", with(two(), lastDeltaAt, int32(-1)), corruptMessage},
		{"base offset that is not 0", "t", with(two(), 0, int64(5)), invalidRecord},
		{"offset delta of the first record", "t", with(two(), payloadAt+3, int8(2)), invalidRecord},
		{"record that is longer than the batch", "t", with(two(), payloadAt, int8(126)), invalidRecord},
		{"record of negative length", "t", with(two(), payloadAt, int8(1)), invalidRecord},
		{"codec 5", "t", with(two(), attributesAt, int16(5)), unsupportedCompression},
		{"codec 7", "t", with(two(), attributesAt, int16(7)), unsupportedCompression},
		{"gzip that is none", "t", with(two(), attributesAt, int16(1)), invalidRecord},
		{"snappy that is none", "t", with(two(), attributesAt, int16(2)), invalidRecord},
		{"lz4 that is none", "t", with(two(), attributesAt, int16(3)), invalidRecord},
		{"zstd that is none", "t", with(two(), attributesAt, int16(4)), invalidRecord},
		{"log append time from a client", "t", with(two(), attributesAt, int16(8)), invalidTimestamp},
		{"control batch", "t", with(two(), attributesAt, int16(0x20)), invalidRecord},
		{"delete horizon", "t", with(two(), attributesAt, int16(0x40)), invalidRecord},
		{"transactional without a producer", "t", with(two(), attributesAt, int16(0x10)), invalidRecord},
		{"transactional", "t", with(producer(7, 0, 0), attributesAt, int16(0x10)), invalidTxnState},
		{"producer id -2", "t", producer(-2, 0, 0), invalidRecord},
		{"producer without an epoch", "t", producer(7, -1, 0), invalidRecord},
		{"producer without a sequence", "t", producer(7, 0, -1), invalidRecord},
		{"above max.message.bytes", "t", plain(string(make([]byte, 100_000))), messageTooLarge},
		{"null key in a compacted topic", "compacted", record.NewBuilder().
			Append(record.Timestamp(now), []byte("k"), nil).Append(record.Timestamp(now), nil, []byte("v")).Build(record.Options{}), invalidRecord},
		{"an hour early", "strict", stamped(now-3_600_000, "a"), invalidTimestamp},
		{"an hour late", "strict", stamped(now+3_600_000, "a"), invalidTimestamp},
		{"a day late by default", "t", stamped(now+86_400_000, "a"), invalidTimestamp},
		{"the earliest time there is", "strict", stamped(-1<<63, "a"), invalidTimestamp},
		{"the latest time there is", "strict", stamped(1<<63-1, "a"), invalidTimestamp},
		{"no such partition", "nonesuch", two(), unknownTopicOrPartition},
		{"empty topic name", "", two(), invalidTopic},
		{"dots for a name", "..", two(), invalidTopic},
		{"a name with a slash", "a/b", two(), invalidTopic},
		{"a name of 250 characters", string(make([]byte, 250)), two(), invalidTopic},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			p := w.produce(produceOf(c.topic, c.records))
			if p.ErrorCode != c.code {
				t.Errorf("error %d, want %d", p.ErrorCode, c.code)
			}
			if p.BaseOffset != -1 {
				t.Errorf("base offset %d, want -1", p.BaseOffset)
			}
			if p.ErrorMessage == nil || *p.ErrorMessage == "" {
				t.Error("nothing says what was wrong")
			}
			w.alive()
		})
	}
	w.t = t
	for _, topic := range []string{"t", "strict", "compacted"} {
		if end := w.end(topic); end != 1 {
			t.Errorf("%s ends at %d, want 1: something bad was stored", topic, end)
		}
	}
}

// TestBadEntryDoesNotTakeTheOthersWithIt has one bad entry between good ones.
func TestBadEntryDoesNotTakeTheOthersWithIt(t *testing.T) {
	w := dial(t, serve(t))
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	three := wanted("t")
	three.NumPartitions = 3
	req.Topics = append(req.Topics, three)
	ask[*kmsg.CreateTopicsResponse](w, req)
	bad := plain("x")
	bad[crcAt]++
	resp := ask[*kmsg.ProduceResponse](w, produceOf("t", plain("x"), bad, plain("x"), plain("no such partition")))
	for i, want := range []int16{0, corruptMessage, 0, unknownTopicOrPartition} {
		if p := resp.Topics[0].Partitions[i]; p.ErrorCode != want || p.Partition != int32(i) {
			t.Errorf("entry %d is partition %d: error %d, want %d", i, p.Partition, p.ErrorCode, want)
		}
	}
}

// TestRecordWithoutKeyIsNamed: who writes to a compacted topic learns which
// record of the batch was wrong (KIP-467).
func TestRecordWithoutKeyIsNamed(t *testing.T) {
	w := dial(t, serve(t))
	w.topic("compacted", "cleanup.policy", "compact")
	b := record.NewBuilder()
	for _, key := range [][]byte{[]byte("k"), []byte("k"), nil} {
		b.Append(record.Timestamp(time.Now().UnixMilli()), key, []byte("v"))
	}
	p := w.produce(produceOf("compacted", b.Build(record.Options{})))
	if p.ErrorCode != invalidRecord || len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != 2 {
		t.Errorf("error %d, records %+v: want record 2", p.ErrorCode, p.ErrorRecords)
	}
}

// TestLogAppendTimeIgnoresTheProducersTime: what is out of bounds elsewhere is
// stored with the broker's time.
func TestLogAppendTimeIgnoresTheProducersTime(t *testing.T) {
	w := dial(t, serve(t))
	w.topic("t", "message.timestamp.type", "LogAppendTime", "message.timestamp.before.max.ms", "1000", "message.timestamp.after.max.ms", "1000")
	before := time.Now().UnixMilli()
	for _, at := range []int64{-1, 0, before + 86_400_000} {
		p := w.produce(produceOf("t", stamped(at, "a")))
		if p.ErrorCode != 0 || p.LogAppendTime < before {
			t.Errorf("timestamp %d: error %d, appended at %d", at, p.ErrorCode, p.LogAppendTime)
		}
	}
}

// TestAcks: 2 is refused, and 0 is answered by nothing, or by the end of the
// connection if it failed.
func TestAcks(t *testing.T) {
	b := serve(t)
	w := dial(t, b)
	w.topic("t")
	for _, acks := range []int16{2, -2, 32767} {
		req := produceOf("t", plain("x"))
		req.Acks = acks
		if p := w.produce(req); p.ErrorCode != invalidRequiredAcks {
			t.Errorf("acks %d: error %d", acks, p.ErrorCode)
		}
	}
	req := produceOf("t", plain("x"))
	req.Acks = 0
	w.put(w.frame(req))
	w.alive() // its answer is the next thing that comes
	for _, bad := range []*kmsg.ProduceRequest{produceOf("nonesuch", plain("x")), produceOf("t", plain("x")[:30]), produceOf("t", with(plain("x"), attributesAt, int16(0x20)))} {
		bad.Acks = 0
		w := dial(t, b)
		w.put(w.frame(bad))
		w.closed()
	}
	if end := w.end("t"); end != 1 {
		t.Errorf("log end %d, want 1", end)
	}
}

// TestOldProduceIsUnsupported: the versions that are only advertised.
func TestOldProduceIsUnsupported(t *testing.T) {
	b := serve(t)
	w := dial(t, b)
	w.topic("t")
	for version := range int16(3) {
		req := produceOf("t", messageSet(1))
		req.Version = version
		if p := w.produce(req); p.ErrorCode != unsupportedVersion {
			t.Errorf("version %d: error %d", version, p.ErrorCode)
		}
	}
	zstd, err := record.NewBuilder().Append(record.Timestamp(time.Now().UnixMilli()), nil, []byte("v")).Compressed(record.Options{}, codec.Zstd, codec.Compress)
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[int16]int16{3: unsupportedCompression, 6: unsupportedCompression, 7: 0} {
		req := produceOf("t", append([]byte(nil), zstd...))
		req.Version = version
		if p := w.produce(req); p.ErrorCode != want {
			t.Errorf("zstd in version %d: error %d, want %d", version, p.ErrorCode, want)
		}
	}
}

// TestDecompressionBombIsRefusedBeforeItGoesOff: a batch that decompresses to
// far more than is allowed takes no more memory than is.
func TestDecompressionBombIsRefusedBeforeItGoesOff(t *testing.T) {
	const limit, size = 1 << 20, 64 << 20
	b := serve(t, func(c *standalone.Config) { c.TCP.MaxDecompressed = limit })
	w := dial(t, b)
	w.topic("t")
	builder := record.NewBuilder().Append(record.Timestamp(time.Now().UnixMilli()), nil, make([]byte, size))
	for _, id := range []int8{codec.Gzip, codec.Snappy, codec.LZ4, codec.Zstd} {
		bomb, err := builder.Compressed(record.Options{}, id, codec.Compress)
		if err != nil {
			t.Fatal(err)
		}
		frame := w.frame(produceOf("t", bomb))
		var p kmsg.ProduceResponseTopicPartition
		grown := allocated(func() {
			w.put(frame)
			p = w.response(produceOf("t")).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		})
		if p.ErrorCode != messageTooLarge {
			t.Errorf("%s: error %d, want %d", codec.Name(id), p.ErrorCode, messageTooLarge)
		}
		if most := int64(len(frame) + 24<<20); grown > most { // decoders have windows of their own
			t.Errorf("%s: %d bytes of %d allocated", codec.Name(id), grown, size)
		}
	}
	if end := w.end("t"); end != 0 {
		t.Errorf("log end %d, want 0", end)
	}
}

// TestSequences: what an idempotent producer sends twice is stored once, and
// what does not follow is refused.
func TestSequences(t *testing.T) {
	w := dial(t, serve(t))
	w.topic("t")
	init := kmsg.NewPtrInitProducerIDRequest()
	init.Version = 4
	id := ask[*kmsg.InitProducerIDResponse](w, init)
	if other := ask[*kmsg.InitProducerIDResponse](w, init); id.ErrorCode != 0 || other.ErrorCode != 0 || id.ProducerID == other.ProducerID {
		t.Fatalf("producer ids %d (error %d) and %d (error %d)", id.ProducerID, id.ErrorCode, other.ProducerID, other.ErrorCode)
	}
	steps := []struct {
		what     string
		epoch    int16
		sequence int32
		code     int16
		base     int64
	}{
		{"first", 0, 0, 0, 0},
		{"next", 0, 2, 0, 2},
		{"next again", 0, 2, 0, 2},
		{"first again", 0, 0, 0, 0},
		{"one left out", 0, 6, outOfOrderSequence, -1},
		{"half of it", 0, 3, outOfOrderSequence, -1},
		{"new epoch that goes on", 1, 4, outOfOrderSequence, -1},
		{"new epoch", 1, 0, 0, 4},
		{"old epoch", 0, 4, invalidProducerEpoch, -1},
	}
	for _, s := range steps {
		b := with(with(with(plain("a", "b"), producerAt, id.ProducerID), epochAt, s.epoch), sequenceAt, s.sequence)
		if p := w.produce(produceOf("t", b)); p.ErrorCode != s.code || p.BaseOffset != s.base {
			t.Errorf("%s: error %d at %d, want %d at %d", s.what, p.ErrorCode, p.BaseOffset, s.code, s.base)
		}
	}
	if end := w.end("t"); end != 6 {
		t.Errorf("log end %d, want 6", end)
	}
}
