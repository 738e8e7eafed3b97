// Package size finds the largest files and functions, so that nobody is
// surprised by them. It is advice: nothing is forbidden.
package size

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// Entry is a file or a function and how many lines it has.
type Entry struct {
	Name  string
	Lines int
}

// Report is the longest files and functions, longest first.
type Report struct {
	Files     []Entry
	Functions []Entry
}

// Of measures files that are not generated. Names are relative to root; top is
// how many of each kind are kept.
func Of(fset *token.FileSet, files []*ast.File, root string, top int) Report {
	var r Report
	for _, f := range files {
		if ast.IsGenerated(f) {
			continue
		}
		tf := fset.File(f.FileStart)
		name, err := filepath.Rel(root, tf.Name())
		if err != nil {
			name = tf.Name()
		}
		r.Files = append(r.Files, Entry{name, tf.LineCount()})
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				lines := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
				r.Functions = append(r.Functions, Entry{name + ": " + function(fn), lines})
			}
		}
	}
	r.Files = longest(r.Files, top)
	r.Functions = longest(r.Functions, top)
	return r
}

func function(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

func longest(entries []Entry, top int) []Entry {
	slices.SortFunc(entries, func(a, b Entry) int {
		if a.Lines != b.Lines {
			return b.Lines - a.Lines
		}
		return strings.Compare(a.Name, b.Name)
	})
	return entries[:min(top, len(entries))]
}

// String lists the report for a person.
func (r Report) String() string {
	var b strings.Builder
	for _, part := range []struct {
		title   string
		entries []Entry
	}{{"largest files", r.Files}, {"largest functions", r.Functions}} {
		fmt.Fprintf(&b, "%s (lines)\n", part.title)
		for _, e := range part.entries {
			fmt.Fprintf(&b, "%6d  %s\n", e.Lines, e.Name)
		}
	}
	return b.String()
}
