package determinism

import (
	"go/ast"
	"go/types"
)

const mapCure = "map order differs in every run: range over slices.Sorted(maps.Keys(m)), or say //pawl:unordered and why nobody can see it"

// rangeOver reports a loop in map order.
func (c *checker) rangeOver(n *ast.RangeStmt) {
	if t := c.pass.TypesInfo.TypeOf(n.X); t != nil {
		if _, ok := core(t).(*types.Map); ok {
			c.report(n, "unordered", "%s", mapCure)
		}
	}
}

// core is the type that a value of t has underneath, for a type parameter the
// one of its constraint.
func core(t types.Type) types.Type {
	if p, ok := t.(*types.TypeParam); ok {
		if i, ok := p.Constraint().Underlying().(*types.Interface); ok && i.NumEmbeddeds() == 1 {
			switch e := i.EmbeddedType(0).(type) {
			case *types.Union:
				return e.Term(0).Type().Underlying()
			default:
				return e.Underlying()
			}
		}
	}
	return t.Underlying()
}

// ordered reports calls that hand out map order or that order equal elements
// as they like.
func (c *checker) ordered(n *ast.CallExpr, f *types.Func, stack []ast.Node) {
	switch f.FullName() {
	case "maps.Keys", "maps.Values", "maps.All":
		if !c.directlySorted(stack) {
			c.report(n, "unordered", "maps.%s: %s", f.Name(), mapCure)
		}
	case "(reflect.Value).MapRange", "(reflect.Value).MapKeys":
		c.report(n, "unordered", "reflect's %s: map order differs in every run; sort by a key, or say //pawl:unordered and why", f.Name())
	case "sort.Slice", "sort.Sort":
		c.report(n, "total-order", "%s may order equal elements differently in another version of Go: use %s, or say //pawl:total-order and why none are equal",
			f.FullName(), map[string]string{"Slice": "sort.SliceStable", "Sort": "sort.Stable"}[f.Name()])
	case "slices.SortFunc", "slices.SortedFunc":
		c.report(n, "total-order", "%s may order equal elements differently in another version of Go: use slices.%s, or say //pawl:total-order and why none are equal",
			f.FullName(), map[string]string{"SortFunc": "SortStableFunc", "SortedFunc": "SortedStableFunc"}[f.Name()])
	}
}

// directlySorted reports whether the call at the end of the stack is the
// argument of a sort that leaves no trace of the order it came in: over
// elements that are wholly compared, or keys (none are equal) by a function.
func (c *checker) directlySorted(stack []ast.Node) bool {
	if len(stack) < 2 {
		return false
	}
	outer, ok := stack[len(stack)-2].(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := c.callee(outer).(*types.Func)
	if !ok {
		return false
	}
	switch f.FullName() {
	case "slices.Sorted", "slices.SortedFunc", "slices.SortedStableFunc":
		// A stable sort keeps the order of equal elements, which is map order;
		// SortedFunc is reported by itself unless its order is total.
		return f.Name() != "SortedStableFunc"
	}
	return false
}
