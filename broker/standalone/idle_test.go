package standalone_test

import (
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestIdlePartitionIsSmall: a broker with many partitions that nobody uses any
// more keeps little of each, whatever was written to them.
func TestIdlePartitionIsSmall(t *testing.T) {
	const (
		partitions = 2000 // enough for a buffer that some room keeps not to count
		limit      = 1400 // bytes of live heap; 1323 when this was written
	)
	w := dial(t, serve(t))
	create := func(name string, partitions int32) {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Version = 7
		topic := wanted(name)
		topic.NumPartitions = partitions
		req.Topics = append(req.Topics, topic)
		if code := ask[*kmsg.CreateTopicsResponse](w, req).Topics[0].ErrorCode; code != 0 {
			t.Fatalf("create: error %d", code)
		}
	}
	create("warm", 1)
	w.write("warm", "v")
	before := live()
	create("idle", partitions)
	created := live()
	for i := range int32(partitions) {
		req := produceOf("idle", plain("v"))
		req.Topics[0].Partitions[0].Partition = i
		if code := w.produce(req).ErrorCode; code != 0 {
			t.Fatalf("produce: error %d", code)
		}
	}
	written := live()
	t.Logf("%d bytes for each partition, %d once it was written", (created-before)/partitions, (written-before)/partitions)
	if got := (written - before) / partitions; got > limit {
		t.Errorf("%d bytes for each partition, want at most %d", got, limit)
	}
}

// live is how many bytes of the heap are in use.
func live() int64 {
	runtime.GC()
	runtime.GC() // what the first one found finalizers for
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
