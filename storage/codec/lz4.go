package codec

import (
	"encoding/binary"
	"io"
	"sync"

	"github.com/pierrec/lz4/v4"
)

const (
	lz4Magic       = 0x184d2204 // little endian, before every frame
	lz4HeaderBytes = 7          // the shortest: magic, flags, block size, checksum
	lz4SizeBit     = 1 << 3     // of the flags: an 8-byte content size follows
)

var lz4Readers = sync.Pool{New: func() any { return &reader[*lz4.Reader]{dec: lz4.NewReader(nil)} }}

var lz4Writers = sync.Pool{New: func() any {
	w := lz4.NewWriter(io.Discard)
	err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1))
	mustWrite(err)
	return &writer[*lz4.Writer]{enc: w}
}}

func decompressLZ4(dst, src []byte, maxBytes int) ([]byte, error) {
	// The library also reads lz4's legacy format, which Kafka's clients cannot.
	if len(src) < lz4HeaderBytes || binary.LittleEndian.Uint32(src) != lz4Magic {
		return nil, corrupt(LZ4, "no frame header")
	}
	claimed := uint64(4 * len(src))
	if src[4]&lz4SizeBit != 0 && len(src) >= lz4HeaderBytes+8 {
		claimed = binary.LittleEndian.Uint64(src[6:])
	}
	r := lz4Readers.Get().(*reader[*lz4.Reader])
	defer lz4Readers.Put(r)
	defer r.src.Reset(nil)
	r.src.Reset(src)
	r.dec.Reset(&r.src)
	out, err := readAll(r.dec, dst, room(claimed, len(src), maxBytes), maxBytes)
	return out, verdict(LZ4, err)
}

func compressLZ4(dst, src []byte) []byte {
	w := lz4Writers.Get().(*writer[*lz4.Writer])
	defer lz4Writers.Put(w)
	w.dst.p = dst
	w.enc.Reset(&w.dst)
	_, err := w.enc.Write(src)
	return w.finish(err, w.enc.Close())
}
