// Command pawlvet (go run ./cmd/pawlvet ./...) checks the house rules that go
// vet does not know, and lists what has grown large. It exits with 1 if there
// is a finding, and with 2 if it cannot load a package.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"os"

	"golang.org/x/tools/go/packages"

	"github.com/pawlbroker/pawl/cmd/pawlvet/determinism"
	"github.com/pawlbroker/pawl/cmd/pawlvet/layers"
	"github.com/pawlbroker/pawl/cmd/pawlvet/size"
)

const usage = `usage: pawlvet [packages]
Checks determinism and layers, and lists the largest files and functions.
Example: go run ./cmd/pawlvet ./...`

func main() {
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), usage) }
	flag.Parse()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	findings, err := vet(patterns)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pawlvet:", err)
		os.Exit(2)
	}
	if findings > 0 {
		fmt.Fprintf(os.Stderr, "pawlvet: %d findings; repeat with: go run ./cmd/pawlvet ./...\n", findings)
		os.Exit(1)
	}
}

// vet prints what it finds in the packages and returns how much it was.
func vet(patterns []string) (int, error) {
	pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax}, patterns...)
	if err != nil {
		return 0, err
	}
	var core []*packages.Package
	var files []*ast.File
	for _, p := range pkgs {
		if len(p.Errors) > 0 {
			return 0, fmt.Errorf("load %s: %w", p.PkgPath, p.Errors[0])
		}
		files = append(files, p.Syntax...)
		if determinism.Covers(layers.Name(p.PkgPath)) {
			core = append(core, p)
		}
	}
	findings, waivers, err := determinism.Print(os.Stdout, core)
	if err != nil {
		return 0, err
	}
	root, err := layers.Root(".")
	if err != nil {
		return 0, err
	}
	placed, err := layers.Load(root)
	broken := layers.Check(placed)
	for _, finding := range broken {
		fmt.Println("layers:", finding)
	}
	fmt.Printf("determinism: %d packages, %d waivers\n", len(core), waivers)
	fmt.Print(size.Of(pkgs[0].Fset, files, root, 10))
	return findings + len(broken), err
}
