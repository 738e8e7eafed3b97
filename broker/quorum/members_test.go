package quorum

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"pgregory.net/rapid"
)

// Whatever changes are made of a membership, raft has the same members, it can
// be written and read, and its invariants hold.
func TestMembershipIsAsRaftHasIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Custom(func(t *rapid.T) uint64 {
			return raftID(NodeID(rapid.IntRange(0, 3).Draw(t, "node")), uint32(rapid.IntRange(1, 3).Draw(t, "incarnation")))
		})
		self := raftID(0, 1)
		ms := foundedBy(self, []uint64{self, raftID(1, 1), raftID(2, 1)})
		store := raft.NewMemoryStorage()
		check(store.ApplySnapshot(foundingSnapshot(ms).proto()))
		node, err := raft.NewRawNode(&raft.Config{ID: self, Storage: store, ElectionTick: 10, HeartbeatTick: 1, MaxInflightMsgs: 1, Logger: logger{}})
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			c := change{
				rapid.SampledFrom([]raftChange{addLearner, makeVoter, dropMember, changesNone}).Draw(t, "what"), id.Draw(t, "id"),
				rapid.SampledFrom([]wishKind{noWish, wishVote, wishNoVote}).Draw(t, "wish"),
			}
			again, cc, err := decodeChange(c.encode())
			if err != nil || again != c {
				t.Fatalf("%v became %v, %v", c, again, err)
			}
			before := ms.appendTo(nil)
			next, err := ms.apply(c)
			if !slices.Equal(ms.appendTo(nil), before) {
				t.Fatalf("%v changed what it was made of", c)
			}
			if err != nil {
				continue
			}
			if cs := node.ApplyConfChange(cc); !next.matches(cs) {
				t.Fatalf("after %v it is %v, and raft has %v", c, next, cs)
			}
			if v, ok := next.wished(nodeOf(c.id)); c.wish != noWish && (!ok || v != (c.wish == wishVote)) {
				t.Fatalf("after %v the wish is %t, %t", c, v, ok)
			}
			f := fields{b: append(next.appendTo(nil), "rest"...)}
			read := f.membership()
			if f.bad || string(f.b) != "rest" || !sameMembers(read, next) || !slices.Equal(read.wishes, next.wishes) {
				t.Fatalf("%v was read as %v (%t)", next, read, f.bad)
			}
			ms = next
		}
	})
}

// The last voter cannot be removed.
func TestSomebodyVotes(t *testing.T) {
	self := raftID(0, 1)
	ms := foundedBy(self, []uint64{self})
	for _, c := range []change{{dropMember, self, noWish}, {addLearner, self, noWish}} {
		if next, err := ms.apply(c); err == nil {
			t.Fatalf("%v made %v", c, next)
		}
	}
}
