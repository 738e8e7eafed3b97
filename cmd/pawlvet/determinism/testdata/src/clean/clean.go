// Package clean does what looks alike and is not.
package clean

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

var errGone = errors.New("gone")

var errFull error = syscall.ENOSPC

var table = map[int16]string{}

func init() { table[3] = "metadata" }

type id int32

func (i id) String() string { return "n" + fmt.Sprint(int32(i)) }

type node struct {
	id    id
	peers map[id]*node
}

func (n *node) String() string { return n.id.String() }

func all(n *node, r *rand.Rand, timeout time.Duration) string {
	s := ""
	for _, id := range slices.Sorted(maps.Keys(n.peers)) {
		s += n.peers[id].String()
	}
	if r.IntN(150) > int(timeout/time.Millisecond) {
		s += table[3]
	}
	own := rand.New(rand.NewPCG(1, 2))
	n.peers[id(own.Int32N(3))] = n
	list := []*node{n}
	slices.SortStableFunc(list, func(a, b *node) int { return cmp.Compare(a.id, b.id) })
	b := binary.BigEndian.AppendUint64(nil, math.MaxInt64)
	_ = slog.Int64("offset", int64(len(b)))
	const half = 1.0 / 2
	return fmt.Sprintf("%v %v %d %w", n, n.id, len(s), errGone)
}
