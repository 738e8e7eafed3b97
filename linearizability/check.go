// Package linearizability judges histories: whether what clients saw of logs
// and committed offsets could have come from one machine that does one thing
// at a time. It knows nothing of how the broker works.
//
// Everything is judged by the exact checks in anomaly, in nearly linear time.
// Bounded windows of the same history are judged a second time by Porcupine
// (package model), so that a mistake in one judge shows as a disagreement. The
// verdict is a function of the history and the options alone: no clock decides.
package linearizability

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pawlbroker/pawl/linearizability/anomaly"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/linearizability/model"
)

// Status is what a verdict comes down to.
type Status uint8

// The statuses.
const (
	OK Status = iota
	Violation
	// Unknown: nothing wrong was found, and not everything could be judged.
	Unknown
)

// String is the status in a word.
func (s Status) String() string { return [...]string{"ok", "violation", "unknown"}[s] }

// Options say how to judge.
type Options struct {
	anomaly.Options
	// Search bounds Porcupine's part. Zero Operations leaves that part out.
	Search model.Limits
}

// DefaultOptions judge a log in which appends are atomic and every offset has a
// record, by both judges.
func DefaultOptions() Options {
	return Options{Options: anomaly.Options{Atomic: true, Dense: true}, Search: model.DefaultLimits()}
}

// Verdict is what is found in a history.
type Verdict struct {
	Status   Status
	Findings []anomaly.Finding
	// Disagreements are contradictions between the judges: mistakes in a judge.
	// They make a verdict a Violation, so that they are looked at.
	Disagreements []string
	// Unjudged says what could not be judged and why.
	Unjudged []string
	// Windows is how many windows Porcupine judged, Searched how many
	// operations in them, Left how many were left out to bound the search.
	Windows, Searched, Left int
	// Suspects are the windows that Porcupine found illegal, for Visualize.
	Suspects []*model.Window
}

// String is the verdict for people, a line for each thing to know.
func (v *Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d findings; porcupine judged %d operations in %d windows, left out %d\n",
		v.Status, len(v.Findings), v.Searched, v.Windows, v.Left)
	for _, f := range v.Findings {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	for _, d := range v.Disagreements {
		fmt.Fprintf(&b, "  the judges disagree: %s\n", d)
	}
	for _, u := range v.Unjudged {
		fmt.Fprintf(&b, "  not judged: %s\n", u)
	}
	return b.String()
}

// Check judges the history with the final logs in it.
//
// It asks of a history that every value is appended once, and that no two
// commits of a group have one token; where that is not so, the verdict says so
// as unjudged.
func Check(h *history.History, opt Options) *Verdict {
	v := &Verdict{}
	parts, order := split(h)
	for _, name := range topics(h) {
		v.checkTopic(name, h, opt)
	}
	for _, p := range order {
		v.checkLog(p, parts[p], finalOf(h, p), opt)
		for _, group := range parts[p].groups {
			v.checkCommitted(group, p, parts[p].commits[group], opt)
		}
	}
	switch {
	case len(v.Findings) > 0 || len(v.Disagreements) > 0:
		v.Status = Violation
	case len(v.Unjudged) > 0:
		v.Status = Unknown
	}
	return v
}

// partition is the operations on one partition.
type partition struct {
	log     []*history.Operation
	commits map[string][]*history.Operation // by group
	groups  []string                        // sorted
}

// split sorts operations by partition. IDs are those of h.Operations.
func split(h *history.History) (parts map[history.Partition]*partition, order []history.Partition) {
	parts = make(map[history.Partition]*partition)
	of := func(p history.Partition) *partition {
		if parts[p] == nil {
			parts[p] = &partition{commits: make(map[string][]*history.Operation)}
			order = append(order, p)
		}
		return parts[p]
	}
	for i := range h.Operations {
		o := &h.Operations[i]
		if o.Kind.OnTopic() {
			continue
		}
		p := of(o.Partition)
		switch o.Kind {
		case history.Commit, history.FetchCommitted:
			if p.commits[o.Group] == nil {
				p.groups = append(p.groups, o.Group)
			}
			p.commits[o.Group] = append(p.commits[o.Group], o)
		default:
			p.log = append(p.log, o)
		}
	}
	for i := range h.Final {
		of(h.Final[i].Partition)
	}
	for _, p := range order {
		slices.Sort(parts[p].groups)
	}
	slices.SortFunc(order, history.Partition.Compare)
	return parts, order
}

// topics are the names that operations on topics name, sorted.
func topics(h *history.History) []string {
	var names []string
	seen := make(map[string]bool)
	for i := range h.Operations {
		if o := &h.Operations[i]; o.Kind.OnTopic() && !seen[o.Partition.Topic] {
			seen[o.Partition.Topic] = true
			names = append(names, o.Partition.Topic)
		}
	}
	slices.Sort(names)
	return names
}

// checkTopic judges what was done to a topic, and not to what is in it. There is
// no direct check of that: Porcupine alone finds fault.
func (v *Verdict) checkTopic(name string, h *history.History, opt Options) {
	if opt.Search.Operations == 0 {
		v.Unjudged = append(v.Unjudged, fmt.Sprintf("topic %s: there is no search", name))
		return
	}
	var ops []*history.Operation
	for i := range h.Operations {
		if o := &h.Operations[i]; o.Kind.OnTopic() && o.Partition.Topic == name {
			ops = append(ops, o)
		}
	}
	w := model.Topic(name, ops, opt.Search)
	v.Windows++
	v.Searched += len(w.IDs)
	switch w.Check() {
	case model.Illegal:
		v.Suspects = append(v.Suspects, w)
		accused := model.Accused(ops, w)
		v.Findings = append(v.Findings, anomaly.Finding{
			Kind: anomaly.TopicOrder, Partition: history.Partition{Topic: name}, Operations: []int{accused.ID},
			Text: fmt.Sprintf("no order explains the answers up to %s", accused),
		})
	case model.Unknown:
		v.Unjudged = append(v.Unjudged, fmt.Sprintf("topic %s: the search was cut short", name))
	}
}

func finalOf(h *history.History, p history.Partition) *history.Log {
	for i := range h.Final {
		if h.Final[i].Partition == p {
			return &h.Final[i]
		}
	}
	return nil
}

func (v *Verdict) checkLog(p history.Partition, part *partition, final *history.Log, opt Options) {
	if len(part.log) == 0 && final == nil {
		return
	}
	if again := repeated(part.log, history.Append); again != "" {
		v.Unjudged = append(v.Unjudged, fmt.Sprintf("%s: %s", p, again))
		return
	}
	found := anomaly.Log(p, part.log, final, opt.Options)
	v.Findings = append(v.Findings, found...)
	if final == nil {
		v.Unjudged = append(v.Unjudged, fmt.Sprintf("%s: its final log was not read, so what is lost is not known", p))
		return
	}
	if opt.Search.Operations == 0 {
		return
	}
	v.checkStart(p, part.log, final, found, opt)
	// Some findings are outside the model: gaps, what was seen below the final log's
	// start, and where it is.
	comparable := final.Start == 0 && !slices.ContainsFunc(part.log, func(o *history.Operation) bool { return o.Start > 0 })
	guilty := slices.ContainsFunc(found, func(f anomaly.Finding) bool {
		return f.Kind != anomaly.Gap && f.Kind != anomaly.DeletedRead && f.Kind != anomaly.StartAhead
	})
	windows, err := model.Log(p, part.log, final, opt.Atomic, opt.Search)
	if err != nil {
		if !guilty {
			v.Disagreements = append(v.Disagreements, fmt.Sprintf("%s: the direct check finds nothing, the model: %v", p, err))
		}
		return
	}
	v.search(p.String(), windows, guilty, comparable)
}

// checkStart lets Porcupine judge where the log begins, if anybody deletes records.
func (v *Verdict) checkStart(p history.Partition, ops []*history.Operation, final *history.Log, found []anomaly.Finding, opt Options) {
	deletes := func(o *history.Operation) bool { return o.Kind == history.DeleteRecords && o.Outcome == history.OK }
	if !slices.ContainsFunc(ops, deletes) {
		return
	}
	guilty, comparable := false, true
	for _, f := range found {
		guilty = guilty || f.Kind == anomaly.DeletedRead
	}
	for _, o := range ops { // what one answer says by itself is outside the model
		comparable = comparable && !(o.Kind == history.DeleteRecords && o.Start < o.From || o.Kind == history.Read && o.Start > o.From)
	}
	v.search("start of "+p.String(), model.Start(p, ops, final, opt.Search), guilty, comparable)
}

func (v *Verdict) checkCommitted(group string, p history.Partition, ops []*history.Operation, opt Options) {
	name := fmt.Sprintf("%s group %s", p, group)
	if again := repeated(ops, history.Commit); again != "" {
		v.Unjudged = append(v.Unjudged, fmt.Sprintf("%s: %s", name, again))
		return
	}
	found := anomaly.Committed(group, p, ops)
	v.Findings = append(v.Findings, found...)
	if opt.Search.Operations > 0 {
		v.search(name, model.Committed(group, p, ops, opt.Search), len(found) > 0, true)
	}
}

// search lets Porcupine judge the windows and compares: guilty says what the
// exact check found. An illegal window proves it guilty; legal windows acquit
// only if there is just one, with everything in it, and comparable is set.
func (v *Verdict) search(name string, windows []*model.Window, guilty, comparable bool) {
	illegal, unknown := false, false
	for _, w := range windows {
		v.Windows++
		v.Searched += len(w.IDs)
		v.Left += w.Left
		switch w.Check() {
		case model.Illegal:
			illegal = true
			v.Suspects = append(v.Suspects, w)
			if !guilty {
				v.Disagreements = append(v.Disagreements, fmt.Sprintf("%s: the exact check finds nothing, Porcupine finds %s illegal", name, w.Name))
			}
		case model.Unknown:
			// The exact check has judged it; only the second opinion is missing.
			unknown = true
		}
	}
	if guilty && comparable && !illegal && !unknown && len(windows) == 1 && windows[0].Whole {
		v.Disagreements = append(v.Disagreements, fmt.Sprintf("%s: the exact check has findings, Porcupine finds it legal", name))
	}
}

// repeated names a value or token that two operations of the kind have, or that
// is 0; it is empty when there is none.
func repeated(ops []*history.Operation, kind history.Kind) string {
	owners := make(map[history.Value]int)
	for _, o := range ops {
		if o.Kind != kind {
			continue
		}
		values := o.Values
		if kind == history.Commit {
			values = []history.Value{o.Token}
		}
		for _, value := range values {
			owner, again := owners[value]
			switch {
			case value == 0:
				return fmt.Sprintf("operation #%d has no value of its own", o.ID)
			case again:
				return fmt.Sprintf("operations #%d and #%d both have value %#x", owner, o.ID, uint64(value))
			}
			owners[value] = o.ID
		}
	}
	return ""
}
