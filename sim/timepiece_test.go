package sim

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/broker/clock"
)

func TestATimepieceNeverGoesBackAndIsDueWhenItShows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := timepiece{local: clock.Instant(rapid.Int64Range(0, 1<<42).Draw(t, "start"))}
		world, shown := clock.Instant(0), p.local
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			p.set(world, rapid.Int64Range(-900_000, 4_000_000).Draw(t, "ppm"))
			world += clock.Instant(rapid.Int64Range(0, 1<<40).Draw(t, "time"))
			if now := p.now(world); now < shown {
				t.Fatalf("went back from %d to %d", shown, now)
			}
			shown = p.now(world)
			want := shown + clock.Instant(rapid.Int64Range(1, 1<<38).Draw(t, "alarm"))
			if at := p.due(want); p.now(at) < want || at > world && p.now(at-1) >= want {
				t.Fatalf("due at %d for %d; shows %d then and %d just before", at, want, p.now(at), p.now(at-1))
			}
		}
	})
}

func TestAFrozenTimepieceIsNeverDue(t *testing.T) {
	var p timepiece
	p.set(5, -million)
	if p.due(6) != clock.Never || p.now(1<<40) != 5 {
		t.Fatal("it goes on")
	}
}
