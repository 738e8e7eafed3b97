// Package layers keeps the import graph one-way. The table (table.go) is the
// map of the house: a package may import what its line names, and nothing else
// of ours.
package layers

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the module whose packages are on the map.
const Module = "github.com/pawlbroker/pawl"

// Package is one package of the module and what it imports, as import paths.
type Package struct {
	Path        string
	Imports     []string
	TestImports []string
}

// Name is the package's place on the map: its path below the module.
func Name(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, Module), "/") }

// Check returns a line for every import that the table does not have, every
// package that is not in it, and every line of it without a package.
func Check(pkgs []Package) []string {
	var findings []string
	found := map[string]bool{}
	for _, p := range pkgs {
		name := Name(p.Path)
		found[name] = true
		line, ok := may[name]
		if !ok {
			findings = append(findings, fmt.Sprintf(
				"%s: not on the map: add the line %q to cmd/pawlvet/layers/table.go, or put the code in a package that is there",
				name, name+": "+strings.Join(own(p.Imports), " ")))
		} else if line != anything {
			allowed := strings.Fields(line)
			for _, imp := range own(p.Imports) {
				if !slices.Contains(allowed, imp) {
					findings = append(findings, fmt.Sprintf(
						"%s imports %s: an arrow that the map does not have; move what it needs down, take an interface where it is used, or (if the design changes) its line in cmd/pawlvet/layers/table.go",
						name, imp))
				}
			}
		}
		findings = append(findings, forbidden(name, p)...)
	}
	return append(findings, unused(found)...)
}

// forbidden applies the rules that no line of the table may break, and that
// tests keep too.
func forbidden(name string, p Package) (findings []string) {
	for _, n := range never {
		if !within(name, n.room) {
			continue
		}
		for _, imp := range own(p.Imports) {
			if within(imp, n.target) {
				findings = append(findings, fmt.Sprintf("%s imports %s: never: %s", name, imp, n.why))
			}
		}
		for _, imp := range own(p.TestImports) {
			if n.tests && within(imp, n.target) {
				findings = append(findings, fmt.Sprintf("a test of %s imports %s: never: %s", name, imp, n.why))
			}
		}
	}
	for _, room := range coreRooms {
		if !within(name, room) || slices.Contains(hosts, name) {
			continue
		}
		for _, imp := range p.Imports {
			if foreign(imp) && !slices.ContainsFunc(coreDependencies, func(d string) bool { return within(imp, d) }) {
				findings = append(findings, fmt.Sprintf(
					"%s imports %s: not a dependency of the core; use it in a host, in workloads or in cmd", name, imp))
			}
		}
	}
	return findings
}

// unused reports lines of the map for packages that are gone. Only a whole
// module can tell; a few packages alone are checked as they are.
func unused(found map[string]bool) (findings []string) {
	if !found["broker"] || !found["storage"] || !found["sim"] {
		return nil
	}
	for name := range may {
		if !found[name] {
			findings = append(findings, fmt.Sprintf("%s: on the map, but not in the module: remove its line from cmd/pawlvet/layers/table.go", name))
		}
	}
	slices.Sort(findings)
	return findings
}

// own lists the imports that are of this module, by name.
func own(imports []string) (names []string) {
	for _, imp := range imports {
		if within(imp, Module) {
			names = append(names, Name(imp))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// foreign reports whether an import is neither ours nor of the standard
// library.
func foreign(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return strings.Contains(first, ".") && !within(imp, Module)
}

// within reports whether a path is room or below it.
func within(path, room string) bool { return path == room || strings.HasPrefix(path, room+"/") }
