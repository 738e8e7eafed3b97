package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// tellLifecycle is the part of a story that is about brokers which come, live,
// fall silent and leave.
func (s *adminStory) tellLifecycle(lines []string) (records []metadata.Record, out string, ok bool) {
	each := func(f func(words []string) []metadata.Record) {
		for _, l := range lines {
			r := f(strings.Fields(l))
			next, _, err := metadata.Apply(s.m, s.m.Offset()+1, r)
			if err != nil {
				s.t.Fatal(err)
			}
			s.m = next
			records = append(records, r...)
		}
	}
	switch s.d.Cmd {
	case "start": // one broker a line: node process=1 [previous=3] [directory=1] [cluster=x] [port=1] [rack=r] [damaged=topic/0]...
		each(s.start)
	case "heartbeat": // one broker a line: node [epoch=1] [offset=1] [fence] [stop] [damaged=topic/0]...; caught up if nothing is said
		each(s.heartbeat)
	case "fence": // all brokers that are silent, on one line
		records = s.result(s.c.Fence(s.m, nodeList(strings.ReplaceAll(lines[0], " ", "/"))))
	case "isr": // a leader asks for an ISR: topic index from=1 isr=1/2 [epochs=0/1] [leader-epoch=0] [epoch=0] [broker-epoch=0] [recovering]
		each(s.askISR)
	case "rebalance":
		res, more := s.c.Rebalance(s.m)
		records = s.result(res)
		fmt.Fprintln(&s.b, "more:", more)
	case "mend":
		records = s.result(s.c.Mend(s.m))
	case "adopt":
		records = s.result(s.c.Adopt(s.m))
	case "finish": // all reassignments that wait
		var waiting []*metadata.Partition
		for p := range s.m.Reassigning() {
			waiting = append(waiting, p)
		}
		records = s.result(s.c.Finish(s.m, waiting))
	case "allocate-for": // one broker a line: node [epoch=1]
		each(s.allocateFor)
	case "offset":
		fmt.Fprintln(&s.b, s.m.Offset())
	default:
		return nil, "", false
	}
	return records, s.b.String(), true
}

// result says in how many batches records are to be proposed, if not in one.
func (s *adminStory) result(r Result) []metadata.Record {
	if n := len(r.Batches()); n > 1 {
		fmt.Fprintln(&s.b, n, "batches")
	}
	return r.Records
}

// options are words of the form name=value, and single words with themselves.
func options(words []string) map[string]string {
	o := map[string]string{}
	for _, w := range words {
		name, value, has := strings.Cut(w, "=")
		if !has {
			value = name
		}
		o[name] = value
	}
	return o
}

func (s *adminStory) start(words []string) []metadata.Record {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	o := options(words)
	req.BrokerID = number32[int32](words[0])
	req.IncarnationID[0] = byte(number32[int32](o["process"]))
	req.ClusterID = s.c.cfg.ClusterID
	if c, ok := o["cluster"]; ok {
		req.ClusterID = c
	}
	if p, ok := o["previous"]; ok {
		req.PreviousBrokerEpoch = int64(number32[int32](p))
	}
	if d, ok := o["directory"]; ok {
		req.LogDirs = [][16]byte{{byte(number32[int32](d))}}
	}
	if r, ok := o["rack"]; ok {
		req.Rack = &r
	}
	if o["port"] != "none" {
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port = "PLAINTEXT", "h"+words[0], 9092
		if p, ok := o["port"]; ok {
			l.Port = uint16(number32[int32](p))
		}
		req.Listeners = append(req.Listeners, l)
	}
	peer := kmsg.NewBrokerRegistrationRequestListener()
	peer.Name, peer.Host, peer.Port = "PEER", "p"+words[0], 9192
	req.Listeners = append(req.Listeners, peer)
	s.tagDamaged(words, &req.UnknownTags)
	r := s.decide(req)
	resp := r.Response.(*kmsg.BrokerRegistrationResponse)
	s.say(resp.ErrorCode, nil, "broker %s epoch=%d", words[0], resp.BrokerEpoch)
	return s.result(r)
}

// tagDamaged names the damaged logs: damaged=topic/0 for each, or unreadable.
func (s *adminStory) tagDamaged(words []string, tags *kmsg.Tags) {
	var damaged []wire.DamagedLog
	for _, w := range words {
		if name, ok := strings.CutPrefix(w, "damaged="); ok {
			topic, index, _ := strings.Cut(name, "/")
			t, ok := s.m.Topic(topic)
			if !ok {
				t = &metadata.Topic{}
			}
			damaged = append(damaged, wire.DamagedLog{Topic: t.ID, Index: number32[int32](index)})
		}
	}
	if len(damaged) > 0 {
		wire.SetTagBytes(tags, wire.TagDamaged, wire.EncodeDamaged(damaged))
	}
	if slices.Contains(words, "unreadable") {
		wire.SetTagBytes(tags, wire.TagDamaged, []byte{1})
	}
}

func (s *adminStory) heartbeat(words []string) []metadata.Record {
	o := options(words)
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID = number32[int32](words[0])
	if b, ok := s.m.Broker(metadata.NodeID(req.BrokerID)); ok {
		req.BrokerEpoch = int64(b.Epoch)
	}
	req.CurrentMetadataOffset = int64(s.m.Offset())
	if e, ok := o["epoch"]; ok {
		req.BrokerEpoch = int64(number32[int32](e))
	}
	if e, ok := o["offset"]; ok {
		req.CurrentMetadataOffset = int64(number32[int32](e))
	}
	_, req.WantFence = o["fence"]
	_, req.WantShutdown = o["stop"]
	s.tagDamaged(words, &req.UnknownTags)
	r := s.decide(req)
	resp := r.Response.(*kmsg.BrokerHeartbeatResponse)
	s.say(resp.ErrorCode, nil, "broker %s caught_up=%t fenced=%t stop=%t", words[0], resp.IsCaughtUp, resp.IsFenced, resp.ShouldShutdown)
	return s.result(r)
}

func (s *adminStory) askISR(words []string) []metadata.Record {
	o := options(words[2:])
	req := kmsg.NewPtrAlterPartitionRequest()
	req.BrokerID = number32[int32](o["from"])
	if b, ok := s.m.Broker(metadata.NodeID(req.BrokerID)); ok {
		req.BrokerEpoch = int64(b.Epoch)
	}
	if e, ok := o["broker-epoch"]; ok {
		req.BrokerEpoch = int64(number32[int32](e))
	}
	t := kmsg.NewAlterPartitionRequestTopic()
	t.Topic = words[0]
	p := kmsg.NewAlterPartitionRequestTopicPartition()
	p.Partition = number32[int32](words[1])
	if topic, ok := s.m.Topic(words[0]); ok {
		t.TopicID = topic.ID
		if now, ok := s.m.Partition(topic.ID, p.Partition); ok {
			p.LeaderEpoch, p.PartitionEpoch = int32(now.LeaderEpoch), int32(now.Epoch)
		}
	}
	if e, ok := o["leader-epoch"]; ok {
		p.LeaderEpoch = number32[int32](e)
	}
	if e, ok := o["epoch"]; ok {
		p.PartitionEpoch = number32[int32](e)
	}
	if _, ok := o["recovering"]; ok {
		p.LeaderRecoveryState = recovering
	}
	epochs := nodeList(o["epochs"])
	for i, n := range nodeList(o["isr"]) {
		e := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		e.BrokerID = int32(n)
		if b, ok := s.m.Broker(n); ok {
			e.BrokerEpoch = int64(b.Epoch)
		}
		if i < len(epochs) {
			e.BrokerEpoch = int64(epochs[i])
		}
		p.NewEpochISR = append(p.NewEpochISR, e)
		p.NewISR = append(p.NewISR, int32(n))
	}
	t.Partitions = append(t.Partitions, p)
	if _, ok := o["twice"]; ok {
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	r := s.decide(req)
	resp := r.Response.(*kmsg.AlterPartitionResponse)
	if resp.ErrorCode != 0 {
		s.say(resp.ErrorCode, nil, "all")
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				s.say(p.ErrorCode, nil, "%s %d", words[0], p.Partition)
				continue
			}
			fmt.Fprintf(&s.b, "%s %d leader=%d leader_epoch=%d isr=%v epoch=%d recovering=%d\n",
				words[0], p.Partition, p.LeaderID, p.LeaderEpoch, p.ISR, p.PartitionEpoch, p.LeaderRecoveryState)
		}
	}
	return s.result(r)
}

func (s *adminStory) allocateFor(words []string) []metadata.Record {
	o := options(words)
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID = number32[int32](words[0])
	if b, ok := s.m.Broker(metadata.NodeID(req.BrokerID)); ok {
		req.BrokerEpoch = int64(b.Epoch)
	}
	if e, ok := o["epoch"]; ok {
		req.BrokerEpoch = int64(number32[int32](e))
	}
	r := s.decide(req)
	resp := r.Response.(*kmsg.AllocateProducerIDsResponse)
	ids := ProducerIDsOf(resp)
	s.say(resp.ErrorCode, nil, "broker %s next=%d left=%d", words[0], ids.next, ids.Left())
	return r.Records
}
