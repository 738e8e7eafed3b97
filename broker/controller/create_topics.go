package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// CreateTopics
//
// Behavior:
//   - Topics are created or refused one by one; one that is refused does not
//     keep the others from being created.
//   - A name that occurs twice is refused, once, with INVALID_REQUEST.
//   - -1 partitions or replicas means the broker's default (KIP-464), in every
//     version.
//   - With assignments, partitions and replicas must be -1, and the assignments
//     must be of partitions 0 to n-1, all with equally many replicas, each a
//     broker that is registered, and one of each partition's neither fenced nor
//     shutting down.
//   - Replicas on brokers that are fenced or shutting down are not in sync.
//   - With validate-only all is decided and nothing recorded.
//   - A topic that would make the request's records too many, or too large, is
//     refused with POLICY_VIOLATION.
//
// Versions:
//   - v5 adds the topic's size and effective configuration to the response
//     (KIP-525), v7 its id (KIP-516).

// CreateTopics decides about new topics.
func (c *Controller) CreateTopics(m metadata.Image, req *kmsg.CreateTopicsRequest, rng *rand.Rand) Result {
	resp := kmsg.NewPtrCreateTopicsResponse()
	resp.Version = req.Version
	resp.Topics = []kmsg.CreateTopicsResponseTopic{}
	times := map[string]int{}
	for i := range req.Topics {
		times[req.Topics[i].Topic]++
	}
	d := c.draft(m)
	for i := range req.Topics {
		name := req.Topics[i].Topic
		n := times[name]
		if n == 0 {
			continue // said already
		}
		times[name] = 0
		var (
			made created
			err  = fmt.Errorf("%w: the topic occurs %d times in the request", metadata.ErrInvalidRequest, n)
		)
		if n == 1 {
			made, err = d.createTopic(wanted(&req.Topics[i]), rng)
		}
		resp.Topics = append(resp.Topics, d.created(name, made, err, req.ValidateOnly))
	}
	if req.ValidateOnly {
		return Result{Response: resp}
	}
	return Result{Records: d.records, Response: resp}
}

// Refusal is a topic that could not be created, and why.
type Refusal struct {
	Name string
	Err  error
}

// AutoCreate is the request by which a broker has topics created that somebody
// asked for who may have that, a name once or more.
func AutoCreate(names []string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
		req.Topics = append(req.Topics, t)
	}
	return req
}

// Refusals are the topics of an AutoCreate that do not exist now.
func Refusals(resp *kmsg.CreateTopicsResponse) []Refusal {
	var refused []Refusal
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.ErrorCode != 0 && t.ErrorCode != wire.Code(metadata.ErrTopicExists) {
			refused = append(refused, Refusal{t.Topic, wire.ErrorOf(t.ErrorCode)})
		}
	}
	return refused
}

// topicWanted is what somebody wants of a new topic.
type topicWanted struct {
	name        string
	partitions  int32 // -1 for the default
	replicas    int16 // -1 for the default
	assignments []assignment
	configs     []metadata.Config
	nullConfig  string // a configuration that has no value
}

type assignment struct {
	partition int32
	replicas  []metadata.NodeID
}

// created is a topic as it was decided.
type created struct {
	id         metadata.TopicID
	partitions int32
	replicas   int16
	configs    []metadata.Config
}

func wanted(t *kmsg.CreateTopicsRequestTopic) topicWanted {
	// The request's strings may be parts of its frame, and records outlive it.
	w := topicWanted{name: strings.Clone(t.Topic), partitions: t.NumPartitions, replicas: t.ReplicationFactor}
	for _, a := range t.ReplicaAssignment {
		w.assignments = append(w.assignments, assignment{a.Partition, ids(a.Replicas)})
	}
	for _, c := range t.Configs {
		if c.Value == nil {
			w.nullConfig = c.Name
			continue
		}
		w.configs = append(w.configs, metadata.Config{Name: strings.Clone(c.Name), Value: strings.Clone(*c.Value)})
	}
	return w
}

func (d *draft) createTopic(w topicWanted, rng *rand.Rand) (created, error) {
	if err := d.nameIsFree(w.name); err != nil {
		return created{}, err
	}
	if w.nullConfig != "" {
		return created{}, fmt.Errorf("%w: %s has no value", metadata.ErrInvalidConfig, w.nullConfig)
	}
	configs, err := metadata.ValidateTopicConfigs(w.configs, d.broker())
	if err != nil {
		return created{}, err
	}
	partitions, err := d.place(w, rng)
	if err != nil {
		return created{}, err
	}
	id := d.newTopicID(rng)
	records := make([]metadata.Record, 0, 1+len(partitions))
	records = append(records, &metadata.AddTopic{ID: id, Name: w.name, Configs: configs})
	for i, replicas := range partitions {
		records = append(records, d.newPartition(id, int32(i), replicas))
	}
	if err := d.add(records...); err != nil {
		return created{}, err
	}
	return created{id, int32(len(partitions)), int16(len(partitions[0])), configs}, nil
}

func (d *draft) nameIsFree(name string) error {
	if err := metadata.ValidateTopicName(name); err != nil {
		return err
	}
	if _, ok := d.image.Topic(name); ok {
		return fmt.Errorf("%w: %s", metadata.ErrTopicExists, name)
	}
	if other, ok := d.image.Collides(name); ok {
		return fmt.Errorf("%w: %s and %s are the same where '.' and '_' cannot be told apart", metadata.ErrInvalidTopic, name, other)
	}
	return nil
}

// newTopicID draws an id that no topic has or had: a random UUID (version 4),
// and, as in Kafka, none that begins with a dash, which tools take for an
// option.
func (d *draft) newTopicID(rng *rand.Rand) metadata.TopicID {
	for {
		var id metadata.TopicID
		for i := 0; i < len(id); i += 8 {
			v := rng.Uint64()
			for j := range 8 {
				id[i+j] = byte(v >> (8 * j))
			}
		}
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		_, taken := d.image.TopicByID(id)
		if !taken && !d.image.Deleted(id) && id.String()[0] != '-' {
			return id
		}
	}
}

func (d *draft) created(name string, made created, err error, validateOnly bool) kmsg.CreateTopicsResponseTopic {
	t := kmsg.NewCreateTopicsResponseTopic()
	t.Topic = name
	t.ErrorCode, t.ErrorMessage = wire.Code(err), wire.Message(err)
	t.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	if err != nil {
		return t
	}
	if !validateOnly {
		t.TopicID = made.id
	}
	t.NumPartitions, t.ReplicationFactor = made.partitions, made.replicas
	for _, v := range metadata.DescribeTopicConfigs(made.configs, d.broker()) {
		e := kmsg.NewCreateTopicsResponseTopicConfig()
		e.Name, e.Source, e.ReadOnly, e.IsSensitive = v.Def.Name, int8(v.Source), v.Def.ReadOnly, v.Def.Sensitive
		if !v.Null && !v.Def.Sensitive {
			e.Value = kmsg.StringPtr(v.Value)
		}
		t.Configs = append(t.Configs, e)
	}
	return t
}
