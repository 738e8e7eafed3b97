// Package checkpoint keeps small files that are replaced as a whole: after a
// crash one holds what it held before or what was to replace it, and nothing
// else. Its contents are checksummed.
package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"

	"github.com/pawlbroker/pawl/storage/vfs"
)

// Layout of the header. All integers are big endian.
const (
	magic      = "PAWLCKP1"
	crcAt      = 8  // uint32, CRC-32C of everything from lengthAt
	lengthAt   = 12 // uint64, bytes after the header
	headerSize = 20
)

// Suffix is added to a file's name while it is written.
const Suffix = ".tmp"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Write replaces the file durably. On ErrNoSpace the old one is untouched.
func Write(fsys vfs.FS, name string, payload []byte) error {
	tmp := name + Suffix
	if err := fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", tmp, err)
	}
	file, err := fsys.Create(tmp)
	if err != nil {
		return fmt.Errorf("create %s: %w", tmp, err)
	}
	defer file.Close()
	if _, err := file.WriteAt(encode(payload), 0); err != nil {
		if errors.Is(err, vfs.ErrNoSpace) {
			err = errors.Join(err, fsys.Remove(tmp))
		}
		return fmt.Errorf("write %s: %w", tmp, err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", tmp, err)
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return fmt.Errorf("rename %s: %w", tmp, err)
	}
	if err := fsys.SyncDir(dir(name)); err != nil {
		return fmt.Errorf("sync the directory of %s: %w", name, err)
	}
	return nil
}

// Read returns what was written last. If there is no file the error matches
// fs.ErrNotExist; if it is damaged it is a *vfs.DamageError.
func Read(fsys vfs.FS, name string) ([]byte, error) {
	file, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", name, err)
	}
	buf := make([]byte, size)
	if n, err := file.ReadAt(buf, 0); err != nil && !(err == io.EOF && int64(n) == size) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	payload, err := Decode(buf)
	if err != nil {
		return nil, &vfs.DamageError{File: name, What: err.Error()}
	}
	return payload, nil
}

func dir(name string) string {
	if d := path.Dir(name); d != "." {
		return d
	}
	return ""
}

func encode(payload []byte) []byte {
	b := make([]byte, headerSize, headerSize+len(payload))
	copy(b, magic)
	binary.BigEndian.PutUint64(b[lengthAt:], uint64(len(payload)))
	b = append(b, payload...)
	binary.BigEndian.PutUint32(b[crcAt:], crc32.Checksum(b[lengthAt:], castagnoli))
	return b
}

// Decode checks a file's bytes and returns its contents.
func Decode(b []byte) ([]byte, error) {
	if n := len(magic) - 1; len(b) >= headerSize && string(b[:n]) == magic[:n] && b[n] != magic[n] {
		return nil, fmt.Errorf("version %q of its format, this pawl reads %q: start the one that wrote it", b[n:n+1], magic[n:])
	}
	if len(b) < headerSize || string(b[:len(magic)]) != magic {
		return nil, errors.New("no checkpoint header")
	}
	if n := binary.BigEndian.Uint64(b[lengthAt:]); n != uint64(len(b)-headerSize) {
		return nil, fmt.Errorf("%d bytes, header says %d", len(b)-headerSize, n)
	}
	if got, want := crc32.Checksum(b[lengthAt:], castagnoli), binary.BigEndian.Uint32(b[crcAt:]); got != want {
		return nil, fmt.Errorf("crc %#08x, header says %#08x", got, want)
	}
	return b[headerSize:], nil
}
