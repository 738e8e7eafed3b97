package codec

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

var gzipReaders = sync.Pool{New: func() any { return new(reader[gzip.Reader]) }}

var gzipWriters = sync.Pool{New: func() any {
	return &writer[*gzip.Writer]{enc: gzip.NewWriter(io.Discard)}
}}

func decompressGzip(dst, src []byte, maxBytes int) ([]byte, error) {
	r := gzipReaders.Get().(*reader[gzip.Reader])
	defer gzipReaders.Put(r)
	defer r.src.Reset(nil)
	r.src.Reset(src)
	if err := r.dec.Reset(&r.src); err != nil {
		return nil, corrupt(Gzip, err)
	}
	// The last four bytes are the size of the last member, modulo 2^32.
	claimed := uint64(binary.LittleEndian.Uint32(src[len(src)-4:]))
	out, err := readAll(&r.dec, dst, room(claimed, len(src), maxBytes), maxBytes)
	return out, verdict(Gzip, err)
}

// verdict is what a decoder's error means.
func verdict(id int8, err error) error {
	if err == nil || errors.Is(err, ErrTooLarge) {
		return err
	}
	return corrupt(id, err)
}

func compressGzip(dst, src []byte) []byte {
	w := gzipWriters.Get().(*writer[*gzip.Writer])
	defer gzipWriters.Put(w)
	w.dst.p = dst
	w.enc.Reset(&w.dst)
	_, err := w.enc.Write(src)
	return w.finish(err, w.enc.Close())
}
