package sim_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pawlbroker/pawl/sim"
)

// marksIn finds every call of assert.Reached below a directory of the module.
func marksIn(t *testing.T, dir string, into map[string]string) {
	root := filepath.Join("..", dir)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || f.Sel.Name != "Reached" {
				return true
			}
			if pkg, ok := f.X.(*ast.Ident); !ok || pkg.Name != "assert" {
				return true
			}
			lit, ok := call.Args[0].(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				t.Errorf("%s: a mark is to be a string literal", fset.Position(call.Pos()))
				return true
			}
			name, _ := strconv.Unquote(lit.Value)
			into[name] = fset.Position(call.Pos()).String()
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheCatalogueOfMarksIsThatOfTheSource(t *testing.T) {
	if _, err := os.Stat("../storage"); err != nil {
		t.Fatal(err)
	}
	source := map[string]string{}
	marksIn(t, "storage", source)
	marksIn(t, "broker", source)
	listed := map[string]string{}
	for _, m := range sim.Marks() {
		if _, twice := listed[m.Name]; twice {
			t.Errorf("%q is in sim/marks.txt twice", m.Name)
		}
		listed[m.Name] = m.Beyond
	}
	for _, name := range slices.Sorted(maps.Keys(source)) {
		if _, ok := listed[name]; !ok {
			t.Errorf("%s: %q is not in sim/marks.txt", source[name], name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if _, ok := source[name]; !ok {
			t.Errorf("sim/marks.txt: %q is nowhere in the source", name)
		}
	}
	if len(source) < 20 {
		t.Errorf("only %d marks found", len(source))
	}
}
