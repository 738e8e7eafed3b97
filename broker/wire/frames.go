package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var (
	// ErrForeign says the peer does not speak Kafka's protocol.
	ErrForeign = errors.New("not the Kafka protocol")
	// ErrFrameSize says a frame's length is negative, too short for a request
	// header or above the limit.
	ErrFrameSize = errors.New("frame size")
)

// PrefixSize is the length in bytes of what precedes a frame: its length.
const PrefixSize = 4

// minFrame is the shortest request header: key, version, correlation id.
const minFrame = 8 // bytes

// methods are the first four bytes of what an HTTP client sends.
var methods = [...]string{"GET ", "HEAD", "POST", "PUT ", "DELE", "OPTI", "PATC", "CONN", "TRAC", "PRI "}

// Hello looks at the first PrefixSize bytes of a connection. It returns
// ErrForeign, which says what the peer speaks, if that is TLS or HTTP: either
// would otherwise look like a frame of hundreds of megabytes.
func Hello(prefix []byte) error {
	if prefix[0] == 0x16 && prefix[1] == 0x03 {
		return fmt.Errorf("%w: a TLS handshake on a plaintext listener", ErrForeign)
	}
	for _, m := range methods {
		if string(prefix[:PrefixSize]) == m {
			return fmt.Errorf("%w: an HTTP request", ErrForeign)
		}
	}
	return nil
}

// FrameSize reads the length in bytes of the frame that follows prefix. It
// returns ErrFrameSize unless that is at most max, so that nobody allocates
// what a peer only claims.
func FrameSize(prefix []byte, max int) (int, error) { return frameSize(prefix, minFrame, max) }

func frameSize(prefix []byte, min, max int) (int, error) {
	size := int32(binary.BigEndian.Uint32(prefix))
	if int64(size) < int64(min) || int64(size) > int64(max) {
		return 0, fmt.Errorf("%w: %d, must be from %d to %d", ErrFrameSize, size, min, max)
	}
	return int(size), nil
}

// A Splitter cuts a stream of bytes into frames, for a host whose transport
// hands it pieces of any size.
type Splitter struct {
	max     int
	started bool
	buf     []byte // what was fed and not taken
}

// NewSplitter returns a splitter for frames of at most max bytes.
func NewSplitter(max int) *Splitter { return &Splitter{max: max} }

// Feed adds bytes, which are copied.
func (s *Splitter) Feed(p []byte) { s.buf = append(s.buf, p...) }

// Next takes out the next whole frame, without its length. It returns nil while
// there is none, and ErrForeign or ErrFrameSize once the stream cannot be
// understood; it can never be understood again. Nobody else refers to the
// frame.
func (s *Splitter) Next() ([]byte, error) {
	if len(s.buf) < PrefixSize {
		return nil, nil
	}
	if !s.started {
		if err := Hello(s.buf); err != nil {
			return nil, err
		}
		s.started = true
	}
	size, err := FrameSize(s.buf, s.max)
	if err != nil {
		return nil, err
	}
	end := PrefixSize + size
	if len(s.buf) < end {
		return nil, nil
	}
	frame := append(make([]byte, 0, size), s.buf[PrefixSize:end]...)
	s.buf = append(s.buf[:0], s.buf[end:]...)
	return frame, nil
}
