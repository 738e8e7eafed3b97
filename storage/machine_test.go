package storage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// modelLog is the obvious log.
type modelLog struct {
	start   record.Offset
	end     record.Offset
	batches []record.Batch
	epochs  []storage.EpochStart
	deleted string // the snapshot of what is below start
}

// model is every log, and the quorum's records. A model never changes: each
// operation makes a new one.
type model struct {
	logs   map[storage.LogID]modelLog
	quorum []string
}

func (m model) with(id storage.LogID, l *modelLog) model {
	next := model{map[storage.LogID]modelLog{}, m.quorum}
	for k, v := range m.logs {
		next.logs[k] = v
	}
	if delete(next.logs, id); l != nil {
		next.logs[id] = *l
	}
	return next
}

// machine runs a Store against the model. A crash may strike inside any
// operation; afterwards the store must be one of the models since the last
// durable one, or the one that the interrupted operation makes.
type machine struct {
	begins   map[storage.LogID]record.Offset // of logs whose first append has not succeeded yet
	disk     *simdisk.Disk
	store    *storage.Store
	cfg      storage.Config
	possible []model // the last is what the running store is; the first is durable
	unique   uint64
	held     []heldRegion
	isLast   bool // the model recovered was the last possible one
	rng      *rand.Rand

	alternatives []model // what the logs may be if the operation is struck, beside next
}

type heldRegion struct {
	storage.Region
	want []byte
}

func (m *machine) now() model { return m.possible[len(m.possible)-1] }

func ids() []storage.LogID {
	return []storage.LogID{{Topic: [16]byte{1}}, {Topic: [16]byte{1}, Partition: 1}, {Topic: [16]byte{2}}}
}

func anyID(t *rapid.T) storage.LogID { return rapid.SampledFrom(ids()).Draw(t, "log") }

func newMachine(t *rapid.T) *machine {
	m := &machine{disk: simdisk.New(), possible: []model{{logs: map[storage.LogID]modelLog{}}}}
	m.cfg = storage.DefaultConfig()
	m.cfg.LargeAppend = rapid.Int64Range(300, 900).Draw(t, "large")
	m.cfg.JournalFileBytes = rapid.Int64Range(2048, 8192).Draw(t, "journal file")
	m.cfg.JournalGrowBytes = rapid.SampledFrom([]int64{0, 1024, 4096}).Draw(t, "grow")
	m.cfg.IndexIntervalBytes = rapid.SampledFrom([]int64{1, 150, 300, 4096}).Draw(t, "interval")
	m.rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	m.open(t)
	return m
}

// makeBatch is count records with a value that no other batch has.
func (m *machine) makeBatch(t *rapid.T, base record.Offset, epoch record.LeaderEpoch) record.Batch {
	m.unique++
	value := make([]byte, 8+rapid.SampledFrom([]int{0, 1, 60, 300, 700}).Draw(t, "bytes"))
	binary.BigEndian.PutUint64(value, m.unique)
	b := record.NewBuilder()
	for range rapid.IntRange(1, 3).Draw(t, "count") {
		b.Append(record.Timestamp(rapid.IntRange(0, 50).Draw(t, "timestamp")), nil, value)
	}
	batch := b.Build(record.Options{Producer: &record.Producer{ID: record.ProducerID(m.unique), Epoch: 1, BaseSequence: 5}})
	batch.Assign(base, epoch)
	return batch
}

func (m *machine) makeWrite(t *rapid.T, l *modelLog, id storage.LogID) storage.Write {
	w := storage.Write{Log: id, SegmentBytes: rapid.Int64Range(200, 3000).Draw(t, "segment"),
		PageCache: rapid.IntRange(0, 4).Draw(t, "page cache?") == 0, AppendTime: record.NoTimestamp}
	if rapid.IntRange(0, 3).Draw(t, "append time?") == 0 {
		w.AppendTime = record.Timestamp(rapid.IntRange(0, 50).Draw(t, "append time"))
	}
	epoch := record.LeaderEpoch(0)
	if n := len(l.epochs); n > 0 {
		epoch = l.epochs[n-1].Epoch
	}
	if rapid.IntRange(0, 3).Draw(t, "new epoch?") == 0 {
		epoch += record.LeaderEpoch(rapid.IntRange(1, 3).Draw(t, "epoch"))
	}
	for range rapid.IntRange(1, 4).Draw(t, "batches") {
		b := m.makeBatch(t, l.end, epoch)
		l.end = b.NextOffset()
		w.Batches = append(w.Batches, b)
		after := slices.Clone(b)
		if w.AppendTime != record.NoTimestamp {
			after.SetLogAppendTime(w.AppendTime)
		}
		l.batches = append(l.batches[:len(l.batches):len(l.batches)], after)
		if n := len(l.epochs); n == 0 || l.epochs[n-1].Epoch < epoch {
			for n > 0 && l.epochs[n-1].Start >= b.BaseOffset() { // an epoch that wrote nothing
				n--
			}
			l.epochs = append(l.epochs[:n:n], storage.EpochStart{Epoch: epoch, Start: b.BaseOffset()})
		}
	}
	return w
}

// begin is where a log begins: where it was to begin when that found no space.
func (m *machine) begin(t *rapid.T, id storage.LogID) record.Offset {
	at, again := m.begins[id]
	if !again {
		at = record.Offset(rapid.IntRange(0, 20).Draw(t, "first offset"))
		if m.begins == nil {
			m.begins = map[storage.LogID]record.Offset{}
		}
		m.begins[id] = at
	}
	return at
}

func (m *machine) Commit(t *rapid.T) {
	next, durable := m.now(), false
	for id := range next.logs {
		delete(m.begins, id) // it has begun
	}
	var writes []storage.Write
	for range rapid.IntRange(1, 4).Draw(t, "writes") {
		id := anyID(t)
		l, known := next.logs[id]
		if !known {
			l.start = m.begin(t, id)
			l.end = l.start
		}
		writes = append(writes, m.makeWrite(t, &l, id))
		durable = durable || !writes[len(writes)-1].PageCache
		next = next.with(id, &l)
	}
	m.do(t, next, durable, func() error {
		for i, c := range m.store.Commit(writes) {
			if c.Err != nil {
				return c.Err
			}
			if want := next.logs[writes[i].Log].end; c.View.End() != want {
				return fmt.Errorf("view ends at %d, want %d", c.View.End(), want)
			}
		}
		return nil
	})
}

// Overlap commits two groups to one log, the second begun before the first is
// finished: what becomes of it depends on the first.
func (m *machine) Overlap(t *rapid.T) {
	id := anyID(t)
	l, known := m.now().logs[id]
	if !known {
		l.start = m.begin(t, id)
		l.end = l.start
	} else {
		delete(m.begins, id)
	}
	first := m.makeWrite(t, &l, id)
	one := m.now().with(id, &l)
	second := m.makeWrite(t, &l, id)
	two := one.with(id, &l)
	switch rapid.SampledFrom([]string{"", "full", "crash"}).Draw(t, "fault") {
	case "full":
		m.disk.SetCapacity(m.disk.Used() + rapid.Int64Range(0, 6000).Draw(t, "free"))
	case "crash":
		m.disk.SetFuse(rapid.Int64Range(0, 30).Draw(t, "fuse"), m.rng.Uint64())
	}
	a := m.store.Begin([]storage.Write{first})
	shownA := m.shown(t, a, &one, id)
	a.SyncSegments()
	b := m.store.Begin([]storage.Write{second})
	shownB := m.shown(t, b, &two, id)
	if shownB && !shownA {
		t.Fatal("a group is shown, and the one before it is not")
	}
	early := rapid.Bool().Draw(t, "second synced early?")
	if early {
		b.SyncSegments()
	}
	errA := a.Finish()[0].Err
	if !early {
		b.SyncSegments()
	}
	errB := b.Finish()[0].Err
	m.disk.SetCapacity(-1)
	if shownA && errors.Is(errA, storage.ErrNoSpace) || shownB && errors.Is(errB, storage.ErrNoSpace) {
		t.Fatalf("what was shown is refused: %v, %v", errA, errB)
	}
	if errors.Is(errA, simdisk.ErrCrashed) || errors.Is(errB, simdisk.ErrCrashed) {
		if errA == nil {
			m.did(t, one, !first.PageCache, nil)
		}
		m.possible = append(m.possible, one, two)
		m.Crash(t)
		return
	}
	switch {
	case errors.Is(errA, storage.ErrNoSpace) && (errors.Is(errB, storage.ErrNoSpace) || errors.Is(errB, storage.ErrNotNext)):
		m.disk.SetFuse(-1, 0)
		return
	case errA != nil:
		t.Fatalf("%v, and behind it %v", errA, errB)
	case errors.Is(errB, storage.ErrNoSpace):
		m.did(t, one, !first.PageCache, nil)
	default:
		m.did(t, one, !first.PageCache, nil)
		m.did(t, two, !second.PageCache, errB)
	}
	m.disk.SetFuse(-1, 0)
}

// shown reports whether a group with one write may be shown, and then looks at what
// there is of it.
func (m *machine) shown(t *rapid.T, g *storage.Group, want *model, id storage.LogID) bool {
	early := g.Early()
	if len(early) == 0 || early[0].Err != nil {
		return false
	}
	if v := early[0].View; v.End() != want.logs[id].end {
		t.Fatalf("what is shown ends at %d, want %d", v.End(), want.logs[id].end)
	}
	return true
}

func (m *machine) Truncate(t *rapid.T) {
	id := anyID(t)
	l, ok := m.now().logs[id]
	if !ok {
		t.Skip("no such log")
	}
	end := l.start - 2 + record.Offset(rapid.IntRange(0, int(l.end-l.start)+3).Draw(t, "end"))
	if end < 0 {
		t.Skip("no such offset")
	}
	cut := modelLog{start: l.start, end: l.end, deleted: l.deleted}
	switch {
	case end >= l.end:
		cut.batches = l.batches
	case end <= l.start:
		cut.start, cut.end = end, end
	default:
		cut.end = l.start
		for _, b := range l.batches {
			if b.NextOffset() <= end {
				cut.batches = append(cut.batches, b)
				cut.end = max(b.NextOffset(), l.start)
			}
		}
		if cut.end == l.start {
			cut.batches = nil
		}
	}
	for _, e := range l.epochs {
		if e.Start < cut.end || end >= l.end {
			cut.epochs = append(cut.epochs, e)
		}
	}
	m.do(t, m.now().with(id, &cut), end < l.end, func() error {
		v, err := m.store.Truncate(id, end)
		if err == nil && v.End() != cut.end {
			return fmt.Errorf("truncated to %d, want %d", v.End(), cut.end)
		}
		return err
	})
}

func (m *machine) RaiseStart(t *rapid.T) {
	id := anyID(t)
	l, ok := m.now().logs[id]
	if !ok {
		t.Skip("no such log")
	}
	start := l.start + record.Offset(rapid.IntRange(0, int(l.end-l.start)).Draw(t, "start"))
	raised := modelLog{start: start, end: l.end, deleted: l.deleted}
	if start > l.start {
		m.unique++
		raised.deleted = fmt.Sprintf("%d %d", start, m.unique)
	}
	for _, b := range l.batches {
		if b.NextOffset() > start {
			raised.batches = append(raised.batches, b)
		}
	}
	for i, e := range l.epochs { // the epoch of the record before the start stays known
		if i+1 == len(l.epochs) || l.epochs[i+1].Start >= start {
			raised.epochs = append(raised.epochs, e)
		}
	}
	m.do(t, m.now().with(id, &raised), start > l.start, func() error {
		_, err := m.store.RaiseStart(id, start, []byte(raised.deleted))
		return err
	})
}

func (m *machine) Reset(t *rapid.T) {
	id := anyID(t)
	start := record.Offset(rapid.IntRange(0, 40).Draw(t, "start"))
	if rapid.IntRange(0, 2).Draw(t, "really?") > 0 {
		t.Skip("not now")
	}
	m.do(t, m.now().with(id, &modelLog{start: start, end: start}), true, func() error {
		v, err := m.store.Reset(id, start)
		if err == nil && (v.Start() != start || v.End() != start) {
			return fmt.Errorf("reset to [%d, %d), want it empty at %d", v.Start(), v.End(), start)
		}
		if err == nil {
			delete(m.begins, id)
		}
		return err
	})
}

func (m *machine) Delete(t *rapid.T) {
	id := anyID(t)
	if _, ok := m.now().logs[id]; !ok || rapid.IntRange(0, 2).Draw(t, "really?") > 0 {
		t.Skip("no such log")
	}
	m.do(t, m.now().with(id, nil), true, func() error { return m.store.Delete(id) })
}

// snapshots names, for some logs, the end and the batch before it.
func (m *machine) snapshots(t *rapid.T) (out []storage.Snapshot) {
	for _, id := range ids() {
		l, ok := m.now().logs[id]
		if !ok || rapid.IntRange(0, 2).Draw(t, "no snapshot?") == 0 {
			continue
		}
		out = append(out, storage.Snapshot{Log: id, Data: snapshotOf(l, l.end)})
	}
	return out
}

func snapshotOf(l modelLog, end record.Offset) []byte {
	for _, b := range l.batches {
		if b.NextOffset() == end && end > l.start {
			return fmt.Appendf(nil, "%d %d", end, b.ProducerID())
		}
	}
	return fmt.Appendf(nil, "%d -1", end)
}

func (m *machine) BeginCheckpoint(t *rapid.T) {
	snaps := m.snapshots(t)
	m.do(t, m.now(), true, func() error { return m.store.BeginCheckpoint(snaps) })
}

func (m *machine) FinishCheckpoint(t *rapid.T) {
	m.do(t, m.now(), false, func() error { return m.store.FinishCheckpoint() })
}

func (m *machine) SaveQuorum(t *rapid.T) {
	next := m.now()
	var records [][]byte
	replace := rapid.IntRange(0, 3).Draw(t, "replace?") == 0
	if replace {
		next.quorum = nil
	}
	next.quorum = next.quorum[:len(next.quorum):len(next.quorum)]
	for range rapid.IntRange(1, 3).Draw(t, "records") {
		m.unique++
		r := fmt.Sprint("record ", m.unique)
		records = append(records, []byte(r))
		next.quorum = append(next.quorum, r)
	}
	m.doQuorum(t, next, func() error { return m.store.SaveQuorum(records, replace) })
}

// Hold keeps a region, as a slow connection would.
func (m *machine) Hold(t *rapid.T) {
	id := anyID(t)
	l := m.now().logs[id]
	if len(l.batches) == 0 {
		t.Skip("nothing to hold")
	}
	v, err := m.store.View(id)
	if err != nil {
		t.Fatal(err)
	}
	from := max(l.start, rapid.SampledFrom(l.batches).Draw(t, "from").BaseOffset())
	reg, err := v.Read(from, v.End(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	m.held = append(m.held, heldRegion{reg, contents(t, reg)})
}

func contents(t *rapid.T, reg storage.Region) []byte {
	t.Helper()
	if reg.Len == 0 {
		return nil
	}
	got := make([]byte, reg.Len)
	if _, err := reg.File.ReadAt(got, reg.Pos); err != nil {
		t.Fatalf("read region: %v", err)
	}
	return got
}

func (m *machine) Reopen(t *rapid.T) {
	snaps := m.snapshots(t)
	m.do(t, m.now(), true, func() error {
		err := m.store.Close(snaps)
		if err == nil {
			m.disk.Calm()
			m.disk.SetCapacity(-1)
			m.disk, m.held, m.possible = m.disk.Kill(), nil, m.possible[len(m.possible)-1:]
			m.open(t)
		}
		return err
	})
}

// Kill ends the process, but not the machine: the page cache stays.
func (m *machine) Kill(t *rapid.T) {
	m.disk, m.held = m.disk.Kill(), nil
	if m.open(t) == 0 && !m.isLast {
		t.Fatal("what was in the page cache is not there after a kill")
	}
}

func (m *machine) Crash(t *rapid.T) {
	m.disk, m.held = m.disk.Crash(m.rng), nil
	m.open(t)
}

// open opens the store, perhaps crashing while at it, and finds out which model
// it is.
func (m *machine) open(t *rapid.T) (crashes int) {
	t.Helper()
	crashes = rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "crashes at open")
	for range crashes {
		m.disk.SetFuse(rapid.Int64Range(0, 40).Draw(t, "fuse"), m.rng.Uint64())
		if _, _, err := storage.Open(m.disk, m.cfg); err != nil && !errors.Is(err, simdisk.ErrCrashed) {
			t.Fatalf("open: %v", err)
		}
		m.disk = m.disk.Crash(m.rng)
	}
	st, rec, err := storage.Open(m.disk, m.cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	m.store = st
	var why []string
	for i, alt := range slices.Backward(m.possible) {
		diff := compare(t, alt, rec)
		if diff == "" {
			m.isLast = i == len(m.possible)-1
			m.possible = []model{alt}
			return crashes
		}
		why = append(why, fmt.Sprintf("model %d: %s", i, diff))
	}
	t.Fatalf("recovered what never was:\n%q", why)
	return 0
}

// compare says how a recovered store differs from a model.
func compare(t *rapid.T, m model, rec storage.Recovered) string {
	var quorum []string
	for _, r := range rec.Quorum {
		quorum = append(quorum, string(r))
	}
	if !slices.Equal(quorum, m.quorum) {
		return fmt.Sprintf("quorum is %q, want %q", quorum, m.quorum)
	}
	if len(rec.Logs) != len(m.logs) {
		return fmt.Sprintf("%d logs, want %d", len(rec.Logs), len(m.logs))
	}
	for _, r := range rec.Logs {
		want, ok := m.logs[r.ID]
		if !ok {
			return fmt.Sprintf("log %s is back", r.ID)
		}
		if r.Damage != nil {
			t.Fatalf("log %s: %v", r.ID, r.Damage)
		}
		if diff := compareLog(want, r.View, m.logs[r.ID]); diff != "" {
			return fmt.Sprintf("log %s: %s", r.ID, diff)
		}
		checkSnapshot(t, want, r)
	}
	return ""
}

func compareLog(l modelLog, v storage.View, _ modelLog) string {
	if v.Start() != l.start || v.End() != l.end {
		return fmt.Sprintf("is [%d, %d), want [%d, %d)", v.Start(), v.End(), l.start, l.end)
	}
	var got []byte
	for at := l.start; at < l.end; {
		reg, err := v.Read(at, l.end, 500)
		if err != nil {
			return err.Error()
		}
		p := make([]byte, reg.Len)
		if _, err := reg.File.ReadAt(p, reg.Pos); err != nil {
			return err.Error()
		}
		got = append(got, p...)
		for len(p) > 0 {
			var b record.Batch
			if b, p, err = record.Cut(p); err != nil {
				return err.Error()
			}
			at = b.NextOffset()
		}
	}
	var want []byte
	for _, b := range l.batches {
		want = append(want, b...)
	}
	if !bytes.Equal(got, want) {
		return fmt.Sprintf("%d bytes differ from the %d written", len(got), len(want))
	}
	if !slices.Equal(v.Epochs(), l.epochs) {
		return fmt.Sprintf("epochs %v, want %v", v.Epochs(), l.epochs)
	}
	return ""
}

func checkSnapshot(t *rapid.T, l modelLog, r storage.RecoveredLog) {
	t.Helper()
	end := l.start
	if r.Snapshot != nil {
		var producer int64
		if _, err := fmt.Sscanf(string(r.Snapshot), "%d %d", &end, &producer); err != nil {
			t.Fatal(err)
		}
		if string(r.Snapshot) == l.deleted {
			end = l.start
		} else if want := snapshotOf(l, end); end > l.start && string(want) != string(r.Snapshot) {
			t.Fatalf("snapshot %q is of another history, want %q", r.Snapshot, want)
		}
	}
	if l.deleted != "" && (r.Snapshot == nil || end < l.start) {
		t.Fatalf("snapshot %q of what was deleted, want %q", r.Snapshot, l.deleted)
	}
	var want []storage.BatchInfo
	for _, b := range l.batches {
		if b.NextOffset() > end {
			want = append(want, storage.BatchInfo{BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(), ProducerID: b.ProducerID(),
				ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(), MaxTimestamp: b.MaxTimestamp(), Attributes: b.Attributes()})
		}
	}
	if !slices.Equal(r.After, want) {
		t.Fatalf("log %s after snapshot %q in [%d,%d): %v, want %v", r.ID, r.Snapshot, l.start, l.end, r.After, want)
	}
}

// do runs an operation that makes next, perhaps with a crash inside it or on a
// full disk.
func (m *machine) do(t *rapid.T, next model, durable bool, op func() error) {
	t.Helper()
	switch rapid.SampledFrom([]string{"", "", "", "", "", "", "full", "crash", "crash", "error"}).Draw(t, "fault") {
	case "full":
		m.disk.SetCapacity(m.disk.Used() + rapid.Int64Range(0, 3000).Draw(t, "free"))
		err := op()
		m.disk.SetCapacity(-1)
		if errors.Is(err, storage.ErrNoSpace) {
			return
		}
		m.did(t, next, durable, err)
	case "crash":
		m.disk.SetFuse(rapid.Int64Range(0, 25).Draw(t, "fuse"), m.rng.Uint64())
		err := op()
		if err != nil && !errors.Is(err, simdisk.ErrCrashed) {
			t.Fatal(err)
		}
		if err == nil {
			m.did(t, next, durable, nil)
			if m.alternatives != nil {
				m.possible = m.alternatives
			}
		} else {
			m.possible = append(append(m.possible, m.alternatives...), next)
		}
		m.Crash(t)
	case "error":
		m.failing(t, next, durable, op)
	default:
		m.did(t, next, durable, op())
	}
}

// failing runs an operation while a sync or a write fails. After that the store
// must refuse everything, and a process that starts anew must not be fooled by
// pages that the system takes for clean.
func (m *machine) failing(t *rapid.T, next model, durable bool, op func() error) {
	n := rapid.Int64Range(1, 5).Draw(t, "n-th")
	if rapid.Bool().Draw(t, "sync?") {
		m.disk.FailSync(n, m.rng.Uint64(), rapid.Bool().Draw(t, "drop"))
	} else {
		m.disk.FailWrite(n, m.rng.Uint64())
	}
	st := m.store
	err := op()
	m.disk.Calm()
	if err == nil {
		m.did(t, next, durable, nil)
		if m.alternatives != nil {
			m.possible = m.alternatives
		}
		return
	}
	if !errors.Is(err, simdisk.ErrIO) {
		t.Fatal(err)
	}
	if err := st.BeginCheckpoint(nil); err == nil {
		t.Fatal("the store goes on after a failed write or sync")
	}
	m.possible = append(append(m.possible, m.alternatives...), next)
	m.disk, m.held = m.disk.Kill(), nil
	m.open(t)
}

func (m *machine) did(t *rapid.T, next model, durable bool, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	m.possible = append(m.possible, next)
	if durable {
		m.possible = m.possible[len(m.possible)-1:]
	}
}

// doQuorum is do for the other journal: it says nothing of what the logs are.
func (m *machine) doQuorum(t *rapid.T, next model, op func() error) {
	t.Helper()
	was := m.possible
	m.alternatives = nil
	for _, alt := range was {
		alt.quorum = next.quorum
		m.alternatives = append(m.alternatives, alt)
	}
	saved := m.alternatives
	m.do(t, next, false, op)
	if m.alternatives = nil; len(m.possible) == len(was)+1 {
		m.possible = saved
	}
}

// Check compares the running store with the model.
func (m *machine) Check(t *rapid.T) {
	for _, id := range ids() {
		l, ok := m.now().logs[id]
		v, err := m.store.View(id)
		if ok != (err == nil) {
			t.Fatalf("log %s: %v", id, err)
		}
		if !ok {
			continue
		}
		if diff := compareLog(l, v, l); diff != "" {
			t.Fatalf("log %s: %s", id, diff)
		}
		m.lookUp(t, l, v)
	}
	for _, h := range m.held {
		got := make([]byte, h.Len)
		n, _ := h.File.ReadAt(got, h.Pos)
		if !bytes.Equal(got[:n], h.want[:n]) {
			t.Fatal("bytes of a region changed")
		}
	}
}

// lookUp compares reads and timestamp lookups with a scan of everything.
func (m *machine) lookUp(t *rapid.T, l modelLog, v storage.View) {
	if l.start == l.end {
		return
	}
	from := l.start + record.Offset(m.rng.IntN(int(l.end-l.start)))
	limit := l.start + record.Offset(m.rng.IntN(int(l.end-l.start)+1))
	maxBytes := int64(m.rng.IntN(2000))
	reg, err := v.Read(from, limit, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := contents(t, reg), l.read(from, limit, maxBytes); !bytes.HasPrefix(want, got) || (len(got) == 0) != (len(want) == 0) {
		t.Fatalf("read [%d,%d) max %d: %d bytes, want %d", from, limit, maxBytes, len(got), len(want))
	}
	if found, ok := v.Find(from, limit, maxBytes); ok && found != reg {
		t.Fatalf("find [%d,%d) max %d: %v, read gives %v", from, limit, maxBytes, found, reg)
	}
	at := record.Timestamp(m.rng.IntN(52))
	first, latest := l.lookUp(at, limit)
	if got, err := v.OffsetForTimestamp(at, limit); err != nil || got != first {
		t.Fatalf("timestamp %d below %d: %v, %v, want %v", at, limit, got, err, first)
	}
	if got, err := v.MaxTimestamp(limit); err != nil || got != latest {
		t.Fatalf("greatest timestamp below %d: %v, %v, want %v", limit, got, err, latest)
	}
}

// read is the bytes that a read may give, were there no files.
func (l modelLog) read(from, limit record.Offset, maxBytes int64) (out []byte) {
	i := sort.Search(len(l.batches), func(i int) bool { return l.batches[i].NextOffset() > from })
	for ; i < len(l.batches) && l.batches[i].NextOffset() <= limit && from < limit; i++ {
		if len(out) > 0 && int64(len(out)+len(l.batches[i])) > maxBytes {
			break
		}
		out = append(out, l.batches[i]...)
	}
	return out
}

func (l modelLog) lookUp(at record.Timestamp, limit record.Offset) (first, latest storage.TimestampOffset) {
	first = storage.TimestampOffset{Offset: -1, Timestamp: record.NoTimestamp, Epoch: record.NoEpoch}
	latest = first
	for _, b := range l.batches {
		_ = record.Walk(b.Payload(), b.Count(), func(r record.Record) error {
			o, ts := b.BaseOffset()+record.Offset(r.OffsetDelta), b.BaseTimestamp()+record.Timestamp(r.TimestampDelta)
			if b.LogAppendTime() {
				ts = b.MaxTimestamp()
			}
			if o < l.start || o >= limit {
				return nil
			}
			if ts >= at && first.Offset < 0 {
				first = storage.TimestampOffset{Offset: o, Timestamp: ts, Epoch: b.LeaderEpoch()}
			}
			if ts > latest.Timestamp {
				latest = storage.TimestampOffset{Offset: o, Timestamp: ts, Epoch: b.LeaderEpoch()}
			}
			return nil
		})
	}
	return first, latest
}

func TestStoreMatchesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(rapid.StateMachineActions(m))
	})
}
