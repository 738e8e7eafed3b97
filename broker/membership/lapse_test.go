package membership

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
)

// told empties out and returns its lines.
func told(out *Out) (lines []string) {
	for _, l := range out.Lines {
		lines = append(lines, fmt.Sprint(l.Text, l.Attrs))
	}
	*out = Out{}
	return lines
}

// TestALapseOfTheLeaseIsToldOnceAndItsEndToo: not the short ones of every election,
// and not each of many.
func TestALapseOfTheLeaseIsToldOnceAndItsEndToo(t *testing.T) {
	const over = "the lease is over: the active controller does not answer, others may lead in this node's place, and consumers wait"
	m, beatCall := joinedMember(t)
	var out Out
	m.Answer(beatCall.Seq, beat(10), nil, 0, &out) // the lease is over at 450 ms
	expect := func(what string, want ...string) {
		t.Helper()
		if got := told(&out); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	m.Wake(1400*ms, &out)
	seq := out.Calls[len(out.Calls)-1].Seq
	expect("0.95 s without a lease")
	m.Answer(seq, beat(10), nil, 1400*ms, &out)
	expect("a lease from 1.4 s on") // until 1.85 s
	m.Leader(metadata.NoNode, 1500*ms, &out)
	if got := m.NextWake(); got != 2850*ms {
		t.Errorf("the next wake is at %v, want a second after the lease", got)
	}
	m.Wake(2850*ms, &out)
	expect("a second without a lease", over+"[controller=none fenced=false]")
	m.Wake(30_000*ms, &out)
	expect("much longer")
	m.Leader(3, 31_850*ms, &out)
	seq = out.Calls[0].Seq
	m.Answer(seq, beat(10), nil, 31_850*ms, &out)
	expect("a lease again", "the lease is there again: consumers are answered[after=30s]") // until 32.3 s
	m.Wake(40_000*ms, &out)
	seq = out.Calls[0].Seq
	expect("another lapse in the same minute")
	m.Answer(seq, beat(10), nil, 40_000*ms, &out)
	expect("its end")
	m.Leader(metadata.NoNode, 40_000*ms, &out)
	at := m.NextWake()
	m.Wake(at, &out)
	if at = m.NextWake(); at != (2850 * ms).Add(time.Minute) {
		t.Errorf("the next wake is at %v, want a minute after the last line", at)
	}
	m.Wake(at, &out)
	expect("a lapse that lasts longer than that minute", over+"[controller=none fenced=false]")
	m.Wake(at.Add(10*time.Minute), &out)
	expect("ten minutes more of it")
	if at = m.NextWake(); at != clock.Never {
		t.Errorf("a member that has said everything wants to be woken at %v", at)
	}
}

// TestWhoeverLeavesHasNoLapse: nor who never had a lease.
func TestWhoeverLeavesHasNoLapse(t *testing.T) {
	m, _ := joinedMember(t)
	var out Out
	m.Wake(10_000*ms, &out)
	seq := out.Calls[0].Seq
	if got := told(&out); len(got) > 0 {
		t.Errorf("before its first lease it says %q", got)
	}
	m.Answer(seq, beat(10), nil, 10_000*ms, &out)
	m.Shutdown(10_000*ms, &out)
	m.Wake(20_000*ms, &out)
	if got := told(&out); len(got) > 0 {
		t.Errorf("while it leaves it says %q", got)
	}
}
