package offline_test

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/broker/standalone"
	"github.com/pawlbroker/pawl/cmd/pawl/cli"
	"github.com/pawlbroker/pawl/cmd/pawl/offline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run does one command and returns what it printed and its exit code.
func run(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := cli.New(strings.NewReader(""), &stdout, &stderr, func(string) string { return "" })
	root := a.Root()
	root.AddCommand(offline.Check(a), offline.Dump(a))
	code = a.Execute(t.Context(), root, args)
	return stdout.String(), stderr.String(), code
}

// stopped makes a data directory in which a broker stored some records.
func stopped(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cfg := standalone.DefaultConfig(1)
	cfg.DataDir, cfg.Listen = dir, "127.0.0.1:0"
	b, err := standalone.Start(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	<-b.Ready()
	if _, err := os.Stat(filepath.Join(dir, "checkpoint")); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := run(t, "check", "--data-dir", dir); code != cli.ExitFailure || !strings.Contains(errs, "in use") {
		t.Fatalf("check of a running broker: exit %d, %q", code, errs)
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: make([]byte, 1000)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	if err := b.Shutdown(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCheckNamesFileAndPosition(t *testing.T) {
	dir := stopped(t)
	if out, errs, code := run(t, "check", "--data-dir", dir); code != cli.ExitOK || out != "ok\n" {
		t.Fatalf("sound directory: exit %d, %q, %q", code, out, errs)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "logs", "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	b, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(logs[0], b, 0o644); err != nil {
		t.Fatal(err)
	}
	out, errs, code := run(t, "check", "--data-dir", dir)
	if code != cli.ExitFailure || !strings.HasPrefix(out, "logs/"+filepath.Base(logs[0])+" at ") || !strings.Contains(errs, "1 places") {
		t.Fatalf("damaged directory: exit %d, %q, %q", code, out, errs)
	}
	if out, _, code := run(t, "check", "--json", "--data-dir", dir); code != cli.ExitFailure || !strings.HasPrefix(out, `{"ok":false,"findings":[{"File":"logs/`) {
		t.Fatalf("as JSON: exit %d, %q", code, out)
	}
}

func TestDumpDecodesEveryFile(t *testing.T) {
	dir := stopped(t)
	want := map[string]string{
		"meta.properties": "cluster.id=", "checkpoint": "journal from file", "clean": "journal ends with group",
		"logs/*.log": "offsets=[0,1)", "logs/*.index": "", "quorum/*.journal": "register broker=1", "journal/*.journal": "file ",
	}
	for pattern, text := range want {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(names) == 0 && text != "" {
			t.Fatalf("%s: no file, %v", pattern, err)
		}
		found := false
		for _, name := range names {
			out, errs, code := run(t, "dump", name)
			if code != cli.ExitOK {
				t.Errorf("dump %s: exit %d, %q", name, code, errs)
			}
			found = found || strings.Contains(out, text)
		}
		if !found && text != "" {
			t.Errorf("dump %s: nowhere %q", pattern, text)
		}
	}
	if _, errs, code := run(t, "dump", filepath.Join(t.TempDir(), "x")); code != cli.ExitFailure || !strings.Contains(errs, "no such file") {
		t.Errorf("missing file: exit %d, %q", code, errs)
	}
}
