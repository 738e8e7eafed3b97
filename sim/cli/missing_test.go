package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/pawlbroker/pawl/sim"
	"github.com/pawlbroker/pawl/sim/swarm"
)

// whole is a sweep in which everything has happened.
func whole(seeds int) (s summary, wanted [swarm.FaultKinds]bool) {
	s = summary{Seeds: seeds, Faults: map[string]int64{}, Reached: map[string]int64{}}
	for kind := range swarm.FaultKinds {
		wanted[kind] = true
		s.Faults[sim.Happened(kind)] = 1
	}
	for _, m := range sim.Marks() {
		if m.Beyond == "" {
			s.Reached[m.Name] = 1
		}
	}
	return s, wanted
}

func TestWhatNeverHappenedIsMissedOnceThereAreSeedsEnough(t *testing.T) {
	const mark, power = "journal: torn tail cut", "power cut"
	for _, c := range []struct {
		seeds         int
		faults, marks bool // missed
	}{{499, false, false}, {500, true, false}, {999, true, false}, {1000, true, true}} {
		s, wanted := whole(c.seeds)
		if got := s.missing(wanted); len(got) > 0 {
			t.Errorf("%d seeds: %q", c.seeds, got)
		}
		delete(s.Faults, power)
		delete(s.Reached, mark)
		got := strings.Join(s.missing(wanted), "\n")
		if strings.Contains(got, "fault power") != c.faults || strings.Contains(got, mark) != c.marks {
			t.Errorf("%d seeds: %q", c.seeds, got)
		}
		wanted[swarm.Power] = false
		if got := strings.Join(s.missing(wanted), "\n"); strings.Contains(got, "fault power") {
			t.Errorf("%d seeds, none with power cuts: %q", c.seeds, got)
		}
	}
}

func TestAMarkThatCannotBeReachedMustNotBe(t *testing.T) {
	s, wanted := whole(1)
	marks := sim.Marks()
	i := slices.IndexFunc(marks, func(m sim.Mark) bool { return m.Beyond != "" })
	s.Reached[marks[i].Name] = 1
	if got := s.missing(wanted); len(got) != 1 || !strings.Contains(got[0], marks[i].Name) {
		t.Errorf("%q", got)
	}
}

func TestEveryKindOfFaultHasANameInTheTally(t *testing.T) {
	for kind := range swarm.FaultKinds {
		if sim.Happened(kind) == "" {
			t.Errorf("%s has none", kind)
		}
	}
}

func TestTheConfigurationsSayWhichFaultsWereWanted(t *testing.T) {
	cfg := swarm.Base()
	cfg.Faults[swarm.Cut] = 100
	var wanted [swarm.FaultKinds]bool
	if err := want(&wanted, cfg.String()); err != nil || !wanted[swarm.Cut] || wanted[swarm.Kill] {
		t.Errorf("%v, %v", wanted, err)
	}
}
