package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// From says where recovery starts and what is known beforehand.
type From struct {
	// Seq is the first file that is needed. Zero starts at the newest group
	// that replaced all before it, or at the very first.
	Seq Seq
	// Durable is a group that is known to have been synced, with all before
	// it. If Exact, it is also known to be the last.
	Durable uint64
	Exact   bool
}

// End is where a scan ended.
type End struct {
	Seq     Seq
	Pos     int64  // where the next group goes
	Size    int64  // of the file
	Next    uint64 // number of the next group
	Torn    bool   // bytes of a group that was cut short lie at Pos or behind it
	Suspect int64  // what is from here to Pos is not known to be synced

	tail      []byte // those bytes
	stillborn Seq    // a file that was being created, or 0
	old       []Seq  // files that are read but not the last
	unneeded  []Seq  // files before the first that is needed
}

// Scan reads a journal without changing it and gives every group to f in
// order. A group's records are good until f returns. A journal without files is
// an End with Seq 0. Damage is a *vfs.DamageError.
func Scan(fsys vfs.FS, dir string, from From, f func(Group) error) (End, error) {
	seqs, err := list(fsys, dir)
	if err != nil {
		return End{}, err
	}
	vouched := from.Seq // a checkpoint comes after its journal file, but for the very first
	if from.Durable == 0 {
		vouched = 0
	}
	if from.Seq == 0 {
		if from.Seq, err = newestReset(fsys, dir, seqs); err != nil {
			return End{}, err
		}
	}
	n, _ := slices.BinarySearch(seqs, from.Seq)
	end := End{unneeded: seqs[:n:n]}
	seqs = seqs[n:]
	if from.Seq == 0 {
		if from.Durable > 0 {
			return End{}, damage(dir, 1, 0, fmt.Sprintf("journal is missing, though group %d was durable", from.Durable))
		}
		return end, nil
	}
	s := scanner{fs: fsys, dir: dir, from: from, emit: f, end: end, vouched: vouched}
	if len(seqs) == 0 && len(end.unneeded) == 0 && from.Seq == 1 && from.Durable == 0 {
		return end, nil // never begun
	}
	for i, want := 0, from.Seq; i < len(seqs) || i == 0; i, want = i+1, want+1 {
		if i == len(seqs) || seqs[i] != want {
			return End{}, damage(dir, want, 0, "journal file is missing")
		}
		more, err := s.file(want, i == 0, i == len(seqs)-1)
		if err != nil {
			return End{}, err
		}
		if !more {
			break
		}
	}
	return s.end, nil
}

func damage(dir string, seq Seq, pos int64, what string) error {
	return &vfs.DamageError{File: name(dir, seq), Pos: pos, What: what}
}

func list(fsys vfs.FS, dir string) ([]Seq, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var seqs []Seq
	for _, base := range names {
		if seq, ok := parseName(base); ok {
			seqs = append(seqs, seq)
		}
	}
	return seqs, nil
}

// newestReset finds where a journal that is not told otherwise starts.
func newestReset(fsys vfs.FS, dir string, seqs []Seq) (Seq, error) {
	if len(seqs) == 0 {
		return 0, nil
	}
	for _, seq := range slices.Backward(seqs) {
		buf, err := readFile(fsys, name(dir, seq))
		if err != nil {
			return 0, err
		}
		got, first, ok := decodeFileHeader(buf)
		if !ok || got != seq {
			continue
		}
		if first == 1 {
			return seq, nil
		}
		if g, err := decodeGroup(buf[sectorSize:], seq); err == nil && g.Number == first && g.Reset {
			return seq, nil
		}
	}
	if _, ok, _ := readHeader(fsys, dir, seqs[0]); !ok && len(seqs) == 1 && seqs[0] == 1 {
		return seqs[0], nil // the very first file, still being created
	}
	return 0, damage(dir, seqs[0], 0, "no file holds the start of the journal")
}

func readHeader(fsys vfs.FS, dir string, seq Seq) (first uint64, ok bool, err error) {
	file, err := fsys.Open(name(dir, seq))
	if err != nil {
		return 0, false, err
	}
	defer file.Close()
	buf := make([]byte, sectorSize)
	n, err := file.ReadAt(buf, 0)
	if err != nil && err != io.EOF {
		return 0, false, err
	}
	got, first, ok := decodeFileHeader(buf[:n])
	return first, ok && got == seq, nil
}

func readFile(fsys vfs.FS, name string) ([]byte, error) {
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
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
	return buf, nil
}

type scanner struct {
	fs   vfs.FS
	dir  string
	from From
	emit func(Group) error
	end  End

	vouched Seq // a file that the caller knows to exist durably, or 0
}

// file reads one file's groups. It reports false if the file was only being
// created when the machine went down, and the journal ends before it.
func (s *scanner) file(seq Seq, first, last bool) (more bool, err error) {
	buf, err := readFile(s.fs, name(s.dir, seq))
	if err != nil {
		return false, err
	}
	got, number, ok := decodeFileHeader(buf)
	ok = ok && got == seq
	switch {
	case !ok && last && !evidence(buf, seq, 0) && (!first || seq == 1 && s.from.Durable == 0):
		s.end.stillborn = seq
		return false, nil
	case !ok:
		return false, damage(s.dir, seq, 0, headerFault(buf))
	case first:
		s.end.Next = number
	case s.end.Next != number:
		return false, damage(s.dir, seq, 0, fmt.Sprintf("file starts with group %d, want %d", number, s.end.Next))
	default:
		s.end.old = append(s.end.old, s.end.Seq)
	}
	durable := s.from.Durable
	if !last {
		// A file is begun only after the one before it was synced, and has what
		// follows; only the last is the caller's to vouch for.
		durable = 0
		if next, ok, err := readHeader(s.fs, s.dir, seq+1); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		} else if ok {
			durable = next - 1
		}
	}
	return true, s.groups(buf, seq, durable)
}

func (s *scanner) groups(buf []byte, seq Seq, durable uint64) error {
	pos, first := int64(sectorSize), s.end.Next
	known := durable
	type start struct {
		number uint64
		pos    int64
	}
	var starts []start
	for {
		g, err := decodeGroup(buf[min(pos, int64(len(buf))):], seq)
		if err != nil || g.Number != s.end.Next {
			break
		}
		g.Pos = pos
		known = max(known, g.Durable)
		starts = append(starts, start{g.Number, pos})
		if err := s.emit(g); err != nil {
			return err
		}
		s.end.Next++
		pos += g.Size
	}
	if s.end.Next <= durable {
		return damage(s.dir, seq, pos, fmt.Sprintf("group %d was durable and cannot be read", s.end.Next))
	}
	exact := s.from.Exact && s.end.Next == s.from.Durable+1
	if !exact && evidence(buf[min(pos, int64(len(buf))):], seq, s.end.Next) {
		return damage(s.dir, seq, pos, fmt.Sprintf("group %d was durable and cannot be read", s.end.Next))
	}
	suspect := pos
	for _, st := range starts {
		if st.number > known {
			suspect = st.pos
			break
		}
	}
	if known < first && s.vouched != seq {
		suspect = 0 // not even that the file was begun is known
	}
	s.end.Seq, s.end.Pos, s.end.Size = seq, pos, int64(len(buf))
	s.end.Suspect, s.end.tail = suspect, buf[min(suspect, int64(len(buf))):min(pos, int64(len(buf)))]
	s.end.Torn = !exact && remains(buf, pos, seq)
	return nil
}

// evidence reports whether a group in buf, behind the first sector, proves that
// group number had been synced. Number 0 asks for any group at all.
func evidence(buf []byte, seq Seq, number uint64) bool {
	for at := sectorSize; at+groupHeader <= len(buf); at += sectorSize {
		if !startsGroup(buf[at:], seq) {
			continue
		}
		if g, err := decodeGroup(buf[at:], seq); err == nil && g.Durable >= number {
			return true
		}
	}
	return false
}

// remains reports whether anything from pos on could be taken for a group of
// seq once what is before it is written anew.
func remains(buf []byte, pos int64, seq Seq) bool {
	for at := pos; at+groupHeader <= int64(len(buf)); at += sectorSize {
		if startsGroup(buf[at:], seq) {
			return true
		}
	}
	return false
}

// Open reads a journal as Scan does, drops what a crash left behind, and makes
// every group it gave to f durable. A journal without files is begun at
// from.Seq, or at 1.
func Open(fsys vfs.FS, dir string, cfg Config, from From, f func(Group) error) (*Journal, error) {
	end, err := Scan(fsys, dir, from, f)
	if err != nil {
		return nil, err
	}
	j := &Journal{fs: fsys, dir: dir, cfg: cfg, old: end.old}
	if end.stillborn != 0 {
		assert.Reached("journal: half-made file removed")
		if err := fsys.Remove(name(dir, end.stillborn)); err != nil {
			return nil, fmt.Errorf("remove %s: %w", name(dir, end.stillborn), err)
		}
	}
	if end.Seq == 0 {
		j.seq, j.pos, j.size, j.next = max(from.Seq, 1), sectorSize, sectorSize, max(end.Next, 1)
		j.durable = j.next - 1
		j.file, err = j.create(j.seq, j.next)
		return j, err
	}
	if j.file, err = fsys.Open(name(dir, end.Seq)); err != nil {
		return nil, err
	}
	j.seq, j.pos, j.size, j.next = end.Seq, end.Pos, end.Size, end.Next
	if end.Torn {
		assert.Reached("journal: torn tail cut")
		if err := j.file.Truncate(j.pos); err != nil {
			return nil, fmt.Errorf("cut %s: %w", name(dir, j.seq), err)
		}
		j.size = j.pos
	}
	if len(end.tail) > 0 {
		// This can be read, but perhaps only from the page cache of a process that
		// died between its write and its sync, or whose sync failed. Writing it
		// again makes the sync mean something.
		assert.Reached("journal: unsynced tail written again")
		if _, err := j.file.WriteAt(end.tail, end.Suspect); err != nil {
			return nil, fmt.Errorf("rewrite %s: %w", name(dir, j.seq), err)
		}
	}
	j.durable = j.next - 1
	if end.Torn || len(end.tail) > 0 {
		if err := j.file.Sync(); err != nil {
			return nil, fmt.Errorf("sync %s: %w", name(dir, j.seq), err)
		}
	}
	if end.Suspect == 0 {
		if err := fsys.SyncDir(dir); err != nil {
			return nil, fmt.Errorf("sync %s: %w", dir, err)
		}
	}
	j.measure()
	return j, j.sweep(end.unneeded) // not before what replaced them is durable
}

// sweep keeps some of the files that nothing needs for reuse. One whose header
// is not its own was being renamed when the machine went down, and may be there
// under two names: it goes.
func (j *Journal) sweep(unneeded []Seq) error {
	for _, seq := range unneeded {
		_, ok, err := readHeader(j.fs, j.dir, seq)
		if err != nil {
			return err
		}
		if ok && len(j.spares) < j.cfg.Spares {
			j.spares = append(j.spares, seq)
			continue
		}
		if err := j.fs.Remove(name(j.dir, seq)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", name(j.dir, seq), err)
		}
	}
	if j.cfg.Spares == 0 && len(unneeded) > 0 {
		return j.fs.SyncDir(j.dir)
	}
	return nil
}

// DecodeFile tells f of the groups in a file's bytes, as far as they can be
// read. It returns the file's sequence and the number of its first group.
func DecodeFile(b []byte, f func(Group) error) (seq Seq, first uint64, err error) {
	seq, first, ok := decodeFileHeader(b)
	if !ok {
		return 0, 0, errors.New("no journal file header")
	}
	pos, want := int64(sectorSize), first
	for pos < int64(len(b)) {
		g, err := decodeGroup(b[pos:], seq)
		if err != nil || g.Number != want {
			break
		}
		g.Pos = pos
		if err := f(g); err != nil {
			return seq, first, err
		}
		pos += g.Size
		want++
	}
	return seq, first, nil
}
