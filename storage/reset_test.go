package storage_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// A log that lost a file refuses everything, until it is reset: then it begins
// anew, and no recovery finds anything of what was before, whenever it comes.
func TestResetEndsDamage(t *testing.T) {
	for _, checkpoint := range []bool{false, true} {
		s := newScenario(t)
		id := ids()[0]
		names, err := s.disk.List("logs")
		must(t, err)
		for _, n := range names {
			if strings.HasPrefix(n, id.String()) && strings.HasSuffix(n, ".log") {
				must(t, s.disk.Remove("logs/"+n))
				break
			}
		}
		damaged := func(rec storage.Recovered) *storage.DamageError {
			i := slices.IndexFunc(rec.Logs, func(l storage.RecoveredLog) bool { return l.ID == id })
			return rec.Logs[i].Damage
		}
		if damaged(s.reopen(t)) == nil {
			t.Fatal("a log that lacks a file is served")
		}
		if checkpoint {
			must(t, s.store.BeginCheckpoint(nil))
			must(t, s.store.FinishCheckpoint())
		}
		v, err := s.store.Reset(id, 1000)
		must(t, err)
		if v.Start() != 1000 || v.End() != 1000 {
			t.Fatalf("[%d, %d)", v.Start(), v.End())
		}
		s.ends[id], s.want[id] = 1000, nil
		for range 3 {
			s.append(t, id, 300, 3)
			if err := damaged(s.reopen(t)); err != nil {
				t.Fatal(err)
			}
			v, err := s.store.View(id)
			must(t, err)
			if v.Start() != 1000 || v.End() != s.ends[id] {
				t.Fatalf("[%d, %d), want to %d", v.Start(), v.End(), s.ends[id])
			}
			if bad := readAll(t, v, s.want[id]); bad != nil {
				t.Fatal(bad)
			}
		}
	}
}

// What producer state is made of after a truncation: the snapshot if it still
// belongs to the log, and every batch behind it.
func TestSince(t *testing.T) {
	s := newScenario(t)
	id := ids()[0]
	mark := s.ends[id]
	must(t, s.store.BeginCheckpoint([]storage.Snapshot{{Log: id, Data: []byte("x")}}))
	s.append(t, id, 40, 3)
	bases := func() (out []record.Offset) {
		_, after, err := s.store.Since(id)
		must(t, err)
		for _, b := range after {
			out = append(out, b.BaseOffset)
		}
		return out
	}
	if snap, _, err := s.store.Since(id); err != nil || string(snap) != "x" {
		t.Fatalf("snapshot %q, %v", snap, err)
	}
	if got := bases(); len(got) != 3 || got[0] != mark {
		t.Fatalf("batches at %v, want 3 from %d on", got, mark)
	}
	_, err := s.store.Truncate(id, mark+2)
	must(t, err)
	if got := bases(); !slices.Equal(got, []record.Offset{mark}) {
		t.Fatalf("batches at %v, want one at %d", got, mark)
	}
	_, err = s.store.Truncate(id, mark-2)
	must(t, err)
	if snap, _, _ := s.store.Since(id); snap != nil {
		t.Fatal("a snapshot of what was truncated")
	}
	if got := bases(); len(got) == 0 || got[0] != 0 || got[len(got)-1] != mark-4 {
		t.Fatalf("batches at %v, want all from 0 to %d", got, mark-4)
	}
}
