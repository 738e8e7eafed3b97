package membership

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

func TestWhereNodesAre(t *testing.T) {
	m, _, err := metadata.Apply(metadata.Image{}, 1, []metadata.Record{
		&metadata.RegisterBroker{Node: 1, Epoch: 1, PeerHost: "a", PeerPort: 1},
		&metadata.RegisterBroker{Node: 2, Epoch: 2, PeerHost: "registered", PeerPort: 22},
		&metadata.RegisterBroker{Node: 4, Epoch: 3},
		&metadata.RegisterBroker{Node: 5, Epoch: 4, PeerHost: "registered", PeerPort: 55, Fenced: true},
		&metadata.RegisterBroker{Node: 6, Epoch: 5, PeerHost: "registered", PeerPort: 66},
	})
	if err != nil {
		t.Fatal(err)
	}
	known := Acquaintances{Configured: []wire.Peer{{ID: 1, Host: "a", Port: 1}, {ID: 2, Host: "b", Port: 2}, {ID: 3, Host: "c", Port: 3}, {ID: 6, Host: "f", Port: 6}}}
	known.Met(5, "said:5", 0)
	known.Met(6, "said:6", 0)
	known.Met(7, "said:7", 0)
	for led, want := range map[bool]string{
		true:  "[2@registered:22 5@said:5 6@registered:66 7@said:7 3@c:3]",
		false: "[2@b:2 5@said:5 6@said:6 7@said:7 3@c:3]",
	} {
		if got := fmt.Sprint(Peers(m, &known, 1, led)); got != want {
			t.Errorf("led=%t: peers %v, want %v", led, got, want)
		}
	}
}

func TestANodeThatJoinsSaysWhereItIs(t *testing.T) {
	var known Acquaintances
	now := clock.Instant(0)
	for _, address := range []string{"host:1", "nonsense", "host:70000", ":x", "[::1]:9093"} {
		known.Met(5, address, now)
	}
	if news, _ := known.Met(5, "[::1]:9093", now); news {
		t.Error("what was known is news")
	}
	if want := []wire.Peer{{ID: 5, Host: "::1", Port: 9093}}; !slices.Equal(known.Heard, want) {
		t.Errorf("peers %v, want %v", known.Heard, want)
	}
	for i := range metadata.NodeID(maxIntroduced + 5) {
		known.Met(i, "h:1", now.Add(time.Hour))
		known.Met(i, "h:2", now.Add(time.Hour))
	}
	if len(known.Heard) != maxIntroduced || len(known.moves) != maxIntroduced {
		t.Errorf("%d peers and %d moves are remembered, want at most %d", len(known.Heard), len(known.moves), maxIntroduced)
	}
}

// Two nodes of one id that ask every 300 ms are followed ever more rarely, and each
// time that they would not be, one line says so.
func TestTwoNodesOfOneIDAreNotFollowedToAndFro(t *testing.T) {
	var known Acquaintances
	moves, lines := 0, 0
	now, end := clock.Instant(0), clock.Instant(0).Add(time.Hour)
	for ; now < end; now = now.Add(150 * time.Millisecond) {
		for _, address := range []string{"a:1", "b:2"} {
			news, line := known.Met(5, address, now)
			if news {
				moves++
			}
			if line != nil {
				lines++
				if got := fmt.Sprint(line.Attrs); got != "[node=5 at=5@b:2 and_at=5@a:1]" && got != "[node=5 at=5@a:1 and_at=5@b:2]" {
					t.Errorf("line %s %v", line.Text, got)
				}
			}
		}
	}
	if moves > 15 || lines > moves || lines < 2 {
		t.Errorf("in an hour it moved %d times, with %d lines", moves, lines)
	}
	now = now.Add(maxSettle * 4) // and one of them is left, somewhere else
	if news, line := known.Met(5, "c:3", now); !news || line != nil {
		t.Errorf("a node that moves once is not followed, with line %v", line)
	}
}
