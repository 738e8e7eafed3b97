//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is pawl, as built by TestMain.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "interop")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "pawl")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/pawlbroker/pawl/cmd/pawl").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build pawl: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// patience is how long one command of a client may take.
const patience = 3 * time.Minute

var listener = regexp.MustCompile(`listener=(\S+)`)

// serve runs a broker until the test ends, and returns its address. The broker
// must then stop in good order, and have had nothing to complain about.
func serve(t *testing.T, flags ...string) (addr string) {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"serve", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--http", ""}, flags...)...)
	var log lines
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		err := cmd.Wait()
		if err != nil {
			t.Errorf("pawl serve: %v", err)
		}
		if complaints := log.matching("level=ERROR"); complaints != "" {
			t.Errorf("pawl serve complained:\n%s", complaints)
		}
	})
	ready := bufio.NewScanner(out)
	if !ready.Scan() || ready.Text() != "ready" {
		t.Fatalf("pawl serve is not ready:\n%s", log.matching(""))
	}
	go io.Copy(io.Discard, out)
	m := listener.FindStringSubmatch(log.matching("listener="))
	if m == nil {
		t.Fatalf("no listener in:\n%s", log.matching(""))
	}
	return m[1]
}

// cluster runs three brokers until the test ends, and returns their addresses. They
// must then stop in good order.
func cluster(t *testing.T) (addrs string) {
	t.Helper()
	for range 10 { // the ports may be taken
		cmd := exec.Command(binary, "dev", "--json", "--nodes", "3", "--data-dir", t.TempDir(),
			"--listen", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000)))
		var log lines
		cmd.Stderr = &log
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var ready struct{ Brokers []string }
		if err := json.NewDecoder(out).Decode(&ready); err != nil || len(ready.Brokers) != 3 {
			t.Logf("pawl dev: %v, %v\n%s", err, cmd.Wait(), log.matching(""))
			continue
		}
		t.Cleanup(func() {
			cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				t.Errorf("pawl dev: %v\n%s", err, log.matching("level=ERROR"))
			}
		})
		return strings.Join(ready.Brokers, ",")
	}
	t.Fatal("no ports for a cluster")
	return ""
}

// lines is what a process logs.
type lines struct {
	mu      sync.Mutex
	written bytes.Buffer // not embedded: its ReadFrom, which io.Copy prefers, takes no lock
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written.Write(p)
}

// matching is the lines that have s in them.
func (l *lines) matching(s string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found strings.Builder
	for line := range strings.Lines(l.written.String()) {
		if strings.Contains(line, s) {
			found.WriteString(line)
		}
	}
	return found.String()
}

// command is a client's program to run.
type command struct {
	dir   string
	env   []string
	stdin string
	args  []string
}

// output runs a command, which must succeed, and returns its stdout.
func (c command) output(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = c.dir, append(os.Environ(), c.env...), strings.NewReader(c.stdin)
	cmd.WaitDelay = time.Second
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(c.args, " "), err, tail(out.String()), tail(complaints.String()))
	}
	return out.String()
}

// tail is the end of a long text.
func tail(s string) string {
	const most = 6000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// play runs a client's program, see the package's doc, and checks what it says
// it wrote.
func play(t *testing.T, addr string, c command) {
	t.Helper()
	shown := 0
	for line := range strings.Lines(c.output(t)) {
		line = strings.TrimSpace(line)
		switch what, rest, _ := strings.Cut(line, " "); what {
		case "ok":
			t.Log(line)
			shown++
		case "wrote":
			var (
				topic, codec string
				n            int
			)
			if _, err := fmt.Sscan(rest, &topic, &n, &codec); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			t.Log(line)
			verify(t, addr, topic, n, codec)
			shown++
		}
	}
	if shown == 0 {
		t.Error("the program showed nothing")
	}
}
