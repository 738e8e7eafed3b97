package zoo_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawlbroker/pawl/sim/zoo"
)

const double = `# A comment.
id: X01
title: twice is once
source: nobody
mechanism: forgets to double
checker: arithmetic
file: main.go
--- old
	println(2 * x)
--- new
	println(x)
---
`

const program = `package main

func main() {
	x := 21
	println(2 * x)
}
`

func module(t *testing.T) string {
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module x\n\ngo 1.26\n", "main.go": program} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestAMutantChangesWhatIsBuiltAndNotTheSource(t *testing.T) {
	m, err := zoo.Parse("double", double)
	if err != nil {
		t.Fatal(err)
	}
	root := module(t)
	overlay, err := m.Overlay(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", "-overlay", overlay, ".")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "21\n" {
		t.Fatalf("%s %v", out, err)
	}
	if text, _ := os.ReadFile(filepath.Join(root, "main.go")); string(text) != program {
		t.Fatal("the source has changed")
	}
}

func TestChecksCanBeMadeBlindAndAssertionsDeaf(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	m := zoo.Mutant{ID: "X02", Blind: []string{"a", "b"}}.WithoutAssertions()
	overlay, err := m.Overlay(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var files struct{ Replace map[string]string }
	if text, err := os.ReadFile(overlay); err != nil || json.Unmarshal(text, &files) != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"sim/check/blind.go": `var blind = []string{"a", "b"}`, "storage/assert/assert.go": "if false && !ok {",
	} {
		text, err := os.ReadFile(files.Replace[filepath.Join(root, file)])
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v: %s", file, err, text)
		}
	}
}

func TestAMutantThatNoLongerAppliesIsAnError(t *testing.T) {
	m, err := zoo.Parse("double", double)
	if err != nil {
		t.Fatal(err)
	}
	root := module(t)
	if err := os.WriteFile(filepath.Join(root, "main.go"), []byte("package main\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Overlay(root, t.TempDir()); !errors.Is(err, zoo.ErrMutant) {
		t.Fatal(err)
	}
}

func TestWhatIsNoMutantIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"empty":       "",
		"no edit":     "id: a\nsource: b\nmechanism: c\nchecker: d\n",
		"no new":      "id: a\nsource: b\nmechanism: c\nchecker: d\nfile: f\n--- old\nx\n---\n",
		"no checker":  "id: a\nsource: b\nmechanism: c\nfile: f\n--- old\nx\n--- new\ny\n---\n",
		"unknown key": "colour: red\n",
	} {
		if _, err := zoo.Parse(name, text); !errors.Is(err, zoo.ErrMutant) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every mutant of the collection applies to the code as it is.
func TestEveryMutantApplies(t *testing.T) {
	mutants, err := zoo.Load(".")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range mutants {
		if _, err := m.Overlay(root, t.TempDir()); err != nil {
			t.Error(err)
		}
		if _, err := m.WithoutAssertions().Overlay(root, t.TempDir()); err != nil {
			t.Error(err)
		}
		for _, check := range m.Checkers {
			if zoo.Inside(check) {
				t.Errorf("%s: %q does not count", m.ID, check)
			}
		}
		if seen[m.ID] {
			t.Errorf("%s twice", m.ID)
		}
		seen[m.ID] = true
	}
}
