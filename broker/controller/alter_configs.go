package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// AlterConfigs and IncrementalAlterConfigs
//
// Behavior:
//   - Topics and brokers have configurations, and the broker without a name
//     stands for all of them (KIP-226); other kinds of resources are
//     INVALID_REQUEST.
//   - Resources are changed or refused one by one, each as a whole. One that
//     occurs twice is refused each time, with INVALID_REQUEST, and so is one in
//     which a name occurs twice, or has no value where it needs one.
//   - AlterConfigs takes the place of everything that is set for a resource.
//     IncrementalAlterConfigs (KIP-339) sets, deletes, or adds to and takes from
//     a list, beginning from its default if nothing is set. Names that do not
//     exist can be deleted.
//   - What a topic may not have is INVALID_CONFIG. What a broker may not have,
//     or cannot change while it runs, is INVALID_REQUEST, as in Kafka.
//   - A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION, a broker
//     BROKER_ID_NOT_REGISTERED; any broker's configuration can be changed
//     through any other.
//   - min.insync.replicas is the topics' or all brokers', and for one broker
//     INVALID_CONFIG: the controller acts on it (KIP-966). Where it becomes no
//     more than the replicas that are in sync, those that left the ISR before
//     may not lead any more, because they will lack what is committed from then
//     on.
//   - With validate-only all is decided and nothing recorded.

// AlterConfigs decides about the whole configuration of resources.
func (c *Controller) AlterConfigs(m metadata.Image, req *kmsg.AlterConfigsRequest) Result {
	resp := kmsg.NewPtrAlterConfigsResponse()
	resp.Version = req.Version
	resp.Resources = []kmsg.AlterConfigsResponseResource{}
	times := map[resource]int{}
	for i := range req.Resources {
		times[resource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	d := c.draft(m)
	for i := range req.Resources {
		asked := &req.Resources[i]
		r := resource{asked.ResourceType, asked.ResourceName}
		ops := make([]configOp, len(asked.Configs))
		for j := range asked.Configs {
			ops[j] = configOp{asked.Configs[j].Name, kmsg.IncrementalAlterConfigOpSet, asked.Configs[j].Value}
		}
		err := d.alter(r, times[r], ops, true)
		dr := kmsg.NewAlterConfigsResponseResource()
		dr.ResourceType, dr.ResourceName = asked.ResourceType, asked.ResourceName
		dr.ErrorCode, dr.ErrorMessage = wire.Code(err), wire.Message(err)
		resp.Resources = append(resp.Resources, dr)
	}
	if req.ValidateOnly {
		return Result{Response: resp}
	}
	return Result{Records: d.records, Response: resp}
}

// IncrementalAlterConfigs decides about changes of the configuration of
// resources.
func (c *Controller) IncrementalAlterConfigs(m metadata.Image, req *kmsg.IncrementalAlterConfigsRequest) Result {
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	resp.Version = req.Version
	resp.Resources = []kmsg.IncrementalAlterConfigsResponseResource{}
	times := map[resource]int{}
	for i := range req.Resources {
		times[resource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	d := c.draft(m)
	for i := range req.Resources {
		asked := &req.Resources[i]
		r := resource{asked.ResourceType, asked.ResourceName}
		ops := make([]configOp, len(asked.Configs))
		for j := range asked.Configs {
			ops[j] = configOp{asked.Configs[j].Name, asked.Configs[j].Op, asked.Configs[j].Value}
		}
		err := d.alter(r, times[r], ops, false)
		dr := kmsg.NewIncrementalAlterConfigsResponseResource()
		dr.ResourceType, dr.ResourceName = asked.ResourceType, asked.ResourceName
		dr.ErrorCode, dr.ErrorMessage = wire.Code(err), wire.Message(err)
		resp.Resources = append(resp.Resources, dr)
	}
	if req.ValidateOnly {
		return Result{Response: resp}
	}
	return Result{Records: d.records, Response: resp}
}

// resource is what has a configuration.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

// configOp is one change that somebody wants of a configuration.
type configOp struct {
	name  string
	op    kmsg.IncrementalAlterConfigOp
	value *string
}

// alter decides about one resource, which is in the request so many times.
// What is set and not named goes if ops are all there is to be.
func (d *draft) alter(r resource, times int, ops []configOp, all bool) error {
	if times > 1 {
		return fmt.Errorf("%w: the resource occurs %d times in the request", metadata.ErrInvalidRequest, times)
	}
	for i, o := range ops {
		switch {
		case slices.ContainsFunc(ops[:i], func(p configOp) bool { return p.name == o.name }):
			return fmt.Errorf("%w: %s is named twice", metadata.ErrInvalidRequest, o.name)
		case o.op < kmsg.IncrementalAlterConfigOpSet || o.op > kmsg.IncrementalAlterConfigOpSubtract:
			return fmt.Errorf("%w: %s: there is no operation %d", metadata.ErrInvalidRequest, o.name, o.op)
		case o.value == nil && o.op != kmsg.IncrementalAlterConfigOpDelete:
			return fmt.Errorf("%w: %s has no value", metadata.ErrInvalidRequest, o.name)
		}
	}
	switch r.kind {
	case kmsg.ConfigResourceTypeTopic:
		return d.alterTopic(r.name, ops, all)
	case kmsg.ConfigResourceTypeBroker:
		return d.alterBroker(r.name, ops, all)
	}
	return fmt.Errorf("%w: resources of type %d have no configuration that can be changed", metadata.ErrInvalidRequest, r.kind)
}

func (d *draft) alterTopic(name string, ops []configOp, all bool) error {
	if name == "" {
		return fmt.Errorf("%w: there is no default for all topics but that of all brokers", metadata.ErrInvalidRequest)
	}
	if err := metadata.ValidateTopicName(name); err != nil {
		return err
	}
	t, found := d.image.Topic(name)
	var was []metadata.Config
	if found {
		was = t.Configs
	}
	is, err := changed(was, ops, all, metadata.TopicConfigs())
	if err != nil {
		return err
	}
	if _, err := metadata.ValidateTopicConfigs(is, d.broker()); err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%w: %s", metadata.ErrUnknownTopic, name)
	}
	var records []metadata.Record
	diff(was, is, func(c metadata.Config, unset bool) {
		records = append(records, &metadata.ConfigureTopic{Topic: t.ID, Name: c.Name, Value: c.Value, Unset: unset})
	})
	return d.configure(records, func(next metadata.Image) []metadata.Record { return unelectable(next, t.ID) })
}

func (d *draft) alterBroker(name string, ops []configOp, all bool) error {
	node := metadata.EveryBroker
	if name != "" {
		n, err := strconv.ParseInt(name, 10, 32)
		if err != nil || n < 0 {
			return fmt.Errorf("%w: brokers are named by number, not %q", metadata.ErrInvalidRequest, name)
		}
		node = metadata.NodeID(n)
	}
	was := d.image.BrokerConfigs(node)
	is, err := changed(was, ops, all, metadata.BrokerConfigs())
	if err != nil {
		return err
	}
	var records []metadata.Record
	diff(was, is, func(c metadata.Config, unset bool) {
		if !unset && err == nil {
			err = metadata.ValidateDynamic(node, c)
		}
		records = append(records, &metadata.ConfigureBroker{Node: node, Name: c.Name, Value: c.Value, Unset: unset})
	})
	if err != nil {
		return err
	}
	if _, ok := d.image.Broker(node); !ok && node != metadata.EveryBroker {
		return fmt.Errorf("%w: %d", metadata.ErrBrokerNotRegistered, node)
	}
	return d.configure(records, func(next metadata.Image) []metadata.Record {
		var more []metadata.Record
		for t := range next.Topics() {
			if next.MinISR(t) < d.image.MinISR(t) {
				more = append(more, unelectable(next, t.ID)...)
			}
		}
		return more
	})
}

// configure adds records that change a configuration, and what follows from it
// at once.
func (d *draft) configure(records []metadata.Record, follows func(next metadata.Image) []metadata.Record) error {
	if len(records) == 0 {
		return nil
	}
	next, _, err := metadata.Apply(d.image, d.image.Offset(), records)
	if err != nil {
		return err
	}
	return d.add(append(records, follows(next)...)...)
}

// unelectable returns records that end the ELR of those partitions of a topic
// that have, in m, enough replicas in sync.
func unelectable(m metadata.Image, topic metadata.TopicID) []metadata.Record {
	var records []metadata.Record
	for p := range m.Partitions(topic) {
		if len(p.ELR) > 0 && len(p.ISR) >= m.EffectiveMinISR(p) {
			q := *p
			q.ELR, q.LastKnownELR = nil, nil
			q.Epoch++
			records = append(records, &q)
		}
	}
	return records
}

// changed returns a configuration, in order of names, with changes made to it.
func changed(was []metadata.Config, ops []configOp, all bool, table []*metadata.ConfigDef) ([]metadata.Config, error) {
	var is []metadata.Config
	if !all {
		is = slices.Clone(was)
	}
	for _, o := range ops {
		i, found := slices.BinarySearchFunc(is, o.name, byName)
		if o.op == kmsg.IncrementalAlterConfigOpDelete {
			if found {
				is = slices.Delete(is, i, i+1)
			}
			continue
		}
		// The request's strings may be parts of its frame, and records outlive it.
		value := strings.Clone(*o.value)
		if o.op != kmsg.IncrementalAlterConfigOpSet {
			var old string
			if found {
				old = is[i].Value
			}
			var err error
			if value, err = changedList(old, found, o, table); err != nil {
				return nil, err
			}
		}
		if !found {
			is = slices.Insert(is, i, metadata.Config{Name: strings.Clone(o.name)})
		}
		is[i].Value = value
	}
	return is, nil
}

// changedList returns a list with values added or taken away.
func changedList(old string, found bool, o configOp, table []*metadata.ConfigDef) (string, error) {
	i := slices.IndexFunc(table, func(d *metadata.ConfigDef) bool { return d.Name == o.name })
	if i < 0 || table[i].Type != metadata.ListConfig {
		return "", fmt.Errorf("%w: %s is not a list", metadata.ErrInvalidConfig, o.name)
	}
	if !found {
		old = table[i].Default
	}
	list := parts(old)
	for _, v := range parts(*o.value) {
		at := slices.Index(list, v)
		switch {
		case o.op == kmsg.IncrementalAlterConfigOpAppend && at < 0:
			list = append(list, v)
		case o.op == kmsg.IncrementalAlterConfigOpSubtract && at >= 0:
			list = slices.Delete(list, at, at+1)
		}
	}
	return strings.Join(list, ","), nil
}

// parts is the values of a list; none if it is empty.
func parts(list string) []string {
	var values []string
	for v := range strings.SplitSeq(list, ",") {
		if v = strings.TrimSpace(v); v != "" {
			values = append(values, v)
		}
	}
	return values
}

// diff tells f what has to be set and unset so that was becomes is, by name.
func diff(was, is []metadata.Config, f func(c metadata.Config, unset bool)) {
	for len(was)+len(is) > 0 {
		switch {
		case len(is) == 0 || len(was) > 0 && was[0].Name < is[0].Name:
			f(metadata.Config{Name: was[0].Name}, true)
			was = was[1:]
		case len(was) == 0 || is[0].Name < was[0].Name:
			f(is[0], false)
			is = is[1:]
		default:
			if was[0].Value != is[0].Value {
				f(is[0], false)
			}
			was, is = was[1:], is[1:]
		}
	}
}

func byName(c metadata.Config, name string) int { return strings.Compare(c.Name, name) }
