package controller

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// adminMachine asks a controller for whatever an operator may ask for, while
// brokers come and go and replicas fall behind and catch up.
type adminMachine struct {
	c    *Controller
	m    metadata.Image
	rng  *rand.Rand
	want map[partitionName][]metadata.NodeID // replicas that were asked for last
	// before are the replicas that a cancel gives back: those there were when
	// nothing was under way.
	before map[partitionName][]metadata.NodeID
	// join has caught up, and fenced was fenced, just now.
	join, fenced metadata.NodeID
}

func TestAdminRequestsKeepTheImageSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &adminMachine{c: New(DefaultConfig()), rng: drawRNG(t), want: map[partitionName][]metadata.NodeID{}, before: map[partitionName][]metadata.NodeID{},
			join: metadata.NoNode, fenced: metadata.NoNode}
		var records []metadata.Record
		for n := range rapid.IntRange(1, 6).Draw(t, "brokers") {
			records = append(records, &metadata.RegisterBroker{
				Node: metadata.NodeID(n), Epoch: metadata.BrokerEpoch(n), Rack: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "rack"),
			})
		}
		s.apply(t, records)
		t.Repeat(map[string]func(*rapid.T){
			"create":      s.create,
			"delete":      s.delete,
			"grow":        s.grow,
			"configure":   s.configure,
			"elect":       s.elect,
			"reassign":    s.reassign,
			"cancel":      s.cancel,
			"unregister":  s.unregister,
			"come and go": s.comeAndGo,
			"stop":        s.stop,
			"catch up":    s.catchUp,
			"fall behind": s.fallBehind,
			"rebalance":   s.rebalance,
			"hand over":   s.handOver,
			"":            s.check,
		})
		s.end(t)
	})
}

func (s *adminMachine) apply(t *rapid.T, records []metadata.Record) {
	before := s.m
	next, _, err := metadata.Apply(s.m, s.m.Offset()+1, records)
	if err != nil {
		t.Fatal(err)
	}
	s.m = next
	for _, r := range records {
		if r, ok := r.(*metadata.Partition); ok {
			if old, ok := before.Partition(r.Topic, r.Index); ok {
				s.checkChange(t, before, old, r)
			}
		}
	}
}

func (s *adminMachine) decide(t *rapid.T, req kmsg.Request) kmsg.Response {
	req.SetVersion(req.MaxVersion())
	r, ok := s.c.Decide(s.m, req, s.rng)
	if !ok {
		t.Fatalf("%T is not decided about", req)
	}
	s.apply(t, r.Records)
	return r.Response
}

func (s *adminMachine) drawBrokers(t *rapid.T) []metadata.NodeID {
	return rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(0, 5), func(n int) metadata.NodeID { return metadata.NodeID(n) }), 1, 4, rapid.ID).Draw(t, "replicas")
}

// drawPartition draws a partition, or skips the action if there is none.
func (s *adminMachine) drawPartition(t *rapid.T) (*metadata.Topic, *metadata.Partition) {
	var topics []*metadata.Topic
	for topic := range s.m.Topics() {
		topics = append(topics, topic)
	}
	if len(topics) == 0 {
		t.SkipNow()
	}
	topic := rapid.SampledFrom(topics).Draw(t, "topic")
	p, _ := s.m.Partition(topic.ID, rapid.Int32Range(0, topic.Partitions-1).Draw(t, "partition"))
	return topic, p
}

func (s *adminMachine) create(t *rapid.T) {
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	topic.NumPartitions, topic.ReplicationFactor = rapid.Int32Range(1, 6).Draw(t, "partitions"), rapid.Int16Range(1, 4).Draw(t, "replicas")
	req.Topics = append(req.Topics, topic)
	created := s.decide(t, req).(*kmsg.CreateTopicsResponse).Topics[0]
	if created.ErrorCode == 0 {
		var placed [][]metadata.NodeID
		for p := range s.m.Partitions(created.TopicID) {
			placed = append(placed, p.Replicas)
			s.created(topic.Topic, p)
		}
		checkPlaced(t, s.m, placed, int(topic.ReplicationFactor))
	}
}

func (s *adminMachine) created(topic string, p *metadata.Partition) {
	s.want[partitionName{topic, p.Index}], s.before[partitionName{topic, p.Index}] = p.Replicas, p.Replicas
}

func (s *adminMachine) delete(t *rapid.T) {
	topic, _ := s.drawPartition(t)
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{TopicID: topic.ID})
	s.decide(t, req)
}

func (s *adminMachine) grow(t *rapid.T) {
	topic, _ := s.drawPartition(t)
	first, _ := s.m.Partition(topic.ID, 0)
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Topics = append(req.Topics, kmsg.CreatePartitionsRequestTopic{Topic: topic.Name, Count: topic.Partitions + rapid.Int32Range(0, 3).Draw(t, "more")})
	replicas := len(goal(first))
	if s.decide(t, req).(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode != 0 {
		return
	}
	for p := range s.m.Partitions(topic.ID) {
		if p.Index < topic.Partitions {
			continue
		}
		s.created(topic.Name, p)
		if len(p.Replicas) != replicas {
			t.Fatalf("partition %d has %d replicas, the first %d", p.Index, len(p.Replicas), replicas)
		}
	}
}

func (s *adminMachine) configure(t *rapid.T) {
	r := kmsg.IncrementalAlterConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeBroker}
	if rapid.Bool().Draw(t, "topic") {
		topic, _ := s.drawPartition(t)
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic.Name
	}
	c := kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: "min.insync.replicas", Value: kmsg.StringPtr(rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "value"))}
	if rapid.IntRange(0, 3).Draw(t, "unclean") == 0 {
		c.Name, c.Value = "unclean.leader.election.enable", kmsg.StringPtr(rapid.SampledFrom([]string{"true", "false"}).Draw(t, "value"))
	}
	if rapid.IntRange(0, 3).Draw(t, "unset") == 0 {
		c.Op = kmsg.IncrementalAlterConfigOpDelete
	}
	r.Configs = append(r.Configs, c)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, r)
	if code := s.decide(t, req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode; code != 0 {
		t.Fatalf("error %d", code)
	}
}

func (s *adminMachine) elect(t *rapid.T) {
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType = rapid.Int8Range(preferredElection, uncleanElection).Draw(t, "type")
	topic, p := s.drawPartition(t)
	all := rapid.Bool().Draw(t, "all")
	if !all {
		req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: topic.Name, Partitions: []int32{p.Index}}}
	}
	resp := s.decide(t, req).(*kmsg.ElectLeadersResponse)
	if all {
		return
	}
	code := resp.Topics[0].Partitions[0].ErrorCode
	after, _ := s.m.Partition(topic.ID, p.Index)
	switch {
	case code == 0 && after.Leader == p.Leader, code != 0 && after != p:
		t.Fatalf("error %d, and %v of %v", code, after, p)
	case code == 0 && req.ElectionType == preferredElection && after.Leader != p.Replicas[0]:
		t.Fatalf("%v of %v", after, p)
	case (code == 84) != (req.ElectionType == preferredElection && p.Leader == p.Replicas[0] || req.ElectionType == uncleanElection && p.Leader >= 0):
		t.Fatalf("error %d of %v", code, p)
	}
}

func (s *adminMachine) alter(t *rapid.T, topic *metadata.Topic, p *metadata.Partition, replicas []int32) int16 {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Topics = append(req.Topics, kmsg.AlterPartitionAssignmentsRequestTopic{Topic: topic.Name,
		Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: p.Index, Replicas: replicas}}})
	return s.decide(t, req).(*kmsg.AlterPartitionAssignmentsResponse).Topics[0].Partitions[0].ErrorCode
}

func (s *adminMachine) reassign(t *rapid.T) {
	topic, p := s.drawPartition(t)
	target := s.drawBrokers(t)
	unknown := slices.ContainsFunc(target, func(n metadata.NodeID) bool { _, ok := s.m.Broker(n); return !ok })
	switch code := s.alter(t, topic, p, nodes(target)); {
	case code == 0 && !unknown:
		s.want[partitionName{topic.Name, p.Index}] = target
	case code != 39:
		t.Fatalf("error %d", code)
	case !unknown && p.Leader != metadata.NoNode:
		t.Fatalf("%v cannot become %v", p, target)
	}
}

func (s *adminMachine) cancel(t *rapid.T) {
	topic, p := s.drawPartition(t)
	name := partitionName{topic.Name, p.Index}
	before := ordered(p.Replicas, s.before[name])
	switch code := s.alter(t, topic, p, nil); {
	case code == 0 && p.Reassigning():
		s.want[name] = before
	case code != 85 && code != 39 || (code == 85) == p.Reassigning():
		t.Fatalf("error %d of %v", code, p)
	}
}

func (s *adminMachine) unregister(t *rapid.T) {
	n := metadata.NodeID(rapid.IntRange(0, 5).Draw(t, "broker"))
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = int32(n)
	code := s.decide(t, req).(*kmsg.UnregisterBrokerResponse).ErrorCode
	if _, ok := s.m.Broker(n); code == 0 && ok {
		t.Fatal("it is still there")
	}
	if code != 0 {
		return
	}
	for p := range s.m.PartitionsOf(n) {
		if slices.Contains(p.ISR, n) || slices.Contains(p.ELR, n) {
			t.Fatalf("%v counts on broker %d, which has left", p, n)
		}
	}
}

// comeAndGo fences a broker, unfences it, or has it register.
func (s *adminMachine) comeAndGo(t *rapid.T) {
	n := metadata.NodeID(rapid.IntRange(0, 5).Draw(t, "broker"))
	b, ok := s.m.Broker(n)
	switch {
	case !ok || rapid.IntRange(0, 3).Draw(t, "another process") == 0:
		req := kmsg.NewPtrBrokerRegistrationRequest()
		req.BrokerID, req.IncarnationID = int32(n), [16]byte{byte(s.m.NextBrokerEpoch()) + 1}
		req.Listeners = append(req.Listeners, kmsg.BrokerRegistrationRequestListener{Name: "PLAINTEXT", Host: "h", Port: 1})
		if code := s.decide(t, req).(*kmsg.BrokerRegistrationResponse).ErrorCode; code != 0 && (code != 101 || b.Fenced) {
			t.Fatalf("error %d", code)
		}
	case b.Fenced:
		s.heartbeat(t, b, false)
	default:
		s.fenced = n
		s.apply(t, s.c.Fence(s.m, []metadata.NodeID{n}).Records)
		s.fenced = metadata.NoNode
	}
}

func (s *adminMachine) heartbeat(t *rapid.T, b *metadata.Broker, stop bool) {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset, req.WantShutdown = int32(b.Node), int64(b.Epoch), int64(s.m.Offset()), stop
	if stop {
		s.fenced = b.Node
	}
	if code := s.decide(t, req).(*kmsg.BrokerHeartbeatResponse).ErrorCode; code != 0 {
		t.Fatalf("error %d", code)
	}
	s.fenced = metadata.NoNode
}

// stop says that a broker wants to shut down.
func (s *adminMachine) stop(t *rapid.T) {
	b, ok := s.m.Broker(metadata.NodeID(rapid.IntRange(0, 5).Draw(t, "broker")))
	if !ok {
		t.SkipNow()
	}
	s.heartbeat(t, b, true)
}

// catchUp has a replica join the ISR.
func (s *adminMachine) catchUp(t *rapid.T) {
	_, p := s.drawPartition(t)
	n := rapid.SampledFrom(p.Replicas).Draw(t, "replica")
	if p.Leader == metadata.NoNode || !active(s.m, n) && !slices.Contains(p.ISR, n) {
		t.SkipNow()
	}
	s.join = n
	s.alterISR(t, p, append(without(p.ISR, []metadata.NodeID{n}), n))
	s.join = metadata.NoNode
}

// fallBehind has a replica leave the ISR.
func (s *adminMachine) fallBehind(t *rapid.T) {
	_, p := s.drawPartition(t)
	n := rapid.SampledFrom(p.Replicas).Draw(t, "replica")
	if p.Leader == metadata.NoNode || n == p.Leader {
		t.SkipNow()
	}
	s.alterISR(t, p, without(p.ISR, []metadata.NodeID{n}))
}

// alterISR has a partition's leader ask for another ISR.
func (s *adminMachine) alterISR(t *rapid.T, p *metadata.Partition, isr []metadata.NodeID) {
	leader, _ := s.m.Broker(p.Leader)
	asked := kmsg.AlterPartitionRequestTopicPartition{Partition: p.Index, LeaderEpoch: int32(p.LeaderEpoch), PartitionEpoch: int32(p.Epoch)}
	for _, n := range isr {
		b, _ := s.m.Broker(n)
		asked.NewEpochISR = append(asked.NewEpochISR, kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{BrokerID: int32(n), BrokerEpoch: int64(b.Epoch)})
	}
	req := kmsg.NewPtrAlterPartitionRequest()
	req.BrokerID, req.BrokerEpoch = int32(leader.Node), int64(leader.Epoch)
	req.Topics = append(req.Topics, kmsg.AlterPartitionRequestTopic{TopicID: p.Topic, Partitions: []kmsg.AlterPartitionRequestTopicPartition{asked}})
	resp := s.decide(t, req).(*kmsg.AlterPartitionResponse)
	if code := resp.Topics[0].Partitions[0].ErrorCode; resp.ErrorCode != 0 || code != 0 && code != 108 {
		t.Fatalf("errors %d and %d of %v", resp.ErrorCode, code, p)
	}
}

// handOver ends a reassignment that waits only for what its former leader may
// still be doing.
func (s *adminMachine) handOver(t *rapid.T) {
	_, p := s.drawPartition(t)
	if _, ok := complete(*p); !ok || slices.Contains(p.Removing, p.Leader) {
		t.SkipNow()
	}
	s.apply(t, s.c.Finish(s.m, []*metadata.Partition{p}).Records)
	if p, _ := s.m.Partition(p.Topic, p.Index); p.Reassigning() {
		t.Fatalf("%v is not done", p)
	}
}

// rebalance is what the controller does by itself.
func (s *adminMachine) rebalance(t *rapid.T) {
	s.apply(t, s.c.Mend(s.m).Records)
	res, _ := s.c.Rebalance(s.m)
	s.apply(t, res.Records)
	for topic := range s.m.Topics() {
		for p := range s.m.Partitions(topic.ID) {
			if first := p.Replicas[0]; p.Leader != metadata.NoNode && p.Leader != first && slices.Contains(p.ISR, first) && active(s.m, first) {
				t.Fatalf("%v is not led by its first replica", p)
			}
		}
	}
}

// checkChange holds one change of a partition against what is always true of
// them.
func (s *adminMachine) checkChange(t *rapid.T, before metadata.Image, old, p *metadata.Partition) {
	cancelled := len(p.Replicas) == len(origin(old)) && len(without(p.Replicas, origin(old))) == 0
	if old.Reassigning() && !p.Reassigning() && !cancelled && len(without(p.Replicas, p.ISR)) > 0 {
		t.Fatalf("the reassignment of %v is done before all are in sync: %v", old, p)
	}
	l, ok := before.Broker(old.Leader)
	if ok && !l.Fenced && s.fenced != old.Leader && !slices.Contains(p.ISR, old.Leader) {
		t.Fatalf("the leader of %v may be serving reads, and is not in sync: %v", old, p)
	}
	if p.Leader != old.Leader && p.LeaderEpoch == old.LeaderEpoch || len(without(old.Replicas, p.Replicas)) > 0 && p.LeaderEpoch == old.LeaderEpoch {
		t.Fatalf("the leader epoch did not grow from %v to %v", old, p)
	}
	everything := append(slices.Concat(old.ISR, old.ELR), s.join)
	if p.Leader != metadata.NoNode && !p.Recovering && !slices.Contains(everything, p.Leader) {
		t.Fatalf("%v may lack something: %v", old, p)
	}
}

// check holds the image against what is always true.
func (s *adminMachine) check(t *rapid.T) {
	for topic := range s.m.Topics() {
		for p := range s.m.Partitions(topic.ID) {
			name := partitionName{topic.Name, p.Index}
			if want := s.want[name]; !slices.Equal(goal(p), want) {
				t.Fatalf("%v is to have %v", p, want)
			}
			if !p.Reassigning() {
				s.before[name] = p.Replicas
			}
			if before := s.before[name]; len(origin(p)) != len(before) || len(without(before, origin(p))) > 0 {
				t.Fatalf("%v had %v", p, before)
			}
			if len(p.ISR) >= s.m.EffectiveMinISR(p) && len(p.ELR) > 0 {
				t.Fatalf("%v has eligible leaders beside enough in-sync replicas", p)
			}
			for _, n := range p.ISR {
				if b, ok := s.m.Broker(n); !ok || b.Fenced {
					t.Fatalf("%v: broker %d is fenced or gone", p, n)
				}
			}
			may := p.ISR
			if len(may) == 0 {
				may = p.ELR
			}
			if p.Leader == metadata.NoNode && slices.ContainsFunc(may, func(n metadata.NodeID) bool { return active(s.m, n) }) {
				t.Fatalf("%v has no leader, and could have", p)
			}
		}
	}
	again, _, err := metadata.Apply(metadata.Image{}, s.m.Offset(), s.m.Records())
	if err != nil || again.Hash() != s.m.Hash() {
		t.Fatalf("the image's records make another: %v", err)
	}
}

// end has everybody live and catch up, and time pass: then every partition has the
// replicas that were asked for last, or, if that was cancelled, those from before.
func (s *adminMachine) end(t *rapid.T) {
	for n := range metadata.NodeID(6) {
		if b, ok := s.m.Broker(n); ok && b.Fenced {
			s.heartbeat(t, b, false)
		}
	}
	for range 3 {
		for topic := range s.m.Topics() {
			for p := range s.m.Partitions(topic.ID) {
				for _, n := range p.Replicas {
					if p, _ := s.m.Partition(p.Topic, p.Index); p.Leader != metadata.NoNode && active(s.m, n) && slices.Contains(p.Replicas, n) {
						s.join = n
						s.alterISR(t, p, append(without(p.ISR, []metadata.NodeID{n}), n))
					}
				}
			}
		}
		s.join = metadata.NoNode
		s.apply(t, s.c.Finish(s.m, slices.Collect(s.m.Reassigning())).Records)
	}
	s.check(t)
	for p := range s.m.Reassigning() {
		if p.Leader != metadata.NoNode && !slices.ContainsFunc(p.Replicas, s.away) {
			t.Fatalf("%v is not done", p)
		}
	}
}

func (s *adminMachine) away(n metadata.NodeID) bool { return !active(s.m, n) }
