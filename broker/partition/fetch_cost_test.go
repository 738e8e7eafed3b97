package partition

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/fetcher"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/codec"
	"github.com/pawlbroker/pawl/storage/record"
)

// many is how many partitions node 1 leads and node 2 follows.
const many = 10_000

// work is what fetches have cost so far: partitions that were looked at by the
// leader, named by the follower, and named in answers to it.
type work struct{ looked, named, answered, fetches int64 }

func (c *cluster) work() work {
	s := c.nodes[2].fetcher.Stats
	return work{c.nodes[1].table.Stats.FetchLooks, s.Named + s.Forgotten, s.Answered, s.Fetches}
}

func (w work) since(v work) work {
	return work{w.looked - v.looked, w.named - v.named, w.answered - v.answered, w.fetches - v.fetches}
}

// settle lets everything happen that can without time passing.
func (c *cluster) settle() {
	for busy := true; busy; {
		busy = false
		for _, id := range []metadata.NodeID{1, 2} {
			n := c.nodes[id]
			busy = busy || len(n.queue)+len(n.progress) > 0
			c.run(n, len(n.queue))
			for _, r := range Reports(n.id, n.epoch, n.progress) {
				var out Out
				c.nodes[r.To].table.Progress(n.id, r.Req, c.at, &out)
				c.act(c.nodes[r.To], &out)
			}
			n.progress = nil
			if n.fetcher.NextWake() <= c.at.Now {
				busy = true
				var fo fetcher.Out
				n.fetcher.Wake(c.at.Now, &fo)
				c.fetched(n, &fo)
			}
		}
	}
	c.sb.Reset()
}

// pass makes time pass for the leader and then for the follower.
func (c *cluster) pass(d time.Duration) {
	c.at.Now = c.at.Now.Add(d)
	for _, id := range []metadata.NodeID{1, 2} {
		var out Out
		c.nodes[id].table.Wake(c.at, &out)
		c.act(c.nodes[id], &out)
	}
	c.settle()
}

func (c *cluster) produceTo(index int32) {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, 1, 1000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = clusterTopic.Name
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition = index
	b := record.NewBuilder()
	b.Append(1, nil, make([]byte, 10))
	batch := b.Build(record.Options{})
	facts, err := codec.Check(batch, 1<<20)
	if err != nil {
		c.t.Fatal(err)
	}
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	var out Out
	c.nodes[1].table.Produce(c.caller(), &wire.Request{Body: req, Peer: wire.NoPeer, Produce: []wire.ProduceEntry{{Batch: batch, Facts: facts}}}, c.at, &out)
	c.act(c.nodes[1], &out)
}

// TestFetchesCostWhatChanged says that a follower's and a consumer's fetches of
// ten thousand partitions cost as much as there is news, and nothing if there is
// none. It counts work, not time.
func TestFetchesCostWhatChanged(t *testing.T) {
	c := newCluster(t)
	for i := range int32(many) {
		p := &metadata.Partition{
			Topic: clusterTopic.ID, Index: i, Leader: 1, LeaderEpoch: 0, Epoch: 0,
			Replicas: []metadata.NodeID{1, 2}, ISR: []metadata.NodeID{1, 2},
		}
		for _, id := range []metadata.NodeID{1, 2} {
			var out Out
			c.nodes[id].table.Assign(Assignment{Topic: clusterTopic, Partition: p, MinISR: 1}, nil, c.at, &out)
			c.act(c.nodes[id], &out)
		}
	}
	c.settle()
	begun := c.work()
	if begun.named != many || begun.answered != many {
		t.Fatalf("the first fetch: %+v, want every partition once", begun)
	}
	c.consume(t, 0, many)

	before := c.work()
	for range 20 {
		c.pass(600 * time.Millisecond)
	}
	if w := c.work().since(before); w.fetches < 20 || w.looked != 0 || w.named != 0 || w.answered != 0 {
		t.Errorf("fetches of nothing new cost %+v", w)
	}

	const rounds, changed = 10, 3
	before = c.work()
	for range rounds {
		for i := range int32(changed) {
			c.produceTo(i * 3000)
		}
		c.settle()
		c.pass(600 * time.Millisecond)
	}
	w := c.work().since(before)
	// Each record is appended, sent, reported, committed, and told to be so.
	if most := int64(rounds * changed * 5); w.looked > most || w.named > most || w.answered > most || w.answered < rounds*changed {
		t.Errorf("%d records cost %+v, want at most %d of each", rounds*changed, w, most)
	}
	for i := range int32(changed) {
		p := c.nodes[2].table.ids[clusterTopic.ID].partitions[i*3000]
		if p.replica.OnDisk() != rounds || p.replica.HighWatermark() != rounds {
			t.Errorf("partition %d: %d on the follower's disk, high watermark %d, want %d", i*3000, p.replica.OnDisk(), p.replica.HighWatermark(), rounds)
		}
	}
}

// consume has a consumer's session of partitions that a fetch waits on for ever.
func (c *cluster) consume(t *testing.T, from, to int32) {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxBytes, req.SessionEpoch = 17, 1<<20, 0
	rt := kmsg.NewFetchRequestTopic()
	rt.TopicID = clusterTopic.ID
	for i := from; i < to; i++ {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.PartitionMaxBytes, p.CurrentLeaderEpoch = i, 1<<20, -1
		rt.Partitions = append(rt.Partitions, p)
	}
	req.Topics = append(req.Topics, rt)
	var out Out
	c.nodes[1].table.Fetch(c.caller(), &wire.Request{Body: req, Peer: wire.NoPeer}, c.at, &out)
	if len(out.Replies) != 1 {
		t.Fatal("the consumer's first fetch is not answered")
	}
	next := kmsg.NewPtrFetchRequest()
	next.Version, next.MaxBytes, next.MinBytes, next.MaxWaitMillis = 17, 1<<20, 1<<19, 300_000
	next.SessionID, next.SessionEpoch = out.Replies[0].Response.Body.(*wire.FetchResponse).SessionID, 1
	out = Out{}
	c.nodes[1].table.Fetch(c.caller(), &wire.Request{Body: next, Peer: wire.NoPeer}, c.at, &out)
	if len(out.Replies) != 0 {
		t.Fatal("the consumer's fetch does not wait")
	}
}
