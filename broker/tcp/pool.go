package tcp

import "sync"

const (
	// pooledFrom is how long a frame must be to be worth keeping, and pooledTo
	// how long it may be, in bytes.
	pooledFrom = 64 << 10
	pooledTo   = 2 << 20
	// pooledStep is what capacities are rounded up to, so that frames fit others.
	pooledStep = 128 << 10
)

// framePool keeps the frames of large Produces. A frame that is used again is in
// the processor's cache, and needs neither zeroing nor collecting.
//
// Only a frame that nobody reads any more may be put into it: its response has
// been sent, and does not say that it is in use. The zero framePool is empty.
type framePool struct{ pool sync.Pool }

func (p *framePool) get(size int) []byte {
	if size < pooledFrom || size > pooledTo {
		return make([]byte, size)
	}
	if f, ok := p.pool.Get().(*[]byte); ok && cap(*f) >= size {
		return (*f)[:size]
	}
	return make([]byte, size, (size+pooledStep-1)/pooledStep*pooledStep)
}

func (p *framePool) put(frame []byte) {
	if cap(frame) >= pooledFrom && cap(frame) <= pooledTo {
		p.pool.Put(&frame)
	}
}
