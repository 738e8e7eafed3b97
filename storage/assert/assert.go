// Package assert checks what can only be false if pawl is wrong. A failed
// check stops the node: a broker that no longer understands its own state must
// not acknowledge anything. Bad input, a full disk and a dead peer are not for
// assert; they are errors.
package assert

// A Failure is what a failed check panics with.
type Failure struct{ What string }

func (f *Failure) Error() string { return "assertion failed: " + f.What }

// That panics unless ok. It stays on in production, so what must be cheap: a
// constant, not a Sprintf.
func That(ok bool, what string) {
	if !ok {
		panic(&Failure{what})
	}
}
