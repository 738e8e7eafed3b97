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

// zstdBlock is the most that one block becomes, and zstdBlockBytes the least it
// takes. Where a frame does not say its size, the decoder wants room for a whole
// block, and calls the input bad when it has not.
const (
	zstdBlock      = 128 << 10
	zstdBlockBytes = 4
)

func decompressZstd(dst, src []byte, maxBytes int) ([]byte, error) {
	limit := min(maxBytes, (len(src)/zstdBlockBytes+1)*zstdBlock) + zstdBlock
	size := room(uint64(4*len(src)), len(src), maxBytes) + zstdBlock
	var header zstd.Header
	if err := header.Decode(src); err == nil && header.HasFCS {
		if header.FrameContentSize > uint64(maxBytes) {
			return nil, tooLarge(maxBytes)
		}
		size = room(header.FrameContentSize, len(src), maxBytes)
	}
	if cap(dst) < size {
		dst = make([]byte, 0, size)
	}
	d := zstdDecoders.Get().(*zstd.Decoder)
	defer zstdDecoders.Put(d)
	for {
		out, err := d.DecodeAll(src, dst)
		done, size := len(out), cap(dst)
		switch {
		case done > maxBytes:
			return nil, tooLarge(maxBytes)
		case err == nil:
			return out, nil
		case size < limit && (errors.Is(err, zstd.ErrDecoderSizeExceeded) || size-done < zstdBlock):
			// Perhaps there was no room for the next block. Decoding cannot go on from
			// there, so so much more is taken that all the tries together cost little.
			dst = make([]byte, 0, min(max(4*size, done+2*zstdBlock), limit))
		case errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return nil, tooLarge(maxBytes)
		default:
			return nil, corrupt(Zstd, err)
		}
	}
}

func compressZstd(dst, src []byte) []byte {
	e := zstdEncoders.Get().(*zstd.Encoder)
	defer zstdEncoders.Put(e)
	return e.EncodeAll(src, dst)
}
