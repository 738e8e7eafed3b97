package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Memory that a request takes has two parts, so that a client which sends a big
// frame slowly holds no more than the frame: its Cost, taken before the body is
// read, and its Growth, taken before it is decoded. The Growth of a small frame
// is in its Cost, which spares the second step. Whoever takes them from two
// budgets in this order cannot get stuck: what holds a Growth waits for nothing.

const (
	// MaxPlainFrame is the longest frame of any API but Produce. Nothing else
	// carries bulk: a hundred thousand partitions fit.
	MaxPlainFrame = 4 << 20 // bytes
	// CostHeader is how many bytes of a frame Cost looks at.
	CostHeader = 2

	smallFrame = 4 << 10 // bytes
	// requestCost covers what a request takes beside its frame: its structs, its
	// slot in the order, its response.
	requestCost = 1 << 10 // bytes
	// plainGrowth bounds what decoding makes of one byte of a frame: kmsg takes
	// two bytes to be an element of at most 64.
	plainGrowth = 32
	// plainHeld is what a well-formed request holds of that while it waits.
	plainHeld = 2
	// elementBytes is the least frame size that makes one topic or partition of
	// a Produce plausible: a partition has at least a batch with one record.
	elementBytes = 40
	// elementCost is what decoding makes of one.
	elementCost = 104 // bytes
	// freeElements are plausible in every Produce.
	freeElements = 16
	// produceGrowth bounds what decoding makes of one byte of a Produce that
	// passed countProduce, beside freeElements.
	produceGrowth = (elementCost + elementBytes - 1) / elementBytes
)

// Cost says how much memory, in bytes, a frame of the given size takes from
// before it is read until its response is sent. header is the first CostHeader
// bytes of the frame. It returns ErrFrameSize if a frame of that API is never so
// long.
func Cost(header []byte, size int) (int64, error) {
	plain := int16(binary.BigEndian.Uint16(header)) != kmsg.Produce.Int16()
	switch {
	case plain && size > MaxPlainFrame:
		return 0, fmt.Errorf("%w: %d, without records at most %d", ErrFrameSize, size, MaxPlainFrame)
	case size > smallFrame:
		return requestCost + int64(size), nil
	case plain:
		return requestCost + (1+plainGrowth)*int64(size), nil
	}
	return requestCost + freeElements*elementCost + (1+produceGrowth)*int64(size), nil
}

// Growth says how much memory, in bytes, decoding the frame may take, beside
// its Cost. It returns ErrMalformed for a Produce of more topics and partitions
// than fit into its length.
func Growth(frame []byte) (int64, error) {
	if len(frame) <= smallFrame {
		return 0, nil
	}
	if int16(binary.BigEndian.Uint16(frame)) != kmsg.Produce.Int16() {
		return plainGrowth * int64(len(frame)), nil
	}
	r := reader{p: frame}
	r.take(2)
	version := r.int16()
	r.take(4)
	r.take(r.size(false, 2)) // client id
	if version >= produceFlexible {
		r.skipTags()
	}
	elements, err := countProduce(r.p, version)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return elementCost * int64(elements), nil
}

// Held says how much of a frame's Cost and Growth the decoded request still
// takes. It is never more.
func (r *Request) Held() (cost, growth int64) {
	elements := int64(2 * len(r.Produce))
	switch produce := r.Produce != nil; {
	case r.Size > smallFrame && produce:
		return requestCost + r.Size, elementCost * elements
	case r.Size > smallFrame:
		return requestCost + r.Size, plainHeld * r.Size
	case produce:
		return requestCost + r.Size + elementCost*elements, 0
	}
	return requestCost + (1+plainHeld)*r.Size, 0
}

// produceFlexible is the first version of Produce with compact lengths and tags.
const produceFlexible = 9

// countProduce walks a Produce body and counts its topics and partitions. It
// refuses one with too many for its length, before any memory is made for them.
func countProduce(p []byte, version int16) (elements int, err error) {
	flexible := version >= produceFlexible
	r := reader{p: p}
	if version >= 3 {
		r.take(r.size(flexible, 2)) // transactional id
	}
	r.take(2 + 4) // acks, timeout
	most := freeElements + len(p)/elementBytes
	topics := r.size(flexible, 4)
	elements = topics
	for range topics {
		if elements > most || r.bad {
			break
		}
		r.take(r.size(flexible, 2)) // name
		partitions := r.size(flexible, 4)
		elements += partitions
		for range partitions {
			if elements > most || r.bad {
				break
			}
			r.take(4)
			r.take(r.size(flexible, 4)) // records
			if flexible {
				r.skipTags()
			}
		}
		if flexible {
			r.skipTags()
		}
	}
	if elements > most {
		return 0, fmt.Errorf("more topics and partitions than %d bytes can hold", len(p))
	}
	return elements, nil // kmsg finds what else is wrong
}
