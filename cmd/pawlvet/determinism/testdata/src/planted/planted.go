// Package planted has twenty functions, each of which can make two runs of one
// seed differ.
package planted

import (
	crand "crypto/rand" // want `crypto/rand.*\[rand\]`
	"fmt"
	"hash/maphash" // want `hash/maphash.*\[rand\]`
	"log"          // want `import of log: use Env.Log`
	"maps"
	"math"
	"math/rand/v2"
	"os" // want `import of os: .*\[os\]`
	"reflect"
	"runtime" // want `import of runtime.*\[runtime\]`
	"slices"
	"sort"
	"sync" // want `import of sync: .*\[sync\]`
	"time"
	"unsafe" // want `import of unsafe: .*\[unsafe\]`

	"elsewhere"
)

type node struct {
	id    int32
	peers map[int32]*node
	votes float64
}

// 1: the order of a map reaches what is sent.
func Plant01MapOrder(n *node, send func(int32)) {
	for id := range n.peers { // want `map order .*\[unordered\]`
		send(id)
	}
}

// 2: the same through an iterator.
func Plant02MapKeys(n *node) []int32 {
	return slices.Collect(maps.Keys(n.peers)) // want `maps.Keys: map order`
}

// 3: and through reflection.
func Plant03Reflection(n *node) (ids []int64) {
	for it := reflect.ValueOf(n.peers).MapRange(); it.Next(); { // want `reflect's MapRange`
		ids = append(ids, it.Key().Int())
	}
	return ids
}

// 4: the wall clock decides.
func Plant04Clock(deadline int64) bool {
	return time.Now().UnixNano() > deadline // want `time.Now: .*\[clock\]`
}

// 5: a timer.
func Plant05Timer(f func()) {
	time.AfterFunc(time.Second, f) // want `time.AfterFunc: .*\[clock\]`
}

// 6: randomness from outside the seed.
func Plant06GlobalRand() int { return rand.IntN(150) } // want `math/rand/v2.IntN: .*\[rand\]`

// 7: the operating system's randomness; the import is the finding.
func Plant07CryptoRand(id []byte) { crand.Read(id) } // caught at its import

// 8: a hash whose seed is the process's.
func Plant08MapHash(key string, buckets uint64) uint64 { // caught at its import
	return maphash.String(maphash.MakeSeed(), key) % buckets
}

// 9: the scheduler decides which comes first.
func Plant09Goroutine(a, b func()) {
	go a() // want `goroutine`
	b()
}

// 10: and which case of a select.
func Plant10Select(a, b chan int) int { // want `channel: answers arrive as events`
	select { // want `channel: answers arrive as events`
	case v := <-a: // want `channel: answers arrive as events`
		return v
	case v := <-b: // want `channel: answers arrive as events`
		return v
	}
}

// 11: the order in which a lock is won.
func Plant11Lock(mu *sync.Mutex, f func()) { // caught at its import
	mu.Lock()
	defer mu.Unlock()
	f()
}

// 12: the environment.
func Plant12Environment() string { return os.Getenv("TZ") } // caught at its import

// 13: the number of cores.
func Plant13Cores() int { return runtime.NumCPU() } // caught at its import

// 14: an address in a line of the trace.
func Plant14Address(n *node) string { return fmt.Sprintf("node %p", n) } // want `%p prints an address`

// 15: an address that a struct hides.
func Plant15HiddenAddress(n *node) string { return fmt.Sprint(*n) } // want `prints as an address`

// 16: an address as a number.
func Plant16Pointer(n *node) uintptr { return uintptr(unsafe.Pointer(n)) } // caught at its import

// 17: floating point, fused on one machine and not on another.
func Plant17Float(n *node, weight float64) {
	n.votes = n.votes*weight + 0.5    // want `floating point` `floating point`
	n.votes = math.FMA(n.votes, 2, 1) // want `math.FMA`
}

// 18: a sort that leaves the order of equals open.
func Plant18UnstableSort(ns []*node) {
	sort.Slice(ns, func(i, j int) bool { return ns[i].votes < ns[j].votes }) // want `sort.SliceStable`
}

var seen = map[int32]bool{}

// 19: state that outlives the run.
func Plant19Global(n *node) bool {
	was := seen[n.id]
	seen[n.id] = true // want `package-level variable seen is written`
	return was
}

// 20: all of it in a package that nobody looks into. Only the trace hash finds
// this one.
func Plant20Dependency() int64 { return elsewhere.Jitter() }

type message struct{}

func (*message) ProtoReflect() int { return 0 }
func (*message) String() string    { return "" }

// And beyond the twenty.
func more(m *message, ns []*node, f func()) (err error) {
	_ = m.String()                 // want `protobuf's text`
	_ = fmt.Sprintf("%v", m)       // want `protobuf's text`
	_ = fmt.Sprintf("%T %v", f, f) // want `a func\(\) prints as an address`
	fmt.Println()                  // want `fmt.Println uses the process's own streams`
	println()                      // want `println writes`
	log.Println()
	defer func() {
		if r := recover(); r != nil { // want `recover: it hides`
			err = fmt.Errorf("%v", r)
		}
	}()
	slices.SortFunc(ns, func(a, b *node) int { return int(a.id - b.id) })            // want `slices.SortStableFunc`
	_ = slices.SortedStableFunc(maps.Values(seen), func(a, b bool) int { return 0 }) // want `maps.Values: map order`
	counter++                                                                        // want `package-level variable counter is written`
	p := &counter                                                                    // want `package-level variable counter is written`
	delete(seen, int32(*p))                                                          // want `package-level variable seen is written`
	last.set(3)                                                                      // want `package-level variable last is written`
	for counter = range 3 {                                                          // want `package-level variable counter is written`
	}
	return nil
}

var counter int
var last box

type box struct{ n int }

func (b *box) set(n int) { b.n = n }
