package controller

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// ground is a cluster of brokers to place on.
func ground(t interface{ Fatal(...any) }, brokers ...*metadata.Broker) metadata.Image {
	records := make([]metadata.Record, len(brokers))
	for i, b := range brokers {
		b.Epoch = metadata.BrokerEpoch(i)
		records[i] = b
	}
	m, _, err := metadata.Apply(metadata.Image{}, 1, records)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func drawGround(t *rapid.T) metadata.Image {
	n := rapid.IntRange(1, 9).Draw(t, "brokers")
	racks := rapid.SampledFrom([][]string{{""}, {"a", "b"}, {"a", "b", "c"}, {"", "a", "b", "c", "d"}}).Draw(t, "racks")
	brokers := make([]*metadata.Broker, n)
	for i := range brokers {
		brokers[i] = &metadata.Broker{
			Node: metadata.NodeID(i), Rack: rapid.SampledFrom(racks).Draw(t, "rack"),
			Fenced: rapid.IntRange(0, 4).Draw(t, "fenced") == 0, InShutdown: rapid.IntRange(0, 6).Draw(t, "stops") == 0,
		}
	}
	return ground(t, brokers...)
}

func drawRNG(t *rapid.T) *rand.Rand {
	return rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
}

// checkPlaced holds placed against what a placer promises.
func checkPlaced(t interface{ Fatalf(string, ...any) }, m metadata.Image, placed [][]metadata.NodeID, replicas int) {
	size := map[string]int{} // brokers of each rack
	leads := map[metadata.NodeID]int{}
	for b := range m.Brokers() {
		if !b.InShutdown {
			size[b.Rack]++
		}
		if b.Active() {
			leads[b.Node] = 0
		}
	}
	for i, list := range placed {
		used := map[string]int{}
		for j, n := range list {
			b, ok := m.Broker(n)
			if !ok || b.InShutdown || slices.Contains(list[:j], n) || j == 0 && b.Fenced {
				t.Fatalf("partition %d: %v", i, list)
			}
			used[b.Rack]++
		}
		if len(list) != replicas {
			t.Fatalf("partition %d has %d replicas, want %d", i, len(list), replicas)
		}
		for rack, n := range used { // no rack has two more than another that has room
			for other, room := range size {
				if used[other] < room && n > used[other]+1 {
					t.Fatalf("partition %d: %v: rack %q has %d replicas, %q %d", i, list, rack, n, other, used[other])
				}
			}
		}
		leads[list[0]]++
	}
	least, most := len(placed), 0
	for _, n := range leads {
		least, most = min(least, n), max(most, n)
	}
	if most > least+1 {
		t.Fatalf("one broker leads %d, another %d: %v", most, least, leads)
	}
}

func TestPlacedPartitionsAreSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawGround(t)
		partitions, replicas := rapid.IntRange(1, 40).Draw(t, "partitions"), rapid.IntRange(1, 9).Draw(t, "replicas")
		usable, unfenced := 0, 0
		for b := range m.Brokers() {
			if !b.InShutdown {
				usable++
				if !b.Fenced {
					unfenced++
				}
			}
		}
		placed, err := newPlacer(m, drawRNG(t)).place(partitions, replicas)
		if possible := replicas <= usable && unfenced > 0; (err == nil) != possible || err != nil && !errors.Is(err, metadata.ErrInvalidReplicationFactor) {
			t.Fatalf("possible: %t, error: %v", possible, err)
		}
		if err != nil {
			return
		}
		checkPlaced(t, m, placed, replicas)

		// What is added later is spread together with what was there.
		p := newPlacer(m, drawRNG(t))
		for _, list := range placed {
			p.has(list)
		}
		more, err := p.place(rapid.IntRange(1, 20).Draw(t, "more"), replicas)
		if err != nil {
			t.Fatal(err)
		}
		checkPlaced(t, m, slices.Concat(placed, more), replicas)
	})
}

func TestPlacementDependsOnNothingButTheDraw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, seed := drawGround(t), rapid.Uint64().Draw(t, "seed")
		place := func() [][]metadata.NodeID {
			placed, _ := newPlacer(m, rand.New(rand.NewPCG(seed, 0))).place(10, 2)
			return placed
		}
		if a, b := place(), place(); !reflect.DeepEqual(a, b) {
			t.Fatalf("%v, and %v", a, b)
		}
	})
}

// Without racks every broker holds equally many, and those that follow one
// leader are all others.
func TestTheWorkOfALeaderFallsToAllOthers(t *testing.T) {
	var brokers []*metadata.Broker
	for i := range 5 {
		brokers = append(brokers, &metadata.Broker{Node: metadata.NodeID(i)})
	}
	m := ground(t, brokers...)
	for seed := range uint64(20) {
		placed, err := newPlacer(m, rand.New(rand.NewPCG(seed, 0))).place(40, 3)
		if err != nil {
			t.Fatal(err)
		}
		holds, second := map[metadata.NodeID]int{}, map[string]int{}
		for _, list := range placed {
			for _, n := range list {
				holds[n]++
			}
			second[fmt.Sprint(list[0], list[1])]++
		}
		for n, h := range holds {
			if h != 40*3/5 {
				t.Errorf("seed %d: broker %d has %d replicas", seed, n, h)
			}
		}
		if len(second) != 5*4 {
			t.Errorf("seed %d: %d pairs of leader and second replica, want 20: %v", seed, len(second), second)
		}
	}
}

// One rack of one broker and one of four: Kafka's placer lets the lone broker
// lead half of all partitions.
func TestALoneBrokerInItsRackLeadsNoMoreThanOthers(t *testing.T) {
	brokers := []*metadata.Broker{{Node: 0, Rack: "small"}}
	for i := 1; i < 5; i++ {
		brokers = append(brokers, &metadata.Broker{Node: metadata.NodeID(i), Rack: "large"})
	}
	m := ground(t, brokers...)
	placed, err := newPlacer(m, rand.New(rand.NewPCG(1, 1))).place(50, 2)
	if err != nil {
		t.Fatal(err)
	}
	checkPlaced(t, m, placed, 2)
	for _, list := range placed {
		if !slices.Contains(list, 0) {
			t.Errorf("%v is in one rack", list)
		}
	}
}

func TestTooManyReplicasAreRefusedByNumberAndName(t *testing.T) {
	for _, x := range []struct {
		fenced, leaving []metadata.NodeID
		replicas        int
		want            string
	}{
		{nil, nil, 4, "invalid replication factor: 4, but there are 3 brokers"},
		{[]metadata.NodeID{3, 2}, nil, 5, "invalid replication factor: 5, but there are 3 brokers; fenced: 2 3"},
		{[]metadata.NodeID{2}, []metadata.NodeID{1}, 3, "invalid replication factor: 3, but there are 2 brokers; fenced: 2; shutting down, and not counted: 1"},
		{[]metadata.NodeID{1, 2, 3}, nil, 2, "invalid replication factor: 2, but all of the 3 brokers are fenced; fenced: 1 2 3"},
		{[]metadata.NodeID{2, 3}, nil, 3, ""}, // a broker that is fenced may come back: Kafka's answer as well
	} {
		var records []metadata.Record
		for n := metadata.NodeID(1); n <= 3; n++ {
			records = append(records, &metadata.RegisterBroker{Node: n, Epoch: metadata.BrokerEpoch(n), Incarnation: metadata.IncarnationID{byte(n)}, Host: "h", Port: 1,
				Fenced: slices.Contains(x.fenced, n), InShutdown: slices.Contains(x.leaving, n)})
		}
		m, _, err := metadata.Apply(metadata.Image{}, 1, records)
		if err != nil {
			t.Fatal(err)
		}
		_, err = newPlacer(m, rand.New(rand.NewPCG(1, 2))).place(1, x.replicas)
		if got := fmt.Sprint(err); (x.want != "" || err != nil) && got != x.want {
			t.Errorf("%d replicas, %v fenced, %v leaving: %q, want %q", x.replicas, x.fenced, x.leaving, got, x.want)
		}
	}
}
