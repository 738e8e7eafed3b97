package harness

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
)

// keys decides what is written where, as Jepsen's generator does: a fixed
// number of live keys, the first picked half of the time, the next a quarter,
// and so on; a key that has had its writes gives its slot to a new one.
type keys struct {
	mu        sync.Mutex
	rand      *rand.Rand
	maxWrites int
	slots     []int
	writes    map[int]int64 // by key
	born      int
	highest   map[string]int64 // the highest offset that a send was answered with
	seen      map[string]int64 // the highest offset that was polled
}

func newKeys(count, maxWrites int, seed uint64) *keys {
	k := &keys{rand: rand.New(rand.NewPCG(seed, 2)), maxWrites: maxWrites,
		writes: map[int]int64{}, highest: map[string]int64{}, seen: map[string]int64{}}
	for range count {
		k.slots = append(k.slots, k.born)
		k.born++
	}
	return k
}

func (k *keys) slot() int {
	i := 0
	for i < len(k.slots)-1 && k.rand.IntN(2) == 0 {
		i++
	}
	return i
}

// write draws the next value to send. Values of a key rise from 1.
func (k *keys) write() (key string, value int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	slot := k.slot()
	n := k.slots[slot]
	k.writes[n]++
	if k.writes[n] == int64(k.maxWrites) {
		k.slots[slot] = k.born
		k.born++
	}
	return strconv.Itoa(n), k.writes[n]
}

func (k *keys) written(key string, offset int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.highest[key] = max(k.highest[key], offset)
}

func (k *keys) polled(key string, offset int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if seen, ok := k.seen[key]; !ok || offset > seen {
		k.seen[key] = offset
	}
}

// assignment draws the keys to assign: a live one and, a third of the time,
// all that have something nobody has polled.
func (k *keys) assignment() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	drawn := map[string]bool{strconv.Itoa(k.slots[k.slot()]): true}
	if k.rand.IntN(3) == 0 {
		for key, offset := range k.highest {
			if seen, ok := k.seen[key]; !ok || seen < offset {
				drawn[key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(drawn))
}

// all lists every key that a send may have reached.
func (k *keys) all() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for key := range k.writes {
		names = append(names, strconv.Itoa(key))
	}
	slices.Sort(names)
	return names
}

// reached reports whether next is past every offset that is known.
func (k *keys) reached(next map[string]int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, offset := range k.highest {
		if next[key] <= max(offset, k.seen[key]) {
			return false
		}
	}
	return true
}
