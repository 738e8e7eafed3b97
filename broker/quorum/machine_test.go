package quorum

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/broker/clock"
)

// A loneMachine is one voter with a disk that loses what it has not been told
// is saved. Its model is the list of what was handed out.
type loneMachine struct {
	q        *Quorum
	disk     [][]byte
	save     *Save
	now      clock.Instant
	started  uint64
	state    []string          // what the entries come to
	durable  []string          // the longest state that was handed out, ever
	proposed map[Ticket]string // not come back
	next     int
}

func (m *loneMachine) open(t *rapid.T) {
	m.save, m.state, m.proposed = nil, nil, map[Ticket]string{}
	m.started++
	var out Out
	q, err := New(DefaultConfig(1), rand.New(rand.NewPCG(m.started, 0)), m.disk, &out)
	if err != nil {
		t.Fatalf("disk %v: %v", m.show(), err)
	}
	m.q = q
	m.act(t, &out)
}

func (m *loneMachine) show() (lines []string) {
	for _, r := range m.disk {
		lines = append(lines, showRecord(r))
	}
	return lines
}

func (m *loneMachine) act(t *rapid.T, out *Out) {
	if out.Save != nil {
		m.save = out.Save
	}
	if out.Restore != nil {
		m.state = nil
		if err := json.Unmarshal(out.Restore.Data, &m.state); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range out.Committed {
		past, err := replay(m.disk)
		if last, _ := past.last(); err != nil || last < uint64(e.Index) {
			t.Fatalf("entry %d was handed out before it was durable: %v", e.Index, m.show())
		}
		if e.Ticket != 0 {
			if m.proposed[e.Ticket] != string(e.Data) {
				t.Fatalf("ticket %d came back with %q", e.Ticket, e.Data)
			}
			delete(m.proposed, e.Ticket)
		}
		if len(e.Data) > 0 {
			m.state = append(m.state, string(e.Data))
		}
	}
	if len(out.Lost)+len(out.Unknown)+len(out.Messages) > 0 {
		t.Fatalf("a lone voter lost a proposal or spoke: %s", showOut(out))
	}
	n := min(len(m.state), len(m.durable))
	if !slices.Equal(m.state[:n], m.durable[:n]) {
		t.Fatalf("state %v, before the crash it was %v", m.state, m.durable)
	}
	if m.q != nil && m.q.Leading() && len(m.state) < len(m.durable) {
		t.Fatalf("leads with %v, but %v was handed out", m.state, m.durable)
	}
	if len(m.state) > len(m.durable) {
		m.durable = slices.Clone(m.state)
	}
}

func (m *loneMachine) Wake(t *rapid.T) {
	m.now += clock.Instant(rapid.IntRange(0, 2_000_000_000).Draw(t, "ns"))
	var out Out
	m.q.Woken(m.now, &out)
	m.act(t, &out)
}

func (m *loneMachine) Propose(t *rapid.T) {
	var out Out
	m.next++
	data := string(rune('a'+m.next%26)) + string(rune('0'+m.next%10))
	ticket, err := m.q.Propose([]byte(data), &out)
	if (err == nil) != m.q.Leading() {
		t.Fatalf("leading=%t, but %v", m.q.Leading(), err)
	}
	if err == nil {
		m.proposed[ticket] = data
	}
	m.act(t, &out)
}

func (m *loneMachine) Saved(t *rapid.T) {
	if m.save == nil {
		t.Skip()
	}
	m.write(len(m.save.Records))
	m.save = nil
	var out Out
	m.q.Saved(&out)
	m.act(t, &out)
}

func (m *loneMachine) NoSpace(t *rapid.T) {
	if m.save == nil {
		t.Skip()
	}
	m.q.SaveFailed(m.now)
	if m.q.NextWake() == clock.Never {
		t.Fatal("a save that found no space is not asked for again")
	}
}

func (m *loneMachine) Compact(t *rapid.T) {
	if m.q.Applied() == 0 {
		t.Skip()
	}
	data, _ := json.Marshal(m.state)
	var out Out
	m.q.Compact(m.q.Applied(), data, &out)
	m.act(t, &out)
}

func (m *loneMachine) Crash(t *rapid.T) {
	if m.save != nil {
		n := rapid.IntRange(0, len(m.save.Records)).Draw(t, "left")
		if m.save.Replace && n < len(m.save.Records) {
			n = 0
		}
		m.write(n)
	}
	m.open(t)
}

func (m *loneMachine) write(n int) {
	if m.save.Replace && n > 0 {
		m.disk = nil
	}
	m.disk = append(m.disk, m.save.Records[:n]...)
}

func (m *loneMachine) Check(t *rapid.T) {
	if m.q.Saving() != (m.save != nil) {
		t.Fatalf("saving=%t", m.q.Saving())
	}
}

func TestLoneVoterLosesNothingInACrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &loneMachine{}
		m.open(t)
		t.Repeat(rapid.StateMachineActions(m))
	})
}
