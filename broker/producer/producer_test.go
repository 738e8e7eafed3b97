package producer

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/storage/record"
)

// TestStories runs the stories in testdata: each batch is checked and, if it is
// new, added at the log end.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s State
		var end record.Offset
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var sb strings.Builder
			switch d.Cmd {
			case "batch":
				var id, epoch, first, count int64
				d.ScanArgs(t, "id", &id)
				d.ScanArgs(t, "epoch", &epoch)
				d.ScanArgs(t, "first", &first)
				d.ScanArgs(t, "records", &count)
				b := Batch{ID: record.ProducerID(id), Epoch: record.ProducerEpoch(epoch), First: record.Sequence(first), Last: record.Sequence(first).Add(int32(count) - 1)}
				base, next, err := s.Check(b, end == 0)
				switch {
				case err != nil:
					fmt.Fprintf(&sb, "error: %v\n", err)
				case base >= 0:
					fmt.Fprintf(&sb, "repeats [%d,%d)\n", base, next)
				default:
					b.Base, b.Next = end, end+record.Offset(count)
					end = b.Next
					s.Add(b, 0)
					fmt.Fprintf(&sb, "new at %d\n", b.Base)
				}
			case "durable":
				s.Settled(end)
			case "rollback":
				var to int64
				d.ScanArgs(t, "end", &to)
				end = record.Offset(to)
				s.Rollback(end)
			case "expire":
				s.Expire(1)
			case "restart":
				again, err := Restore(s.Snapshot(), 0)
				if err != nil {
					t.Fatal(err)
				}
				s = again
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return sb.String()
		})
	})
}

// stateMachine drives a State beside a log of batches, which is the obvious
// model: what a producer wrote last is the last batch of its id in the log.
type stateMachine struct {
	live    State
	log     []Batch
	durable record.Offset
	refused map[record.ProducerID]Batch // the first batch of those of whom the log lost all
}

func (m *stateMachine) end() record.Offset {
	if len(m.log) == 0 {
		return 0
	}
	return m.log[len(m.log)-1].Next
}

func (m *stateMachine) last(id record.ProducerID) *Batch {
	for i := len(m.log) - 1; i >= 0; i-- {
		if m.log[i].ID == id {
			return &m.log[i]
		}
	}
	return nil
}

// Produce sends the next batch, a retry of any batch, or nonsense.
func (m *stateMachine) Produce(t *rapid.T) {
	b := Batch{ID: record.ProducerID(rapid.IntRange(0, 2).Draw(t, "id")), Epoch: record.ProducerEpoch(rapid.IntRange(0, 2).Draw(t, "epoch"))}
	count := rapid.Int32Range(1, 3).Draw(t, "count")
	last := m.last(b.ID)
	if last != nil && rapid.Bool().Draw(t, "continue") {
		b.Epoch, b.First = last.Epoch, last.Last.Add(1)
	} else {
		b.First = record.Sequence(rapid.Int32Range(0, 6).Draw(t, "first"))
	}
	b.Last = b.First.Add(count - 1)
	base, next, err := m.live.Check(b, len(m.log) == 0)
	wantBase, wantErr := m.want(b)
	if !errors.Is(err, wantErr) || err == nil && base != wantBase {
		t.Fatalf("check %+v: base %d err %v, want base %d err %v", b, base, err, wantBase, wantErr)
	}
	if err != nil {
		return
	}
	if base >= 0 {
		if next-base != record.Offset(count) {
			t.Fatalf("repeats [%d,%d), batch has %d records", base, next, count)
		}
		return
	}
	b.Base = m.end()
	b.Next = b.Base + record.Offset(count)
	m.live.Add(b, 0)
	m.log = append(m.log, b)
	delete(m.refused, b.ID)
}

// want is what the model says of a batch.
func (m *stateMachine) want(b Batch) (record.Offset, error) {
	last := m.last(b.ID)
	if last == nil {
		if len(m.log) == 0 && b.First != 0 {
			return 0, ErrOutOfOrder
		}
		if r, ok := m.refused[b.ID]; ok && r.Epoch == b.Epoch && r.First != b.First {
			return 0, ErrOutOfOrder
		}
		return -1, nil
	}
	if b.Epoch < last.Epoch {
		return 0, ErrFenced
	}
	if b.Epoch > last.Epoch {
		if b.First != 0 {
			return 0, ErrOutOfOrder
		}
		return -1, nil
	}
	seen := 0
	for i := len(m.log) - 1; i >= 0; i-- {
		w := m.log[i]
		if w.ID != b.ID {
			continue
		}
		if w.Next <= m.durable {
			if seen++; seen > Window {
				break
			}
		}
		if w.Epoch == b.Epoch && w.First == b.First && w.Last == b.Last {
			return w.Base, nil
		}
	}
	if b.First != last.Last.Add(1) {
		return 0, ErrOutOfOrder
	}
	return -1, nil
}

func (m *stateMachine) Durable(t *rapid.T) {
	m.durable = m.end()
	m.live.Settled(m.durable)
	m.live.Trim() // the model trims at once
}

func (m *stateMachine) Rollback(t *rapid.T) {
	end := m.end()
	for i := len(m.log) - 1; i >= 0 && m.log[i].Next > m.durable && !rapid.Bool().Draw(t, "stop"); i-- {
		end = m.log[i].Base
	}
	m.cut(end)
	m.live.Rollback(m.end())
}

// Cut takes back batches that were settled, as an unclean leader makes a
// follower do; unless the state says that it has forgotten too much for that.
func (m *stateMachine) Cut(t *rapid.T) {
	if len(m.log) == 0 {
		t.Skip("nothing to cut")
	}
	end := rapid.SampledFrom(m.log).Draw(t, "end").Base
	if !m.live.Exact(end) {
		if end >= m.durable {
			t.Fatalf("cut at %d is not exact, and nothing there is settled", end)
		}
		return
	}
	refused := m.refused
	m.cut(end)
	m.refused = refused
	m.durable = min(m.durable, end)
	m.live.Cut(end)
	m.live.Trim()
}

// cut drops what reaches past end.
func (m *stateMachine) cut(end record.Offset) {
	var gone []Batch
	for m.end() > end {
		n := len(m.log) - 1
		gone, m.log = append(gone, m.log[n]), m.log[:n]
	}
	for _, b := range gone { // the oldest comes last, and stays
		if m.last(b.ID) == nil {
			m.refused = maps.Clone(m.refused)
			if m.refused == nil {
				m.refused = make(map[record.ProducerID]Batch)
			}
			m.refused[b.ID] = b
		}
	}
}

func (m *stateMachine) Restart(t *rapid.T) {
	again, err := Restore(m.live.Snapshot(), 0)
	if err != nil {
		t.Fatal(err)
	}
	again.Rollback(m.durable)
	again.Settled(m.durable)
	m.refused = nil // known to the old process only
	m.cut(m.durable)
	m.live = again
}

// Check compares the live state with one replayed from the log.
func (m *stateMachine) Check(t *rapid.T) {
	var replayed State
	for _, b := range m.log {
		replayed.Add(b, 0)
		replayed.Settled(min(b.Next, m.durable))
	}
	for _, end := range []record.Offset{m.durable, m.end()} {
		if a, b := m.live.Hash(end), replayed.Hash(end); a != b {
			t.Fatalf("live state %x, replayed %x, up to %d", a, b, end)
		}
	}
}

func TestStateMatchesLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &stateMachine{}
		t.Repeat(rapid.StateMachineActions(m))
	})
}

func TestSequenceWrapsToZero(t *testing.T) {
	var s State
	const top = 1<<31 - 1
	s.Add(Batch{ID: 1, First: top - 1, Last: top, Base: 0, Next: 2}, 0)
	if _, _, err := s.Check(Batch{ID: 1, First: 0, Last: 4}, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Check(Batch{ID: 1, First: 1, Last: 4}, false); !errors.Is(err, ErrOutOfOrder) {
		t.Fatalf("got %v", err)
	}
}

func FuzzRestore(f *testing.F) {
	var s State
	s.Add(Batch{ID: 7, First: 0, Last: 4, Base: 0, Next: 5}, 0)
	f.Add(s.Snapshot())
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Restore(data, 0)
		if err != nil {
			return
		}
		again, err := Restore(s.Snapshot(), 0)
		if err != nil {
			t.Fatalf("snapshot of a restored state: %v", err)
		}
		if a, b := s.Hash(1<<62), again.Hash(1<<62); a != b {
			t.Fatalf("hash %x, restored %x", a, b)
		}
	})
}
