package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/checkpoint"
	"github.com/pawlbroker/pawl/storage/journal"
	"github.com/pawlbroker/pawl/storage/vfs"
)

const spareJournals = 2 // files kept for reuse

// quorumGrowBytes is how much of the quorum's journal is zeroed ahead at a time,
// at most. Metadata is little, and its first save is part of every first start.
const quorumGrowBytes = 32 << 10

func (c Config) journal() journal.Config {
	return journal.Config{FileBytes: c.JournalFileBytes, GrowBytes: c.JournalGrowBytes, Spares: spareJournals}
}

func (c Config) quorum() journal.Config {
	return journal.Config{FileBytes: c.JournalFileBytes, GrowBytes: min(c.JournalGrowBytes, quorumGrowBytes)}
}

// Open recovers the store of a data directory: the last checkpoint, and the
// journal since. Damage to the checkpoint or the journal is an error; damage to
// one log is in its RecoveredLog. Opening again after a crash in the middle
// comes to the same.
func Open(fsys vfs.FS, cfg Config) (*Store, Recovered, error) {
	s := &Store{fs: fsys, cfg: cfg, logs: map[LogID]*Log{}, graves: map[LogID]uint32{}}
	s.newNames = true // a process that was killed may have left some
	var out Recovered
	payload, err := checkpoint.Read(fsys, checkpointName)
	var mark cleanMark
	switch {
	case errors.Is(err, fs.ErrNotExist):
		out.Missing = true
		payload, err = firstStart(fsys, cfg)
	case err == nil:
		mark, out.Clean, err = laterStart(fsys)
	}
	if err != nil {
		return nil, out, err
	}
	c, err := s.decode(payload)
	if err != nil {
		return nil, out, &DamageError{File: checkpointName, What: err.Error()}
	}
	from := journal.From{Seq: c.seq, Durable: max(mark.journal, c.last), Exact: out.Clean}
	r := newReplay(s, c)
	if s.journal, err = journal.Open(fsys, journalDir, s.cfg.journal(), from, r.group); err != nil {
		return nil, out, err
	}
	if err := r.materialise(from); err != nil {
		return nil, out, err
	}
	s.quorum, err = journal.Open(fsys, quorumDir, s.cfg.quorum(), journal.From{Durable: mark.quorum, Exact: out.Clean}, func(g journal.Group) error {
		if g.Reset {
			out.Quorum = nil
		}
		for _, rec := range g.Records {
			out.Quorum = append(out.Quorum, slices.Clone(rec))
		}
		return nil
	})
	if err != nil {
		return nil, out, err
	}
	out.Groups, out.Bytes = r.groups, r.bytes
	if out.Logs, err = r.recovered(); err != nil {
		return nil, out, err
	}
	return s, out, nil
}

// firstStart makes an empty directory a data directory. The checkpoint is there
// before anything that it could vouch for, so that one that is missing later is
// known to be lost. One sync makes it, the directories and what the host wrote
// beside them durable.
func firstStart(fsys vfs.FS, cfg Config) ([]byte, error) {
	names, err := fsys.List("")
	if err != nil {
		return nil, fmt.Errorf("list the data directory: %w", err)
	}
	if slices.Contains(names, cleanName) {
		return nil, &DamageError{File: checkpointName, What: "missing, but there is a clean mark"}
	}
	used, err := usedDirectory(fsys)
	if err != nil {
		return nil, err
	}
	if used != "" {
		return nil, &DamageError{File: checkpointName, What: "missing, but there are files in " + used}
	}
	if err := makeDirectories(fsys); err != nil {
		return nil, err
	}
	payload := encodeCheckpointHead(cfg.IndexIntervalBytes, 1, 0, 0)
	return payload, checkpoint.Write(fsys, checkpointName, payload)
}

// laterStart readies a directory that has a checkpoint.
func laterStart(fsys vfs.FS) (mark cleanMark, clean bool, err error) {
	if mark, clean, err = takeClean(fsys); err != nil {
		return mark, false, err
	}
	if err := fsys.Remove(checkpointName + checkpoint.Suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return mark, false, fmt.Errorf("remove half-written checkpoint: %w", err)
	}
	// A crash in the first start may have left the checkpoint and not all of the
	// directories. Once there is a file in one of them they are all durable, and
	// one that is missing is lost.
	used, err := usedDirectory(fsys)
	if err == nil && used == "" {
		err = makeDirectories(fsys)
	}
	if err != nil {
		return mark, false, err
	}
	// The checkpoint may be there by a rename that was never synced. What is done
	// from here on, above all the reuse of journal files, must not meet the one
	// before it again. And a clean mark that comes back would be a lie.
	if err := fsys.SyncDir(""); err != nil {
		return mark, false, fmt.Errorf("sync the data directory: %w", err)
	}
	return mark, clean, nil
}

// usedDirectory is a directory that has files in it, or "".
func usedDirectory(fsys vfs.FS) (string, error) {
	for _, dir := range []string{quorumDir, journalDir, logsDir} {
		names, err := fsys.List(dir)
		if err != nil {
			return "", fmt.Errorf("list %s: %w", dir, err)
		}
		if len(names) > 0 {
			return dir, nil
		}
	}
	return "", nil
}

func makeDirectories(fsys vfs.FS) error {
	for _, dir := range []string{logsDir, journalDir, quorumDir} {
		if err := fsys.Mkdir(dir); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	return nil
}

// takeClean reads and removes the clean mark. A mark that cannot be read is none.
func takeClean(fsys vfs.FS) (mark cleanMark, clean bool, err error) {
	b, err := checkpoint.Read(fsys, cleanName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return mark, false, nil
	case err == nil:
		mark, clean = decodeClean(b)
	case errors.As(err, new(*DamageError)):
		assert.Reached("storage: damaged clean mark ignored")
	default:
		return mark, false, err
	}
	if err := fsys.Remove(cleanName); err != nil {
		return mark, false, fmt.Errorf("remove %s: %w", cleanName, err)
	}
	return mark, clean, nil
}

// recovered describes the logs. What was appended after a snapshot was taken is
// mostly known from the journal; the rest is read.
func (r *replay) recovered() ([]RecoveredLog, error) {
	var out []RecoveredLog
	for _, id := range r.s.sorted() {
		l := r.logs[id]
		v := View{l.view}
		rec := RecoveredLog{ID: id, View: v, Snapshot: l.snapshot}
		if l.view.damage == nil {
			var err error
			if rec.After, err = l.afterSnapshot(); err != nil {
				return nil, err
			}
		}
		rec.Damage = l.view.damage
		out = append(out, rec)
	}
	return out, nil
}

// afterSnapshot is what was appended to the log since its snapshot. Damage found
// on the way takes the log out of service; an error of the disk is returned, for
// it may be gone at the next start, and damage is remembered.
func (l *replayed) afterSnapshot() ([]BatchInfo, error) {
	var before []BatchInfo
	if l.upTo < l.afterFrom && l.upTo < l.view.end {
		assert.Reached("storage: batches since an older snapshot read from segments")
		err := View{l.view}.Batches(l.upTo, func(b BatchInfo) bool {
			if b.BaseOffset < l.afterFrom {
				before = append(before, b)
			}
			return b.BaseOffset < l.afterFrom
		})
		if errors.As(err, new(*DamageError)) {
			l.setDamage(err)
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("batches of log %s: %w", l.view.log, err)
		}
	}
	for len(l.after) > 0 && l.after[0].LastOffset < l.upTo {
		l.after = l.after[1:]
	}
	return append(before, l.after...), nil
}

// setDamage takes a log out of service.
func (l *replayed) setDamage(err error) {
	if l.view.damage != nil {
		return
	}
	assert.Reached("storage: log damaged at recovery")
	var d *DamageError
	if !errors.As(err, &d) {
		d = &DamageError{File: l.view.active.name(), What: err.Error()}
	}
	v := *l.view
	v.damage = d
	l.view = &v
}

// removeAll removes files; what is gone already is no error.
func (s *Store) removeAll(names []string) error {
	for _, name := range names {
		if err := s.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil
}

func set(names []string) map[string]bool {
	return maps.Collect(func(yield func(string, bool) bool) {
		for _, n := range names {
			if !yield(n, true) {
				return
			}
		}
	})
}
