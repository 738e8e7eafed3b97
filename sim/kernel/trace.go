package kernel

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/sim/digest"
)

// Trace is everything that happened: always as a digest, and as text if
// somebody wants to read it. Both are told the same.
type Trace struct {
	now  *clock.Instant
	sum  digest.Digest
	text *bufio.Writer
	only []string // whose lines are printed; everybody's if there is nobody
}

// Print makes the trace write its lines to w too.
func (t *Trace) Print(w io.Writer) { t.text = bufio.NewWriterSize(w, 1<<16) }

// Only makes the trace print what some are told, or tell, and nothing else.
func (t *Trace) Only(who []string) { t.only = who }

func (t *Trace) prints(who string) bool {
	return t.text != nil && (len(t.only) == 0 || slices.Contains(t.only, who))
}

// Flush writes out what was held back.
func (t *Trace) Flush() error {
	if t.text == nil {
		return nil
	}
	return t.text.Flush()
}

// Wanted says whether anybody reads the text, so that a caller need not make
// it.
func (t *Trace) Wanted() bool { return t.text != nil }

// Sum is the digest of everything so far.
func (t *Trace) Sum() digest.Digest { return t.sum }

// Event is one line: who, what, and numbers. The digest gets all of it.
func (t *Trace) Event(who string, what string, a, b, c uint64) {
	t.sum.Word(uint64(*t.now))
	t.sum.String(who)
	t.sum.String(what)
	t.sum.Word(a)
	t.sum.Word(b)
	t.sum.Word(c)
	if t.prints(who) {
		t.line(who)
		fmt.Fprintf(t.text, " %s %d %d %d\n", what, a, b, c)
	}
}

// Bytes adds content to the digest only.
func (t *Trace) Bytes(p []byte) { t.sum.Bytes(p) }

// Word adds a number to the digest only.
func (t *Trace) Word(w uint64) { t.sum.Word(w) }

// Text is a line that the digest does not get: it says in words what other
// calls have summed up.
func (t *Trace) Text(who string, text fmt.Stringer) {
	if t.prints(who) {
		t.line(who)
		fmt.Fprintf(t.text, " %s\n", text)
	}
}

// Say is Text for a string.
func (t *Trace) Say(who, text string) {
	if t.prints(who) {
		t.line(who)
		fmt.Fprintf(t.text, " %s\n", text)
	}
}

func (t *Trace) line(who string) {
	ns := int64(*t.now)
	fmt.Fprintf(t.text, "%4d.%09d %-8s", ns/1e9, ns%1e9, who)
}
