package codec

import (
	"encoding/binary"
	"strings"

	"github.com/klauspost/compress/s2"
)

// The Java client's framing of snappy, known by its author's name, xerial:
//
//	magic 8 bytes | version int32 | compatible version int32 | chunks
//	chunk: length int32 | a raw snappy block of that length
//
// All integers are big endian. The header may come again between chunks, when
// outputs were joined. No raw block starts like the magic: it would copy from
// before its own start.
const (
	xerialMagic       = "\x82SNAPPY\x00"
	xerialHeaderBytes = len(xerialMagic) + 8
)

// No three bytes of snappy become more than 64.
const snappyRatio = 22

func decompressSnappy(dst, src []byte, maxBytes int) ([]byte, error) {
	if !isXerial(src) {
		return appendBlock(dst, src, maxBytes)
	}
	total, err := eachChunk(src, 0, func(total int, block []byte) (int, error) {
		n, err := blockSize(block, maxBytes-total)
		return total + n, err
	})
	if err != nil {
		return nil, err
	}
	if cap(dst) < total {
		dst = make([]byte, 0, total)
	}
	return eachChunk(src, dst, func(dst, block []byte) ([]byte, error) {
		return appendBlock(dst, block, maxBytes)
	})
}

func isXerial(src []byte) bool {
	return len(src) >= xerialHeaderBytes && strings.HasPrefix(string(src[:len(xerialMagic)]), xerialMagic)
}

// eachChunk folds step over the chunks of src.
func eachChunk[T any](src []byte, sum T, step func(T, []byte) (T, error)) (T, error) {
	for len(src) > 0 {
		if isXerial(src) {
			src = src[xerialHeaderBytes:]
			continue
		}
		if len(src) < 4 {
			return sum, corrupt(Snappy, "chunk length cut short")
		}
		n := binary.BigEndian.Uint32(src)
		src = src[4:]
		if uint64(n) > uint64(len(src)) {
			return sum, corrupt(Snappy, "chunk longer than what is left")
		}
		var err error
		if sum, err = step(sum, src[:n]); err != nil {
			return sum, err
		}
		src = src[n:]
	}
	return sum, nil
}

// blockSize is how many bytes a block says it becomes, if that can be true.
func blockSize(block []byte, maxBytes int) (int, error) {
	n, err := s2.DecodedLen(block)
	switch {
	case err != nil:
		return 0, corrupt(Snappy, err)
	case n > snappyRatio*len(block):
		return 0, corrupt(Snappy, "block cannot become as long as it says")
	case n > maxBytes:
		return 0, tooLarge(maxBytes)
	}
	return n, nil
}

// appendBlock decompresses one block to the end of dst, which must not grow past
// maxBytes.
func appendBlock(dst, block []byte, maxBytes int) ([]byte, error) {
	n, err := blockSize(block, maxBytes-len(dst))
	if err != nil {
		return nil, err
	}
	end := len(dst) + n
	if cap(dst) < end {
		grown := make([]byte, len(dst), end)
		copy(grown, dst)
		dst = grown
	}
	if _, err := s2.Decode(dst[len(dst):end:end], block); err != nil {
		return nil, corrupt(Snappy, err)
	}
	return dst[:end], nil
}

func compressSnappy(dst, src []byte) []byte {
	most := s2.MaxEncodedLen(len(src))
	start := len(dst)
	if cap(dst)-start < most {
		dst = append(make([]byte, 0, start+most), dst...)
	}
	return dst[:start+len(s2.EncodeSnappy(dst[start:start+most], src))]
}
