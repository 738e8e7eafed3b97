package membership

import (
	"log/slog"
	"time"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
)

const (
	// lapseAfter is how long the lease is over before that is worth a line: mostly
	// another controller has been elected by then.
	lapseAfter = time.Second
	// lapseEvery is how often there is a line at most.
	lapseEvery = time.Minute
)

// lapse is what the operator was told of a lease that is over.
type lapse struct {
	lookAt clock.Instant
	since  clock.Instant // when the lease ended of which a line was written; valid if told
	told   bool
	saidAt clock.Instant // of the last line, or 0
}

// Leased reports whether nobody has taken this broker's place for sure.
func (m *Member) Leased(now clock.Instant) bool { return now < m.lease }

// watch tells the operator that the lease is over, and when it is there again.
func (m *Member) watch(now clock.Instant, out *Out) {
	l := &m.lapse
	l.lookAt = clock.Never
	switch due := m.lease.Add(lapseAfter); {
	case m.Leased(now):
		if l.told {
			l.told = false
			out.Lines = append(out.Lines, Line{slog.LevelInfo, "the lease is there again: consumers are answered",
				[]slog.Attr{slog.Duration("after", now.Sub(l.since).Round(100*time.Millisecond))}})
		}
		if m.lease != clock.Never {
			l.lookAt = due
		}
	case m.lease == 0 || l.told || !m.joined || m.leaving:
	case l.saidAt != 0 && now.Sub(l.saidAt) < lapseEvery:
		l.lookAt = max(due, l.saidAt.Add(lapseEvery))
	case now < due:
		l.lookAt = due
	default:
		l.told, l.saidAt, l.since = true, now, m.lease
		controller := slog.Int("controller", int(m.controller))
		if m.controller == metadata.NoNode {
			controller = slog.String("controller", "none")
		}
		out.Lines = append(out.Lines, Line{slog.LevelWarn, "the lease is over: the active controller does not answer, others may lead in this node's place, and consumers wait",
			[]slog.Attr{controller, slog.Bool("fenced", m.fenced)}})
	}
}
