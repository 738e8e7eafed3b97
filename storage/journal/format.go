package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// sectorSize is what a disk writes whole or not at all. Every group starts on
// such a boundary, so a torn write of one group never damages another.
const sectorSize = 512

// Layout of a file's first sector. All integers are big endian.
const (
	fileMagic      = "PAWLJRN1"
	fileCRCAt      = 8  // uint32, CRC-32C of the bytes from fileSeqAt to fileHeaderSize
	fileReservedAt = 12 // uint32, zero
	fileSeqAt      = 16 // uint64
	fileFirstAt    = 24 // uint64, number of the first group
	fileHeaderSize = 32 // the rest of the sector is zero
)

// Layout of a group's header.
const (
	groupMagic     = 0x50574c47 // "PWLG": no byte of it is zero, see escape
	magicAt        = 0          // uint32
	crcAt          = 4          // uint32, CRC-32C of everything from lengthAt to the end of the escapes
	lengthAt       = 8          // uint32, bytes of records
	countAt        = 12         // uint32, records
	flagsAt        = 16         // uint32
	escapesAt      = 20         // uint32, sectors escaped
	seqAt          = 24         // uint64, the file's sequence: a recycled file's old groups are not taken for new
	numberAt       = 32         // uint64, continues over files
	durableAt      = 40         // uint64, the last group known to be synced when this one was written
	groupHeader    = 48
	recordOverhead = 4 // uint32, bytes of the record that follows
)

const flagReset = 1 // the records take the place of everything before

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errBad says that bytes are no group. What that means is for the caller.
var errBad = errors.New("not a whole group")

// Seq numbers a journal's files, from 1.
type Seq uint64

// Group is what was appended at once.
type Group struct {
	Seq     Seq
	Number  uint64 // from 1
	Pos     int64  // in the file
	Size    int64  // bytes on disk, padding included
	Durable uint64 // the last group known to be synced when this one was written
	Reset   bool   // takes the place of everything before
	Records [][]byte
}

func name(dir string, seq Seq) string { return fmt.Sprintf("%s/%020d.journal", dir, uint64(seq)) }

// parseName is the inverse of name, without the directory.
func parseName(base string) (Seq, bool) {
	digits, ok := strings.CutSuffix(base, ".journal")
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return Seq(n), err == nil && n > 0
}

func encodeFileHeader(seq Seq, first uint64) []byte {
	b := make([]byte, sectorSize)
	copy(b, fileMagic)
	binary.BigEndian.PutUint64(b[fileSeqAt:], uint64(seq))
	binary.BigEndian.PutUint64(b[fileFirstAt:], first)
	binary.BigEndian.PutUint32(b[fileCRCAt:], crc32.Checksum(b[fileSeqAt:fileHeaderSize], castagnoli))
	return b
}

func decodeFileHeader(b []byte) (seq Seq, first uint64, ok bool) {
	if len(b) < sectorSize || string(b[:len(fileMagic)]) != fileMagic ||
		binary.BigEndian.Uint32(b[fileReservedAt:]) != 0 ||
		binary.BigEndian.Uint32(b[fileCRCAt:]) != crc32.Checksum(b[fileSeqAt:fileHeaderSize], castagnoli) {
		return 0, 0, false
	}
	return Seq(binary.BigEndian.Uint64(b[fileSeqAt:])), binary.BigEndian.Uint64(b[fileFirstAt:]), true
}

// headerFault is what is wrong with a file's header.
func headerFault(b []byte) string {
	if n := len(fileMagic) - 1; len(b) >= sectorSize && string(b[:n]) == fileMagic[:n] && b[n] != fileMagic[n] {
		return fmt.Sprintf("version %q of its format, this pawl reads %q: start the one that wrote it", b[n:n+1], fileMagic[n:])
	}
	return "journal file header is damaged"
}

// startsGroup reports whether a sector looks like the start of a group of seq.
func startsGroup(sector []byte, seq Seq) bool {
	return len(sector) >= groupHeader && binary.BigEndian.Uint32(sector) == groupMagic &&
		Seq(binary.BigEndian.Uint64(sector[seqAt:])) == seq
}

// seal completes the group in buf: header, escapes and padding.
func seal(buf []byte, count int, flags uint32, seq Seq, number, durable uint64) []byte {
	length := len(buf) - groupHeader
	buf, escapes := escape(buf)
	h := buf[:groupHeader]
	binary.BigEndian.PutUint32(h[magicAt:], groupMagic)
	binary.BigEndian.PutUint32(h[lengthAt:], uint32(length))
	binary.BigEndian.PutUint32(h[countAt:], uint32(count))
	binary.BigEndian.PutUint32(h[flagsAt:], flags)
	binary.BigEndian.PutUint32(h[escapesAt:], uint32(escapes))
	binary.BigEndian.PutUint64(h[seqAt:], uint64(seq))
	binary.BigEndian.PutUint64(h[numberAt:], number)
	binary.BigEndian.PutUint64(h[durableAt:], durable)
	binary.BigEndian.PutUint32(h[crcAt:], crc32.Checksum(buf[lengthAt:], castagnoli))
	return pad(buf)
}

// unseal makes a group that was sealed what it was before.
func unseal(buf []byte) []byte {
	body := groupHeader + int(binary.BigEndian.Uint32(buf[lengthAt:]))
	escapes := int(binary.BigEndian.Uint32(buf[escapesAt:]))
	for list := buf[body : body+4*escapes]; len(list) > 0; list = list[4:] {
		binary.BigEndian.PutUint32(buf[binary.BigEndian.Uint32(list)*sectorSize:], groupMagic)
	}
	return buf[:body]
}

// escape makes sure that no sector of a group but the first starts with the
// magic, whatever a client put into its records: recovery looks for groups at
// every sector, and must not be shown forged ones. A sector's number is below
// 2^23, so every number in the list has a zero byte, and the magic has none: the
// list needs no escaping itself.
func escape(buf []byte) ([]byte, int) {
	end, n := len(buf), 0
	for at := sectorSize; at+4 <= end; at += sectorSize {
		if binary.BigEndian.Uint32(buf[at:]) == groupMagic {
			binary.BigEndian.PutUint32(buf[at:], 0)
			buf = binary.BigEndian.AppendUint32(buf, uint32(at/sectorSize))
			n++
		}
	}
	return buf, n
}

var zeroSector [sectorSize]byte

func pad(buf []byte) []byte {
	if over := len(buf) % sectorSize; over > 0 {
		buf = append(buf, zeroSector[over:]...)
	}
	return buf
}

// decodeGroup reads the group at the start of buf. The records share buf unless
// the group was escaped.
func decodeGroup(buf []byte, seq Seq) (Group, error) {
	if !startsGroup(buf, seq) {
		return Group{}, errBad
	}
	length := int64(binary.BigEndian.Uint32(buf[lengthAt:]))
	escapes := int64(binary.BigEndian.Uint32(buf[escapesAt:]))
	whole := groupHeader + length + 4*escapes
	size := (whole + sectorSize - 1) / sectorSize * sectorSize
	if size > int64(len(buf)) || // without its padding it was not synced
		crc32.Checksum(buf[lengthAt:whole], castagnoli) != binary.BigEndian.Uint32(buf[crcAt:]) {
		return Group{}, errBad
	}
	flags := binary.BigEndian.Uint32(buf[flagsAt:])
	g := Group{
		Seq:     seq,
		Number:  binary.BigEndian.Uint64(buf[numberAt:]),
		Size:    size,
		Durable: binary.BigEndian.Uint64(buf[durableAt:]),
		Reset:   flags&flagReset != 0,
	}
	body := buf[:groupHeader+length]
	if escapes > 0 {
		body = append([]byte(nil), body...)
		for list := buf[groupHeader+length : whole]; len(list) > 0; list = list[4:] {
			at := int64(binary.BigEndian.Uint32(list)) * sectorSize
			if at < sectorSize || at+4 > int64(len(body)) {
				return Group{}, errBad
			}
			binary.BigEndian.PutUint32(body[at:], groupMagic)
		}
	}
	rest := body[groupHeader:]
	for n := binary.BigEndian.Uint32(buf[countAt:]); n > 0; n-- {
		if len(rest) < recordOverhead {
			return Group{}, errBad
		}
		end := recordOverhead + int64(binary.BigEndian.Uint32(rest))
		if end > int64(len(rest)) {
			return Group{}, errBad
		}
		g.Records = append(g.Records, rest[recordOverhead:end:end])
		rest = rest[end:]
	}
	if len(rest) > 0 || flags&^flagReset != 0 {
		return Group{}, errBad
	}
	return g, nil
}
