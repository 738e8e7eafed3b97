// Package storage keeps partition logs in files. Its code blocks; hosts run it
// off the event loop, as jobs (package storage/job).
//
// One journal makes a whole commit group durable with one sync, whatever the
// number of logs in it; segments are written through the page cache and synced
// by checkpoints. FORMAT.md describes every file and what recovery does.
//
// Sources: ARIES (PAPERS.md) for journal, checkpoint and replay; KIP-101 for
// leader epochs.
package storage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/journal"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// Log is one partition's records, as the lane of logs knows it.
type Log struct {
	view     *snapshot
	snapshot []byte        // opaque, of the node's
	upTo     record.Offset // the log end that snapshot belongs to
	deleted  []byte        // the snapshot of what was before the log start
}

// Store is all logs of a data directory and the quorum's journal.
//
// Begin, Commit, Truncate, Reset, Since, Delete, RaiseStart, BeginCheckpoint, Close and View
// belong to one goroutine at a time: the lane of logs. Groups that were begun may
// be finished on others, in order; all but Begin want them finished before.
// FinishCheckpoint and SaveQuorum may each run on another. Views are free.
type Store struct {
	fs     vfs.FS
	cfg    Config
	volume *volume

	// The lane of logs'.
	journal  *journal.Journal
	logs     map[LogID]*Log
	ids      []LogID // of logs, sorted; nil when out of date
	scratch  []byte
	newNames bool             // files were created in logs since it was synced
	dirty    []*segment       // written since the last checkpoint began
	doomed   []string         // files dropped since then
	graves   map[LogID]uint32 // next generation of logs that were deleted
	buried   map[LogID]uint32 // graves when the last checkpoint began

	unborn map[LogID]record.Offset // where logs begin whose first append found no space

	quorum *journal.Journal // the lane of the quorum's

	begin   sync.Mutex // held by Begin, and by what takes back groups that were begun
	flights flights

	finishing sync.Mutex // held by FinishCheckpoint and Close
	mu        sync.Mutex
	failed    error
	begun     *capture // a checkpoint that is not finished
	abandoned *capture // one that found no space
	finished  bool     // the last checkpoint begun was finished
}

// View is the log as it is. A log that was never appended to, or was deleted,
// gives ErrUnknownLog.
func (s *Store) View(id LogID) (View, error) {
	l := s.logs[id]
	if l == nil {
		return View{}, fmt.Errorf("log %s: %w", id, ErrUnknownLog)
	}
	return View{l.view}, nil
}

// fail makes the store refuse everything from here on. After a failed write or
// sync nothing is known about the files, and trying again proves nothing.
func (s *Store) fail(err error) error {
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		assert.Reached("storage: store failed for good")
		s.failed = err
	}
	return err
}

// unlessFull is fail, except for a full disk, which is survivable.
func (s *Store) unlessFull(err error) error {
	if errors.Is(err, ErrNoSpace) {
		return err
	}
	return s.fail(err)
}

// usable is the error that everything is refused with, if there is one.
func (s *Store) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return fmt.Errorf("store is closed after: %w", s.failed)
	}
	return nil
}

// sorted lists the logs by id.
func (s *Store) sorted() []LogID {
	if s.ids == nil {
		s.ids = slices.SortedFunc(maps.Keys(s.logs), func(a, b LogID) int {
			if a.Less(b) {
				return -1
			}
			return 1
		})
	}
	return s.ids
}

// newSegment is a file that does not exist yet.
func (s *Store) newSegment(id LogID, base record.Offset, generation uint32) *segment {
	return &segment{volume: s.volume, log: id, base: base, generation: generation}
}

// create makes a segment's file, or that of its index.
func (s *Store) create(name string) (*vfs.File, error) {
	f, err := s.fs.Create(name)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	s.newNames = true
	return &f, nil
}

// markDirty makes the next checkpoint sync a segment.
func (s *Store) markDirty(g *segment) {
	if !g.dirty {
		g.dirty = true
		s.dirty = append(s.dirty, g)
	}
}

// writeIndex puts entries into a segment's index from entry at on.
func (s *Store) writeIndex(g *segment, at int64, entries []indexEntry) error {
	if len(entries) == 0 {
		return nil
	}
	if at == 0 && g.index.Load() == nil {
		f, err := s.create(g.indexName())
		if err != nil {
			return err
		}
		g.index.Store(f)
	}
	f, err := g.openIndex()
	if err != nil {
		return err
	}
	s.markDirty(g)
	if _, err := f.WriteAt(encodeEntries(entries), at*entrySize); err != nil {
		return fmt.Errorf("write %s: %w", g.indexName(), err)
	}
	return nil
}

// SaveQuorum appends records to the quorum's journal, durably. If replace, they
// take the place of everything in it.
func (s *Store) SaveQuorum(records [][]byte, replace bool) error {
	if err := s.usable(); err != nil {
		return err
	}
	size := 0
	for _, r := range records {
		size += len(r) + journal.RecordOverhead
	}
	var d journal.Draft
	d.Begin(size)
	for _, r := range records {
		copy(d.Add(len(r)), r)
	}
	if replace {
		return s.unlessFull(s.quorum.Replace(&d))
	}
	if err := s.quorum.Append(&d); err != nil {
		return s.unlessFull(err)
	}
	return s.fail(s.quorum.Sync())
}
