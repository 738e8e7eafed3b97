//go:build invariants || race

package assert

// Slow is on in builds tagged invariants or race. It guards checks that cost
// more than a comparison.
const Slow = true
