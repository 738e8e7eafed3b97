package standalone_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/storage/record"
)

// TestFetchByOffset: at every place of a log with three batches of two records.
func TestFetchByOffset(t *testing.T) {
	w := dial(t, serve(t))
	w.topic("t")
	for range 3 {
		w.write("t", "a", "b")
	}
	cases := []struct {
		name  string
		topic string
		from  int64
		code  int16
		first int64 // base offset of the first batch that comes, -1 if none does
	}{
		{"start", "t", 0, 0, 0},
		{"inside the first batch", "t", 1, 0, 0},
		{"inside the last batch", "t", 5, 0, 4},
		{"end", "t", 6, 0, -1},
		{"beyond the end", "t", 7, offsetOutOfRange, -1},
		{"far beyond the end", "t", 1<<63 - 1, offsetOutOfRange, -1},
		{"below the start", "t", -1, offsetOutOfRange, -1},
		{"far below the start", "t", -1 << 63, offsetOutOfRange, -1},
		{"unknown topic", "nonesuch", 0, unknownTopicOrPartition, -1},
		{"topic that cannot be", "a/b", 0, invalidTopic, -1},
	}
	for _, c := range cases {
		for _, version := range []int16{4, 11, 12} {
			req := fetchOf(c.topic, c.from)
			req.Version = version
			p := w.fetch(req)
			if p.ErrorCode != c.code {
				t.Errorf("%s, version %d: error %d, want %d", c.name, version, p.ErrorCode, c.code)
			}
			if p.RecordBatches == nil {
				t.Errorf("%s, version %d: the records are null, which librdkafka does not understand", c.name, version)
			}
			if c.code == 0 && (p.HighWatermark != 6 || p.LastStableOffset != 6) {
				t.Errorf("%s, version %d: high watermark %d, last stable offset %d, want 6", c.name, version, p.HighWatermark, p.LastStableOffset)
			}
			first := int64(-1)
			if len(p.RecordBatches) > 0 {
				b, _, err := record.Cut(p.RecordBatches)
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				first = int64(b.BaseOffset())
			}
			if first != c.first {
				t.Errorf("%s, version %d: first batch at %d, want %d", c.name, version, first, c.first)
			}
		}
	}
}

// TestFetchGivesOneBatchAboveItsLimit, for otherwise it would never get on
// (KIP-74), and no second one.
func TestFetchGivesOneBatchAboveItsLimit(t *testing.T) {
	w := dial(t, serve(t))
	w.topic("t")
	for range 3 {
		w.write("t", string(make([]byte, 10_000)))
	}
	for _, limit := range []int32{0, 1, 9000} {
		req := fetchOf("t", 0)
		req.MaxBytes, req.Topics[0].Partitions[0].PartitionMaxBytes = limit, limit
		p := w.fetch(req)
		if _, rest, err := record.Cut(p.RecordBatches); err != nil || len(rest) > 0 {
			t.Errorf("limit %d: %d bytes after the first batch, %v", limit, len(rest), err)
		}
	}
}

// TestFetchAtTheEndWaits until its time is up, or until there is something.
func TestFetchAtTheEndWaits(t *testing.T) {
	b := serve(t)
	w, writer := dial(t, b), dial(t, b)
	w.topic("t")
	req := fetchOf("t", 0)
	req.MaxWaitMillis = 50
	before := time.Now()
	if p := w.fetch(req); p.ErrorCode != 0 || len(p.RecordBatches) > 0 || time.Since(before) < 50*time.Millisecond {
		t.Errorf("error %d, %d bytes after %s", p.ErrorCode, len(p.RecordBatches), time.Since(before))
	}
	req.MaxWaitMillis = int32(2 * hang / time.Millisecond)
	w.put(w.frame(req))
	writer.write("t", "woken")
	if p := w.response(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
		t.Errorf("error %d, %d bytes", p.ErrorCode, len(p.RecordBatches))
	}
	// Who waits for a topic learns that it is gone.
	req.Topics[0].Partitions[0].FetchOffset = 1
	w.put(w.frame(req))
	writer.remove("t")
	if p := w.response(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode != unknownTopicOrPartition {
		t.Errorf("the topic was deleted: error %d", p.ErrorCode)
	}
}

// TestFetchSessions (KIP-227): of what a session named once, answers have what is
// new; one that is not known has to begin again.
func TestFetchSessions(t *testing.T) {
	w := dial(t, serve(t))
	w.topic("t")
	w.write("t", "x")
	req := fetchOf("t", 0)
	req.SessionEpoch = 0 // wants a session
	first := ask[*kmsg.FetchResponse](w, req)
	if first.ErrorCode != 0 || first.SessionID == 0 || len(first.Topics) != 1 {
		t.Errorf("error %d, session %d, %d topics", first.ErrorCode, first.SessionID, len(first.Topics))
	}
	req.SessionID, req.SessionEpoch = first.SessionID, 1
	req.Topics[0].Partitions[0].FetchOffset = 1
	if resp := ask[*kmsg.FetchResponse](w, req); resp.ErrorCode != 0 || len(resp.Topics) != 0 {
		t.Errorf("nothing is new: error %d, %d topics", resp.ErrorCode, len(resp.Topics))
	}
	w.write("t", "y")
	again := fetchOf("t", 0)
	again.SessionID, again.SessionEpoch, again.Topics = first.SessionID, 2, nil
	if resp := ask[*kmsg.FetchResponse](w, again); resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions[0].RecordBatches) == 0 {
		t.Errorf("a record is new: error %d, %d topics", resp.ErrorCode, len(resp.Topics))
	}
	req.SessionID, req.SessionEpoch = first.SessionID+1, 3
	if resp := ask[*kmsg.FetchResponse](w, req); resp.ErrorCode != fetchSessionNotFound || len(resp.Topics) != 0 {
		t.Errorf("unknown session: error %d, %d topics", resp.ErrorCode, len(resp.Topics))
	}
	req.SessionEpoch = -1 // ends it, and goes on without
	if resp := ask[*kmsg.FetchResponse](w, req); resp.ErrorCode != 0 || resp.SessionID != 0 || len(resp.Topics) != 1 {
		t.Errorf("session ended: error %d, session %d, %d topics", resp.ErrorCode, resp.SessionID, len(resp.Topics))
	}
}

// TestLeaderEpochsAreChecked (KIP-320).
func TestLeaderEpochsAreChecked(t *testing.T) {
	w := dial(t, serve(t))
	w.topic("t")
	w.write("t", "x")
	epoch := w.listed(7, "t", -1).LeaderEpoch
	for ask, want := range map[int32]int16{-1: 0, epoch: 0, epoch + 1: unknownLeaderEpoch} {
		req := fetchOf("t", 0)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = ask
		if p := w.fetch(req); p.ErrorCode != want {
			t.Errorf("fetch with epoch %d at %d: error %d, want %d", ask, epoch, p.ErrorCode, want)
		}
	}
	for version := int16(2); version <= 4; version++ {
		for _, c := range []struct {
			current, leader int32
			code            int16
			end             int64
		}{{-1, epoch, 0, 1}, {epoch, epoch, 0, 1}, {epoch, epoch + 1, 0, -1}, {epoch + 1, epoch, unknownLeaderEpoch, -1}} {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.Version = version
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = "t"
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.CurrentLeaderEpoch, rp.LeaderEpoch = c.current, c.leader
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			p := ask[*kmsg.OffsetForLeaderEpochResponse](w, req).Topics[0].Partitions[0]
			if p.ErrorCode != c.code || p.EndOffset != c.end {
				t.Errorf("version %d, %+v: error %d, end %d", version, c, p.ErrorCode, p.EndOffset)
			}
		}
	}
}

// TestListOffsetsByTimestamp in every version, in a log that has one batch with
// times 100, 300 and 200 and then one with time 250.
func TestListOffsetsByTimestamp(t *testing.T) {
	w := dial(t, serve(t))
	w.topic("t")
	w.topic("empty")
	b := record.NewBuilder()
	for _, at := range []record.Timestamp{100, 300, 200} {
		b.Append(at, nil, []byte("x"))
	}
	for _, batch := range []record.Batch{b.Build(record.Options{}), stamped(250, "x")} {
		if p := w.produce(produceOf("t", batch)); p.ErrorCode != 0 {
			t.Fatal(p.ErrorCode)
		}
	}
	cases := []struct {
		topic     string
		timestamp int64
		since     int16 // version; below it the code is unsupportedVersion
		code      int16
		offset    int64
		found     int64
	}{
		{"t", -1, 1, 0, 4, -1},
		{"t", -2, 1, 0, 0, -1},
		{"t", -3, 7, 0, 1, 300},
		{"t", -4, 8, 0, 0, 0},
		{"t", -5, 9, 0, 0, 0},
		{"t", -6, 11, 0, 0, 0},
		{"t", -100, 100, 0, 0, 0},
		{"t", 0, 1, 0, 0, 100},
		{"t", 100, 1, 0, 0, 100},
		{"t", 101, 1, 0, 1, 300},
		{"t", 300, 1, 0, 1, 300},
		{"t", 301, 1, 0, -1, -1},
		{"t", 1<<63 - 1, 1, 0, -1, -1},
		{"empty", -1, 1, 0, 0, -1},
		{"empty", -2, 1, 0, 0, -1},
		{"empty", -3, 7, 0, -1, -1},
		{"empty", 0, 1, 0, -1, -1},
		{"nonesuch", -1, 1, unknownTopicOrPartition, -1, -1},
		{"a/b", -1, 1, invalidTopic, -1, -1},
	}
	for _, c := range cases {
		for version := int16(1); version <= 7; version++ {
			code, offset, found := c.code, c.offset, c.found
			if version < c.since {
				code, offset, found = unsupportedVersion, -1, -1
			}
			if p := w.listed(version, c.topic, c.timestamp); p.ErrorCode != code || p.Offset != offset || p.Timestamp != found {
				t.Errorf("%s at %d, version %d: error %d, offset %d, time %d; want %d, %d, %d",
					c.topic, c.timestamp, version, p.ErrorCode, p.Offset, p.Timestamp, code, offset, found)
			}
		}
	}
}
