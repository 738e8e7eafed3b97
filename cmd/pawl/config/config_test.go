package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/pawlbroker/pawl/broker/metadata"
)

var rewrite = flag.Bool("rewrite", false, "rewrite docs/configuration.md")

const document = "../../../docs/configuration.md"

func TestDocumentIsUpToDate(t *testing.T) {
	if *rewrite {
		if err := os.WriteFile(document, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil || string(got) != Markdown() {
		t.Errorf("docs/configuration.md is out of date (%v): run go test ./cmd/pawl/config -rewrite", err)
	}
}

// load reads a command line, an environment and the text of a file.
func load(t *testing.T, file string, environ []string, args ...string) (Serve, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "server.properties")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config", path}, args...)
	}
	var f Flags
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.Register(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f.Load(environ)
}

func TestDefaultsAreKafkas(t *testing.T) {
	got, err := load(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Serve{
		DataDir: "./pawl-data", Listen: "127.0.0.1:9092", NodeID: 1, HTTP: "127.0.0.1:9644",
		MemoryMax: 256 << 20, CheckpointBytes: 64 << 20, MaxConnections: 10_000, ConnectionsMaxIdle: 10 * time.Minute,
		SocketRequestMaxBytes: 100 << 20, MessageMaxBytes: 1048588, NumPartitions: 1, DefaultReplicationFactor: 1,
		AutoCreateTopics: true, LogSegmentBytes: 1 << 30, FetchMaxBytes: 55 << 20, ProducerExpiry: 24 * time.Hour,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestEarlierPlacesCountBeforeLaterOnes(t *testing.T) {
	const file = "num.partitions=2\n"
	kafka, pawl := "KAFKA_NUM_PARTITIONS=3", "PAWL_NUM_PARTITIONS=4"
	for want, given := range map[int32]struct {
		environ []string
		args    []string
	}{
		2: {},
		3: {environ: []string{kafka}},
		4: {environ: []string{pawl, kafka}},
		5: {environ: []string{pawl}, args: []string{"--set", "num.partitions=5"}},
	} {
		got, err := load(t, file, given.environ, given.args...)
		if err != nil || got.NumPartitions != want {
			t.Errorf("got %d, %v, want %d", got.NumPartitions, err, want)
		}
	}
	got, err := load(t, "", []string{"PAWL_NODE_ID=2"}, "--node-id", "7", "--set", "node.id=3")
	if err != nil || got.NodeID != 7 {
		t.Errorf("got node %d, %v, want the flag's 7", got.NodeID, err)
	}
}

func TestKafkasFileIsAccepted(t *testing.T) {
	got, err := load(t, `
# Kafka's own example for one node
process.roles=broker,controller
node.id=4
controller.quorum.voters=4@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners = PLAINTEXT://broker.example:9092
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
log.dirs=/tmp/kraft-combined-logs
ssl.cipher.suites=
offsets.topic.replication.factor=1
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Listen != ":9092" || got.Advertise != "broker.example:9092" || got.NodeID != 4 || got.DataDir != "/tmp/kraft-combined-logs" {
		t.Errorf("%+v", got)
	}
	if want := []Controller{{4, "localhost", 9093}}; !reflect.DeepEqual(got.Controllers, want) {
		t.Errorf("got %v, want %v", got.Controllers, want)
	}
	if len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "num.network.threads, offsets.topic.replication.factor, process.roles, ssl.cipher.suites") {
		t.Errorf("warnings: %q", got.Warnings)
	}
}

func TestWrongSettingsAreNamedWithTheirPlace(t *testing.T) {
	for _, c := range []struct {
		file, variable, arg string
		want                error
		text                string
	}{
		{file: "\nnum.partitons=3\n", want: ErrUnknown, text: "server.properties:2: unknown configuration \"num.partitons\": did you mean num.partitions?"},
		{file: "frobnicate=1", want: ErrUnknown, text: "see docs/configuration.md"},
		{variable: "PAWL_FROBNICATE=1", want: ErrUnknown, text: "environment PAWL_FROBNICATE"},
		{arg: "--set=num.partitions=many", want: metadata.ErrInvalidConfig, text: "--set: "},
		{arg: "--set=num.partitions", want: ErrValue, text: "want key=value"},
		{arg: "--listen=nowhere", want: ErrValue, text: "--listen: "},
		{arg: "--listen=SSL://:9092", want: ErrUnsupported, text: "speaks SSL"},
		{arg: "--set=listeners=PLAINTEXT://:1,INSIDE://:2", want: ErrUnsupported, text: "speaks INSIDE"},
		{arg: "--set=authorizer.class.name=org.apache.kafka.X", want: ErrUnsupported, text: "every client may do everything"},
		{arg: "--data-dir=/a,/b", want: ErrUnsupported, text: "more than one directory"},
		{arg: "--controllers=1@a:1,1@b:1", want: metadata.ErrInvalidConfig, text: "named twice"},
		{arg: "--http=9644", want: metadata.ErrInvalidConfig, text: "want host:port"},
		{arg: "--set=pawl.memory.max=1MiB", want: ErrValue, text: "socket.request.max.bytes"},
		{file: "a=\\u12", text: "server.properties:1"},
	} {
		var environ []string
		if c.variable != "" {
			environ = append(environ, c.variable)
		}
		var args []string
		if c.arg != "" {
			args = append(args, c.arg)
		}
		_, err := load(t, c.file, environ, args...)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

func TestEnvironmentNamesAreTranslatedAsInKafkasImages(t *testing.T) {
	got, err := load(t, "", []string{
		"KAFKA_MESSAGE_MAX_BYTES=2000", "PAWL_MEMORY_MAX=512MiB", "KAFKA_HEAP_OPTS=-Xmx1G", "PAWL_BROKERS=x:1", "HOME=/",
		"KAFKA_BROKER_ID=5",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.MessageMaxBytes != 2000 || got.MemoryMax != 512<<20 || got.NodeID != 5 {
		t.Errorf("%+v", got)
	}
	if len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "KAFKA_HEAP_OPTS") {
		t.Errorf("warnings: %q", got.Warnings)
	}
}

func TestPropertiesAreReadAsJavaReadsThem(t *testing.T) {
	const text = "! comment\n  # comment\n a = 1 \nb:2\nc 3\nd=x\\\n   y\ne\\ f=\\u0041\\tb\\=\nempty=\nalone\npath=C:\\\\dir\n"
	settings, err := parseProperties(strings.NewReader(text), "f")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range settings {
		got = append(got, fmt.Sprintf("%s|%s|%s", s.from, s.key, s.value))
	}
	want := []string{"f:3|a|1", "f:4|b|2", "f:5|c|3", "f:6|d|xy", "f:8|e f|A\tb=", "f:9|empty|", "f:10|alone|", `f:11|path|C:\dir`}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func FuzzProperties(f *testing.F) {
	f.Add("a=1\nb\\\n c\n\\u0041=x")
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := parseProperties(strings.NewReader(text), "f")
		if err == nil && len(settings) > strings.Count(text, "\n")+1 {
			t.Errorf("%d settings in %q", len(settings), text)
		}
	})
}
