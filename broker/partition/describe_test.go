package partition

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/record"
)

// by is a batch of two records of a producer.
func by(id record.ProducerID, epoch record.ProducerEpoch, first record.Sequence) record.Batch {
	b := record.NewBuilder()
	b.Append(1, []byte("k"), []byte("v"))
	b.Append(2, []byte("k"), []byte("v"))
	return b.Build(record.Options{Producer: &record.Producer{ID: id, Epoch: epoch, BaseSequence: first}})
}

// reply is what a client reads of the only reply in out.
func reply[R kmsg.Response](t *testing.T, out *Out, empty R) R {
	t.Helper()
	if len(out.Replies) != 1 {
		t.Fatalf("%d replies", len(out.Replies))
	}
	resp := out.Replies[0].Response.Body.(kmsg.Response)
	empty.SetVersion(resp.GetVersion())
	if err := empty.ReadFrom(resp.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	return empty
}

func TestDescribeProducers(t *testing.T) {
	s := newStory(t)
	s.open("t", nil, nil)
	s.open("u", nil, nil)
	s.produce("t", 1, by(7, 0, 0))
	s.produce("t", 1, by(5, 0, 0))
	s.run(2)
	s.at.Now += 3_000_000_000
	s.at.Wall += 3000
	s.produce("t", 1, by(7, 1, 0))
	s.run(1)
	s.at.Now += 1_000_000_000
	s.at.Wall += 1000

	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{
		{Topic: "t", Partitions: []int32{0, 0, 1}}, {Topic: "u", Partitions: []int32{0}}, {Topic: "b@d", Partitions: []int32{0}},
	}
	var out Out
	s.table.DescribeProducers(s.caller(), &wire.Request{Body: req, Peer: wire.NoPeer}, s.at, &out)
	got := ""
	for _, topic := range reply(t, &out, kmsg.NewPtrDescribeProducersResponse()).Topics {
		for _, p := range topic.Partitions {
			got += fmt.Sprintf("%s-%d:%d", topic.Topic, p.Partition, p.ErrorCode)
			for _, a := range p.ActiveProducers {
				got += fmt.Sprintf(" %d/%d seq=%d at=%d %d %d", a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp, a.CoordinatorEpoch, a.CurrentTxnStartOffset)
			}
			got += "; "
		}
	}
	want := "t-0:0 5/0 seq=1 at=1000000 -1 -1 7/1 seq=1 at=1003000 -1 -1; t-0:42; t-1:3; u-0:0; b@d-0:17; "
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestDescribeLogDirs(t *testing.T) {
	s := newStory(t)
	s.open("t", nil, nil)
	s.open("u", nil, nil)
	b := by(1, 0, 0)
	size := int64(len(b))
	s.produce("t", 1, b)
	s.run(1)
	for version := int16(1); version <= 4; version++ {
		for _, c := range []struct {
			topics []kmsg.DescribeLogDirsRequestTopic
			want   string
		}{
			{nil, fmt.Sprintf("t-0=%d u-0=0 ", size)},
			{[]kmsg.DescribeLogDirsRequestTopic{{Topic: "u", Partitions: []int32{0, 1}}, {Topic: "u", Partitions: []int32{0}}, {Topic: "x", Partitions: []int32{0}}}, "u-0=0 "},
			{[]kmsg.DescribeLogDirsRequestTopic{}, ""},
		} {
			req := kmsg.NewPtrDescribeLogDirsRequest()
			req.Version, req.Topics = version, c.topics
			var out Out
			s.table.DescribeLogDirs(s.caller(), &wire.Request{Body: req, Peer: wire.NoPeer}, LogDir{"/data", 1000, 400}, &out)
			resp := reply(t, &out, kmsg.NewPtrDescribeLogDirsResponse())
			got := ""
			for _, topic := range resp.Dirs[0].Topics {
				for _, p := range topic.Partitions {
					got += fmt.Sprintf("%s-%d=%d ", topic.Topic, p.Partition, p.Size)
				}
			}
			if got != c.want || len(resp.Dirs) != 1 || resp.Dirs[0].Dir != "/data" {
				t.Errorf("v%d: %+v: %q, want %q", version, resp.Dirs, got, c.want)
			}
			if version >= 4 && (resp.Dirs[0].TotalBytes != 1000 || resp.Dirs[0].UsableBytes != 400) {
				t.Errorf("%+v", resp.Dirs[0])
			}
		}
	}
}
