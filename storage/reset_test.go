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
// belongs to the log, and behind it the last few batches of each producer.
func TestSince(t *testing.T) {
	s := newScenario(t)
	id := storage.LogID{Topic: [16]byte{9}}
	write := func(producers ...record.ProducerID) {
		for _, p := range producers {
			o := record.Options{}
			if p != record.NoProducer {
				o.Producer = &record.Producer{ID: p}
			}
			b := record.NewBuilder().Append(7, nil, []byte("v")).Build(o)
			b.Assign(s.ends[id], 3)
			s.ends[id] = b.NextOffset()
			w := storage.Write{Log: id, SegmentBytes: 2000, AppendTime: record.NoTimestamp, Batches: []record.Batch{b}}
			must(t, s.store.Commit([]storage.Write{w})[0].Err)
		}
	}
	check := func(wantSnapshot string, want ...record.Offset) {
		t.Helper()
		snap, after, err := s.store.Since(id, 2)
		must(t, err)
		var got []record.Offset
		for _, b := range after {
			got = append(got, b.BaseOffset)
		}
		if string(snap) != wantSnapshot || !slices.Equal(got, want) {
			t.Fatalf("snapshot %q and batches at %v, want %q and %v", snap, got, wantSnapshot, want)
		}
	}
	write(1, 2, record.NoProducer, 1, 1) // 0 to 4
	check("", 1, 3, 4)
	must(t, s.store.BeginCheckpoint([]storage.Snapshot{{Log: id, Data: []byte("x")}}))
	check("x")
	write(2, 1, 2, 2) // 5 to 8
	check("x", 6, 7, 8)
	_, err := s.store.Truncate(id, 7)
	must(t, err)
	check("x", 5, 6)
	_, err = s.store.Truncate(id, 4)
	must(t, err)
	check("", 0, 1, 3)
	if snap, after, err := s.store.Since(storage.LogID{Topic: [16]byte{8}}, 2); snap != nil || after != nil || err != nil {
		t.Fatalf("a log that is not there: %q, %v, %v", snap, after, err)
	}
}
