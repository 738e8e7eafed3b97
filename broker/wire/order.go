package wire

import "github.com/pawlbroker/pawl/storage/assert"

// Order puts the responses of one connection in the order of its requests. T is
// what the host wants to remember of a request until then. The zero value is a
// connection that has had no request.
//
// Source: Kafka's protocol guide, "Network": one connection, one order.
type Order[T any] struct {
	slots []slot[T] // a ring; slots[head] is the oldest request whose response is not popped
	head  int
	len   int
	next  uint64 // sequence of the next request
}

type slot[T any] struct {
	correlation int32
	answered    bool
	tag         T
	resp        Response
}

// Ready is a response whose turn it is.
type Ready[T any] struct {
	Correlation int32
	Tag         T // what Expect was given
	Response    Response
}

// Expect takes note of a request and returns its place in the order.
func (o *Order[T]) Expect(correlation int32, tag T) (seq uint64) {
	if o.len == len(o.slots) {
		o.grow()
	}
	*o.at(o.len) = slot[T]{correlation: correlation, tag: tag}
	o.len++
	o.next++
	return o.next - 1
}

// Answer takes the response to a request. Every request has one answer; the
// zero Response is the one of a request that gets none.
func (o *Order[T]) Answer(seq uint64, resp Response) {
	i := seq - (o.next - uint64(o.len))
	assert.That(i < uint64(o.len), "order: answer to a request that was answered or never made")
	s := o.at(int(i))
	assert.That(!s.answered, "order: second answer to one request")
	s.answered, s.resp = true, resp
}

// Pop takes out the oldest request's response, if it was answered.
func (o *Order[T]) Pop() (Ready[T], bool) {
	if !o.Ready() {
		return Ready[T]{}, false
	}
	s := *o.at(0)
	*o.at(0) = slot[T]{}
	o.head = (o.head + 1) & (len(o.slots) - 1)
	o.len--
	return Ready[T]{s.correlation, s.tag, s.resp}, true
}

// Ready reports whether Pop has something.
func (o *Order[T]) Ready() bool { return o.len > 0 && o.at(0).answered }

// Len is how many requests wait for their response to be popped.
func (o *Order[T]) Len() int { return o.len }

// All calls fn for each of them, oldest first.
func (o *Order[T]) All(fn func(seq uint64, tag T, answered bool)) {
	for i := range o.len {
		s := o.at(i)
		fn(o.next-uint64(o.len-i), s.tag, s.answered)
	}
}

// at is the slot i places after the oldest.
func (o *Order[T]) at(i int) *slot[T] { return &o.slots[(o.head+i)&(len(o.slots)-1)] }

func (o *Order[T]) grow() {
	slots := make([]slot[T], max(4, 2*len(o.slots)))
	for i := range o.len {
		slots[i] = *o.at(i)
	}
	o.slots, o.head = slots, 0
}
