package controller

import (
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/record"
)

// producerIDBlock is how many producer ids a broker is given at a time, as in
// Kafka. What is left of a block when its broker stops is never used.
const producerIDBlock = 1000

// ProducerIDs is a block of producer ids that nobody else has, and hands them
// out one by one. The zero ProducerIDs is used up.
type ProducerIDs struct{ next, end record.ProducerID }

// allocate decides about another block. It may be used once the record is
// applied.
func (c *Controller) allocate(m metadata.Image) ([]metadata.Record, ProducerIDs) {
	from := m.NextProducerID()
	if from > math.MaxInt64-producerIDBlock {
		return nil, ProducerIDs{} // all are given away
	}
	d := c.draft(m)
	if err := d.add(&metadata.ProducerIDs{Next: from + producerIDBlock}); err != nil {
		return nil, ProducerIDs{}
	}
	return d.records, ProducerIDs{from, from + producerIDBlock}
}

// AllocateProducerIDs
//
// Behavior:
//   - A broker that is not registered under that epoch is STALE_BROKER_EPOCH.
//   - Every answer has ids that were in none before, also if it is never read.

// AllocateProducerIDs decides about another block for a broker.
func (c *Controller) AllocateProducerIDs(m metadata.Image, req *kmsg.AllocateProducerIDsRequest) Result {
	resp := kmsg.NewPtrAllocateProducerIDsResponse()
	resp.Version = req.Version
	if _, err := registered(m, req.BrokerID, req.BrokerEpoch); err != nil {
		resp.ErrorCode = wire.Code(err)
		return Result{Response: resp}
	}
	records, ids := c.allocate(m)
	if len(records) == 0 {
		resp.ErrorCode = wire.Code(wire.ErrUnknown)
		return Result{Response: resp}
	}
	resp.ProducerIDStart, resp.ProducerIDLen = int64(ids.next), int32(ids.Left())
	return Result{Records: records, Response: resp}
}

// ProducerIDsOf is the block of ids that an answer has, which is used up if the
// answer is an error.
func ProducerIDsOf(resp *kmsg.AllocateProducerIDsResponse) ProducerIDs {
	if resp.ErrorCode != 0 || resp.ProducerIDStart < 0 || resp.ProducerIDLen < 0 {
		return ProducerIDs{}
	}
	next := record.ProducerID(resp.ProducerIDStart)
	return ProducerIDs{next, next + record.ProducerID(resp.ProducerIDLen)}
}

// Left is how many ids are left.
func (p *ProducerIDs) Left() int64 { return int64(p.end - p.next) }

// InitProducerID
//
// Behavior:
//   - A producer without a transactional id is given a producer id that nobody
//     was given before, with epoch 0; what it says of an id it had is not
//     looked at (KIP-360 lets it raise the epoch by itself).
//   - A transactional id is refused with INVALID_REQUEST: there is no
//     transaction coordinator, and none is named to clients that look for one.
//   - While the active controller gives no ids, COORDINATOR_LOAD_IN_PROGRESS,
//     as Kafka has it: every client asks again.

// InitProducerID answers an InitProducerID request from the block. It reports
// false, and there is no answer, if the block is used up.
func (p *ProducerIDs) InitProducerID(req *kmsg.InitProducerIDRequest) (kmsg.Response, bool) {
	resp := noProducerID(req)
	if req.TransactionalID != nil {
		resp.ErrorCode = wire.Code(fmt.Errorf("%w: transactional id %q", metadata.ErrInvalidRequest, *req.TransactionalID))
		return resp, true
	}
	if p.Left() <= 0 {
		return nil, false
	}
	resp.ProducerID, resp.ProducerEpoch = int64(p.next), 0
	p.next++
	return resp, true
}

// NoProducerIDs answers an InitProducerID request when there are none to be had.
func NoProducerIDs(req *kmsg.InitProducerIDRequest) kmsg.Response {
	resp := noProducerID(req)
	resp.ErrorCode = wire.Code(wire.ErrCoordinatorLoading)
	return resp
}

func noProducerID(req *kmsg.InitProducerIDRequest) *kmsg.InitProducerIDResponse {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.Version = req.Version
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	return resp
}
