package quorum

import (
	"math"
	"math/rand/v2"
)

// NodeID names a node, by the number that its broker has too.
type NodeID int32

// NoNode is the id of no node.
const NoNode NodeID = -1

// Index is the position of an entry. The first is 1.
type Index uint64

// Term numbers reigns. In one term at most one node leads.
type Term uint64

// Ticket stands for a proposal. It comes back exactly once: with its entry, in
// Lost or in Unknown. No ticket is 0.
type Ticket uint64

// To raft a node is another one with every data directory: its id there is the
// node's id plus one in the low 32 bits and, above them, an incarnation of 31
// bits that is drawn with the directory and never 0. So a voter that has lost
// its disk, and with it the votes it gave and the entries it promised to keep,
// is nobody that the others count on.
func raftID(n NodeID, incarnation uint32) uint64 {
	return uint64(uint32(n)) + 1 | uint64(incarnation)<<32
}

func nodeOf(id uint64) NodeID { return NodeID(uint32(id) - 1) }

func incarnationOf(id uint64) uint32 { return uint32(id >> 32) }

// isRaftID reports whether id is of a node.
func isRaftID(id uint64) bool {
	node, incarnation := id&math.MaxUint32, id>>32
	return 0 < node && node <= math.MaxInt32+1 && 0 < incarnation && incarnation <= math.MaxInt32
}

func drawIncarnation(rng *rand.Rand) uint32 { return 1 + rng.Uint32N(math.MaxInt32) }
