package determinism

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"
)

// formatted reports fmt calls that print an address.
func (c *checker) formatted(n *ast.CallExpr, f *types.Func) {
	if f.Pkg() == nil || f.Pkg().Path() != "fmt" {
		return
	}
	sig := f.Signature()
	if !sig.Variadic() || n.Ellipsis.IsValid() {
		return
	}
	first := sig.Params().Len() - 1
	var verbs []byte
	if strings.HasSuffix(f.Name(), "f") && first > 0 && len(n.Args) >= first {
		format, ok := c.constant(n.Args[first-1])
		if ok {
			if strings.Contains(format, "%p") {
				c.report(n, "address", "%%p prints an address: print an id")
				return
			}
			verbs = verbsOf(format)
		}
	}
	for i := first; i < len(n.Args); i++ {
		if k := i - first; k < len(verbs) && verbs[k] == 'T' {
			continue
		}
		t := c.pass.TypesInfo.TypeOf(n.Args[i])
		if t == nil {
			continue
		}
		if isProto(t) {
			c.report(n.Args[i], "protobuf", "protobuf's text varies with the binary on purpose: print the fields, or use raft.DescribeMessage")
		} else if printsAddress(t, 0) {
			c.report(n.Args[i], "address", "a %s prints as an address: give it a String method, or print an id", t)
		}
	}
}

func (c *checker) constant(e ast.Expr) (string, bool) {
	v := c.pass.TypesInfo.Types[e].Value
	if v == nil || v.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(v), true
}

// verbsOf lists a format's verbs, one for each argument; nil if arguments are
// taken out of order.
func verbsOf(format string) []byte {
	var verbs []byte
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		for i++; i < len(format) && strings.IndexByte("+-# 0123456789.", format[i]) >= 0; i++ {
		}
		if i == len(format) || format[i] == '*' || format[i] == '[' {
			return nil
		}
		if format[i] != '%' {
			verbs = append(verbs, format[i])
		}
	}
	return verbs
}

// printsAddress reports whether fmt shows an address for a value of type t.
// Behind an interface it cannot tell.
func printsAddress(t types.Type, depth int) bool {
	if depth > 4 || speaks(t) {
		return false
	}
	switch u := t.Underlying().(type) {
	case *types.Signature, *types.Chan:
		return true
	case *types.Basic:
		return u.Kind() == types.UnsafePointer
	case *types.Pointer:
		if depth > 0 {
			return true
		}
		switch u.Elem().Underlying().(type) {
		case *types.Struct, *types.Array, *types.Slice, *types.Map:
			return printsAddress(u.Elem(), depth+1)
		}
		return true
	case *types.Slice:
		return printsAddress(u.Elem(), depth+1)
	case *types.Array:
		return printsAddress(u.Elem(), depth+1)
	case *types.Map:
		return printsAddress(u.Key(), depth+1) || printsAddress(u.Elem(), depth+1)
	case *types.Struct:
		for f := range u.Fields() {
			if printsAddress(f.Type(), depth+1) {
				return true
			}
		}
	}
	return false
}

// speaks reports whether fmt asks the value itself.
func speaks(t types.Type) bool {
	for _, name := range []string{"String", "Error", "Format", "GoString"} {
		if hasMethod(t, name) {
			return true
		}
	}
	return false
}

func hasMethod(t types.Type, name string) bool {
	obj, _, _ := types.LookupFieldOrMethod(t, false, nil, name)
	_, ok := obj.(*types.Func)
	return ok
}

func isProto(t types.Type) bool {
	return hasMethod(t, "ProtoReflect") || hasMethod(types.NewPointer(t), "ProtoReflect")
}

// protobuf reports the text of a protobuf message.
func (c *checker) protobuf(n *ast.CallExpr, f *types.Func) {
	if f.Name() != "String" || f.Signature().Recv() == nil {
		return
	}
	if isProto(f.Signature().Recv().Type()) {
		c.report(n, "protobuf", "protobuf's text varies with the binary on purpose: print the fields, or use raft.DescribeMessage")
	}
}

// arithmetic reports floating-point arithmetic that is not done by the
// compiler.
func (c *checker) arithmetic(n *ast.BinaryExpr, op token.Token) {
	switch op {
	case token.ADD, token.SUB, token.MUL, token.QUO:
		if c.pass.TypesInfo.Types[n].Value == nil {
			c.floatOp(n, n)
		}
	}
}

func (c *checker) floatOp(operand ast.Expr, at ast.Node) {
	t := c.pass.TypesInfo.TypeOf(operand)
	if t == nil {
		return
	}
	if b, ok := core(t).(*types.Basic); ok && b.Info()&(types.IsFloat|types.IsComplex) != 0 {
		c.report(at, "float", "floating point differs between machines: use integers (nanoseconds, parts per million)")
	}
}
