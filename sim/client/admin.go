package client

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/sim/kernel"
)

const codeTopicExists = 36

// NewTopic is a topic that is to be.
type NewTopic struct {
	Name        string
	Partitions  int32
	Replication int16
	Configs     map[string]string
}

// CreateTopic asks for a topic until it is there, and says so once.
func CreateTopic(k *kernel.Kernel, cluster *Cluster, topic NewTopic, done func()) {
	c := &creator{k: k, cluster: cluster, topic: topic, done: done}
	c.try()
}

type creator struct {
	k       *kernel.Kernel
	cluster *Cluster
	topic   NewTopic
	done    func()
}

// Happen is for the kernel.
func (c *creator) Happen(kernel.What, uint64) { c.try() }

func (c *creator) try() {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = c.topic.Name, c.topic.Partitions, c.topic.Replication
	for _, key := range slices.Sorted(maps.Keys(c.topic.Configs)) {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name = key
		value := c.topic.Configs[key]
		config.Value = &value
		topic.Configs = append(topic.Configs, config)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 5000
	req.Topics = append(req.Topics, topic)
	c.cluster.Ask(req, func(resp kmsg.Response, err error) {
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
