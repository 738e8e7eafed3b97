package determinism

import (
	"io"

	"golang.org/x/tools/go/analysis"
	driver "golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"
)

// Print writes what is wrong with the packages, and returns how much that is
// and how many waivers they have.
func Print(w io.Writer, pkgs []*packages.Package) (findings, waivers int, err error) {
	graph, err := driver.Analyze([]*analysis.Analyzer{Analyzer}, pkgs, nil)
	if err != nil {
		return 0, 0, err
	}
	for _, action := range graph.Roots {
		if action.Err != nil {
			return 0, 0, action.Err
		}
		findings += len(action.Diagnostics)
		waivers += action.Result.(int)
	}
	return findings, waivers, graph.PrintText(w, -1)
}
