package storage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// teller tells a story about a store with logs a to z, each of one partition.
type teller struct {
	t    *testing.T
	disk *simdisk.Disk
	st   *storage.Store
	sb   strings.Builder
}

func logID(name string) storage.LogID { return storage.LogID{Topic: [16]byte{name[0]}} }

func (s *teller) open() {
	cfg := storage.DefaultConfig()
	cfg.LargeAppend, cfg.IndexIntervalBytes, cfg.JournalGrowBytes = 4000, 500, 0
	st, rec, err := storage.Open(s.disk, cfg)
	if s.failed(err) {
		return
	}
	s.st = st
	fmt.Fprintf(&s.sb, "clean=%t replayed=%d groups\n", rec.Clean, rec.Groups)
	for _, l := range rec.Logs {
		fmt.Fprintf(&s.sb, "log %c: [%d,%d) snapshot=%q after=%d batches", l.ID.Topic[0], l.View.Start(), l.View.End(), l.Snapshot, len(l.After))
		if l.Damage != nil {
			fmt.Fprintf(&s.sb, " damaged: %s at %d", short(l.Damage.File), l.Damage.Pos)
		}
		s.sb.WriteByte('\n')
	}
}

// short takes the long zeros out of a file's name.
func short(file string) string {
	return strings.ReplaceAll(strings.ReplaceAll(file, strings.Repeat("0", 19), "…"), strings.Repeat("0", 30), "…")
}

func (s *teller) failed(err error) bool {
	var d *storage.DamageError
	switch {
	case err == nil:
		return false
	case errors.As(err, &d):
		fmt.Fprintf(&s.sb, "damaged: %s at %d\n", short(d.File), d.Pos)
	case errors.Is(err, storage.ErrNoSpace):
		s.sb.WriteString("no space\n")
	case errors.Is(err, storage.ErrNotNext):
		s.sb.WriteString("does not continue the log\n")
	case errors.Is(err, storage.ErrOutOfRange):
		s.sb.WriteString("out of range\n")
	default:
		fmt.Fprintf(&s.sb, "failed: %v\n", err)
	}
	return true
}

// appendTo makes a write of one batch for a log.
func (s *teller) write(d *datadriven.TestData, name string) storage.Write {
	id := logID(name)
	at, size, segment := record.Offset(0), 100, int64(1<<20)
	if v, err := s.st.View(id); err == nil {
		at = v.End()
	}
	if d.HasArg("bytes") {
		d.ScanArgs(s.t, "bytes", &size)
	}
	if d.HasArg("segment") {
		d.ScanArgs(s.t, "segment", &segment)
	}
	if d.HasArg("at") {
		var n int
		d.ScanArgs(s.t, "at", &n)
		at = record.Offset(n)
	}
	b := record.NewBuilder().Append(1, nil, make([]byte, size)).Build(record.Options{})
	b.Assign(at, 0)
	return storage.Write{Log: id, Batches: []record.Batch{b}, SegmentBytes: segment, AppendTime: record.NoTimestamp, PageCache: d.HasArg("page-cache")}
}

// TestStories runs the stories in testdata/stories. The output is what the
// store says, and what a test can see of the disk.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := &teller{t: t, disk: simdisk.New()}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.sb.Reset()
			s.command(d)
			return s.sb.String()
		})
	})
}

func (s *teller) command(d *datadriven.TestData) {
	name := "a"
	if d.HasArg("log") {
		d.ScanArgs(s.t, "log", &name)
	}
	num := func(arg string) (n int) {
		d.ScanArgs(s.t, arg, &n)
		return n
	}
	switch d.Cmd {
	case "open":
		s.open()
	case "append": // to several logs as one group
		before := s.disk.Stats()
		var writes []storage.Write
		for _, l := range strings.Split(name, "+") {
			writes = append(writes, s.write(d, l))
		}
		for i, c := range s.st.Commit(writes) {
			if !s.failed(c.Err) {
				fmt.Fprintf(&s.sb, "log %c ends at %d\n", writes[i].Log.Topic[0], c.View.End())
			}
		}
		fmt.Fprintf(&s.sb, "%d syncs\n", s.disk.Stats().Syncs-before.Syncs)
	case "truncate":
		v, err := s.st.Truncate(logID(name), record.Offset(num("end")))
		if !s.failed(err) {
			fmt.Fprintf(&s.sb, "ends at %d\n", v.End())
		}
	case "delete":
		s.failed(s.st.Delete(logID(name)))
	case "checkpoint":
		var snaps []storage.Snapshot
		if d.HasArg("snapshot") {
			var text string
			d.ScanArgs(s.t, "snapshot", &text)
			snaps = append(snaps, storage.Snapshot{Log: logID(name), Data: []byte(text)})
		}
		if !s.failed(s.st.BeginCheckpoint(snaps)) {
			s.failed(s.st.FinishCheckpoint())
		}
	case "close":
		s.failed(s.st.Close(nil))
		s.disk = s.disk.Kill()
	case "read":
		v, err := s.st.View(logID(name))
		if s.failed(err) {
			return
		}
		r, err := v.Read(record.Offset(num("from")), v.End(), 1<<20)
		if !s.failed(err) {
			fmt.Fprintf(&s.sb, "%d bytes at %d\n", r.Len, r.Pos)
		}
	case "kill": // the process; the page cache stays
		s.disk = s.disk.Kill()
	case "power": // the machine: what was not synced is lost, all of it or by lot
		s.disk = s.disk.Crash(rand.New(rand.NewPCG(uint64(num("lot")), 0)))
	case "fail-sync":
		s.disk.FailSync(1, 0, false)
	case "full":
		s.disk.SetCapacity(s.disk.Used())
	case "space":
		s.disk.SetCapacity(-1)
	case "flip":
		for _, f := range s.disk.Files() {
			if strings.HasPrefix(f.Name, "logs/") == d.HasArg("segment") && strings.HasSuffix(f.Name, ".log") == d.HasArg("segment") &&
				strings.HasPrefix(f.Name, "journal/") == d.HasArg("journal") {
				s.disk.FlipBit(f.Name, int64(num("pos")), 0)
				fmt.Fprintf(&s.sb, "%s\n", short(f.Name))
				return
			}
		}
		s.t.Fatal("no file to flip a bit in")
	default:
		s.t.Fatalf("unknown command %s", d.Cmd)
	}
}
