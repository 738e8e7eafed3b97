package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// MaxPlainFrame is the longest frame of any API but Produce. Nothing else
// carries bulk: a hundred thousand partitions fit.
const MaxPlainFrame = 8 << 20 // bytes

// CostHeader is how many bytes of a frame Cost looks at.
const CostHeader = 2

const (
	// requestCost covers what a request takes beside its frame: its structs, its
	// slot in the order, its response.
	requestCost = 1 << 10 // bytes
	// plainGrowth bounds what decoding makes of one byte of a frame: kmsg takes
	// two bytes to be an element of at most 64.
	plainGrowth = 32
	// plainHeld is what is held of a well-formed request while it waits.
	plainHeld = 3
	// elementBytes is the least frame size that makes one topic or partition of
	// a Produce plausible: a partition has at least a batch with one record.
	elementBytes = 40
	// elementCost is what decoding makes of one.
	elementCost = 104 // bytes
	// freeElements are plausible in every Produce.
	freeElements = 16
	// produceGrowth bounds what decoding makes of one byte of a Produce that
	// passed countProduce.
	produceGrowth = 1 + (elementCost+elementBytes-1)/elementBytes
)

// Cost says how much memory, in bytes, a frame of the given size may take while
// it is read and decoded. header is the first CostHeader bytes of the frame. It
// returns ErrFrameSize if a frame of that API is never so long.
func Cost(header []byte, size int) (int64, error) {
	if key := int16(binary.BigEndian.Uint16(header)); key == kmsg.Produce.Int16() {
		return requestCost + freeElements*elementCost + produceGrowth*int64(size), nil
	}
	if size > MaxPlainFrame {
		return 0, fmt.Errorf("%w: %d, without records at most %d", ErrFrameSize, size, MaxPlainFrame)
	}
	return requestCost + plainGrowth*int64(size), nil
}

// Held says how much memory, in bytes, the request takes from when it is
// decoded until its response is sent. It is at most its frame's Cost.
func (r *Request) Held() int64 {
	if r.Produce != nil {
		return requestCost + r.Size + elementCost*int64(2*len(r.Produce))
	}
	return requestCost + plainHeld*r.Size
}

// countProduce walks a Produce body and refuses one whose topics and partitions
// are too many for its length, before any memory is made for them.
func countProduce(p []byte, version int16) error {
	flexible := version >= 9
	r := reader{p: p}
	if version >= 3 {
		r.take(r.size(flexible, 2)) // transactional id
	}
	r.take(2 + 4) // acks, timeout
	left := freeElements + len(p)/elementBytes
	topics := r.size(flexible, 4)
	left -= topics
	for range topics {
		if left < 0 || r.bad {
			break
		}
		r.take(r.size(flexible, 2)) // name
		partitions := r.size(flexible, 4)
		left -= partitions
		for range partitions {
			if left < 0 || r.bad {
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
	if left < 0 {
		return fmt.Errorf("more topics and partitions than %d bytes can hold", len(p))
	}
	return nil // kmsg finds what else is wrong
}
