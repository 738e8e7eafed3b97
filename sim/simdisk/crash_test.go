package simdisk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// story is one disk in a test of testdata. A crash is tried with many seeds;
// what is printed is every outcome there was, in order.
type story struct {
	setup []func(fsys *simdisk.Disk) error // replayed for each seed
}

const crashSeeds = 400

func TestCrashStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				s = story{}
				return ""
			case "crash":
				return s.outcomes(func(disk *simdisk.Disk, rng *rand.Rand) *simdisk.Disk { return disk.Crash(rng) })
			case "kill":
				return s.outcomes(func(disk *simdisk.Disk, rng *rand.Rand) *simdisk.Disk { return disk.Kill() })
			case "do":
				var out []string
				for line := range strings.Lines(d.Input) {
					line = strings.TrimSpace(line)
					s.setup = append(s.setup, func(disk *simdisk.Disk) error { return do(disk, line) })
				}
				disk := simdisk.New()
				for i, step := range s.setup {
					if err := step(disk); err != nil && i >= len(s.setup)-strings.Count(d.Input, "\n")-1 {
						out = append(out, err.Error())
					}
				}
				return strings.Join(out, "\n")
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func (s *story) outcomes(crash func(*simdisk.Disk, *rand.Rand) *simdisk.Disk) string {
	seen := map[string]bool{}
	for seed := range uint64(crashSeeds) {
		disk := simdisk.New()
		for _, step := range s.setup {
			_ = step(disk)
		}
		seen[picture(crash(disk, rand.New(rand.NewPCG(seed, 7))))] = true
	}
	var out []string
	for p := range seen {
		out = append(out, p)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// picture is a disk as one line: each file with runs of equal bytes.
func picture(disk *simdisk.Disk) string {
	var out []string
	for _, info := range disk.Files() {
		data, _ := disk.Peek(info.Name)
		out = append(out, info.Name+"="+runs(data))
	}
	if len(out) == 0 {
		return "(nothing)"
	}
	return strings.Join(out, " ")
}

// runs writes 512 a's and 3 zeros as a512 .3.
func runs(data []byte) string {
	var b strings.Builder
	for len(data) > 0 {
		n := 1
		for n < len(data) && data[n] == data[0] {
			n++
		}
		c := string(data[:1])
		if data[0] == 0 {
			c = "."
		}
		fmt.Fprintf(&b, "%s%d", c, n)
		data = data[n:]
	}
	if b.Len() == 0 {
		return "empty"
	}
	return b.String()
}

// do is one call: "write FILE POS LETTER COUNT", "sync FILE", "create NAME" and
// so on.
func do(disk *simdisk.Disk, line string) error {
	words := strings.Fields(line)
	name := words[1]
	num := func(i int) int64 {
		var v int64
		fmt.Sscan(words[i], &v)
		return v
	}
	with := func(f func(vfs.File) error) error {
		file, err := disk.Open(name)
		if err != nil {
			return err
		}
		return f(file)
	}
	switch words[0] {
	case "create":
		_, err := disk.Create(name)
		return err
	case "write":
		return with(func(f vfs.File) error {
			n, err := f.WriteAt(bytes.Repeat([]byte(words[3]), int(num(4))), num(2))
			if err != nil {
				return fmt.Errorf("wrote %d: %w", n, err)
			}
			return nil
		})
	case "truncate":
		return with(func(f vfs.File) error { return f.Truncate(num(2)) })
	case "sync":
		return with(vfs.File.Sync)
	case "read":
		return with(func(f vfs.File) error {
			buf := make([]byte, 4096)
			n, err := f.ReadAt(buf, 0)
			if err != io.EOF {
				return err
			}
			return fmt.Errorf("%s", runs(buf[:n]))
		})
	case "mkdir":
		return disk.Mkdir(name)
	case "syncdir":
		return disk.SyncDir(name)
	case "remove":
		return disk.Remove(name)
	case "rename":
		return disk.Rename(name, words[2])
	case "fuse":
		disk.SetFuse(num(1), uint64(num(2)))
	case "failsync":
		disk.FailSync(num(1), uint64(num(2)), len(words) > 3)
	case "failwrite":
		disk.FailWrite(num(1), uint64(num(2)))
	case "failread":
		disk.FailRead(num(1))
	case "capacity":
		disk.SetCapacity(num(1))
	case "flip":
		return fmt.Errorf("%t", disk.FlipBit(name, num(2), uint(num(3))))
	case "break":
		return fmt.Errorf("%t", disk.BreakSector(name, num(2)))
	}
	return nil
}

// Bytes that were synced under a name that was synced are there after any
// number of crashes; other bytes are old, new or zero, sector by sector.
func TestSyncedBytesSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk := simdisk.New()
		f := reopen(t, disk)
		var now, synced []byte
		seed := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				at := rapid.IntRange(0, len(now)).Draw(t, "at")
				p := bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, rapid.IntRange(0, 2000).Draw(t, "len"))
				if _, err := f.WriteAt(p, int64(at)); err != nil {
					t.Fatal(err)
				}
				now = append(now[:at:at], append(p, now[min(len(now), at+len(p)):]...)...)
			},
			"truncate": func(t *rapid.T) {
				size := rapid.IntRange(0, len(now)).Draw(t, "size")
				if err := f.Truncate(int64(size)); err != nil {
					t.Fatal(err)
				}
				now = now[:size]
			},
			"sync": func(t *rapid.T) {
				if err := f.Sync(); err != nil {
					t.Fatal(err)
				}
				synced = bytes.Clone(now)
			},
			"crash": func(t *rapid.T) {
				seed++
				disk = disk.Crash(rand.New(rand.NewPCG(seed, rapid.Uint64().Draw(t, "seed"))))
				f = reopen(t, disk)
				got, _ := disk.Peek("f")
				judge(t, got, now, synced)
				now, synced = bytes.Clone(got), bytes.Clone(got)
			},
			"kill": func(t *rapid.T) {
				disk = disk.Kill()
				f = reopen(t, disk)
			},
			"": func(t *rapid.T) {
				if got, _ := disk.Peek("f"); !bytes.Equal(got, now) {
					t.Fatalf("reads %d bytes, wrote %d", len(got), len(now))
				}
				if disk.Used() != int64(len(now)) {
					t.Fatalf("used %d, holds %d", disk.Used(), len(now))
				}
			},
		})
	})
}

func reopen(t *rapid.T, disk *simdisk.Disk) vfs.File {
	f, err := disk.Open("f")
	if err != nil {
		f, err = disk.Create("f")
		if err != nil {
			t.Fatal(err)
		}
		if err := disk.SyncDir("."); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// judge holds got, what a crash left, against what was synced and what was
// written last. What was written and cut in between may make a file longer.
func judge(t *rapid.T, got, now, synced []byte) {
	for i, b := range got {
		same := i < len(synced) && i < len(now) && synced[i] == now[i]
		if same && b != now[i] && b != 0 {
			t.Fatalf("byte %d is %d, was synced as %d", i, b, now[i])
		}
		if b != 0 && (i >= len(now) || b != now[i]) && (i >= len(synced) || b != synced[i]) {
			t.Fatalf("byte %d is %d, which it never was", i, b)
		}
	}
	if bytes.Equal(now, synced) && !bytes.HasPrefix(got, synced) && len(got) >= len(synced) {
		t.Fatal("synced bytes are gone")
	}
}

func TestACrashedDiskOnlySaysSo(t *testing.T) {
	disk := simdisk.New()
	f, _ := disk.Create("f")
	disk.SetFuse(1, 0)
	if _, err := f.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := f.Sync(); !errors.Is(err, simdisk.ErrCrashed) {
			t.Fatal(err)
		}
	}
	after := disk.Kill()
	if _, err := f.Size(); !errors.Is(err, simdisk.ErrCrashed) {
		t.Fatal(err)
	}
	if data, ok := after.Peek("f"); !ok || string(data) != "x" {
		t.Fatalf("%q", data)
	}
}

func TestTheSameCallsHaveTheSameSum(t *testing.T) {
	run := func(seed uint64) *simdisk.Disk {
		disk := simdisk.New()
		chatter(disk, rand.New(rand.NewPCG(seed, 0)))
		return disk.Crash(rand.New(rand.NewPCG(seed, 1)))
	}
	a, b, c := run(1), run(1), run(2)
	if a.Sum() != b.Sum() || picture(a) != picture(b) {
		t.Fatal("two runs of one seed differ")
	}
	if a.Sum() == c.Sum() {
		t.Fatal("two seeds are the same")
	}
}

func BenchmarkAppendAndSync(b *testing.B) {
	disk := simdisk.New()
	f, _ := disk.Create("f")
	p := make([]byte, 1000)
	at := int64(0)
	for range b.N {
		if at > 1<<20 {
			_ = f.Truncate(0)
			at = 0
		}
		_, _ = f.WriteAt(p, at)
		at += 1000
		_ = f.Sync()
	}
}

func TestOnlyAFailedSyncThatDropsPagesCountsAsADrop(t *testing.T) {
	disk := simdisk.New()
	f, _ := disk.Create("f")
	for _, drop := range []bool{false, true} {
		if _, err := f.WriteAt([]byte("x"), 0); err != nil {
			t.Fatal(err)
		}
		disk.FailSync(1, 0, drop)
		if err := f.Sync(); !errors.Is(err, simdisk.ErrIO) {
			t.Fatal(err)
		}
	}
	if n := disk.Kill().Drops(); n != 1 {
		t.Fatalf("%d drops", n)
	}
}
