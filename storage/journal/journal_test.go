package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage/vfs"
)

var small = Config{FileBytes: 8192, GrowBytes: 2048, Spares: 2}

func newDisk(t testing.TB) *simdisk.Disk {
	d := simdisk.New()
	if err := d.Mkdir("j"); err != nil {
		t.Fatal(err)
	}
	if err := d.SyncDir(""); err != nil {
		t.Fatal(err)
	}
	return d
}

// open opens the journal and returns its records.
func open(t testing.TB, d vfs.FS, cfg Config, from From) (*Journal, []string) {
	t.Helper()
	j, got, err := tryOpen(d, cfg, from)
	if err != nil {
		t.Fatal(err)
	}
	return j, got
}

func tryOpen(d vfs.FS, cfg Config, from From) (*Journal, []string, error) {
	var got []string
	j, err := Open(d, "j", cfg, from, func(g Group) error {
		if g.Reset {
			got = nil
		}
		for _, r := range g.Records {
			got = append(got, string(r))
		}
		return nil
	})
	return j, got, err
}

func (j *Journal) put(records ...string) error {
	var d Draft
	d.Begin(0)
	for _, r := range records {
		copy(d.Add(len(r)), r)
	}
	return j.Append(&d)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// damageAt is the file and position that err names.
func damageAt(err error) string {
	var d *vfs.DamageError
	if !errors.As(err, &d) {
		return fmt.Sprint(err)
	}
	return fmt.Sprintf("%s at %d", d.File, d.Pos)
}

const file1 = "j/00000000000000000001.journal"

func TestTornTailIsCutAndNeverComesBack(t *testing.T) {
	d := newDisk(t)
	j, _ := open(t, d, small, From{})
	must(t, j.put("one"))
	must(t, j.Sync())
	must(t, j.put("two"))   // at 1024
	must(t, j.put("three")) // at 1536
	lost := false
	for seed := range uint64(50) {
		d := newDisk(t)
		j, _ := open(t, d, small, From{})
		must(t, j.put("one"))
		must(t, j.Sync())
		must(t, j.put("two"))
		must(t, j.put("three"))
		d = d.Crash(rand.New(rand.NewPCG(seed, 0)))
		j, got := open(t, d, small, From{})
		if len(got) == 0 || got[0] != "one" {
			t.Fatalf("seed %d: %q", seed, got)
		}
		lost = lost || len(got) == 1
		if len(got) == 1 { // "three" may lie behind, and must not follow what is written next
			must(t, j.put("TWO"))
			must(t, j.Sync())
			if _, again := open(t, d.Kill(), small, From{}); !slices.Equal(again, []string{"one", "TWO"}) {
				t.Fatalf("seed %d: %q", seed, again)
			}
		}
	}
	if !lost {
		t.Fatal("no seed lost the second group")
	}
}

func TestDamageBelowDurableIsNotTorn(t *testing.T) {
	for _, c := range []struct {
		name  string
		after func(j *Journal) error // what proves that the first group was durable
		from  From
		want  string
	}{
		{"later group", func(j *Journal) error { return j.put("two") }, From{}, file1 + " at 512"},
		{"later file", (*Journal).Rotate, From{}, file1 + " at 512"},
		{"the caller", func(*Journal) error { return nil }, From{Seq: 1, Durable: 1}, file1 + " at 512"},
		{"nothing", func(*Journal) error { return nil }, From{}, "<nil>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk(t)
			j, _ := open(t, d, small, From{})
			must(t, j.put("one"))
			must(t, j.Sync())
			must(t, c.after(j))
			must(t, j.Sync())
			if !d.FlipBit(file1, 560, 1) {
				t.Fatal("no bit to flip")
			}
			_, _, err := tryOpen(d.Kill(), small, c.from)
			if got := damageAt(err); got != c.want {
				t.Fatalf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestMissingFileIsDamage(t *testing.T) {
	d := newDisk(t)
	j, _ := open(t, d, small, From{})
	for range 3 {
		must(t, j.put("x"))
		must(t, j.Rotate())
	}
	must(t, d.Remove("j/00000000000000000002.journal"))
	if _, _, err := tryOpen(d.Kill(), small, From{}); damageAt(err) != "j/00000000000000000002.journal at 0" {
		t.Fatal(err)
	}
}

// TestEmptiedDirectoryIsDamage is about a journal of which a clean mark says that
// it held something: it must not be begun anew.
func TestEmptiedDirectoryIsDamage(t *testing.T) {
	d := newDisk(t)
	if _, _, err := tryOpen(d, small, From{Durable: 3, Exact: true}); damageAt(err) != "j/00000000000000000001.journal at 0" {
		t.Fatal(err)
	}
}

func TestRecordsMayLookLikeGroups(t *testing.T) {
	d := newDisk(t)
	j, _ := open(t, d, small, From{})
	magic := binary.BigEndian.AppendUint32(nil, groupMagic)
	evil := string(bytes.Repeat(magic, 1000))
	must(t, j.put("a", evil, "b", evil[1:]))
	must(t, j.Sync())
	b, _ := d.Peek(file1)
	for at := 2 * sectorSize; at < len(b); at += sectorSize {
		if bytes.HasPrefix(b[at:], magic) {
			t.Fatalf("sector at %d looks like a group", at)
		}
	}
	if _, got := open(t, d.Kill(), small, From{}); !slices.Equal(got, []string{"a", evil, "b", evil[1:]}) {
		t.Fatal("records changed")
	}
}

func TestFilesAreRecycled(t *testing.T) {
	d := newDisk(t)
	j, _ := open(t, d, small, From{})
	var want []string
	for i := range 200 {
		r := fmt.Sprintf("record %d of some length", i)
		must(t, j.put(r))
		must(t, j.Sync())
		if want = append(want, r); i%40 == 39 {
			must(t, j.Rotate())
			must(t, j.Recycle(j.Seq()))
			want = nil
		}
	}
	names, err := d.List("j")
	must(t, err)
	if len(names) > 3 {
		t.Fatalf("files %q", names)
	}
	if _, got := open(t, d.Kill(), small, From{Seq: j.Seq(), Durable: j.Last()}); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
}

func TestFullDiskLeavesTheJournalUsable(t *testing.T) {
	for free := int64(0); free < 4096; free += 100 {
		d := newDisk(t)
		j, _ := open(t, d, small, From{})
		must(t, j.put("one"))
		must(t, j.Sync())
		d.SetCapacity(d.Used() + free)
		want := []string{"one"}
		for i := range 20 {
			r := fmt.Sprintf("%d%900d", i, i)
			err := j.put(r)
			if err == nil {
				want = append(want, r)
			} else if !errors.Is(err, vfs.ErrNoSpace) {
				t.Fatal(err)
			}
		}
		d.SetCapacity(-1)
		must(t, j.put("last"))
		must(t, j.Sync())
		if _, got := open(t, d.Crash(rand.New(rand.NewPCG(1, 1))), small, From{}); !slices.Equal(got, append(want, "last")) {
			t.Fatalf("free %d: %d records, want %d", free, len(got), len(want)+1)
		}
	}
}

// A group that found no space is tried again as it was, with all that sealing it
// had changed.
func TestAGroupThatFoundNoSpaceIsTriedAgain(t *testing.T) {
	magic := binary.BigEndian.AppendUint32(nil, groupMagic)
	want := []string{"four", string(bytes.Repeat(magic, 300)), "three"}
	for free := int64(0); free < 3*sectorSize; free += 100 {
		d := newDisk(t)
		j, _ := open(t, d, Config{FileBytes: 8192}, From{})
		var group Draft
		group.Begin(0)
		for _, r := range want {
			copy(group.Add(len(r)), r)
		}
		d.SetCapacity(d.Used() + free)
		for range 2 {
			if err := j.Append(&group); !errors.Is(err, vfs.ErrNoSpace) {
				t.Fatalf("free %d: %v", free, err)
			}
		}
		d.SetCapacity(-1)
		must(t, j.Append(&group))
		must(t, j.Sync())
		if _, got := open(t, d.Kill(), small, From{}); !slices.Equal(got, want) {
			t.Fatalf("free %d: %q", free, got)
		}
	}
}

// journalMachine runs a journal against a list, with power cuts at any call.
type journalMachine struct {
	d       *simdisk.Disk
	j       *Journal
	cfg     Config
	rng     *rand.Rand
	synced  []string   // there for sure
	pending [][]string // groups that may be there, oldest first
	n       int
}

func (m *journalMachine) group(t *rapid.T) []string {
	var out []string
	for range rapid.IntRange(1, 3).Draw(t, "records") {
		m.n++
		out = append(out, fmt.Sprintf("%d%*d", m.n, rapid.SampledFrom([]int{0, 30, 900, 3000}).Draw(t, "bytes"), 0))
	}
	return out
}

func (m *journalMachine) Append(t *rapid.T) {
	g := m.group(t)
	m.fused(t, func() error {
		m.pending = append(m.pending, g)
		return m.j.put(g...)
	})
}

func (m *journalMachine) Sync(t *rapid.T) {
	m.fused(t, func() error {
		err := m.j.Sync()
		if err == nil {
			m.settle()
		}
		return err
	})
}

func (m *journalMachine) Rotate(t *rapid.T) {
	m.fused(t, func() error {
		err := m.j.Rotate()
		if err == nil {
			m.settle()
		}
		return err
	})
}

func (m *journalMachine) Replace(t *rapid.T) {
	g := m.group(t)
	m.fused(t, func() error {
		var d Draft
		d.Begin(0)
		for _, r := range g {
			copy(d.Add(len(r)), r)
		}
		err := m.j.Replace(&d)
		if err == nil {
			m.synced, m.pending = g, nil
			return nil
		}
		m.reopen(t, g)
		return nil
	})
}

func (m *journalMachine) settle() {
	for _, g := range m.pending {
		m.synced = append(m.synced[:len(m.synced):len(m.synced)], g...)
	}
	m.pending = nil
}

func (m *journalMachine) fused(t *rapid.T, op func() error) {
	if rapid.IntRange(0, 3).Draw(t, "crash?") == 0 {
		m.d.SetFuse(rapid.Int64Range(0, 10).Draw(t, "fuse"), m.rng.Uint64())
	}
	if err := op(); err != nil {
		if !errors.Is(err, simdisk.ErrCrashed) {
			t.Fatal(err)
		}
		m.reopen(t, nil)
	}
	m.d.Calm()
}

func (m *journalMachine) Crash(t *rapid.T) { m.reopen(t, nil) }

func (m *journalMachine) reopen(t *rapid.T, replacement []string) {
	m.d = m.d.Crash(m.rng)
	for range rapid.IntRange(0, 2).Draw(t, "crashes at open") {
		m.d.SetFuse(rapid.Int64Range(0, 15).Draw(t, "fuse"), m.rng.Uint64())
		if _, _, err := tryOpen(m.d, m.cfg, From{}); err != nil && !errors.Is(err, simdisk.ErrCrashed) {
			t.Fatal(err)
		}
		m.d = m.d.Crash(m.rng)
	}
	j, got, err := tryOpen(m.d, m.cfg, From{})
	if err != nil {
		t.Fatal(err)
	}
	m.j = j
	if replacement != nil && slices.Equal(got, replacement) {
		m.synced, m.pending = replacement, nil
		return
	}
	for {
		if slices.Equal(got, m.synced) {
			m.pending = nil
			return
		}
		if len(m.pending) == 0 {
			t.Fatalf("recovered %d records, want %d", len(got), len(m.synced))
		}
		m.synced = append(m.synced[:len(m.synced):len(m.synced)], m.pending[0]...)
		m.pending = m.pending[1:]
	}
}

func (m *journalMachine) Check(*rapid.T) {}

func TestJournalMatchesList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &journalMachine{d: simdisk.New(), rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}
		m.cfg = Config{FileBytes: rapid.Int64Range(1024, 8192).Draw(t, "file"), GrowBytes: rapid.SampledFrom([]int64{0, 700, 4096}).Draw(t, "grow")}
		if err := errors.Join(m.d.Mkdir("j"), m.d.SyncDir("")); err != nil {
			t.Fatal(err)
		}
		m.j, _, _ = tryOpen(m.d, m.cfg, From{})
		t.Repeat(rapid.StateMachineActions(m))
	})
}

func FuzzGroup(f *testing.F) {
	seed := append(make([]byte, groupHeader), 0, 0, 0, 1, 'x')
	f.Add(seal(seed, 1, 0, 1, 1, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= groupHeader { // most bytes die at the checksum: give some a right one
			if g, err := decodeGroup(b, 1); err == nil {
				again := make([]byte, groupHeader)
				for _, r := range g.Records {
					again = append(binary.BigEndian.AppendUint32(again, uint32(len(r))), r...)
				}
				flags := uint32(0)
				if g.Reset {
					flags = flagReset
				}
				got, err := decodeGroup(seal(again, len(g.Records), flags, 1, g.Number, g.Durable), 1)
				if err != nil || !slices.EqualFunc(got.Records, g.Records, bytes.Equal) {
					t.Fatalf("a group does not survive: %v", err)
				}
			}
		}
		body := append(make([]byte, groupHeader), b...)
		_, _ = decodeGroup(seal(body, len(b)%7, 0, 1, 1, 0), 1)
		_, _, _ = DecodeFile(append(encodeFileHeader(1, 1), b...), func(Group) error { return nil })
	})
}
