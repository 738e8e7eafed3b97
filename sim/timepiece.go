package sim

import "github.com/pawlbroker/pawl/broker/clock"

// million is the denominator of a clock's error.
const million = 1_000_000

// maxDrift is how wrong a clock's rate may be, in millionths, so that what a
// lease rests on holds. Kafka has no such bound; the broker's is 10 %.
const maxDrift = 100_000

// timepiece is the monotonic clock that a process has: it begins anywhere, and
// is faster or slower than the world's.
type timepiece struct {
	world, local clock.Instant // one instant by both
	ppm          int64         // by how many millionths it is fast from there on
}

// now is what it shows at an instant of the world.
func (t *timepiece) now(world clock.Instant) clock.Instant {
	d, rate := int64(world-t.world), million+t.ppm
	return t.local + clock.Instant(d/million*rate+d%million*rate/million)
}

// due is the first instant of the world at which it shows what is asked for.
func (t *timepiece) due(local clock.Instant) clock.Instant {
	left, rate := int64(local-t.local), million+t.ppm
	switch {
	case left <= 0:
		return t.world
	case local == clock.Never, rate <= 0:
		return clock.Never
	}
	at := t.world + clock.Instant(left/rate*million+left%rate*million/rate)
	for t.now(at) < local {
		at++
	}
	return at
}

// set changes its rate from an instant of the world on.
func (t *timepiece) set(world clock.Instant, ppm int64) {
	t.local, t.world, t.ppm = t.now(world), world, ppm
}
