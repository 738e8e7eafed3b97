package kernel_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/sim/kernel"
)

type diary struct {
	k    *kernel.Kernel
	args []uint64
	at   []clock.Instant
}

func (d *diary) Happen(what kernel.What, arg uint64) {
	d.args = append(d.args, arg)
	d.at = append(d.at, d.k.Now())
}

func TestThingsHappenInOrderOfTimeThenOfScheduling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		delays := rapid.SliceOf(rapid.IntRange(-1, 20)).Draw(t, "delays")
		k := kernel.New(1)
		d := &diary{k: k}
		want := make([]uint64, 0, len(delays))
		for i, delay := range delays {
			k.After(time.Duration(delay), d, 0, uint64(i))
			want = append(want, uint64(i))
		}
		slices.SortStableFunc(want, func(a, b uint64) int { return max(delays[a], 0) - max(delays[b], 0) })
		for k.Next() != clock.Never {
			k.Step()
		}
		if !slices.Equal(d.args, want) {
			t.Fatalf("got %v, want %v", d.args, want)
		}
		for i, arg := range d.args {
			if d.at[i] != clock.Instant(max(delays[arg], 0)) {
				t.Fatalf("%d at %d, want %d", arg, d.at[i], delays[arg])
			}
		}
	})
}

// fountain schedules more whenever something happens.
type fountain struct {
	k    *kernel.Kernel
	rng  *rand.Rand
	left int
	last clock.Instant
	back bool
}

func (f *fountain) Happen(kernel.What, uint64) {
	f.back = f.back || f.k.Now() < f.last
	f.last = f.k.Now()
	for range f.rng.IntN(3) {
		if f.left > 0 {
			f.left--
			f.k.After(time.Duration(f.rng.Int64N(1000)), f, 0, 0)
		}
	}
}

func TestTimeNeverGoesBackWhileMoreIsScheduled(t *testing.T) {
	for seed := range uint64(20) {
		f := &fountain{k: kernel.New(seed), rng: kernel.Stream(seed, "fountain"), left: 5000}
		for range 300 {
			f.k.After(time.Duration(f.rng.Int64N(1000)), f, 0, 0)
		}
		for f.k.Next() != clock.Never {
			f.k.Step()
		}
		if f.back || f.left > 0 {
			t.Fatalf("seed %d: went back: %t; %d left", seed, f.back, f.left)
		}
	}
}

func TestStreamsDependOnTheirPurposeAlone(t *testing.T) {
	k := kernel.New(7)
	a := k.Stream("disk", 1, 2).Uint64()
	k.Stream("disk", 1, 3).Uint64()
	if b := k.Stream("disk", 1, 2).Uint64(); a != b {
		t.Fatal("another stream in between changed it")
	}
	seen := map[uint64]bool{a: true}
	for _, other := range []uint64{
		k.Stream("disk", 2, 1).Uint64(), k.Stream("disk", 1).Uint64(), k.Stream("link", 1, 2).Uint64(),
		kernel.New(8).Stream("disk", 1, 2).Uint64(),
	} {
		if seen[other] {
			t.Fatal("two purposes share a stream")
		}
		seen[other] = true
	}
}

func TestTheDigestIsTheSameWithAndWithoutText(t *testing.T) {
	run := func(k *kernel.Kernel) *kernel.Kernel {
		k.Trace.Event("node", "did", 1, 2, 3)
		k.Trace.Bytes([]byte("content"))
		k.Trace.Say("node", "something")
		return k
	}
	var text strings.Builder
	spoken := kernel.New(1)
	spoken.Trace.Print(&text)
	run(spoken)
	if err := spoken.Trace.Flush(); err != nil {
		t.Fatal(err)
	}
	if spoken.Trace.Sum() != run(kernel.New(1)).Trace.Sum() {
		t.Fatal("they differ")
	}
	if want := "   0.000000000 node     did 1 2 3\n   0.000000000 node     something\n"; text.String() != want {
		t.Fatalf("%q", text.String())
	}
}

func BenchmarkPopAndPush(b *testing.B) {
	k := kernel.New(1)
	d := &sink{}
	rng := k.Stream("bench")
	for range 64 {
		k.After(time.Duration(rng.Int64N(1000)), d, 0, 0)
	}
	for range b.N {
		k.Step()
		k.After(time.Duration(rng.Int64N(1000)), d, 0, 0)
	}
}

type sink struct{}

func (*sink) Happen(kernel.What, uint64) {}
