package layers

// anything marks a package that may import every package of ours.
const anything = "*"

// may is the map of the house: for each package, named by its path below the
// module, the packages of ours that it may import.
var may = map[string]string{
	// storage: blocks, and knows no brokers, topics or clients.
	"storage/assert":     "",
	"storage/record":     "storage/assert",
	"storage/codec":      "storage/assert storage/record",
	"storage/vfs":        "storage/assert",
	"storage/journal":    "storage/assert storage/vfs",
	"storage/checkpoint": "storage/assert storage/vfs",
	"storage":            "storage/assert storage/checkpoint storage/codec storage/journal storage/record storage/vfs",
	"storage/job":        "storage storage/assert storage/record storage/vfs",

	// Deciders: pure, time passed in.
	"broker/clock":      "storage/assert",
	"broker/metadata":   "storage/assert storage/record",
	"broker/replica":    "storage storage/assert storage/record broker/clock broker/metadata",
	"broker/producer":   "storage storage/assert storage/record broker/clock",
	"broker/wire":       "storage storage/assert storage/codec storage/record broker/metadata broker/producer broker/replica",
	"broker/session":    "storage/assert storage/record broker/clock broker/metadata broker/wire",
	"broker/fetcher":    "storage storage/assert storage/record broker/clock broker/metadata broker/wire",
	"broker/partition":  "storage storage/assert storage/job storage/record broker/clock broker/metadata broker/producer broker/replica broker/session broker/wire",
	"broker/controller": "storage/assert storage/record broker/clock broker/metadata broker/wire",
	"broker/quorum":     "storage/assert broker/clock",
	"broker/metalog":    "storage/assert broker/clock broker/metadata broker/quorum",
	"broker/membership": "storage/assert broker/clock broker/metadata broker/wire",
	"broker/office":     "storage/assert storage/record broker/clock broker/controller broker/metadata broker/metalog broker/quorum broker/wire",
	"broker/forward":    "storage/assert broker/clock broker/metadata broker/wire",

	// The switchboard, and the real host.
	"broker":            "storage storage/assert storage/job storage/record broker/clock broker/controller broker/fetcher broker/forward broker/membership broker/metadata broker/office broker/partition broker/producer broker/quorum broker/replica broker/wire",
	"broker/host":       "broker broker/clock broker/metadata broker/wire storage storage/assert storage/job storage/record storage/vfs",
	"broker/tcp":        "broker broker/metadata broker/wire storage storage/assert storage/record storage/vfs",
	"broker/peer":       "broker broker/metadata broker/wire storage/assert",
	"broker/standalone": "broker broker/host broker/metadata broker/partition broker/peer broker/tcp broker/wire storage storage/job storage/vfs",
	"broker/admin":      "broker/metadata broker/partition broker/standalone storage",

	// The judge, who does not know the accused, and what clients do.
	"linearizability/history":   "",
	"linearizability/anomaly":   "linearizability/history",
	"linearizability/model":     "linearizability/history",
	"linearizability":           "linearizability/anomaly linearizability/history linearizability/model",
	"workloads":                 "linearizability/history",
	"workloads/admin":           "linearizability/history workloads",
	"workloads/appendlog":       "linearizability/history workloads",
	"workloads/offsets":         "linearizability/history workloads",
	"workloads/interop":         "",
	"workloads/kafkaclient":     "linearizability/history workloads",
	"workloads/kill9":           "",
	"workloads/load":            "",
	"workloads/load/contest":    "workloads/load",
	"workloads/load/nullbroker": "",

	// The simulator: a host without real time, sockets or files.
	"sim/digest":  "",
	"sim/kernel":  "broker/clock sim/digest",
	"sim/swarm":   "sim/kernel",
	"sim/simdisk": "sim/digest storage/vfs",
	"sim/simnet":  "broker/clock sim/kernel",
	"sim/client":  "linearizability/history sim/kernel sim/simnet storage/codec storage/record workloads",
	"sim/check":   "broker broker/metadata broker/partition broker/quorum linearizability/history sim/digest storage storage/job storage/record",
	"sim":         "broker broker/clock broker/metadata broker/partition broker/quorum broker/wire linearizability linearizability/anomaly linearizability/history sim/check sim/client sim/digest sim/kernel sim/simdisk sim/simnet sim/swarm storage storage/assert storage/job storage/record storage/vfs workloads workloads/admin workloads/appendlog workloads/offsets",
	"sim/zoo":     "",
	"sim/cli":     "sim sim/swarm sim/zoo",

	// Maelstrom's host, and the harness that knows only its protocol.
	"maelstrom/protocol": "",
	"maelstrom/checker":  "linearizability/anomaly linearizability/history",
	"maelstrom/harness":  "maelstrom/checker maelstrom/protocol",
	"maelstrom/mesh":     "",
	"maelstrom":          "broker broker/host broker/metadata broker/wire maelstrom/mesh maelstrom/protocol storage storage/job storage/record storage/vfs",

	// Programs.
	"cmd/pawl":                anything,
	"cmd/pawl/cli":            anything,
	"cmd/pawl/cluster":        "cmd/pawl/cli",
	"cmd/pawl/config":         "broker/metadata",
	"cmd/pawl/dev":            "cmd/pawl/cli",
	"cmd/pawl/offline":        anything,
	"cmd/pawl/serve":          anything,
	"cmd/pawlmaelstrom":       "maelstrom",
	"cmd/pawlsim":             "sim/cli",
	"cmd/pawlvet":             "cmd/pawlvet/determinism cmd/pawlvet/layers cmd/pawlvet/size",
	"cmd/pawlvet/determinism": "",
	"cmd/pawlvet/layers":      "",
	"cmd/pawlvet/size":        "",
}

// rule says that no package of a room imports the target room, whatever the
// map has.
type rule struct {
	room   string
	target string
	tests  bool // its tests neither
	why    string
}

var never = []rule{
	{"storage", "broker", true, "storage knows no brokers; what it needs comes as plain values"},
	{"storage", "linearizability", false, "storage is judged from outside"},
	{"linearizability", "broker", true, "the judge does not know the accused"},
	{"linearizability", "storage", true, "the judge does not know the accused"},
	{"linearizability", "sim", true, "the judge does not know the accused"},
	{"workloads", "broker", false, "a workload speaks to its Client only"},
	{"workloads", "sim", false, "a workload runs against real clusters too"},
	{"broker", "sim", false, "nothing points back: no part of the core knows that it is simulated"},
	{"storage", "sim", false, "nothing points back: no part of the core knows that it is simulated"},
	{"broker", "workloads", false, "nothing points back"},
	{"broker", "cmd", true, "nothing points back"},
	{"storage", "cmd", true, "nothing points back"},
	{"sim", "broker/host", true, "the simulator is a host itself, and has no real time"},
	{"sim", "broker/tcp", true, "the simulator has its own network"},
	{"sim", "broker/peer", true, "the simulator has its own network"},
	{"sim", "broker/admin", true, "the simulator has no sockets"},
	{"sim", "cmd", true, "nothing points back"},
	{"maelstrom", "sim", false, "Maelstrom's host runs in real time"},
	{"maelstrom/harness", "broker", true, "the harness knows Maelstrom's protocol only"},
	{"maelstrom/checker", "broker", true, "the judge does not know the accused"},
}

// coreRooms may use only coreDependencies, beside the standard library. Their
// hosts may use more.
var (
	coreRooms = []string{"storage", "broker"}
	hosts     = []string{"broker/host", "broker/tcp", "broker/peer", "broker/standalone", "broker/admin"}

	coreDependencies = []string{
		"github.com/twmb/franz-go/pkg/kbin", // for the requests of pawl's own
		"github.com/twmb/franz-go/pkg/kmsg",
		"go.etcd.io/raft/v3",
		"google.golang.org/protobuf/proto", // raft's messages
		"github.com/google/btree",
		"github.com/klauspost/compress",
		"github.com/pierrec/lz4/v4",
		"golang.org/x/sys",
	}
)
