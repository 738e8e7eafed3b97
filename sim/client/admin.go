package client

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/sim/kernel"
)

const codeTopicExists = 36

// CreateTopic asks for a topic until it is there, and says so once.
func CreateTopic(k *kernel.Kernel, s *Session, name string, partitions int32, configs map[string]string, done func()) {
	c := &creator{k: k, session: s, name: name, partitions: partitions, configs: configs, done: done}
	c.try()
}

type creator struct {
	k          *kernel.Kernel
	session    *Session
	name       string
	partitions int32
	configs    map[string]string
	done       func()
}

// Happen is for the kernel.
func (c *creator) Happen(kernel.What, uint64) { c.try() }

func (c *creator) try() {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = c.name, c.partitions, 1
	for _, key := range slices.Sorted(maps.Keys(c.configs)) {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name = key
		value := c.configs[key]
		config.Value = &value
		topic.Configs = append(topic.Configs, config)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 5000
	req.Topics = append(req.Topics, topic)
	c.session.Ask(req, func(resp kmsg.Response, err error) {
		if err == nil {
			r := resp.(*kmsg.CreateTopicsResponse)
			if len(r.Topics) == 1 && (r.Topics[0].ErrorCode == 0 || r.Topics[0].ErrorCode == codeTopicExists) {
				c.done()
				return
			}
			if len(r.Topics) == 1 && c.k.Trace.Wanted() {
				c.k.Trace.Say("admin", codeNote(r.Topics[0].ErrorCode))
			}
		}
		c.k.After(20*time.Millisecond, c, 0, 0)
	})
}
