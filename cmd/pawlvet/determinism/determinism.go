// Package determinism reports code that could make two runs of one seed
// differ: clocks, goroutines, channels, locks, unseeded randomness, the
// operating system, map order, addresses, floating point, and state that
// outlives a run.
//
// Each finding names the rule and its cure. A line that is safe for a reason
// the analyzer cannot see says so, at its end or on the line before:
//
//	//pawl:unordered <reason>      map order that nobody can observe
//	//pawl:total-order <reason>    a comparison under which nothing is equal
//	//pawl:allow <rule> <reason>   any other rule, by name
//
// A waiver without a reason, or one that waives nothing, is a finding too.
package determinism

import (
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// Analyzer applies every rule to the package it is given; Covers says which
// packages of the house it is meant for. Its result is how many waivers the
// package has.
var Analyzer = &analysis.Analyzer{
	Name:       "determinism",
	Doc:        "report sources of nondeterminism in the broker core and the simulator",
	Requires:   []*analysis.Analyzer{inspect.Analyzer},
	Run:        run,
	ResultType: reflect.TypeFor[int](),
}

// outside are the rooms of broker and sim that touch the real world.
var outside = []string{"broker/host", "broker/tcp", "broker/peer", "broker/standalone", "broker/admin", "sim/cli", "sim/zoo"}

// Covers reports whether the package, named relative to the module, must be
// deterministic.
func Covers(pkg string) bool {
	for _, room := range outside {
		if within(pkg, room) {
			return false
		}
	}
	return within(pkg, "broker") || within(pkg, "sim") || pkg == "storage/record"
}

func within(pkg, room string) bool { return pkg == room || strings.HasPrefix(pkg, room+"/") }

// checker is one package's analysis.
type checker struct {
	pass    *analysis.Pass
	waivers waivers
}

func run(pass *analysis.Pass) (any, error) {
	c := &checker{pass: pass, waivers: collectWaivers(pass)}
	c.files()
	ins := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	ins.WithStack(nil, func(n ast.Node, push bool, stack []ast.Node) bool {
		if push && !c.inTest(n) {
			c.node(n, stack)
		}
		return true
	})
	return c.waivers.complain(pass), nil
}

// node looks at one node; stack ends with it.
func (c *checker) node(n ast.Node, stack []ast.Node) {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.report(n, "goroutine", "goroutine: the scheduler decides its order; submit a job to Env.Disk, or do it in the host")
	case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
		c.report(n, "channel", "channel: answers arrive as events, through Step")
	case *ast.UnaryExpr:
		switch n.Op {
		case token.ARROW:
			c.report(n, "channel", "channel: answers arrive as events, through Step")
		case token.AND:
			c.written(n.X, stack)
		}
	case *ast.RangeStmt:
		c.rangeOver(n)
		c.assigned(n.Key, n.Tok, stack)
		c.assigned(n.Value, n.Tok, stack)
	case *ast.Ident:
		c.use(n)
	case *ast.ImportSpec:
		c.imported(n)
	case *ast.CallExpr:
		c.call(n, stack)
	case *ast.BinaryExpr:
		c.arithmetic(n, n.Op)
	case *ast.AssignStmt:
		for _, left := range n.Lhs {
			c.assigned(left, n.Tok, stack)
			if n.Tok != token.ASSIGN && n.Tok != token.DEFINE {
				c.floatOp(left, n)
			}
		}
	case *ast.IncDecStmt:
		c.written(n.X, stack)
		c.floatOp(n.X, n)
	}
}

// call looks at what is called by name: builtins and the functions that have a
// rule of their own.
func (c *checker) call(n *ast.CallExpr, stack []ast.Node) {
	switch obj := c.callee(n).(type) {
	case *types.Builtin:
		switch obj.Name() {
		case "recover":
			c.report(n, "recover", "recover: it hides an assertion that failed; let the host end the node")
		case "print", "println":
			c.report(n, "os", "%s writes to the process's stderr: use Env.Log", obj.Name())
		case "delete", "clear", "copy":
			c.written(n.Args[0], stack)
		}
	case *types.Func:
		c.ordered(n, obj, stack)
		c.formatted(n, obj)
		c.protobuf(n, obj)
		c.pointerReceiver(n, obj, stack)
	}
}

func (c *checker) callee(n *ast.CallExpr) types.Object {
	switch f := ast.Unparen(n.Fun).(type) {
	case *ast.Ident:
		return c.pass.TypesInfo.Uses[f]
	case *ast.SelectorExpr:
		return c.pass.TypesInfo.Uses[f.Sel]
	case *ast.IndexExpr:
		return c.callee(&ast.CallExpr{Fun: f.X})
	}
	return nil
}

// files looks at what the build decides by the machine it is for.
func (c *checker) files() {
	for _, f := range c.pass.Files {
		if c.inTest(f) {
			continue
		}
		if hostNamed(c.pass.Fset.Position(f.Package).Filename) {
			c.report(f.Name, "build", "file for one platform: the core is the same everywhere; move it to a carrier")
		}
		for _, g := range f.Comments {
			for _, line := range g.List {
				switch {
				case strings.HasPrefix(line.Text, "//go:build"):
					c.report(f.Name, "build", "build constraint: the core is the same everywhere; move it to a carrier")
				case strings.HasPrefix(line.Text, "//go:linkname"):
					c.report(line, "runtime", "linkname reaches into the runtime: ask Env")
				}
			}
		}
	}
	for _, name := range c.pass.IgnoredFiles {
		if last := len(c.pass.Files) - 1; last >= 0 && !strings.HasSuffix(name, "_test.go") {
			c.report(c.pass.Files[last].Name, "build",
				"%s is left out on this platform: the core is the same everywhere; move it to a carrier", filepath.Base(name))
		}
	}
}

// hostNamed reports whether a file's name ends in a platform.
func hostNamed(file string) bool {
	base := strings.TrimSuffix(filepath.Base(file), ".go")
	for _, host := range []string{"linux", "darwin", "windows", "freebsd", "unix", "wasm", "js", "amd64", "arm64", "386"} {
		if strings.HasSuffix(base, "_"+host) {
			return true
		}
	}
	return false
}

func (c *checker) inTest(n ast.Node) bool {
	return strings.HasSuffix(c.pass.Fset.Position(n.Pos()).Filename, "_test.go")
}

// report reports unless a waiver of the rule covers the line.
func (c *checker) report(n ast.Node, rule, format string, args ...any) {
	if c.waivers.waive(c.pass.Fset.Position(n.Pos()), rule) {
		return
	}
	c.pass.Reportf(n.Pos(), format+" ["+rule+"]", args...)
}
