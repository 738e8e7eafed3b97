package standalone_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const policyViolation = 44

// TestHugePartitionCountsCostNothing: they are refused before memory is made
// for them.
func TestHugePartitionCountsCostNothing(t *testing.T) {
	w := dial(t, serve(t))
	for _, n := range []int32{10_000, 1_000_000, 1<<31 - 1} {
		for _, replicas := range []int16{1, -1} {
			req := kmsg.NewPtrCreateTopicsRequest()
			req.Version = 7
			topic := wanted("t")
			topic.NumPartitions, topic.ReplicationFactor = n, replicas
			req.Topics = append(req.Topics, topic)
			frame := w.frame(req)
			var code int16
			grown := allocated(func() {
				w.put(frame)
				code = w.response(req).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode
			})
			if code != policyViolation || grown > 1<<20 {
				t.Errorf("%d partitions, %d replicas: error %d, %d bytes allocated", n, replicas, code, grown)
			}
		}
	}
}

// TestFetchOfNegativeSizes gives the one batch that a fetch always gets.
func TestFetchOfNegativeSizes(t *testing.T) {
	w := dial(t, serve(t))
	w.topic("t")
	w.write("t", "x")
	req := fetchOf("t", 0)
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis, req.Topics[0].Partitions[0].PartitionMaxBytes = -1, -1, -1, -1
	if p := w.fetch(req); p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
		t.Errorf("error %d, %d bytes", p.ErrorCode, len(p.RecordBatches))
	}
}

// TestOnePartitionThousandsOfTimes is answered as often, whether it waits, is
// read or is looked up.
func TestOnePartitionThousandsOfTimes(t *testing.T) {
	const times = 20_000
	w := dial(t, serve(t))
	w.topic("t")
	w.write("t", "x")
	for _, from := range []int64{0, 1} {
		req := fetchOf("t", from)
		req.MaxWaitMillis = 20
		for range times - 1 {
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, req.Topics[0].Partitions[0])
		}
		if got := len(ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions); got != times {
			t.Errorf("fetch from %d: %d answers, want %d", from, got, times)
		}
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = 7
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = "t"
	rt.Partitions = make([]kmsg.ListOffsetsRequestTopicPartition, times)
	req.Topics = append(req.Topics, rt)
	if got := len(ask[*kmsg.ListOffsetsResponse](w, req).Topics[0].Partitions); got != times {
		t.Errorf("lookup: %d answers, want %d", got, times)
	}
}

// TestTransactionalIDIsRefused: there are no transactions.
func TestTransactionalIDIsRefused(t *testing.T) {
	w := dial(t, serve(t))
	for version := range int16(5) {
		for _, id := range []string{"", "x"} {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.Version, req.TransactionalID = version, &id
			if resp := ask[*kmsg.InitProducerIDResponse](w, req); resp.ErrorCode != invalidRequest {
				t.Errorf("version %d, %q: error %d", version, id, resp.ErrorCode)
			}
		}
	}
}
