package serve

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/broker/standalone"
	"github.com/pawlbroker/pawl/cmd/pawl/cli"
	"github.com/pawlbroker/pawl/storage/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// notice is a writer that says when something was written.
type notice struct {
	bytes.Buffer
	written chan struct{}
}

func (n *notice) Write(p []byte) (int, error) {
	defer close(n.written)
	return n.Buffer.Write(p)
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestServeSaysReadyAndStopsWhenAsked(t *testing.T) {
	o := options{broker: standalone.DefaultConfig(1), http: freePort(t)}
	o.broker.DataDir, o.broker.Listen = t.TempDir(), "127.0.0.1:0"
	ctx, stop := context.WithCancel(context.Background())
	out := &notice{written: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- run(ctx, o, out, quiet) }()
	<-out.written
	if out.String() != "ready\n" {
		t.Errorf("printed %q", out.String())
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]string{"/ready": "ready\n", "/live": "alive\n", "/metrics": "pawl_storage_syncs_total"} {
		resp, err := client.Get("http://" + o.http + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: status %d, %v, body %.80q", path, resp.StatusCode, err, body)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(o.broker.DataDir, "clean")); err != nil {
		t.Errorf("no clean mark: %v", err)
	}
}

func TestASecondBrokerIsToldWhoHasTheDirectory(t *testing.T) {
	dir := t.TempDir()
	lock, err := vfs.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	o := options{broker: standalone.DefaultConfig(1)}
	o.broker.DataDir, o.broker.Listen = dir, "127.0.0.1:0"
	if err := run(context.Background(), o, io.Discard, quiet); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("got %v", err)
	}
}

// TestCommandLineThatMakesNoSense is what `pawl serve` says to it: one line, and
// exit status 2.
func TestCommandLineThatMakesNoSense(t *testing.T) {
	for args, want := range map[string]string{
		"--set nonsense.key=1":           "nonsense.key",
		"--set num.partition=1":          "num.partitions",
		"--advertise nowhere":            "advertise",
		"--log xml":                      "xml",
		"--config /nonexistent":          "/nonexistent",
		"--controllers 2@127.0.0.1:9093": "--peer-listen",
		"--controllers 1@:9093":          "others can connect",
		"--controllers 1@a:1,1@b:1":      "twice",
		"--controllers 1@a:1,2@a:1":      "one place",
		"--peer-advertise 0.0.0.0:1":     "others can connect",
		"--cluster-id mine":              "22 characters",
		"surplus":                        "surplus",
	} {
		var out, errs bytes.Buffer
		a := cli.New(strings.NewReader(""), &out, &errs, func(string) string { return "" })
		root := a.Root()
		root.AddCommand(Command(a))
		code := a.Execute(context.Background(), root, append([]string{"serve", "--data-dir", t.TempDir()}, strings.Fields(args)...))
		if code != cli.ExitUsage || out.Len() > 0 || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q, want a line with %q", args, code, &out, &errs, want)
		}
	}
}
