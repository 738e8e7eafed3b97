package kernel

import (
	"math/rand/v2"
	"time"

	"github.com/pawlbroker/pawl/sim/digest"
)

// Stream is the random numbers of one purpose. It depends on the seed and on
// what it is for, and on nothing else: taking one fault out of a run leaves the
// draws of everything else alone.
func Stream(seed uint64, purpose string, index ...uint64) *rand.Rand {
	var a, b digest.Digest
	a.Word(seed)
	a.String(purpose)
	for _, i := range index {
		a.Word(i)
	}
	b.Word(uint64(a))
	return rand.New(rand.NewPCG(uint64(a), uint64(b)))
}

// Stream is the stream of this run's seed.
func (k *Kernel) Stream(purpose string, index ...uint64) *rand.Rand {
	return Stream(k.seed, purpose, index...)
}

// Between draws a duration in [lo, hi).
func Between(rng *rand.Rand, lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(rng.Int64N(int64(hi-lo)))
}

// Skewed draws a duration in [lo, hi) that is mostly near lo and now and then
// near hi, as delays are: a half of the draws are in the lowest sixteenth.
func Skewed(rng *rand.Rand, lo, hi time.Duration) time.Duration {
	for range 4 {
		if rng.IntN(6) == 0 {
			break
		}
		hi = lo + (hi-lo)/2
	}
	return Between(rng, lo, hi)
}

// Percent is true in p of 100 draws.
func Percent(rng *rand.Rand, p int) bool { return p > 0 && rng.IntN(100) < p }
