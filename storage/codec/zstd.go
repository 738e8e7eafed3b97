package codec

import (
	"errors"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// zstdMaxWindow is the window of zstd's highest level, and the most that its own
// decoder takes without being asked. A window costs nothing here: whole inputs
// are decoded into the output.
const zstdMaxWindow = 128 << 20

var zstdDecoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(zstdMaxWindow), zstd.WithDecodeAllCapLimit(true))
	mustWrite(err)
	return d
}}

var zstdEncoders = sync.Pool{New: func() any {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	mustWrite(err)
	return e
}}

func decompressZstd(dst, src []byte, maxBytes int) ([]byte, error) {
	var header zstd.Header
	claimed := uint64(4 * len(src))
	if err := header.Decode(src); err == nil && header.HasFCS {
		if header.FrameContentSize > uint64(maxBytes) {
			return nil, tooLarge(maxBytes)
		}
		claimed = header.FrameContentSize
	}
	size := max(cap(dst), room(claimed, len(src), maxBytes))
	d := zstdDecoders.Get().(*zstd.Decoder)
	defer zstdDecoders.Put(d)
	for {
		if cap(dst) < size {
			dst = make([]byte, 0, size)
		}
		out, err := d.DecodeAll(src, dst)
		switch {
		case err == nil:
			return out, nil
		case !errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return nil, corrupt(Zstd, err)
		case size >= maxBytes:
			return nil, tooLarge(maxBytes)
		}
		// Without a size in the header the only way is to try again, with so much
		// more room that the tries add little.
		size = min(max(4*size, smallest), maxBytes)
	}
}

func compressZstd(dst, src []byte) []byte {
	e := zstdEncoders.Get().(*zstd.Encoder)
	defer zstdEncoders.Put(e)
	return e.EncodeAll(src, dst)
}
