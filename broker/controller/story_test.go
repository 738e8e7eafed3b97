package controller

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// A story is told to one controller, which applies what it decides.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		rng := rand.New(rand.NewPCG(1, 2))
		var m metadata.Image
		cfg := DefaultConfig()
		var ids ProducerIDs
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			version := 7
			d.MaybeScanArgs(t, "v", &version)
			apply := func(records []metadata.Record) {
				for _, r := range records {
					fmt.Fprintf(&b, "record %v\n", r)
				}
				next, _, err := metadata.Apply(m, m.Offset()+1, records)
				if err != nil {
					t.Fatal(err)
				}
				m = next
			}
			lines := strings.Split(strings.TrimSpace(d.Input), "\n")
			if d.Input == "" {
				lines = nil
			}
			switch d.Cmd {
			case "config":
				var set []metadata.Config
				for _, l := range lines {
					name, value, _ := strings.Cut(l, "=")
					set = append(set, metadata.Config{Name: name, Value: value})
				}
				var err error
				if cfg.Broker, err = metadata.NewBrokerConfig(set); err != nil {
					return err.Error()
				}
				d.MaybeScanArgs(t, "max-records", &cfg.MaxRecords)
				d.MaybeScanArgs(t, "node", &cfg.Node)
				d.MaybeScanArgs(t, "cluster", &cfg.ClusterID)
			case "register":
				for _, l := range lines { // the controller's own broker: node host port process
					alone := cfg
					req := kmsg.NewPtrBrokerRegistrationRequest()
					listener := kmsg.NewBrokerRegistrationRequestListener()
					listener.Name = "PLAINTEXT"
					fmt.Sscan(l, &req.BrokerID, &listener.Host, &listener.Port, &req.IncarnationID[0])
					req.Listeners = append(req.Listeners, listener)
					alone.Node = metadata.NodeID(req.BrokerID)
					r := New(alone).RegisterBroker(m, req)
					if code := r.Response.(*kmsg.BrokerRegistrationResponse).ErrorCode; code != 0 {
						fmt.Fprintln(&b, "error", code)
					}
					apply(r.Records)
				}
			case "create": // one topic a line: name partitions replicas [config=value]... [assign=partition:1/2/3]...
				req := kmsg.NewPtrCreateTopicsRequest()
				req.Version, req.ValidateOnly = int16(version), d.HasArg("validate-only")
				for _, l := range lines {
					req.Topics = append(req.Topics, topicOf(l))
				}
				r, _ := New(cfg).Decide(m, req, rng)
				apply(r.Records)
				for _, topic := range r.Response.(*kmsg.CreateTopicsResponse).Topics {
					fmt.Fprintf(&b, "%s id=%s error=%d %q partitions=%d replicas=%d configs=%d\n", topic.Topic, metadata.TopicID(topic.TopicID),
						topic.ErrorCode, deref(topic.ErrorMessage), topic.NumPartitions, topic.ReplicationFactor, len(topic.Configs))
				}
			case "delete": // one topic a line: a name, or id= and the name of the topic with that id, or both
				req := kmsg.NewPtrDeleteTopicsRequest()
				req.Version = int16(version)
				for _, l := range lines {
					req.Topics = append(req.Topics, toDelete(m, l))
					req.TopicNames = append(req.TopicNames, l)
				}
				r, _ := New(cfg).Decide(m, req, rng)
				apply(r.Records)
				for _, topic := range r.Response.(*kmsg.DeleteTopicsResponse).Topics {
					fmt.Fprintf(&b, "%s id=%s error=%d %q\n", deref(topic.Topic), metadata.TopicID(topic.TopicID), topic.ErrorCode, deref(topic.ErrorMessage))
				}
			case "auto-create":
				r, _ := New(cfg).Decide(m, AutoCreate(lines), rng)
				apply(r.Records)
				for _, r := range Refusals(r.Response.(*kmsg.CreateTopicsResponse)) {
					fmt.Fprintf(&b, "%s %v\n", r.Name, r.Err)
				}
			case "allocate":
				var records []metadata.Record
				records, ids = New(cfg).allocate(m)
				apply(records)
				fmt.Fprintf(&b, "left=%d\n", ids.Left())
			case "init-producer-id":
				req := kmsg.NewPtrInitProducerIDRequest()
				if len(lines) > 0 {
					req.TransactionalID = &lines[0]
				}
				resp, ok := ids.InitProducerID(req)
				if !ok {
					return "used up"
				}
				r := resp.(*kmsg.InitProducerIDResponse)
				fmt.Fprintf(&b, "id=%d epoch=%d error=%d\n", r.ProducerID, r.ProducerEpoch, r.ErrorCode)
			default:
				s := adminStory{t: t, c: New(cfg), m: m, rng: rng, d: d, v: -1}
				if d.HasArg("v") {
					s.v = int16(version)
				}
				records, out, ok := s.tell(lines)
				if !ok {
					records, out, ok = s.tellLifecycle(lines)
				}
				if !ok {
					d.Fatalf(t, "unknown command")
				}
				apply(records)
				b.WriteString(out)
			}
			return b.String()
		})
	})
}

func topicOf(line string) kmsg.CreateTopicsRequestTopic {
	f := strings.Fields(line)
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic = f[0]
	n, _ := strconv.Atoi(f[1])
	r, _ := strconv.Atoi(f[2])
	topic.NumPartitions, topic.ReplicationFactor = int32(n), int16(r)
	for _, kv := range f[3:] {
		k, v, hasValue := strings.Cut(kv, "=")
		if k != "assign" {
			c := kmsg.CreateTopicsRequestTopicConfig{Name: k}
			if hasValue {
				c.Value = &v
			}
			topic.Configs = append(topic.Configs, c)
			continue
		}
		p, replicas, _ := strings.Cut(v, ":")
		index, _ := strconv.Atoi(p)
		a := kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(index)}
		for _, s := range strings.FieldsFunc(replicas, func(r rune) bool { return r == '/' }) {
			id, _ := strconv.Atoi(s)
			a.Replicas = append(a.Replicas, int32(id))
		}
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, a)
	}
	return topic
}

func toDelete(m metadata.Image, line string) kmsg.DeleteTopicsRequestTopic {
	var topic kmsg.DeleteTopicsRequestTopic
	for _, f := range strings.Fields(line) {
		name, byID := strings.CutPrefix(f, "id=")
		if !byID {
			topic.Topic = &name
		} else if t, ok := m.Topic(name); ok {
			topic.TopicID = t.ID
		} else if name != "" {
			topic.TopicID[0] = 0xee
		}
	}
	return topic
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
