package layers

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Load reads the imports of every package of the module whose root directory
// it is given, whatever platform a file is for.
func Load(root string) ([]Package, error) {
	found := map[string]*Package{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && isModule(filepath.Join(root, name)):
			return fs.SkipDir
		case d.IsDir() && name != "." && (base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_'):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(base, ".go") || base[0] == '.' || base[0] == '_':
			return nil
		}
		return addFile(found, root, name)
	})
	if err != nil {
		return nil, err
	}
	var pkgs []Package
	for _, p := range found {
		pkgs = append(pkgs, *p)
	}
	slices.SortFunc(pkgs, func(a, b Package) int { return strings.Compare(a.Path, b.Path) })
	return pkgs, nil
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// addFile adds a file's imports to its package's.
func addFile(found map[string]*Package, root, name string) error {
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ImportsOnly)
	if err != nil {
		return err
	}
	at := path.Join(Module, path.Dir(name))
	p := found[at]
	if p == nil {
		p = &Package{Path: at}
		found[at] = p
	}
	imports := &p.Imports
	if strings.HasSuffix(name, "_test.go") {
		imports = &p.TestImports
	}
	for _, spec := range f.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
		}
		*imports = append(*imports, imp)
	}
	return nil
}

// Root is the module's root directory: dir, or the first above it with a go.mod.
func Root(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for up := dir; ; up = filepath.Dir(up) {
		if isModule(up) {
			return up, nil
		}
		if up == filepath.Dir(up) {
			return "", fmt.Errorf("%s: in no module", dir)
		}
	}
}
