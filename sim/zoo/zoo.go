// Package zoo keeps published bugs of other brokers as mutants of this one, and
// finds out whether the simulator sees them. A mutant is a text file:
//
//	id: S01
//	title: acknowledge before the sync
//	source: KAFKA-1211
//	mechanism: the write is acknowledged when it is in the page cache
//	faults: power
//	checker: linearizable
//	file: storage/commit.go
//	--- old
//	the lines as they are, found exactly once
//	--- new
//	the lines that take their place
//	---
//
// It may have several checkers, any of which is to see it, several file blocks,
// and "blind:" lines with checks that are not to look. It is applied with the Go toolchain's
// -overlay, so that the code that ships has no switches.
package zoo

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrMutant says that a mutant's file cannot be read or no longer applies.
var ErrMutant = errors.New("mutant")

// Mutant is a bug that can be put in.
type Mutant struct {
	ID        string
	Title     string
	Source    string   // where it was published
	Mechanism string   // in our own words
	Faults    string   // that it needs, as pawlsim's --faults
	Set       string   // what it needs of the run, as pawlsim's --set
	Nodes     string   // in a run, as pawlsim's --nodes; 1 if it is not said
	Duration  string   // of a run, as pawlsim's --duration
	Checkers  []string // that are expected to see it; any of them
	Blind     []string // checks that do not look
	Edits     []Edit
}

// Edit replaces lines of one file.
type Edit struct {
	File     string // relative to the module
	Old, New string
}

// Parse reads a mutant.
func Parse(name, text string) (Mutant, error) {
	var m Mutant
	var file string
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if line == "--- old" {
			e := Edit{File: file}
			if e.Old, i = block(lines, i+1); i >= len(lines) || lines[i] != "--- new" {
				return m, fmt.Errorf("%w: %s:%d: want --- new after --- old", ErrMutant, name, i+1)
			}
			if e.New, i = block(lines, i+1); i >= len(lines) {
				return m, fmt.Errorf("%w: %s:%d: want --- after --- new", ErrMutant, name, i+1)
			}
			m.Edits = append(m.Edits, e)
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, ": ")
		into := map[string]*string{
			"id": &m.ID, "title": &m.Title, "source": &m.Source, "mechanism": &m.Mechanism,
			"faults": &m.Faults, "set": &m.Set, "nodes": &m.Nodes, "duration": &m.Duration, "file": &file,
		}[key]
		switch {
		case !ok || into == nil && key != "checker" && key != "blind":
			return m, fmt.Errorf("%w: %s:%d: %q", ErrMutant, name, i+1, line)
		case key == "checker":
			m.Checkers = append(m.Checkers, value)
		case key == "blind":
			m.Blind = append(m.Blind, value)
		default:
			*into = value
		}
	}
	switch {
	case m.ID == "" || m.Source == "" || m.Mechanism == "" || len(m.Checkers) == 0:
		return m, fmt.Errorf("%w: %s: needs id, source, mechanism and checker", ErrMutant, name)
	case len(m.Edits) == 0:
		return m, fmt.Errorf("%w: %s: changes nothing", ErrMutant, name)
	}
	m.Faults, m.Nodes, m.Duration = cmp.Or(m.Faults, "all"), cmp.Or(m.Nodes, "1"), cmp.Or(m.Duration, "0s")
	return m, nil
}

// block returns the lines up to the next that begins with ---, and its place.
func block(lines []string, i int) (string, int) {
	start := i
	for i < len(lines) && !strings.HasPrefix(lines[i], "---") {
		i++
	}
	if i == start {
		return "", i
	}
	return strings.Join(lines[start:i], "\n") + "\n", i
}

// Load reads every mutant in a directory, by id.
func Load(dir string) ([]Mutant, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.mutant"))
	if err != nil {
		return nil, err
	}
	var out []Mutant
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		m, err := Parse(filepath.Base(name), string(text))
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Mutant) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// Inside says whether a check is one of the code's own, which does not count for
// a mutant: what only an assertion sees, nobody else would see without it.
func Inside(check string) bool { return check == "assertion" || check == "no panic" }

// deaf makes assertions say nothing.
var deaf = Edit{File: "storage/assert/assert.go", Old: "	if !ok {\n", New: "	if false && !ok {\n"}

// WithoutAssertions is the mutant in code whose assertions say nothing.
func (m Mutant) WithoutAssertions() Mutant {
	m.Edits = append(slices.Clone(m.Edits), deaf)
	m.ID += "-deaf"
	return m
}

// blinding is the edit that keeps checks from looking.
func blinding(checks []string) Edit {
	return Edit{File: "sim/check/blind.go", Old: "var blind = []string{}\n", New: fmt.Sprintf("var blind = %#v\n", checks)}
}

// Overlay writes the changed files of a mutant to dir, and the file for go
// build's -overlay, whose name it returns. root is the module's directory.
func (m Mutant) Overlay(root, dir string) (string, error) {
	changed := map[string]string{}
	edits := m.Edits
	if len(m.Blind) > 0 {
		edits = append(slices.Clone(edits), blinding(m.Blind))
	}
	for _, e := range edits {
		path := filepath.Join(root, filepath.FromSlash(e.File))
		text, ok := changed[path]
		if !ok {
			b, err := os.ReadFile(path)
			if err != nil {
				return "", fmt.Errorf("%w %s: %w", ErrMutant, m.ID, err)
			}
			text = string(b)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return "", fmt.Errorf("%w %s: its lines are in %s %d times, want once", ErrMutant, m.ID, e.File, n)
		}
		changed[path] = strings.Replace(text, e.Old, e.New, 1)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	i := 0
	for path, text := range changed { //pawl:unordered each goes to a file of its own
		name := filepath.Join(dir, fmt.Sprintf("%s-%d.go", m.ID, i))
		i++
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return "", err
		}
		overlay.Replace[path] = name
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, m.ID+".json")
	return name, os.WriteFile(name, b, 0o644)
}

// Expected says whether a check is one that should see the mutant.
func (m Mutant) Expected(check string) bool { return slices.Contains(m.Checkers, check) }
