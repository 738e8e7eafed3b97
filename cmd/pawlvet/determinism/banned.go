package determinism

import (
	"go/ast"
	"go/types"
	"strconv"
	"strings"
)

// ban is what may not be used of a package.
type ban struct {
	rule string
	cure string
	// allowed names may be used all the same; with none of them even the import
	// is a finding.
	allowed []string
}

// bans are by import path; a path covers the paths below it.
var bans = map[string]ban{
	"time": {"clock", "time is passed in, as clock.Instant or record.Timestamp", []string{
		"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour", "ParseDuration"}},
	"math/rand":     {"rand", "draw from the stream Env.Rand", nil},
	"math/rand/v2":  {"rand", "draw from the stream Env.Rand", []string{"Rand", "Source", "New", "NewPCG", "PCG", "NewZipf", "Zipf"}},
	"crypto/rand":   {"rand", "draw from the stream Env.Rand", nil},
	"hash/maphash":  {"rand", "its seed differs in every process; use hash/crc32, hash/fnv or a hash of our own", nil},
	"sync":          {"sync", "one loop owns all state; nothing else may see it", nil},
	"sync/atomic":   {"sync", "one loop owns all state; counters are plain integers in Stats", nil},
	"context":       {"sync", "cancellation is an event; deadlines are clock.Instants", nil},
	"os":            {"os", "ask Env, or do it in a host", nil},
	"io/ioutil":     {"os", "ask Env, or do it in a host", nil},
	"net":           {"os", "ask Env.Network, or do it in a host", nil},
	"syscall":       {"os", "ask Env, or do it in a carrier (its error numbers are fine)", []string{"Errno"}},
	"flag":          {"os", "configuration is a struct passed to New", nil},
	"log":           {"os", "use Env.Log", nil},
	"expvar":        {"os", "counters are plain integers in Stats", nil},
	"plugin":        {"os", "ask Env, or do it in a host", nil},
	"path/filepath": {"os", "names are slash-separated; use path", nil},
	"runtime":       {"runtime", "nothing may depend on the machine, the scheduler or the collector", nil},
	"unsafe":        {"unsafe", "addresses differ in every run", nil},
	"unique":        {"unsafe", "handles compare by address", nil},
	"weak":          {"unsafe", "what is alive depends on the collector", nil},
	"testing":       {"runtime", "tests only", nil},
	"C":             {"os", "no C in the core", nil},
	"log/slog": {"os", "lines go to Env.Log as a level, a constant message and attributes", []string{
		"Attr", "Level", "LevelDebug", "LevelInfo", "LevelWarn", "LevelError", "Value",
		"Int", "Int64", "Uint64", "String", "Any", "Bool", "Duration", "Group", "GroupAttrs"}},
	"golang.org/x/sys":                              {"os", "ask Env, or do it in a carrier", nil},
	"golang.org/x/sync":                             {"sync", "one loop owns all state", nil},
	"github.com/google/uuid":                        {"rand", "draw an id from the stream Env.Rand", nil},
	"google.golang.org/protobuf/encoding":           {"protobuf", "its text varies with the binary on purpose; print the fields, or use raft.DescribeMessage", []string{}},
	"github.com/twmb/franz-go/pkg/kgo":              {"os", "a client belongs in workloads", nil},
	"github.com/prometheus":                         {"sync", "counters are plain integers in Stats; a host exports them", nil},
	"github.com/jepsen-io/maelstrom":                {"os", "a host", nil},
	"google.golang.org/protobuf/encoding/protowire": {"", "", nil}, // a fixed encoding: allowed
}

// fmtOutside is what fmt does with the process's own streams.
var fmtOutside = []string{"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"}

// floatFree is what math has that is not floating-point arithmetic.
var floatFree = []string{"Float32bits", "Float32frombits", "Float64bits", "Float64frombits"}

// banOf finds the entry for the longest path that covers the package.
func banOf(path string) (ban, bool) {
	for {
		if b, ok := bans[path]; ok {
			return b, b.rule != ""
		}
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return ban{}, false
		}
		path = path[:i]
	}
}

// imported reports the import of a package of which nothing may be used.
func (c *checker) imported(spec *ast.ImportSpec) {
	path, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return
	}
	if b, ok := banOf(path); ok && len(b.allowed) == 0 {
		c.report(spec, b.rule, "import of %s: %s", path, b.cure)
	}
}

// use reports a name of which only some of the package's may be used.
func (c *checker) use(id *ast.Ident) {
	obj := c.pass.TypesInfo.Uses[id]
	if obj == nil || obj.Pkg() == nil || obj.Parent() != obj.Pkg().Scope() {
		return
	}
	path, name := obj.Pkg().Path(), obj.Name()
	if _, isConst := obj.(*types.Const); isConst && path == "syscall" && name[0] == 'E' {
		return
	}
	if b, ok := banOf(path); ok && len(b.allowed) > 0 && !has(b.allowed, name) {
		c.report(id, b.rule, "%s.%s: %s", path, name, b.cure)
	}
	switch path {
	case "fmt":
		if has(fmtOutside, name) {
			c.report(id, "os", "fmt.%s uses the process's own streams: use Env.Log, or return a string", name)
		}
	case "math":
		if _, fn := obj.(*types.Func); fn && !has(floatFree, name) {
			c.report(id, "float", "math.%s: floating point differs between machines; use integers (nanoseconds, parts per million)", name)
		}
	case "reflect":
		if name == "Select" {
			c.report(id, "channel", "channel: answers arrive as events, through Step")
		}
	}
}

func has(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}
