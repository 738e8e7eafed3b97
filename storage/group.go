package storage

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/journal"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// A Group is a commit group on its way. It is committed in three steps, so that
// large groups can overlap: while the segments of one are being synced, those of
// the next are written.
//
//	Begin         on the lane of logs: offsets are checked, segments written
//	SyncSegments  anywhere: what a large append wrote is made durable
//	Finish        in the order of the Begins: the journal, which is what counts
//
// A group that was begun is what the next one continues, before it is durable.
// If it then finds no space in the journal, those begun after it are taken back
// with it; but none of them is early. What is early may be shown to others between
// Begin and Finish: from then on it becomes durable, or the process ends.
type Group struct {
	s      *Store
	stages []stage
	which  []int // stage of each write
	out    []Committed
	draft  journal.Draft

	large   []vfs.File // to be synced before the journal may tell of them
	names   bool       // and the directory
	durable bool       // some write must be durable
	room    int64      // that it takes in the journal at most, in bytes
	early   bool       // the journal has room for it and all before it
	empty   bool       // nothing is left to write
	undone  bool       // taken back; under Store.begin

	synced   atomic.Bool // what a large append wrote is durable
	finished bool        // with one before it; the finisher's
}

// flights are the groups that were begun and not finished.
type flights struct {
	mu     sync.Mutex
	groups []*Group // oldest first
	spare  []*Group // for reuse
}

func (f *flights) take() *Group {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.spare); n > 0 {
		g := f.spare[n-1]
		f.spare = f.spare[:n-1]
		return g
	}
	return &Group{}
}

func (f *flights) add(g *Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.groups = append(f.groups, g)
}

// room is how much the groups take in the journal at most, in bytes.
func (f *flights) room() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.groups {
		n += g.room
	}
	return n
}

// early reports whether one of the groups may have been shown to others.
func (f *flights) early() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.groups, func(g *Group) bool { return g.early })
}

// behind is the group that was begun after g, or nil.
func (f *flights) behind(g *Group) *Group {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.groups, g) + 1; i < len(f.groups) {
		return f.groups[i]
	}
	return nil
}

// land drops the oldest group.
func (f *flights) land(g *Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.That(len(f.groups) > 0 && f.groups[0] == g, "storage: groups finished out of order")
	f.groups = slices.Delete(f.groups, 0, 1)
	const spares = 16
	if len(f.spare) < spares {
		f.spare = append(f.spare, g)
	}
}

// Begin writes a commit group to the segments. Each write continues its log, or
// is refused alone with ErrNotNext. What became of the writes is known after
// Finish, which must be called whatever happens.
func (s *Store) Begin(writes []Write) *Group {
	g := s.flights.take()
	*g = Group{s: s, stages: g.stages[:0], which: slices.Grow(g.which[:0], len(writes)), draft: g.draft, large: g.large[:0],
		out: make([]Committed, len(writes))}
	s.begin.Lock()
	defer s.begin.Unlock()
	defer s.flights.add(g)
	if err := s.usable(); err != nil {
		g.refuse(err)
		return g
	}
	var index map[LogID]int
	for i := range writes {
		at, err := s.stageWrite(&g.stages, &index, &writes[i])
		g.which = append(g.which, at)
		g.out[i].Err = err
		g.durable = g.durable || err == nil && !writes[i].PageCache
	}
	if err := g.write(); err != nil {
		g.unbear()
		g.refuse(err)
		return g
	}
	for i := range g.stages {
		if st := &g.stages[i]; len(st.pieces) > 0 {
			st.log.view = st.next
			if st.isNew {
				s.logs[st.next.log] = st.log
				s.ids = nil
				delete(s.unborn, st.next.log)
			}
		}
	}
	for i := range g.out {
		if g.out[i].Err == nil {
			g.out[i].View = View{g.stages[g.which[i]].next}
		}
	}
	if !g.empty {
		g.room = g.draft.Room()
		flying := s.flights.room() // before the journal's: what lands in between counts twice, and not never
		g.early = flying+g.room <= s.journal.Room()
	}
	return g
}

// Early is what becomes of the group's writes, before it is durable, or nil if
// that is not certain yet: the journal may have no space for it. It must be asked
// for before Finish; what it says of a write without an error can be read.
func (g *Group) Early() []Committed {
	if !g.early {
		return nil
	}
	return slices.Clone(g.out)
}

// refuse makes err the fate of every write that has none yet.
func (g *Group) refuse(err error) {
	g.empty = true
	for i := range g.out {
		if g.out[i].Err == nil {
			g.out[i] = Committed{Err: err}
		}
	}
}

// write writes the stages to their segments and drafts the journal's group.
func (g *Group) write() error {
	size := 0
	g.empty = true
	for i := range g.stages {
		st := &g.stages[i]
		g.empty = g.empty && len(st.pieces) == 0
		head := placeHead + journal.RecordOverhead
		if st.large(g.s.cfg.LargeAppend) {
			head = extentSize + journal.RecordOverhead
		} else {
			size += int(st.bytes)
		}
		size += head * len(st.pieces)
	}
	if g.empty {
		return nil
	}
	g.draft.Begin(size)
	err := g.s.writeStages(g)
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrNoSpace) {
		assert.Reached("storage: commit group found no space")
		if undo := g.s.undo(g.stages); undo != nil {
			return g.s.fail(undo)
		}
	}
	return g.s.unlessFull(err)
}

func (s *Store) writeStages(g *Group) error {
	for i := range g.stages {
		st := &g.stages[i]
		for _, p := range st.pieces {
			if err := s.writePiece(g, st, p); err != nil {
				return err
			}
		}
		for _, c := range st.sealed {
			if err := s.writeIndex(c.seg, c.at, c.entries); err != nil {
				return err
			}
		}
		if n := st.next; len(n.pending) >= flushEntries {
			if err := s.writeIndex(n.active, n.indexed, n.pending); err != nil {
				return err
			}
			n.indexed += int64(len(n.pending))
			n.pending = nil
		}
	}
	if len(g.large) > 0 && s.newNames {
		g.names, s.newNames = true, false
	}
	return nil
}

// Large reports whether SyncSegments has something to do.
func (g *Group) Large() bool { return len(g.large) > 0 && !g.empty }

// SyncSegments makes what large appends wrote durable, all files together. It
// may run beside anything.
func (g *Group) SyncSegments() {
	if !g.Large() {
		return
	}
	err := g.s.fs.SyncFiles(g.large)
	if err == nil && g.names {
		err = g.s.fs.SyncDir(logsDir)
	}
	if err != nil {
		g.s.fail(fmt.Errorf("sync %d segments: %w", len(g.large), notSpace(err)))
		return
	}
	g.synced.Store(true)
}

// Finish commits the group, if it still can be, and says what became of its
// writes. The group must not be used any more.
func (g *Group) Finish() []Committed {
	s, out := g.s, g.out
	if err := g.finish(); err != nil {
		g.refuse(err)
	}
	for i := range g.stages {
		st := &g.stages[i]
		clear(st.batches)
		clear(st.pieces)
		clear(st.sealed)
		st.log, st.prev, st.next = nil, nil, nil
	}
	clear(g.large)
	s.flights.land(g)
	return out
}

func (g *Group) finish() error {
	s := g.s
	if g.empty {
		return nil
	}
	if err := s.usable(); err != nil {
		return err
	}
	if g.finished {
		assert.Reached("storage: commit group finished with the one before it")
		return nil
	}
	if g.undone {
		assert.That(!g.early, "storage: what was shown is taken back")
		return fmt.Errorf("a commit group before this one: %w", ErrNoSpace)
	}
	err := s.journal.Append(&g.draft)
	if errors.Is(err, ErrNoSpace) && s.flights.early() {
		return s.fail(fmt.Errorf("a commit group that was shown: %w", notSpace(err)))
	}
	if errors.Is(err, ErrNoSpace) {
		assert.Reached("storage: commit group found no space")
		if undo := s.takeBack(g); undo != nil {
			return s.fail(undo)
		}
		return err
	}
	if err == nil && g.durable {
		err = g.lead()
	}
	if err == nil && g.durable {
		err = s.journal.Sync()
	}
	return s.fail(err)
}

// lead appends the groups that are ready behind g, so that one sync is for them
// all. One that finds no space tries again when its turn comes.
func (g *Group) lead() error {
	s := g.s
	for n := s.flights.behind(g); n != nil; n = s.flights.behind(n) {
		if n.empty {
			continue
		}
		if len(n.large) > 0 && !n.synced.Load() {
			return nil
		}
		if err := s.journal.Append(&n.draft); err != nil {
			if errors.Is(err, ErrNoSpace) {
				return nil
			}
			return err
		}
		n.finished = true
	}
	return nil
}

// takeBack undoes a group, and those begun after it, newest first.
func (s *Store) takeBack(oldest *Group) error {
	s.begin.Lock()
	defer s.begin.Unlock()
	s.flights.mu.Lock()
	groups := slices.Clone(s.flights.groups)
	s.flights.mu.Unlock()
	for _, g := range slices.Backward(groups) {
		if g.empty {
			continue
		}
		if g != oldest {
			assert.Reached("storage: commit group taken back with the one before it")
		}
		for i := range g.stages {
			st := &g.stages[i]
			st.log.view = st.prev
			if st.isNew && len(st.pieces) > 0 {
				delete(s.logs, st.next.log)
				s.ids = nil
			}
		}
		if err := s.undo(g.stages); err != nil {
			return err
		}
		g.unbear()
		g.undone = true
	}
	return nil
}

// unbear remembers where the logs begin that were to begin with this group. What
// was submitted behind it must not be taken for their first append.
func (g *Group) unbear() {
	for i := range g.stages {
		st := &g.stages[i]
		if st.isNew && len(st.batches) > 0 {
			if g.s.unborn == nil {
				g.s.unborn = map[LogID]record.Offset{}
			}
			g.s.unborn[st.next.log] = st.batches[0].BaseOffset()
		}
	}
}
