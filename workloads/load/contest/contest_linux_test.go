package contest

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/workloads/load/nullbroker"
)

// contestant in the environment makes this binary a null broker instead of a
// test.
const contestant = "PAWL_TEST_CONTESTANT"

func TestMain(m *testing.M) {
	if mode := os.Getenv(contestant); mode != "" {
		os.Exit(serve(mode, os.Args[1], os.Args[2], os.Args[3], os.Args[4:]))
	}
	goleak.VerifyTestMain(m)
}

func serve(mode, dir, listen, web string, cluster []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	b, err := nullbroker.Start(listen, nullbroker.Config{
		Mode: nullbroker.Mode(mode), Dir: dir, Cluster: cluster, Self: slices.Index(cluster, listen),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer b.Close()
	metrics, err := net.Listen("tcp", web)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer metrics.Close()
	go http.Serve(metrics, b)
	<-ctx.Done()
	return 0
}

func null(mode string, nodes int) System {
	return System{
		Name: "null-" + mode, Nodes: nodes, Env: []string{contestant + "=" + mode},
		Command: func(places []Place, i int) []string {
			line := []string{os.Args[0], places[i].Dir, places[i].Listen, places[i].Web}
			for _, p := range places {
				line = append(line, p.Listen)
			}
			return line
		},
	}
}

var systems = Systems{Pawl: func(nodes int) System { return null("fsync", nodes) }, Null: null}

func short(t *testing.T) Config {
	return Config{
		Dir: t.TempDir(), Rounds: 1, Count: 20, FetchRecords: 8000,
		IdlePartitions: 100, ManyPartitions: 200, Idle: 20 * time.Millisecond,
	}
}

func TestEveryGoalIsMeasured(t *testing.T) {
	for _, g := range Goals(systems) {
		t.Run(g.ID, func(t *testing.T) {
			o, err := Run(t.Context(), g, short(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range o.Lines {
				for _, metric := range g.Columns {
					if _, ok := l.Medians[metric]; !ok {
						t.Errorf("%s: no %s in %v", l.Entry, metric, l.Medians)
					}
				}
			}
			var text strings.Builder
			if err := o.Write(&text); err != nil {
				t.Fatal(err)
			}
			if lines := 3 + len(o.Lines) + len(g.Bounds); strings.Count(text.String(), "\n") != lines {
				t.Errorf("want %d lines:\n%s", lines, text.String())
			}
		})
	}
}

func TestContestsLeaveEmptyFilesBehind(t *testing.T) {
	cfg := short(t)
	g := Goals(systems)[0]
	if _, err := Run(t.Context(), g, cfg); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		if st, err := d.Info(); err != nil || st.Size() > 0 {
			t.Errorf("left behind: %s of %d bytes, %v", path, st.Size(), err)
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Errorf("%d files, %v", files, err)
	}
}

func TestFailuresTellWhatTheProcessSaid(t *testing.T) {
	broken := func(nodes int) System { return null("no such mode", nodes) }
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := Run(ctx, Goals(Systems{Pawl: broken, Null: null})[0], short(t))
	if err == nil || !strings.Contains(err.Error(), `unknown mode "no such mode"`) {
		t.Errorf("got %v", err)
	}
}

func TestBoundsAreJudgedByMedians(t *testing.T) {
	a := median([]Sample{{Throughput: 1}, {Throughput: 9}, {Throughput: 3}})
	b := median([]Sample{{Throughput: 2}, {Throughput: 6}})
	if a[Throughput] != 3 || b[Throughput] != 4 {
		t.Fatalf("medians %v, %v, want 3 and 4", a, b)
	}
	medians := map[string]Sample{"a": a, "b": b}
	for _, c := range []struct {
		bound      Bound
		known, met bool
	}{
		{Bound{Throughput, "a", "b", true, 0.75}, true, true},
		{Bound{Throughput, "a", "b", true, 0.8}, true, false},
		{Bound{Throughput, "a", "", false, 3}, true, true},
		{Bound{Syncs, "a", "b", true, 0}, false, false},
	} {
		if v := c.bound.judge(medians); v.Known != c.known || v.Met != c.met {
			t.Errorf("%+v: %+v", c.bound, v)
		}
	}
}
