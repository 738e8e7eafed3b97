package layers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The module as it is keeps to the map.
func TestModuleKeepsItsLayers(t *testing.T) {
	root, err := Root(cwd(t))
	if err != nil {
		t.Fatal(err)
	}
	pkgs, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) < 30 {
		t.Errorf("found %d packages below %s: that cannot be all", len(pkgs), root)
	}
	for _, finding := range Check(pkgs) {
		t.Error(finding)
	}
}

func cwd(t *testing.T) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLoadTellsTestsFromTheRest(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                   "module " + Module,
		"storage/log.go":           "package storage\n\nimport \"fmt\"\n",
		"storage/log_windows.go":   "package storage\n\nimport \"os\"\n",
		"storage/log_test.go":      "package storage_test\n\nimport \"testing\"\n",
		"storage/testdata/ours.go": "package broken\n\nimport \"net\"\n",
		"broker/tcp/conn.go":       "package tcp\n",
		"workloads/other/go.mod":   "module other\n",
		"workloads/other/main.go":  "package main\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pkgs, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	const want = "[{broker/tcp [] []} {storage [fmt os] [testing]}]"
	for i := range pkgs {
		pkgs[i].Path = Name(pkgs[i].Path)
	}
	if got := fmt.Sprint(pkgs); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func pkg(name string, imports ...string) Package {
	p := Package{Path: Module + "/" + name}
	for _, imp := range imports {
		if !foreign(imp) && imp != "fmt" {
			imp = Module + "/" + imp
		}
		p.Imports = append(p.Imports, imp)
	}
	return p
}

func TestPlantedViolationsAreFound(t *testing.T) {
	test := pkg("storage")
	test.TestImports = []string{Module + "/broker/metadata"}
	judge := pkg("linearizability/porcupinemodels")
	judge.TestImports = []string{Module + "/storage/record"}
	for _, c := range []struct {
		what string
		pkg  Package
		want string
	}{
		{"a decider that knows its host", pkg("broker/replica", "broker/host"), "broker/replica imports broker/host: an arrow"},
		{"a decider that knows its neighbour", pkg("broker/replica", "broker/partition"), "broker/replica imports broker/partition: an arrow"},
		{"quorum that knows Kafka", pkg("broker/quorum", "broker/metadata"), "broker/quorum imports broker/metadata: an arrow"},
		{"storage that knows brokers", pkg("storage", "broker/metadata"), "storage imports broker/metadata: never"},
		{"a storage test that knows brokers", test, "a test of storage imports broker/metadata: never"},
		{"a simulator with sockets", pkg("sim/simnet", "broker/tcp"), "sim/simnet imports broker/tcp: never"},
		{"a simulator with real time", pkg("sim", "broker/host"), "sim imports broker/host: never"},
		{"a judge who knows the accused", judge, "a test of linearizability/porcupinemodels imports storage/record: never"},
		{"a core that knows the simulator", pkg("broker", "sim"), "broker imports sim: never"},
		{"a package that nobody placed", pkg("broker/util", "storage"), `broker/util: not on the map: add the line "broker/util: storage"`},
		{"a dependency the core may not have", pkg("broker/wire", "github.com/spf13/cobra"), "not a dependency of the core"},
	} {
		findings := strings.Join(Check([]Package{c.pkg}), "\n")
		if !strings.Contains(findings, c.want) {
			t.Errorf("%s: found %q, want %q", c.what, findings, c.want)
		}
	}
}

func TestAllowedArrowsAreNotReported(t *testing.T) {
	for _, p := range []Package{
		pkg("broker/replica", "storage/record", "storage/assert", "fmt"),
		pkg("broker/partition", "broker/replica", "broker/wire", "github.com/twmb/franz-go/pkg/kmsg"),
		pkg("broker/tcp", "broker/wire", "golang.org/x/sys/unix"),
	} {
		if findings := Check([]Package{p}); len(findings) > 0 {
			t.Errorf("%s: %q", Name(p.Path), findings)
		}
	}
}

func TestAWholeModuleShowsStaleLines(t *testing.T) {
	findings := Check([]Package{pkg("broker"), pkg("storage"), pkg("sim")})
	if !slices.ContainsFunc(findings, func(f string) bool {
		return strings.HasPrefix(f, "storage/record: on the map, but not in the module")
	}) {
		t.Errorf("a line without a package was not found in %q", findings)
	}
}
