package tcp

import (
	"testing"

	"github.com/pawlbroker/pawl/broker/wire"
)

func TestPooledFramesFitOthers(t *testing.T) {
	var p framePool
	for _, size := range []int{0, 1, pooledFrom - 1, pooledFrom, 1<<20 + 61, pooledTo, pooledTo + 1} {
		f := p.get(size)
		if len(f) != size {
			t.Errorf("asked for %d bytes, got %d", size, len(f))
		}
		p.put(f)
		if g := p.get(size); len(g) != size {
			t.Errorf("asked again for %d bytes, got %d", size, len(g))
		}
	}
	p.put(nil) // a request without a frame to keep
	p.put(make([]byte, pooledFrom))
	if f := p.get(pooledFrom + pooledStep); len(f) != pooledFrom+pooledStep {
		t.Errorf("a frame that is too short was given out: %d bytes", len(f))
	}
}

func TestFrameInUseIsNotSpent(t *testing.T) {
	r := wire.Ready[request]{Tag: request{frame: make([]byte, pooledFrom)}}
	if spent(&r) == nil {
		t.Error("a frame that nobody reads is not used again")
	}
	r.Response.InUse = true
	if spent(&r) != nil {
		t.Error("a frame is used again while its batch may be on its way to the disk")
	}
}
