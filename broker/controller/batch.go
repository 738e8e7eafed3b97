package controller

import (
	"fmt"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
)

// batch is a decision about partitions, each for itself: a draft whose records
// are applied all at once, in the end, because there may be thousands.
type batch struct {
	*draft
	records []metadata.Record
	bytes   int
	unknown int // partitions that were named and do not exist
}

func (c *Controller) batch(m metadata.Image) *batch { return &batch{draft: c.draft(m)} }

// partitionName is how requests name a partition.
type partitionName struct {
	topic string
	index int32
}

// errNamedTwice is for partitions that a request names more than once. There
// may be many.
var errNamedTwice = fmt.Errorf("%w: the partition occurs more than once in the request", metadata.ErrInvalidRequest)

// find finds a partition. A request may name any number of partitions that do
// not exist; not all are told which.
func (b *batch) find(name partitionName) (*metadata.Topic, *metadata.Partition, error) {
	if t, ok := b.image.Topic(name.topic); ok {
		if p, ok := b.image.Partition(t.ID, name.index); ok {
			return t, p, nil
		}
	}
	if b.unknown++; b.unknown > b.cfg.MaxRecords {
		return nil, nil, metadata.ErrUnknownTopic
	}
	return nil, nil, fmt.Errorf("%w: %s-%d", metadata.ErrUnknownTopic, name.topic, name.index)
}

// add makes a record part of the decision, unless that were too much at once.
// No two are about one partition.
func (b *batch) add(r metadata.Record) error {
	if n := len(b.records) + 1; n > b.cfg.MaxRecords {
		return fmt.Errorf("%w: the request makes more than %d records", metadata.ErrPolicyViolation, b.cfg.MaxRecords)
	}
	size := len(metadata.Encode([]metadata.Record{r}))
	if n := b.bytes + size; n > b.cfg.MaxBytes {
		return fmt.Errorf("%w: the request makes more than %d bytes of records", metadata.ErrPolicyViolation, b.cfg.MaxBytes)
	}
	b.records = append(b.records, r)
	b.bytes += size
	return nil
}

// done is the records of the decision.
func (b *batch) done() []metadata.Record {
	if len(b.records) > 0 {
		err := b.draft.add(b.records...)
		assert.That(err == nil, "controller: more was decided than there is room for")
	}
	return b.draft.records
}
