package determinism

import (
	"go/ast"
	"go/token"
	"go/types"
)

// assigned reports an assignment to package-level state.
func (c *checker) assigned(left ast.Expr, tok token.Token, stack []ast.Node) {
	if left != nil && tok != token.DEFINE {
		c.written(left, stack)
	}
}

// written reports a write to, or the address of, package-level state outside
// init.
func (c *checker) written(e ast.Expr, stack []ast.Node) {
	v := c.global(e)
	if v == nil || inInit(stack) {
		return
	}
	c.report(e, "global", "package-level variable %s is written: it would carry state from one run into the next; hang it from the node", v.Name())
}

// pointerReceiver reports a method that can change a package-level variable.
func (c *checker) pointerReceiver(n *ast.CallExpr, f *types.Func, stack []ast.Node) {
	recv := f.Signature().Recv()
	sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
	if recv == nil || !ok {
		return
	}
	if _, pointer := recv.Type().(*types.Pointer); !pointer {
		return
	}
	if _, already := c.typeOf(sel.X).(*types.Pointer); !already {
		c.written(sel.X, stack)
	}
}

func (c *checker) typeOf(e ast.Expr) types.Type {
	t := c.pass.TypesInfo.TypeOf(e)
	if t == nil {
		return nil
	}
	return t.Underlying()
}

// global is the package-level variable that e is a part of, or nil.
func (c *checker) global(e ast.Expr) *types.Var {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.SelectorExpr:
			if v := packageVar(c.pass.TypesInfo.Uses[x.Sel]); v != nil {
				return v
			}
			e = x.X
		case *ast.Ident:
			return packageVar(c.pass.TypesInfo.Uses[x])
		default:
			return nil
		}
	}
}

func packageVar(obj types.Object) *types.Var {
	v, ok := obj.(*types.Var)
	if !ok || v.IsField() || v.Pkg() == nil || v.Parent() != v.Pkg().Scope() {
		return nil
	}
	return v
}

// inInit reports whether the stack is in an init function, or in no function
// at all: the initialiser of a variable.
func inInit(stack []ast.Node) bool {
	for _, n := range stack {
		if f, ok := n.(*ast.FuncDecl); ok {
			return f.Name.Name == "init" && f.Recv == nil
		}
	}
	return true
}
