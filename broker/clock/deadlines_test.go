package clock

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestDeadlinesComeOutInOrder: by time, then as they went in.
func TestDeadlinesComeOutInOrder(t *testing.T) {
	type thing struct {
		at Instant
		id int
	}
	rapid.Check(t, func(t *rapid.T) {
		var d Deadlines[thing]
		var model []thing // sorted
		now := Instant(0)
		for id := range rapid.IntRange(1, 60).Draw(t, "things") {
			x := thing{Instant(rapid.IntRange(0, 20).Draw(t, "at")), id}
			d.Add(x.at, x)
			i, _ := slices.BinarySearchFunc(model, x, func(a, b thing) int {
				if a.at <= b.at {
					return -1
				}
				return 1
			})
			model = slices.Insert(model, i, x)
			if rapid.IntRange(0, 4).Draw(t, "pass?") > 0 {
				continue
			}
			now = max(now, Instant(rapid.IntRange(0, 20).Draw(t, "now")))
			for len(model) > 0 && model[0].at <= now {
				if got, ok := d.Due(now); !ok || got != model[0] {
					t.Fatalf("got %v %t, want %v", got, ok, model[0])
				}
				model = model[1:]
			}
			if got, ok := d.Due(now); ok {
				t.Fatalf("got %v, which is not due at %d", got, now)
			}
			if d.Len() != len(model) || len(model) > 0 && d.Next() != model[0].at || len(model) == 0 && d.Next() != Never {
				t.Fatalf("%d left, next at %d; want %v", d.Len(), d.Next(), model)
			}
		}
	})
}
