package office

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/controller"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

const (
	// leaderlessAfter is how long nobody leads before that is worth a line:
	// longer than an election takes.
	leaderlessAfter = 3 * time.Second
	// leaderlessEvery is how often it is looked at again, and leaderlessRepeat
	// when a line is written though it says the same.
	leaderlessEvery, leaderlessRepeat = time.Second, time.Minute
)

// leaderless is a time in which this node knows no active controller.
type leaderless struct {
	yes    bool
	since  clock.Instant // of this node's first wake, if there never was one
	lookAt clock.Instant
	silent string // the voters that the last line named; a line was written if saidAt is not 0
	saidAt clock.Instant
}

// watch tells the operator, while nobody leads, who is missing.
func (o *Office) watch(now clock.Instant, out *Out) {
	l := &o.leaderless
	if o.log.Leader() != metadata.NoNode {
		return
	}
	if !l.yes {
		*l = leaderless{yes: true, since: now, lookAt: now.Add(leaderlessAfter)}
	}
	if now < l.lookAt {
		return
	}
	l.lookAt = now.Add(leaderlessEvery)
	var nodes []string
	for _, a := range o.log.Quorum().Missing(now) {
		nodes = append(nodes, o.place(metadata.NodeID(a.Node)))
	}
	silent := strings.Join(nodes, ",")
	if l.saidAt != 0 && silent == l.silent && now.Sub(l.saidAt) < leaderlessRepeat {
		return
	}
	assert.Reached("office: an operator is told that nobody leads the quorum")
	l.silent, l.saidAt = silent, now
	text := "no active controller: nothing is decided until more than half of the voters reach each other"
	switch {
	case len(o.log.Quorum().Members()) > 0:
	case o.founder():
		text = "no quorum yet: it is founded once all controllers reach each other, or this node is let into theirs"
	default:
		text = "no quorum yet: this node waits for the controllers to let it in"
	}
	out.Lines = append(out.Lines, Line{slog.LevelWarn, text, []slog.Attr{
		slog.Duration("for", round(now.Sub(l.since))), slog.String("not_heard_of", o.absent(now)),
	}})
}

// found says that there is an active controller again.
func (o *Office) found(node metadata.NodeID, now clock.Instant, out *Out) {
	l := o.leaderless
	o.leaderless = leaderless{}
	if l.saidAt != 0 {
		out.Lines = append(out.Lines, Line{slog.LevelInfo, "there is an active controller again", []slog.Attr{
			slog.Int("node", int(node)), slog.Duration("after", round(now.Sub(l.since))),
		}})
	}
}

// founder reports whether this node is one of the configured controllers.
func (o *Office) founder() bool {
	for _, v := range o.cfg.Quorum.Voters {
		if metadata.NodeID(v) == o.cfg.Node {
			return true
		}
	}
	return false
}

// absent names the voters that are missing, and says for how long.
func (o *Office) absent(now clock.Instant) string {
	var text []string
	for _, a := range o.log.Quorum().Missing(now) {
		text = append(text, fmt.Sprintf("%s for %v", o.place(metadata.NodeID(a.Node)), round(now.Sub(a.Since))))
	}
	if len(text) == 0 {
		return "nobody"
	}
	return strings.Join(text, ", ")
}

// place is a node and where it listens for nodes, as far as that is known.
func (o *Office) place(n metadata.NodeID) string {
	if b, ok := o.log.Image().Broker(n); ok && b.PeerHost != "" {
		return wire.Peer{ID: n, Host: b.PeerHost, Port: b.PeerPort}.String()
	}
	for _, p := range o.cfg.Controllers {
		if p.ID == n {
			return p.String()
		}
	}
	return fmt.Sprint(int(n))
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// Leaderless answers a client's request that waited in vain for an active
// controller, so that nothing was done: DescribeQuorum with what this node knows
// itself, and all others with REQUEST_TIMED_OUT, as Kafka does, and who is missing.
func (o *Office) Leaderless(req kmsg.Request, view controller.View, now clock.Instant, wall record.Timestamp) kmsg.Response {
	if _, ok := req.(*kmsg.DescribeQuorumRequest); ok && o.log.Leader() == metadata.NoNode {
		view.Quorum = o.quorum(now, wall)
		resp, _ := view.Answer(req)
		return resp
	}
	return controller.Refuse(req, fmt.Errorf("%w: no active controller, so nothing was done; voters not heard of: %s", wire.ErrTimedOut, o.absent(now)))
}
