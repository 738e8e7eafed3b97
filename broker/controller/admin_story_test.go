package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// adminStory is the part of a story that is about a cluster of several.
type adminStory struct {
	t   *testing.T
	c   *Controller
	m   metadata.Image
	rng *rand.Rand
	b   strings.Builder
	d   *datadriven.TestData
	v   int16 // of the request; -1 for its newest
}

// tell tells one command, if it is one of these, and returns what came of it.
func (s *adminStory) tell(lines []string) (records []metadata.Record, out string, ok bool) {
	switch s.d.Cmd {
	case "brokers": // as they are from now on; one a line: node [rack] [fenced] [stops]
		records = s.brokers(lines)
	case "partition": // as it is from now on; one a line: topic index [replicas=1/2] [isr=1/2] [elr=3] [known=1] [leader=1] [adding=4] [removing=2]
		records = s.partitions(lines)
	case "show": // the partitions of a topic, or what is set for every broker and each
		s.show(lines)
	case "create-partitions": // one topic a line: name count [assign=1/2]...
		records = s.createPartitions(lines)
	case "alter-configs": // one resource a line: topic:name [name=value]...
		records = s.alterConfigs(lines)
	case "incremental": // one resource a line: topic:name [set:name=value] [delete:name] [append:name=value] [subtract:name=value]...
		records = s.incremental(lines)
	case "elect": // preferred, unclean or a number; one topic a line: name partition..., or none for all
		records = s.elect(lines)
	case "reassign": // one partition a line: topic index 1/2/3, or cancel for the replicas
		records = s.reassign(lines)
	case "unregister": // one broker a line
		records = s.unregister(lines)
	case "reassignments": // one topic a line: name [partition]...
		s.reassignments(lines)
	default:
		return nil, "", false
	}
	return records, s.b.String(), true
}

func (s *adminStory) decide(req kmsg.Request) Result {
	req.SetVersion(req.MaxVersion())
	if s.v >= 0 {
		req.SetVersion(s.v)
	}
	r, ok := s.c.Decide(s.m, req, s.rng)
	if !ok {
		s.t.Fatalf("%T is not decided about", req)
	}
	if r.Response.GetVersion() != req.GetVersion() {
		s.t.Fatalf("%T: version %d for %d", req, r.Response.GetVersion(), req.GetVersion())
	}
	return r
}

// say writes one line of an answer.
func (s *adminStory) say(code int16, message *string, format string, args ...any) {
	fmt.Fprintf(&s.b, format, args...)
	fmt.Fprintf(&s.b, " error=%d", code)
	if message != nil {
		fmt.Fprintf(&s.b, " %q", *message)
	}
	s.b.WriteByte('\n')
}

func (s *adminStory) brokers(lines []string) (records []metadata.Record) {
	for i, l := range lines {
		f := strings.Fields(l)
		b := &metadata.RegisterBroker{
			Node: number32[metadata.NodeID](f[0]), Epoch: s.m.NextBrokerEpoch() + metadata.BrokerEpoch(i), Host: "h" + f[0], Port: 9092,
			PeerHost: "p" + f[0], PeerPort: 9192,
		}
		for _, w := range f[1:] {
			switch w {
			case "fenced":
				b.Fenced = true
			case "stops":
				b.InShutdown = true
			default:
				b.Rack = w
			}
		}
		records = append(records, b)
	}
	return records
}

func (s *adminStory) partitions(lines []string) (records []metadata.Record) {
	for _, l := range lines {
		f := strings.Fields(l)
		t, _ := s.m.Topic(f[0])
		old, ok := s.m.Partition(t.ID, number32[int32](f[1]))
		if !ok {
			s.t.Fatalf("there is no %s", l)
		}
		p := *old
		p.Epoch++
		for _, w := range f[2:] {
			name, value, _ := strings.Cut(w, "=")
			switch name {
			case "replicas":
				p.Replicas = nodeList(value)
			case "isr":
				p.ISR = nodeList(value)
			case "elr":
				p.ELR = nodeList(value)
			case "known":
				p.LastKnownELR = nodeList(value)
			case "leader":
				p.Leader = number32[metadata.NodeID](value)
				p.LeaderEpoch++
			case "adding":
				p.Adding = nodeList(value)
			case "removing":
				p.Removing = nodeList(value)
			}
		}
		records = append(records, &p)
	}
	return records
}

func (s *adminStory) show(lines []string) {
	for _, l := range lines {
		if t, ok := s.m.Topic(l); ok {
			for p := range s.m.Partitions(t.ID) {
				fmt.Fprintln(&s.b, shortly(p))
			}
			fmt.Fprintln(&s.b, t.Name, t.Configs)
			continue
		}
		fmt.Fprintln(&s.b, l, s.m.BrokerConfigs(number32[metadata.NodeID](l)))
	}
}

// shortly is a partition on a line, without what is empty.
func shortly(p *metadata.Partition) string {
	_, s, _ := strings.Cut(p.String(), "index=")
	return s
}

func (s *adminStory) createPartitions(lines []string) []metadata.Record {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.ValidateOnly = s.d.HasArg("validate-only")
	for _, l := range lines {
		f := strings.Fields(l)
		t := kmsg.CreatePartitionsRequestTopic{Topic: f[0], Count: number32[int32](f[1])}
		for _, w := range f[2:] {
			replicas, _ := strings.CutPrefix(w, "assign=")
			t.Assignment = append(t.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: nodes(nodeList(replicas))})
		}
		req.Topics = append(req.Topics, t)
	}
	r := s.decide(req)
	for _, t := range r.Response.(*kmsg.CreatePartitionsResponse).Topics {
		s.say(t.ErrorCode, t.ErrorMessage, "%s", t.Topic)
	}
	return r.Records
}

func (s *adminStory) alterConfigs(lines []string) []metadata.Record {
	req := kmsg.NewPtrAlterConfigsRequest()
	req.ValidateOnly = s.d.HasArg("validate-only")
	for _, l := range lines {
		f := strings.Fields(l)
		kind, name := resourceOf(f[0])
		r := kmsg.AlterConfigsRequestResource{ResourceType: kind, ResourceName: name}
		for _, w := range f[1:] {
			name, value, has := strings.Cut(w, "=")
			c := kmsg.AlterConfigsRequestResourceConfig{Name: name}
			if has {
				c.Value = &value
			}
			r.Configs = append(r.Configs, c)
		}
		req.Resources = append(req.Resources, r)
	}
	r := s.decide(req)
	for _, t := range r.Response.(*kmsg.AlterConfigsResponse).Resources {
		s.say(t.ErrorCode, t.ErrorMessage, "%d:%s", t.ResourceType, t.ResourceName)
	}
	return r.Records
}

func (s *adminStory) incremental(lines []string) []metadata.Record {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = s.d.HasArg("validate-only")
	for _, l := range lines {
		f := strings.Fields(l)
		kind, name := resourceOf(f[0])
		r := kmsg.IncrementalAlterConfigsRequestResource{ResourceType: kind, ResourceName: name}
		for _, w := range f[1:] {
			op, rest, _ := strings.Cut(w, ":")
			name, value, has := strings.Cut(rest, "=")
			c := kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: name}
			c.Op = kmsg.IncrementalAlterConfigOp(slices.Index([]string{"set", "delete", "append", "subtract"}, op))
			if has {
				c.Value = &value
			}
			r.Configs = append(r.Configs, c)
		}
		req.Resources = append(req.Resources, r)
	}
	r := s.decide(req)
	for _, t := range r.Response.(*kmsg.IncrementalAlterConfigsResponse).Resources {
		s.say(t.ErrorCode, t.ErrorMessage, "%d:%s", t.ResourceType, t.ResourceName)
	}
	return r.Records
}

func (s *adminStory) elect(lines []string) []metadata.Record {
	req := kmsg.NewPtrElectLeadersRequest()
	switch how := s.d.CmdArgs[0].Key; how {
	case "preferred":
	case "unclean":
		req.ElectionType = uncleanElection
	default:
		req.ElectionType = number32[int8](how)
	}
	for _, l := range lines {
		f := strings.Fields(l)
		t := kmsg.ElectLeadersRequestTopic{Topic: f[0]}
		for _, w := range f[1:] {
			t.Partitions = append(t.Partitions, number32[int32](w))
		}
		req.Topics = append(req.Topics, t)
	}
	r := s.decide(req)
	resp := r.Response.(*kmsg.ElectLeadersResponse)
	if resp.ErrorCode != 0 {
		s.say(resp.ErrorCode, nil, "all")
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			s.say(p.ErrorCode, p.ErrorMessage, "%s %d", t.Topic, p.Partition)
		}
	}
	return r.Records
}

func (s *adminStory) reassign(lines []string) []metadata.Record {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.AllowReplicationFactorChange = !s.d.HasArg("same-number")
	for _, l := range lines {
		f := strings.Fields(l)
		t := kmsg.AlterPartitionAssignmentsRequestTopic{Topic: f[0]}
		p := kmsg.AlterPartitionAssignmentsRequestTopicPartition{Partition: number32[int32](f[1])}
		if f[2] != "cancel" {
			p.Replicas = nodes(nodeList(f[2]))
		}
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	r := s.decide(req)
	for _, t := range r.Response.(*kmsg.AlterPartitionAssignmentsResponse).Topics {
		for _, p := range t.Partitions {
			s.say(p.ErrorCode, p.ErrorMessage, "%s %d", t.Topic, p.Partition)
		}
	}
	return r.Records
}

func (s *adminStory) unregister(lines []string) (records []metadata.Record) {
	for _, l := range lines {
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = number32[int32](l)
		r := s.decide(req)
		resp := r.Response.(*kmsg.UnregisterBrokerResponse)
		s.say(resp.ErrorCode, resp.ErrorMessage, "%s", l)
		records = append(records, r.Records...)
	}
	return records
}

func (s *adminStory) reassignments(lines []string) {
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	for _, l := range lines {
		f := strings.Fields(l)
		t := kmsg.ListPartitionReassignmentsRequestTopic{Topic: f[0]}
		for _, w := range f[1:] {
			t.Partitions = append(t.Partitions, number32[int32](w))
		}
		req.Topics = append(req.Topics, t)
	}
	view := View{Image: s.m}
	for _, t := range view.ListPartitionReassignments(req).Topics {
		for _, p := range t.Partitions {
			fmt.Fprintf(&s.b, "%s %d replicas=%v adding=%v removing=%v\n", t.Topic, p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas)
		}
	}
}

func resourceOf(word string) (kmsg.ConfigResourceType, string) {
	kind, name, _ := strings.Cut(word, ":")
	switch kind {
	case "topic":
		return kmsg.ConfigResourceTypeTopic, name
	case "broker":
		return kmsg.ConfigResourceTypeBroker, name
	}
	return number32[kmsg.ConfigResourceType](kind), name
}

func number32[T ~int8 | ~int32](s string) T {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		panic(err)
	}
	return T(n)
}

func nodeList(s string) (list []metadata.NodeID) {
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return r == '/' }) {
		list = append(list, number32[metadata.NodeID](w))
	}
	return list
}
