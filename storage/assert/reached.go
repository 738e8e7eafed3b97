package assert

// onReached is told every mark. It is set once, before anything runs.
var onReached func(mark string)

// Reached marks a rare path that the nightly simulation must visit. The mark
// is a constant such as "store: torn tail cut at recovery".
func Reached(mark string) {
	if onReached != nil {
		onReached(mark)
	}
}

// CountReached makes f be told every mark. The simulator, which runs the whole
// node on one goroutine, counts them; a production host leaves it unset.
func CountReached(f func(mark string)) { onReached = f }
