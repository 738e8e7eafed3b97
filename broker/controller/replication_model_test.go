package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// A replicationModel is a controller with brokers that replicate: each has logs
// and an image of its own, which may be old. They follow the rules that brokers
// follow (what a leader counts, when a follower is in sync), with everything
// that takes time taking as long as it likes: nodes learn of changes one by one,
// requests wait, processes end and come back, disks are damaged and replaced.
//
// What must hold is that nothing is ever lost which was acknowledged, as long as
// no unclean election is asked for: all that may be elected have it.
type replicationModel struct {
	c       *Controller
	rng     *rand.Rand
	history []metadata.Image // the last is the controller's
	nodes   [modelNodes]modelNode
	acked   map[partitionID][]entry
	asked   []func(t *rapid.T) // requests on their way to the controller
	entries int
}

const modelNodes = 5

type entry struct{ id, epoch int32 }

// modelNode is one broker.
type modelNode struct {
	up, joined bool
	process    byte
	directory  byte
	at         int // in history
	logs       map[partitionID][]entry
	damaged    map[partitionID]bool // and not reported yet
	wiped      bool                 // and not reported yet
	leads      map[partitionID]*modelLeader
}

// modelLeader is what a leader knows of one partition.
type modelLeader struct {
	epoch    int32
	start    int // log end when it was elected
	ends     map[metadata.NodeID]int
	epochs   map[metadata.NodeID]metadata.BrokerEpoch // of the processes that said so
	hw       int
	proposal []metadata.NodeID // beside the ISR; while it is unknown what became of it
	proposed metadata.PartitionEpoch
}

func (w *replicationModel) image() metadata.Image { return w.history[len(w.history)-1] }

func (w *replicationModel) apply(t *rapid.T, batches [][]metadata.Record) {
	for _, records := range batches {
		before := w.image()
		next, _, err := metadata.Apply(before, before.Offset()+1, records)
		if err != nil {
			t.Fatal(err)
		}
		w.history = append(w.history, next)
		for _, r := range records {
			if p, ok := r.(*metadata.Partition); ok {
				if old, ok := before.Partition(p.Topic, p.Index); ok {
					w.checkEpochs(t, old, p)
				}
			}
		}
	}
}

func (w *replicationModel) decide(t *rapid.T, req kmsg.Request) kmsg.Response {
	req.SetVersion(req.MaxVersion())
	r, ok := w.c.Decide(w.image(), req, w.rng)
	if !ok {
		t.Fatalf("%T", req)
	}
	w.apply(t, r.Batches())
	return r.Response
}

// view is what a node knows.
func (w *replicationModel) view(n metadata.NodeID) metadata.Image { return w.history[w.nodes[n].at] }

func (w *replicationModel) node(t *rapid.T) metadata.NodeID {
	return metadata.NodeID(rapid.IntRange(0, modelNodes-1).Draw(t, "node"))
}

func (w *replicationModel) partition(t *rapid.T) *metadata.Partition {
	var all []*metadata.Partition
	for topic := range w.image().Topics() {
		for p := range w.image().Partitions(topic.ID) {
			all = append(all, p)
		}
	}
	return rapid.SampledFrom(all).Draw(t, "partition")
}

// led draws a partition and a node that thinks it leads it.
func (w *replicationModel) led(t *rapid.T) (metadata.NodeID, *metadata.Partition, *modelLeader) {
	p := w.partition(t)
	id := partitionID{p.Topic, p.Index}
	var who []metadata.NodeID
	for n := range metadata.NodeID(modelNodes) {
		if w.nodes[n].up && w.nodes[n].leads[id] != nil {
			who = append(who, n)
		}
	}
	if len(who) == 0 {
		t.Skip()
	}
	n := rapid.SampledFrom(who).Draw(t, "leader")
	known, _ := w.view(n).Partition(p.Topic, p.Index)
	return n, known, w.nodes[n].leads[id]
}

func (w *replicationModel) Produce(t *rapid.T) {
	n, p, l := w.led(t)
	w.produce(t, n, p, l)
}

func (w *replicationModel) produce(t *rapid.T, n metadata.NodeID, p *metadata.Partition, l *modelLeader) {
	id := partitionID{p.Topic, p.Index}
	w.entries++
	w.nodes[n].logs[id] = append(slices.Clone(w.nodes[n].logs[id]), entry{int32(w.entries), l.epoch})
	w.advance(t, n, p, l)
}

// advance moves a high watermark.
func (w *replicationModel) advance(t *rapid.T, n metadata.NodeID, p *metadata.Partition, l *modelLeader) {
	id := partitionID{p.Topic, p.Index}
	log := w.nodes[n].logs[id]
	l.ends[n] = len(log)
	if len(p.ISR) < w.view(n).EffectiveMinISR(p) {
		return
	}
	hw := len(log)
	for _, m := range slices.Concat(p.ISR, l.proposal) {
		hw = min(hw, l.ends[m])
	}
	l.hw = max(l.hw, hw)
	if acked := w.acked[id]; l.hw > len(acked) {
		if !slices.Equal(log[:len(acked)], acked) {
			t.Fatalf("node %d acknowledges %v of %v, which lacks some of %v", n, log[:l.hw], p, acked)
		}
		w.acked[id] = slices.Clone(log[:l.hw])
	}
}

func (w *replicationModel) Fetch(t *rapid.T) {
	leader, p, l := w.led(t)
	w.fetch(t, rapid.SampledFrom(p.Replicas).Draw(t, "follower"), leader, p, l)
}

// Flow is what is usual: something is produced, and all followers fetch it.
func (w *replicationModel) Flow(t *rapid.T) {
	n, p, l := w.led(t)
	w.produce(t, n, p, l)
	for _, f := range p.Replicas {
		w.fetch(t, f, n, p, l)
	}
}

func (w *replicationModel) fetch(t *rapid.T, n, leader metadata.NodeID, p *metadata.Partition, l *modelLeader) {
	f := &w.nodes[n]
	known, ok := w.view(n).Partition(p.Topic, p.Index)
	if n == leader || !f.up || !f.joined || !ok || known.Leader != leader || int32(known.LeaderEpoch) != l.epoch {
		return
	}
	id := partitionID{p.Topic, p.Index}
	from, to := w.nodes[leader].logs[id], f.logs[id]
	same := 0
	for same < len(from) && same < len(to) && from[same] == to[same] {
		same++
	}
	end := rapid.IntRange(same, len(from)).Draw(t, "end")
	f.logs[id] = slices.Clone(from[:end])
	b, _ := w.view(n).Broker(n)
	l.ends[n], l.epochs[n] = end, b.Epoch
	w.advance(t, leader, p, l)
}

// AskISR has a leader ask for an ISR. Its request may wait.
func (w *replicationModel) AskISR(t *rapid.T) {
	n, p, l := w.led(t)
	if l.proposal != nil {
		t.Skip()
	}
	m := rapid.SampledFrom(p.Replicas).Draw(t, "replica")
	isr := without(p.ISR, []metadata.NodeID{m})
	joins := len(isr) == len(p.ISR)
	if _, known := l.ends[m]; m == n || joins && (!known || l.ends[m] < l.start || l.ends[m] < l.hw) {
		t.Skip()
	}
	if joins {
		isr = append(isr, m)
	}
	l.proposal, l.proposed = isr, p.Epoch
	req := kmsg.NewPtrAlterPartitionRequest()
	self, _ := w.view(n).Broker(n)
	req.BrokerID, req.BrokerEpoch = int32(n), int64(self.Epoch)
	asked := kmsg.AlterPartitionRequestTopicPartition{Partition: p.Index, LeaderEpoch: l.epoch, PartitionEpoch: int32(p.Epoch)}
	for _, m := range isr {
		e := kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{BrokerID: int32(m), BrokerEpoch: int64(l.epochs[m])}
		if b, ok := w.view(n).Broker(m); ok && (m == n || slices.Contains(p.ISR, m)) {
			e.BrokerEpoch = int64(b.Epoch)
		}
		asked.NewEpochISR = append(asked.NewEpochISR, e)
	}
	req.Topics = append(req.Topics, kmsg.AlterPartitionRequestTopic{TopicID: p.Topic, Partitions: []kmsg.AlterPartitionRequestTopicPartition{asked}})
	w.asked = append(w.asked, func(t *rapid.T) {
		resp := w.decide(t, req).(*kmsg.AlterPartitionResponse)
		if resp.ErrorCode != 0 || resp.Topics[0].Partitions[0].ErrorCode == wire.Code(metadata.ErrIneligibleReplica) {
			l.proposal = nil // certainly not done
		}
	})
}

func (w *replicationModel) Arrive(t *rapid.T) {
	if len(w.asked) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(w.asked)-1).Draw(t, "request")
	ask := w.asked[i]
	w.asked = slices.Delete(w.asked, i, i+1)
	ask(t)
}

// Learn has a node learn of some changes.
func (w *replicationModel) Learn(t *rapid.T) {
	n := w.node(t)
	if !w.nodes[n].up {
		t.Skip()
	}
	for range rapid.IntRange(1, 3).Draw(t, "changes") {
		w.learn(n)
	}
}

func (w *replicationModel) learn(n metadata.NodeID) {
	node := &w.nodes[n]
	node.at = min(node.at+1, len(w.history)-1)
	view := w.view(n)
	if b, ok := view.Broker(n); !ok || b.Incarnation[0] != node.process {
		return
	}
	node.joined = true
	for topic := range view.Topics() {
		for p := range view.Partitions(topic.ID) {
			id := partitionID{p.Topic, p.Index}
			l := node.leads[id]
			switch {
			case p.Leader != n:
				delete(node.leads, id)
			case l == nil || l.epoch != int32(p.LeaderEpoch):
				end := len(node.logs[id])
				node.leads[id] = &modelLeader{epoch: int32(p.LeaderEpoch), start: end,
					ends: map[metadata.NodeID]int{n: end}, epochs: map[metadata.NodeID]metadata.BrokerEpoch{}}
			case p.Epoch > l.proposed:
				l.proposal = nil
			}
		}
	}
}

// Stop ends a process. Its disk may not survive.
func (w *replicationModel) Stop(t *rapid.T) { w.stop(t, w.node(t)) }

// Bounce is a process that ends and comes back at once.
func (w *replicationModel) Bounce(t *rapid.T) {
	n := w.node(t)
	w.stop(t, n)
	if rapid.Bool().Draw(t, "noticed") {
		w.apply(t, w.c.Fence(w.image(), []metadata.NodeID{n}).Batches())
	}
	w.nodes[n].up = true
	w.nodes[n].process++
	w.register(t, n)
}

func (w *replicationModel) stop(t *rapid.T, n metadata.NodeID) {
	node := &w.nodes[n]
	node.up, node.joined = false, false
	node.leads = map[partitionID]*modelLeader{}
	switch rapid.IntRange(0, 5).Draw(t, "disk") {
	case 0:
		p := w.partition(t)
		id := partitionID{p.Topic, p.Index}
		if len(node.logs[id]) > 0 {
			node.damaged[id] = true
			node.logs[id] = node.logs[id][:rapid.IntRange(0, len(node.logs[id])-1).Draw(t, "left")]
		}
	case 1:
		node.wiped, node.directory = true, node.directory+1
		node.logs = map[partitionID][]entry{}
	}
}

func (w *replicationModel) Start(t *rapid.T) {
	n := w.node(t)
	if !w.nodes[n].up {
		w.nodes[n].up = true
		w.nodes[n].process++
	}
	w.register(t, n)
}

func (w *replicationModel) register(t *rapid.T, n metadata.NodeID) {
	node := &w.nodes[n]
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.IncarnationID, req.LogDirs = int32(n), [16]byte{node.process}, [][16]byte{{node.directory}}
	req.Listeners = append(req.Listeners, kmsg.BrokerRegistrationRequestListener{Name: "PLAINTEXT", Host: "h", Port: 1})
	var damaged []wire.DamagedLog
	for topic := range w.image().Topics() {
		for p := range w.image().Partitions(topic.ID) {
			if node.damaged[partitionID{p.Topic, p.Index}] {
				damaged = append(damaged, wire.DamagedLog{Topic: p.Topic, Index: p.Index})
			}
		}
	}
	wire.SetTagBytes(&req.UnknownTags, wire.TagDamaged, wire.EncodeDamaged(damaged))
	if w.decide(t, req).(*kmsg.BrokerRegistrationResponse).ErrorCode != 0 {
		return
	}
	for _, d := range damaged {
		// What the only replica has lost is lost.
		id := partitionID{d.Topic, d.Index}
		if p, _ := w.image().Partition(d.Topic, d.Index); len(origin(p)) == 1 && slices.Equal(slices.Concat(p.ISR, p.ELR), []metadata.NodeID{n}) {
			w.acked[id] = w.acked[id][:min(len(w.acked[id]), len(node.logs[id]))]
		}
	}
	node.wiped, node.damaged = false, map[partitionID]bool{}
}

func (w *replicationModel) Beat(t *rapid.T) {
	n := w.node(t)
	if !w.nodes[n].joined {
		t.Skip()
	}
	w.beat(t, n, rapid.IntRange(0, 5).Draw(t, "stop") == 0)
}

func (w *replicationModel) beat(t *rapid.T, n metadata.NodeID, stop bool) {
	view := w.view(n)
	b, _ := view.Broker(n)
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset, req.WantShutdown = int32(n), int64(b.Epoch), int64(view.Offset()), stop
	w.decide(t, req)
}

// Fence fences brokers that the controller has not heard of: some may live.
func (w *replicationModel) Fence(t *rapid.T) {
	silent := rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(0, modelNodes-1), func(n int) metadata.NodeID { return metadata.NodeID(n) }), 1, 3, rapid.ID).Draw(t, "silent")
	w.apply(t, w.c.Fence(w.image(), silent).Batches())
}

// Crash has the controller end in the middle of what it decided.
func (w *replicationModel) Crash(t *rapid.T) {
	batches := w.c.Fence(w.image(), []metadata.NodeID{w.node(t)}).Batches()
	w.apply(t, batches[:rapid.IntRange(0, len(batches)).Draw(t, "committed")])
	w.apply(t, w.c.Mend(w.image()).Batches())
}

func (w *replicationModel) Rebalance(t *rapid.T) {
	r, _ := w.c.Rebalance(w.image())
	w.apply(t, r.Batches())
}

func (w *replicationModel) Finish(t *rapid.T) {
	w.apply(t, w.c.Finish(w.image(), slices.Collect(w.image().Reassigning())).Batches())
}

func (w *replicationModel) Configure(t *rapid.T) {
	topic, _ := w.image().TopicByID(w.partition(t).Topic)
	r := kmsg.IncrementalAlterConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic.Name}
	r.Configs = append(r.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: "min.insync.replicas",
		Value: kmsg.StringPtr(rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "value"))})
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, r)
	w.decide(t, req)
}

func (w *replicationModel) Reassign(t *rapid.T) {
	p := w.partition(t)
	topic, _ := w.image().TopicByID(p.Topic)
	asked := kmsg.AlterPartitionAssignmentsRequestTopicPartition{Partition: p.Index}
	if rapid.IntRange(0, 3).Draw(t, "cancel") > 0 {
		asked.Replicas = rapid.Permutation([]int32{0, 1, 2, 3, 4}).Draw(t, "replicas")[:rapid.IntRange(1, 4).Draw(t, "replication")]
	}
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Topics = append(req.Topics, kmsg.AlterPartitionAssignmentsRequestTopic{Topic: topic.Name, Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{asked}})
	w.decide(t, req)
}

// Settle has all be as it should for a while: what is up learns, registers, is
// unfenced, fetches and is in sync. So that there is something to lose.
func (w *replicationModel) Settle(t *rapid.T) {
	for range 4 {
		for n := range metadata.NodeID(modelNodes) {
			node := &w.nodes[n]
			if !node.up {
				continue
			}
			for node.at < len(w.history)-1 {
				w.learn(n)
			}
			if b, ok := w.image().Broker(n); !ok || b.Incarnation[0] != node.process {
				w.register(t, n)
			} else if node.joined && b.Fenced {
				w.beat(t, n, false)
			}
		}
	}
}

func (w *replicationModel) checkEpochs(t *rapid.T, old, p *metadata.Partition) {
	grew := p.LeaderEpoch > old.LeaderEpoch
	grows := old.Leader != p.Leader || len(without(old.Replicas, p.Replicas)) > 0
	if p.Leader == w.c.cfg.Node && old.Leader == p.Leader {
		grows = grows || grew // the leader may be another process
	}
	if p.Epoch <= old.Epoch || p.LeaderEpoch < old.LeaderEpoch || grew != grows {
		t.Fatalf("epochs from %v to %v", old, p)
	}
}

func (w *replicationModel) Check(t *rapid.T) {
	m := w.image()
	for topic := range m.Topics() {
		for p := range m.Partitions(topic.ID) {
			id := partitionID{p.Topic, p.Index}
			if p.Leader != metadata.NoNode && !slices.Contains(p.ISR, p.Leader) || len(without(p.ISR, p.Replicas)) > 0 ||
				len(without(p.ELR, p.Replicas)) > 0 || len(without(p.ISR, p.ELR)) != len(p.ISR) {
				t.Fatalf("%v", p)
			}
			if min := m.EffectiveMinISR(p); len(p.ISR) >= min && len(p.ELR) > 0 {
				t.Fatalf("%v has an ELR, with at least %d in sync", p, min)
			}
			for _, n := range p.ISR {
				if b, ok := m.Broker(n); !ok || b.Fenced {
					t.Fatalf("%v: broker %d is fenced", p, n)
				}
			}
			for _, n := range slices.Concat(p.ISR, p.ELR) {
				node := &w.nodes[n]
				if node.wiped || node.damaged[id] {
					continue // the controller cannot know yet
				}
				if log, acked := node.logs[id], w.acked[id]; len(log) < len(acked) || !slices.Equal(log[:len(acked)], acked) {
					t.Fatalf("%v: broker %d has %v, and %v was acknowledged", p, n, log, acked)
				}
			}
		}
	}
}

func TestWhatIsAcknowledgedIsNotLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultConfig()
		cfg.Node, cfg.MaxRecords = rapid.SampledFrom([]metadata.NodeID{0, 99}).Draw(t, "controller"), rapid.SampledFrom([]int{3, 10_000}).Draw(t, "records a batch")
		w := &replicationModel{c: New(cfg), rng: rand.New(rand.NewPCG(1, 1)), history: make([]metadata.Image, 1), acked: map[partitionID][]entry{}}
		for n := range w.nodes {
			w.nodes[n] = modelNode{up: true, process: 1, directory: 1, logs: map[partitionID][]entry{},
				damaged: map[partitionID]bool{}, leads: map[partitionID]*modelLeader{}}
		}
		w.Settle(t)
		for i, replicas := range []int16{3, 2, 4} {
			req := kmsg.NewPtrCreateTopicsRequest()
			topic := kmsg.NewCreateTopicsRequestTopic()
			topic.Topic, topic.NumPartitions, topic.ReplicationFactor = fmt.Sprint("t", i), 1, replicas
			topic.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "min.insync.replicas", Value: kmsg.StringPtr(fmt.Sprint(1 + i))}}
			req.Topics = append(req.Topics, topic)
			if code := w.decide(t, req).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
				t.Fatalf("error %d", code)
			}
		}
		w.Settle(t)
		t.Repeat(rapid.StateMachineActions(w))
	})
}
