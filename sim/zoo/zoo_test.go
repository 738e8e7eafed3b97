package zoo_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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
		if seen[m.ID] {
			t.Errorf("%s twice", m.ID)
		}
		seen[m.ID] = true
	}
}
