package codec

import (
	"bytes"
	"errors"
	"io"

	"github.com/pawlbroker/pawl/storage/assert"
)

// Coders are big, so they are pooled; none of them starts a goroutine. A bad input
// never spoils one: Reset makes it as new.

// A reader pairs a decoder with its source.
type reader[D any] struct {
	src bytes.Reader
	dec D
}

// A sink is a slice as a writer.
type sink struct{ p []byte }

func (s *sink) Write(p []byte) (int, error) { s.p = append(s.p, p...); return len(p), nil }

// A writer pairs an encoder with what it appends to.
type writer[E any] struct {
	dst sink
	enc E
}

// finish gives up the slice. Encoders fail only when their writer does.
func (w *writer[E]) finish(errs ...error) []byte {
	mustWrite(errors.Join(errs...))
	p := w.dst.p
	w.dst.p = nil
	return p
}

func mustWrite(err error) {
	assert.That(err == nil, "codec: an encoder failed on memory, or was given a bad option")
}

const (
	smallest  = 512 // bytes of a first buffer
	plausible = 64  // no first buffer is more than this many times the input
)

// room is how big a first buffer to take for srcBytes of input that claim to
// become claimed bytes. A lie costs little.
func room(claimed uint64, srcBytes, maxBytes int) int {
	limit := min(maxBytes, smallest+plausible*srcBytes)
	if claimed > uint64(limit) {
		return limit
	}
	return int(claimed)
}

// readAll reads r to its end into dst, or into a bigger buffer, first of size
// first, never of more than maxBytes.
func readAll(r io.Reader, dst []byte, first, maxBytes int) ([]byte, error) {
	if cap(dst) < first {
		dst = make([]byte, 0, first)
	}
	for {
		if len(dst) == cap(dst) {
			if len(dst) >= maxBytes {
				return dst, atEnd(r, maxBytes)
			}
			grown := make([]byte, len(dst), min(max(2*len(dst), smallest), maxBytes))
			copy(grown, dst)
			dst = grown
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func atEnd(r io.Reader, maxBytes int) error {
	var one [1]byte
	for {
		n, err := r.Read(one[:])
		switch {
		case n > 0:
			return tooLarge(maxBytes)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}
