// Package codec compresses and decompresses record batches, and makes the
// checks of a produced batch that need to see its records.
//
// Decompression is bounded: whatever the input, it holds no more than about
// twice maxBytes, and that only while a buffer grows, beside what a decoder
// always has (an lz4 frame with blocks of 4 MiB needs one of them). What an input
// says of its size is believed up to 64 times the input; beyond, memory is taken
// as the output comes.
package codec

import (
	"errors"
	"fmt"

	"github.com/pawlbroker/pawl/storage/record"
)

// The codecs, as a batch's attributes number them.
//
// Source: KIP-110 (zstd).
const (
	None   int8 = 0
	Gzip   int8 = 1
	Snappy int8 = 2
	LZ4    int8 = 3
	Zstd   int8 = 4
)

var names = [...]string{None: "none", Gzip: "gzip", Snappy: "snappy", LZ4: "lz4", Zstd: "zstd"}

var (
	// ErrUnknownCodec says a number or a name means no codec. Kafka clients know
	// it as UNSUPPORTED_COMPRESSION_TYPE, which they do not retry.
	ErrUnknownCodec = errors.New("unknown compression codec")
	// ErrTooLarge says the records decompress to more than was allowed. Kafka has
	// no such limit; MESSAGE_TOO_LARGE is right for it, because a producer that
	// understands it splits the batch.
	ErrTooLarge = errors.New("decompressed records too large")
	// ErrCorrupt says the bytes are not what the codec makes. It wraps
	// record.ErrInvalid (and so record.ErrCorrupt): in a batch whose CRC is right
	// it is INVALID_RECORD, since a retry cannot help.
	ErrCorrupt = fmt.Errorf("%w: compressed data", record.ErrInvalid)
)

// Name is Kafka's name of a codec, as in compression.type, or its number.
func Name(id int8) string {
	if id < 0 || int(id) >= len(names) {
		return fmt.Sprintf("codec(%d)", id)
	}
	return names[id]
}

// Parse is the codec that Kafka calls name.
func Parse(name string) (int8, error) {
	for id, n := range names {
		if n == name {
			return int8(id), nil
		}
	}
	return 0, fmt.Errorf("%w: %q", ErrUnknownCodec, name)
}

// Compress appends src, compressed, to dst. Its only error is ErrUnknownCodec.
// The same build makes the same bytes of the same src every time.
//
// snappy is one raw block, as librdkafka writes it; lz4 is one frame of
// independent 64 KiB blocks, as the Java client writes it.
func Compress(id int8, dst, src []byte) ([]byte, error) {
	switch id {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return compressGzip(dst, src), nil
	case Snappy:
		return compressSnappy(dst, src), nil
	case LZ4:
		return compressLZ4(dst, src), nil
	case Zstd:
		return compressZstd(dst, src), nil
	}
	return dst, fmt.Errorf("%w: %d", ErrUnknownCodec, id)
}

// Decompress returns what src was before the codec compressed it, in a slice of
// its own; with None it returns src itself. It understands what Kafka's clients
// send: gzip of several members, snappy as a raw block or in the Java client's
// framing, lz4 frames with every option but a dictionary, zstd without a
// dictionary.
//
// It returns ErrUnknownCodec, ErrTooLarge if the result has more than maxBytes,
// or ErrCorrupt.
func Decompress(id int8, src []byte, maxBytes int) ([]byte, error) {
	return decompress(id, nil, src, maxBytes)
}

// decompress is Decompress into dst's capacity, if that is enough. dst is empty.
func decompress(id int8, dst, src []byte, maxBytes int) ([]byte, error) {
	maxBytes = max(maxBytes, 0)
	dst = dst[:0:min(cap(dst), maxBytes)]
	switch id {
	case None:
		if len(src) > maxBytes {
			return nil, tooLarge(maxBytes)
		}
		return src, nil
	case Gzip:
		return decompressGzip(dst, src, maxBytes)
	case Snappy:
		return decompressSnappy(dst, src, maxBytes)
	case LZ4:
		return decompressLZ4(dst, src, maxBytes)
	case Zstd:
		return decompressZstd(dst, src, maxBytes)
	}
	return nil, fmt.Errorf("%w: %d", ErrUnknownCodec, id)
}

func tooLarge(maxBytes int) error {
	return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, maxBytes)
}

func corrupt(id int8, cause any) error {
	return fmt.Errorf("%w: %s: %v", ErrCorrupt, names[id], cause)
}
