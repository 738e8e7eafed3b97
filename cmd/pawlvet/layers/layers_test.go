package layers

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The module as it is keeps to the map.
func TestModuleKeepsItsLayers(t *testing.T) {
	list := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", Module+"/...")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%s: %v", list, err)
	}
	var pkgs []Package
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, Package{p.ImportPath, p.Imports, slices.Concat(p.TestImports, p.XTestImports)})
	}
	for _, finding := range Check(pkgs) {
		t.Error(finding)
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
