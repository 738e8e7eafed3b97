package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/checkpoint"
	"github.com/pawlbroker/pawl/storage/journal"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

const (
	checkpointName = "checkpoint"
	cleanName      = "clean"
	journalDir     = "journal"
	quorumDir      = "quorum"
)

// A capture is a checkpoint on its way: all logs as they were, and what must be
// synced before that may be believed.
type capture struct {
	payload []byte
	seq     journal.Seq // the first journal file that it needs
	dirty   []*segment
	doomed  []string // files that no log has any more
}

// BeginCheckpoint fixes what the next checkpoint holds: every log as it is, and
// the given snapshots in the place of older ones. A begun checkpoint that was
// not finished is forgotten. On ErrNoSpace nothing has begun.
func (s *Store) BeginCheckpoint(snapshots []Snapshot) error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.journal.Rotate(); err != nil {
		return s.unlessFull(err)
	}
	for _, snap := range snapshots {
		if l := s.logs[snap.Log]; l != nil {
			l.snapshot, l.upTo = snap.Data, l.view.end
		}
	}
	c := &capture{payload: s.encode(), seq: s.journal.Seq(), dirty: s.dirty, doomed: s.doomed}
	for _, g := range s.dirty {
		g.dirty = false
	}
	s.dirty, s.doomed = nil, nil

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		maps.DeleteFunc(s.graves, func(id LogID, g uint32) bool { return s.buried[id] == g })
	}
	s.finished, s.buried = false, maps.Clone(s.graves)
	c.inherit(s.begun)
	c.inherit(s.abandoned)
	s.begun, s.abandoned = c, nil
	return nil
}

// inherit takes over what a checkpoint that came to nothing had to do.
func (c *capture) inherit(from *capture) {
	if from != nil {
		c.dirty = append(c.dirty, from.dirty...)
		c.doomed = append(c.doomed, from.doomed...)
	}
}

// FinishCheckpoint makes the begun checkpoint durable, frees the journal before
// it and removes files that no log has any more. It may run beside everything
// else. With no checkpoint begun it does nothing. On ErrNoSpace the checkpoint is
// given up, and the one before it stands.
func (s *Store) FinishCheckpoint() error {
	if err := s.usable(); err != nil {
		return err
	}
	s.finishing.Lock()
	defer s.finishing.Unlock()
	s.mu.Lock()
	c := s.begun
	s.begun = nil
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	err := s.finish(c)
	s.mu.Lock()
	s.finished = err == nil
	if errors.Is(err, ErrNoSpace) {
		assert.Reached("storage: checkpoint given up for want of space")
		s.abandoned = c
	}
	s.mu.Unlock()
	return s.unlessFull(err)
}

func (s *Store) finish(c *capture) error {
	files := c.files()
	if err := s.fs.SyncFiles(files); err != nil {
		return fmt.Errorf("sync %d files: %w", len(files), notSpace(err))
	}
	if err := s.fs.SyncDir(logsDir); err != nil {
		return fmt.Errorf("sync %s: %w", logsDir, notSpace(err))
	}
	if err := checkpoint.Write(s.fs, checkpointName, c.payload); err != nil {
		return err
	}
	if err := s.journal.Recycle(c.seq); err != nil {
		return notSpace(err)
	}
	return s.removeAll(c.doomed)
}

// files are the open files behind the dirty segments. A segment that was cut
// since is one of them: the checkpoint vouches for the part that is left. What
// has no open file was taken back.
func (c *capture) files() (files []vfs.File) {
	for _, g := range c.dirty {
		if f := g.file.Load(); f != nil {
			files = append(files, *f)
		}
		if f := g.index.Load(); f != nil {
			files = append(files, *f)
		}
	}
	return files
}

// Close checkpoints everything and leaves the clean mark. On ErrNoSpace the
// store stays open; nothing is lost by not closing it.
func (s *Store) Close(snapshots []Snapshot) error {
	if err := s.BeginCheckpoint(snapshots); err != nil {
		return err
	}
	if err := s.FinishCheckpoint(); err != nil {
		return err
	}
	if err := checkpoint.Write(s.fs, cleanName, cleanMark{s.journal.Last(), s.quorum.Last()}.encode()); err != nil {
		return s.unlessFull(err)
	}
	err := errors.Join(s.journal.Close(), s.quorum.Close())
	s.fail(errors.New("store was closed"))
	return err
}

// A cleanMark says where both journals end.
type cleanMark struct {
	journal uint64 // number of the last group
	quorum  uint64
}

func (c cleanMark) encode() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, c.journal), c.quorum)
}

func decodeClean(b []byte) (cleanMark, bool) {
	if len(b) != 16 {
		return cleanMark{}, false
	}
	return cleanMark{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, true
}

const checkpointVersion = 3

func (s *Store) encode() []byte {
	b := encodeCheckpointHead(s.cfg.IndexIntervalBytes, s.journal.Seq(), s.journal.Last(), len(s.logs))
	for _, id := range s.sorted() {
		b = s.logs[id].appendTo(b)
	}
	return b
}

func encodeCheckpointHead(interval int64, seq journal.Seq, last uint64, logs int) []byte {
	b := binary.BigEndian.AppendUint32(nil, checkpointVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(interval))
	b = binary.BigEndian.AppendUint64(b, uint64(seq))
	b = binary.BigEndian.AppendUint64(b, last)
	return binary.BigEndian.AppendUint32(b, uint32(logs))
}

func (l *Log) appendTo(b []byte) []byte {
	v := l.view
	u64 := func(n int64) { b = binary.BigEndian.AppendUint64(b, uint64(n)) }
	u32 := func(n uint32) { b = binary.BigEndian.AppendUint32(b, n) }
	bytes := func(p []byte) { u32(uint32(len(p))); b = append(b, p...) }
	b = append(b, v.log.Topic[:]...)
	u32(uint32(v.log.Partition))
	u64(int64(v.start))
	u64(int64(v.end))
	u32(v.generation)
	if v.damage == nil {
		b = append(b, 0)
	} else {
		b = append(b, 1)
		bytes([]byte(v.damage.File))
		u64(v.damage.Pos)
		bytes([]byte(v.damage.What))
	}
	u32(uint32(len(v.segments)))
	for _, g := range v.segments {
		u64(int64(g.base))
		u32(g.generation)
		u64(g.size)
		u64(int64(g.next))
		u64(g.entries)
		u64(int64(g.maxTime))
	}
	u64(int64(v.active.base))
	u32(v.active.generation)
	u64(v.size)
	u64(v.indexed)
	u64(int64(v.maxTime))
	u32(uint32(len(v.pending)))
	for _, e := range v.pending {
		b = e.appendTo(b)
	}
	u32(v.run.batches)
	u64(int64(v.run.first))
	u64(v.run.pos)
	u32(v.run.frames)
	u32(uint32(len(v.epochs)))
	for _, e := range v.epochs {
		u32(uint32(e.Epoch))
		u64(int64(e.Start))
	}
	u64(int64(l.upTo))
	if l.snapshot == nil {
		b = append(b, 0)
	} else {
		b = append(b, 1)
		bytes(l.snapshot)
	}
	bytes(l.deleted)
	return b
}

// A captured is a decoded checkpoint.
type captured struct {
	interval int64
	seq      journal.Seq
	last     uint64 // journal group
	logs     []*Log
}

// reader takes a payload apart. After an overrun everything is zero and bad.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.b, r.bad = nil, true
		return make([]byte, min(max(n, 8), 16))
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}
func (r *reader) u8() byte      { return r.take(1)[0] }
func (r *reader) u32() uint32   { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) u64() int64    { return int64(binary.BigEndian.Uint64(r.take(8))) }
func (r *reader) bytes() []byte { return slices.Clone(r.take(int(r.u32()))) }

var errCheckpoint = errors.New("malformed checkpoint")

func (s *Store) decode(b []byte) (captured, error) {
	r := &reader{b: b}
	version := r.u32()
	if version < 1 || version > checkpointVersion {
		return captured{}, fmt.Errorf("%w: version %d, this pawl reads 1 to %d: start the one that wrote it", errCheckpoint, version, checkpointVersion)
	}
	c := captured{interval: r.u64(), seq: journal.Seq(r.u64()), last: uint64(r.u64())}
	s.volume = &volume{s.fs, c.interval}
	for n := r.u32(); n > 0 && !r.bad; n-- {
		c.logs = append(c.logs, s.decodeLog(r, version))
	}
	if r.bad || len(r.b) > 0 {
		return captured{}, errCheckpoint
	}
	return c, nil
}

func (s *Store) decodeLog(r *reader, version uint32) *Log {
	var id LogID
	copy(id.Topic[:], r.take(16))
	id.Partition = int32(r.u32())
	v := &snapshot{log: id, start: record.Offset(r.u64()), end: record.Offset(r.u64()), generation: r.u32()}
	if r.u8() != 0 {
		v.damage = &DamageError{File: string(r.bytes()), Pos: r.u64(), What: string(r.bytes())}
	}
	for n := r.u32(); n > 0 && !r.bad; n-- {
		g := s.newSegment(id, record.Offset(r.u64()), r.u32())
		g.size, g.next, g.entries, g.maxTime = r.u64(), record.Offset(r.u64()), r.u64(), record.Timestamp(r.u64())
		g.untrusted = g.size
		v.segments = append(v.segments, g)
	}
	v.active = s.newSegment(id, record.Offset(r.u64()), r.u32())
	v.size, v.indexed, v.maxTime = r.u64(), r.u64(), record.Timestamp(r.u64())
	v.active.untrusted, v.active.size = v.size, v.size
	if version > 1 {
		for n := r.u32(); n > 0 && !r.bad; n-- {
			e, err := decodeEntry(r.take(entrySize))
			r.bad = r.bad || err != nil
			v.pending = append(v.pending, e)
		}
	}
	v.run.batches = r.u32()
	v.run.first, v.run.pos, v.run.frames = record.Offset(r.u64()), r.u64(), r.u32()
	for n := r.u32(); n > 0 && !r.bad; n-- {
		v.epochs = append(v.epochs, EpochStart{record.LeaderEpoch(r.u32()), record.Offset(r.u64())})
	}
	l := &Log{view: v, upTo: record.Offset(r.u64())}
	if r.u8() != 0 {
		l.snapshot = r.bytes()
	}
	if version > 2 {
		if deleted := r.bytes(); len(deleted) > 0 {
			l.deleted = deleted
		}
	}
	return l
}
