package wire

import "github.com/pawlbroker/pawl/storage/assert"

// Order puts the responses of one connection in the order of its requests. The
// zero value is a connection that has had no request.
//
// Source: Kafka's protocol guide, "Network": one connection, one order.
type Order struct {
	slots []slot // a ring; slots[head] is the oldest request without a response sent
	head  int
	len   int
	next  uint64 // sequence of the next request
}

type slot struct {
	correlation int32
	size        int64
	answered    bool
	resp        Response
}

// Ready is a response whose turn it is.
type Ready struct {
	Correlation int32
	Size        int64 // what Expect was told
	Response    Response
}

// Expect takes note of a request and returns its place in the order. size is
// given back with the response.
func (o *Order) Expect(correlation int32, size int64) (seq uint64) {
	if o.len == len(o.slots) {
		o.grow()
	}
	o.slots[(o.head+o.len)&(len(o.slots)-1)] = slot{correlation: correlation, size: size}
	o.len++
	o.next++
	return o.next - 1
}

// Answer takes the response to a request. Every request has one answer; the
// zero Response is the one of a request that gets none.
func (o *Order) Answer(seq uint64, resp Response) {
	first := o.next - uint64(o.len)
	assert.That(seq-first < uint64(o.len), "order: answer to a request that was answered or never made")
	s := &o.slots[(o.head+int(seq-first))&(len(o.slots)-1)]
	assert.That(!s.answered, "order: second answer to one request")
	s.answered, s.resp = true, resp
}

// Pop takes out the oldest request's response, if it was answered.
func (o *Order) Pop() (Ready, bool) {
	if !o.Ready() {
		return Ready{}, false
	}
	s := o.slots[o.head]
	o.slots[o.head] = slot{}
	o.head = (o.head + 1) & (len(o.slots) - 1)
	o.len--
	return Ready{s.correlation, s.size, s.resp}, true
}

// Ready reports whether Pop has something.
func (o *Order) Ready() bool { return o.len > 0 && o.slots[o.head].answered }

// Len is how many requests wait for their response to be popped.
func (o *Order) Len() int { return o.len }

func (o *Order) grow() {
	slots := make([]slot, max(4, 2*len(o.slots)))
	for i := range o.len {
		slots[i] = o.slots[(o.head+i)&(len(o.slots)-1)]
	}
	o.slots, o.head = slots, 0
}
