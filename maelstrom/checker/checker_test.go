package checker_test

import (
	"testing"
	"time"

	"github.com/pawlbroker/pawl/linearizability/anomaly"
	"github.com/pawlbroker/pawl/maelstrom/checker"
)

// at is an instant of a story, in milliseconds.
func at(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }

func commit(key string, offset int64, from, to int, ok bool) checker.Commit {
	return checker.Commit{Offsets: map[string]int64{key: offset}, Invoked: at(from), Ended: at(to), OK: ok}
}

func list(key string, offset int64, from, to int) checker.List {
	l := checker.List{Keys: []string{key}, Offsets: map[string]int64{}, Invoked: at(from), Ended: at(to)}
	if offset >= 0 {
		l.Offsets[key] = offset
	}
	return l
}

func TestCommittedOffsetIsARegisterThatOnlyGrows(t *testing.T) {
	for _, c := range []struct {
		name    string
		commits []checker.Commit
		lists   []checker.List
		want    anomaly.Kind
	}{
		{"never committed", nil, []checker.List{list("7", -1, 0, 1)}, ""},
		{"answered, then shown", []checker.Commit{commit("7", 4, 0, 1, true)}, []checker.List{list("7", 4, 2, 3)}, ""},
		{"answered, then gone", []checker.Commit{commit("7", 4, 0, 1, true)}, []checker.List{list("7", -1, 2, 3)}, checker.CommitLost},
		{"answered, then lower", []checker.Commit{commit("7", 2, 0, 1, true), commit("7", 4, 2, 3, true)},
			[]checker.List{list("7", 2, 4, 5)}, checker.CommitLost},
		{"the lower commit comes later", []checker.Commit{commit("7", 4, 0, 1, true), commit("7", 2, 2, 3, true)},
			[]checker.List{list("7", 4, 4, 5)}, ""},
		{"not answered, not shown", []checker.Commit{commit("7", 4, 0, 1, false)}, []checker.List{list("7", -1, 2, 3)}, ""},
		{"not answered, shown", []checker.Commit{commit("7", 4, 0, 1, false)}, []checker.List{list("7", 4, 2, 3)}, ""},
		{"shown, then gone", []checker.Commit{commit("7", 4, 0, 1, false)},
			[]checker.List{list("7", 4, 2, 3), list("7", -1, 4, 5)}, checker.CommitLost},
		{"at the same time, not shown", []checker.Commit{commit("7", 4, 0, 5, true)}, []checker.List{list("7", -1, 2, 3)}, ""},
		{"at the same time, shown", []checker.Commit{commit("7", 4, 0, 5, true)}, []checker.List{list("7", 4, 2, 3)}, ""},
		{"nobody committed it", []checker.Commit{commit("7", 4, 0, 1, true)}, []checker.List{list("7", 5, 2, 3)}, checker.CommitMadeUp},
		{"shown before it was sent", []checker.Commit{commit("7", 4, 4, 5, true)}, []checker.List{list("7", 4, 2, 3)}, checker.CommitMadeUp},
	} {
		v := checker.Check(checker.History{Commits: c.commits, Lists: c.lists})
		if got := len(v.Found[c.want]) > 0; got != (c.want != "") || len(v.Found) > 1 || c.want == "" && len(v.Found) > 0 {
			t.Errorf("%s: found %v, want %q", c.name, v.Found, c.want)
		}
	}
}

func TestPollReflectsWhatWasAcknowledgedBeforeItBegan(t *testing.T) {
	send := checker.Op{Process: 1, Kind: checker.Send, Outcome: checker.OK, Key: "7", Value: 1, Offset: 0, Invoked: at(0), Ended: at(2)}
	seen := checker.Op{Process: 2, Kind: checker.Poll, Outcome: checker.OK, Asked: map[string]int64{"7": 0},
		Reads: map[string][]checker.Read{"7": {{Offset: 0, Value: 1}}}, Invoked: at(8), Ended: at(9)}
	empty := func(from, to int) checker.Op {
		return checker.Op{Process: 3, Kind: checker.Poll, Outcome: checker.OK, Asked: map[string]int64{"7": 0}, Invoked: at(from), Ended: at(to)}
	}
	for _, c := range []struct {
		name string
		poll checker.Op
		want bool
	}{
		{"begun before the answer", empty(1, 5), false},
		{"begun after the answer", empty(3, 5), true},
	} {
		v := checker.Check(checker.History{Ops: []checker.Op{send, c.poll, seen}})
		if got := len(v.Found[anomaly.StaleRead]) > 0; got != c.want || len(v.Found) > 1 {
			t.Errorf("%s: found %v, want stale %t", c.name, v.Found, c.want)
		}
	}
}

func TestAnswersHaveOnlyWhatWasAsked(t *testing.T) {
	send := checker.Op{Kind: checker.Send, Outcome: checker.OK, Key: "7", Value: 1, Offset: 0}
	read := map[string][]checker.Read{"7": {{Offset: 0, Value: 1}}}
	for name, asked := range map[string]map[string]int64{"another key": {"8": 0}, "a higher offset": {"7": 1}} {
		v := checker.Check(checker.History{Ops: []checker.Op{send, {Process: 1, Kind: checker.Poll, Outcome: checker.OK, Asked: asked, Reads: read}}})
		if len(v.Found[checker.NotAsked]) != 1 || v.Maelstrom(0) != true || v.Valid(0) {
			t.Errorf("%s: found %v, want one %s, which Maelstrom does not see", name, v.Found, checker.NotAsked)
		}
	}
}
