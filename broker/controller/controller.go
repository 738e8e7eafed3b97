// Package controller decides about the cluster: which topics there are, where
// their partitions are, who may use which producer ids. The active controller
// is the leader of the quorum.
//
// It is event-sourced. A decision looks at an image and gives records and an
// answer; it changes nothing. The records go to the metadata log, and once they
// are committed the answer is true and may be sent. A controller that decides
// again before that decides on an image with the records of its earlier
// decisions applied, and its answer, even one without records, may be sent no
// earlier than theirs.
//
// What is decided can always be applied: it is applied here first. And it is
// bounded, so that no client makes the cluster write a batch that it cannot
// read (KAFKA-14124, KAFKA-14996).
//
// The files of this package that answer a question about the cluster (Metadata,
// DescribeConfigs, ...) run on every broker, from the image it has.
//
// Source: KIP-500, KIP-631.
package controller

import (
	"fmt"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
)

// Config of a Controller.
type Config struct {
	// Node is the controller's own.
	Node metadata.NodeID
	// ClusterID is what brokers of this cluster know it by.
	ClusterID string
	// Broker has the defaults for topics.
	Broker metadata.BrokerConfig
	// MaxRecords is how many records one request may make. Kafka: 10,000, fixed.
	MaxRecords int
	// MaxBytes is how many bytes they may be, encoded. It must not be more than
	// the quorum takes in one proposal.
	MaxBytes int
}

// DefaultConfig has Kafka's defaults for topics.
func DefaultConfig() Config {
	return Config{Node: metadata.NoNode, MaxRecords: 10_000, MaxBytes: 4 << 20}
}

// Validate returns an error that names the first field out of range.
func (c Config) Validate() error {
	switch {
	case c.MaxRecords < 1:
		return fmt.Errorf("controller: at most %d records a request, want at least 1", c.MaxRecords)
	case c.MaxBytes < 1024:
		return fmt.Errorf("controller: at most %d bytes a request, want at least 1024", c.MaxBytes)
	}
	return nil
}

// Controller decides. It remembers nothing between two decisions.
type Controller struct{ cfg Config }

// New returns a controller.
func New(cfg Config) *Controller { return &Controller{cfg} }

// Result is what was decided.
type Result struct {
	Records  []metadata.Record // may be none
	Response kmsg.Response     // true once Records are applied; nil if nobody asked

	batches [][]metadata.Record // of Records, if those may be more than one
}

// Batches is Records as they are to be proposed, in order: what is one batch is
// committed as a whole. That only the first batches are committed, because the
// controller is gone, does no harm.
func (r Result) Batches() [][]metadata.Record {
	switch {
	case r.batches != nil:
		return r.batches
	case len(r.Records) > 0:
		return [][]metadata.Record{r.Records}
	}
	return nil
}

// Decide handles a request that only the active controller may. It reports
// false for all other requests.
func (c *Controller) Decide(m metadata.Image, req kmsg.Request, rng *rand.Rand) (Result, bool) {
	switch req := req.(type) {
	case *kmsg.CreateTopicsRequest:
		return c.CreateTopics(m, req, rng), true
	case *kmsg.DeleteTopicsRequest:
		return c.DeleteTopics(m, req), true
	case *kmsg.CreatePartitionsRequest:
		return c.CreatePartitions(m, req, rng), true
	case *kmsg.AlterConfigsRequest:
		return c.AlterConfigs(m, req), true
	case *kmsg.IncrementalAlterConfigsRequest:
		return c.IncrementalAlterConfigs(m, req), true
	case *kmsg.ElectLeadersRequest:
		return c.ElectLeaders(m, req), true
	case *kmsg.AlterPartitionAssignmentsRequest:
		return c.AlterPartitionReassignments(m, req), true
	case *kmsg.UnregisterBrokerRequest:
		return c.UnregisterBroker(m, req), true
	case *kmsg.BrokerRegistrationRequest:
		return c.RegisterBroker(m, req), true
	case *kmsg.BrokerHeartbeatRequest:
		return c.Heartbeat(m, req), true
	case *kmsg.AlterPartitionRequest:
		return c.AlterPartition(m, req), true
	case *kmsg.AllocateProducerIDsRequest:
		return c.AllocateProducerIDs(m, req), true
	}
	return Result{}, false
}

// draft is a decision in the making: an image with its records applied.
type draft struct {
	cfg     *Config
	image   metadata.Image
	records []metadata.Record
	bytes   int
}

func (c *Controller) draft(m metadata.Image) *draft { return &draft{cfg: &c.cfg, image: m} }

// add makes records part of the decision, all or, if that were too much at
// once, none.
func (d *draft) add(records ...metadata.Record) error {
	if n := len(d.records) + len(records); n > d.cfg.MaxRecords {
		return fmt.Errorf("%w: the request makes %d records, at most %d at once", metadata.ErrPolicyViolation, n, d.cfg.MaxRecords)
	}
	size := len(metadata.Encode(records))
	if n := d.bytes + size; n > d.cfg.MaxBytes {
		return fmt.Errorf("%w: the request makes %d bytes of records, at most %d at once", metadata.ErrPolicyViolation, n, d.cfg.MaxBytes)
	}
	next, _, err := metadata.Apply(d.image, d.image.Offset(), records)
	assert.That(err == nil, "controller: decided what cannot be applied")
	d.image = next
	d.records = append(d.records, records...)
	d.bytes += size
	return nil
}
