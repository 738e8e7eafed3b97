package partition

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/job"
)

func deleteBelow(s *story, offset int64, topics ...string) Out {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = 2, 1000
	for _, name := range topics {
		req.Topics = append(req.Topics, kmsg.DeleteRecordsRequestTopic{Topic: name,
			Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: offset}}})
	}
	var out Out
	s.table.DeleteRecords(s.caller(), &wire.Request{Body: req, Peer: wire.NoPeer}, s.at, &out)
	return out
}

func deleted(t *testing.T, out *Out) string {
	got := ""
	for _, topic := range reply(t, out, kmsg.NewPtrDeleteRecordsResponse()).Topics {
		for _, p := range topic.Partitions {
			got += fmt.Sprintf("%s:%d/%d ", topic.Topic, p.ErrorCode, p.LowWatermark)
		}
	}
	return got
}

func TestRecordsOfSomeTopicsAreNotDeleted(t *testing.T) {
	s := newStory(t)
	s.open("t", nil, nil)
	s.open("compacted", []metadata.Config{{Name: "cleanup.policy", Value: "compact"}}, nil)
	s.open("both", []metadata.Config{{Name: "cleanup.policy", Value: "compact,delete"}}, nil)
	s.open(metadata.ConsumerOffsets, nil, nil)
	out := deleteBelow(s, 0, "t", "compacted", "both", metadata.ConsumerOffsets)
	if got, want := deleted(t, &out), "t:0/0 compacted:44/-1 both:0/0 __consumer_offsets:17/-1 "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A disk that refuses leaves the log as it was, and every request that waited for
// it is answered.
func TestRecordsThatTheDiskDoesNotDelete(t *testing.T) {
	s := newStory(t)
	s.open("t", nil, nil)
	s.produce("t", 1, by(7, 0, 0))
	s.produce("t", 1, by(7, 0, 2))
	s.run(2)
	first, second := deleteBelow(s, 2, "t"), deleteBelow(s, 3, "t")
	if len(first.Jobs) != 1 || len(second.Jobs) != 1 || len(first.Replies)+len(second.Replies) != 0 {
		t.Fatalf("%+v %+v", first, second)
	}
	// The same again asks the disk for nothing more.
	if third := deleteBelow(s, 3, "t"); len(third.Jobs) != 0 {
		t.Fatalf("%+v", third)
	}
	var out Out
	s.table.Done(job.Result{Job: first.Jobs[0], Err: storage.ErrNoSpace}, s.at, &out)
	if got := deleted(t, &out); got != "t:56/-1 " {
		t.Error(got)
	}
	out = Out{}
	for _, res := range job.Run(s.jobs, second.Jobs) {
		s.table.Done(res, s.at, &out)
	}
	if len(out.Replies) != 2 {
		t.Fatalf("%d replies", len(out.Replies))
	}
	out.Replies = out.Replies[:1]
	if got := deleted(t, &out); got != "t:0/3 " || s.table.deletions.next() != clock.Never {
		t.Errorf("%s, and woken at %d", got, s.table.deletions.next())
	}
}
