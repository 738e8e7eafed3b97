package membership

import (
	"slices"
	"testing"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

func TestARegistrationSaysBetterThanTheCommandLineWhereANodeIs(t *testing.T) {
	m, _, err := metadata.Apply(metadata.Image{}, 1, []metadata.Record{
		&metadata.RegisterBroker{Node: 1, Epoch: 1, PeerHost: "a", PeerPort: 1},
		&metadata.RegisterBroker{Node: 2, Epoch: 2, PeerHost: "moved", PeerPort: 22},
		&metadata.RegisterBroker{Node: 4, Epoch: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := Peers(m, []wire.Peer{{ID: 1, Host: "a", Port: 1}, {ID: 2, Host: "b", Port: 2}, {ID: 3, Host: "c", Port: 3}}, 1)
	want := []wire.Peer{{ID: 2, Host: "moved", Port: 22}, {ID: 3, Host: "c", Port: 3}}
	if !slices.Equal(got, want) {
		t.Errorf("peers %v, want %v", got, want)
	}
}

func TestANodeThatJoinsSaysWhereItIs(t *testing.T) {
	var peers []wire.Peer
	for _, address := range []string{"host:1", "nonsense", "host:70000", ":x", "[::1]:9093"} {
		peers, _ = Introduced(peers, 5, address)
	}
	if _, news := Introduced(peers, 5, "[::1]:9093"); news {
		t.Error("what was known is news")
	}
	if want := []wire.Peer{{ID: 5, Host: "::1", Port: 9093}}; !slices.Equal(peers, want) {
		t.Errorf("peers %v, want %v", peers, want)
	}
	for i := range metadata.NodeID(maxIntroduced + 5) {
		peers, _ = Introduced(peers, i, "h:1")
	}
	if len(peers) != maxIntroduced {
		t.Errorf("%d peers are remembered, want at most %d", len(peers), maxIntroduced)
	}
}
