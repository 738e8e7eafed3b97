package waived

import (
	"maps"
	"slices"
)

type pair struct{ key, value int }

var hook func()

func waived(m map[int]int) (sum int) {
	//pawl:unordered a sum is the same in every order
	for _, v := range m {
		sum += v
	}
	for range m { //pawl:unordered counts
		sum++
	}
	pairs := []pair{}
	//pawl:total-order keys of one map differ
	slices.SortFunc(pairs, func(a, b pair) int { return a.key - b.key })
	//pawl:allow global set once, before anything runs
	hook = nil

	//pawl:unordered // want `without a reason`
	for range maps.Keys(m) {
	}
	//pawl:unordered there is no map here // want `waives nothing here`
	for range 3 {
	}
	//pawl:allow clock the wrong rule // want `waives nothing here`
	for range m { // want `map order`
	}
	return sum
}
