package cluster

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/cmd/pawl/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pawl runs command lines against a fake cluster of five nodes, 0 to 4, which takes every
// move for done and makes none; cmd/pawl has tests with a real one.
type pawl struct {
	t       *testing.T
	fake    *kfake.Cluster
	brokers string
}

func fake(t *testing.T) pawl {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(5), kfake.SeedTopics(4, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return pawl{t, c, strings.Join(c.ListenAddrs(), ",")}
}

func (p pawl) run(args ...string) (code int, out, err string) {
	var stdout, stderr bytes.Buffer
	app := cli.New(strings.NewReader(""), &stdout, &stderr, func(key string) string {
		return map[string]string{"PAWL_BROKERS": p.brokers}[key]
	})
	root := app.Root()
	root.AddCommand(Command(app))
	code = app.Execute(p.t.Context(), root, append([]string{"cluster"}, args...))
	return code, stdout.String(), stderr.String()
}

// ok returns what a command printed that must succeed, and say nothing else.
func (p pawl) ok(args ...string) string {
	p.t.Helper()
	code, out, err := p.run(args...)
	if code != cli.ExitOK || err != "" {
		p.t.Fatalf("pawl cluster %s: exit %d, %s", strings.Join(args, " "), code, err)
	}
	return out
}

// refused checks the exit code and that the error is one line with a text in it.
func (p pawl) refused(code int, text string, args ...string) {
	p.t.Helper()
	got, _, err := p.run(args...)
	if got != code || strings.Count(err, "\n") != 1 || !strings.Contains(err, text) {
		p.t.Errorf("pawl cluster %s: exit %d, want %d; stderr %q, want one line with %q", strings.Join(args, " "), got, code, err, text)
	}
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestInfoNodesAndHealth(t *testing.T) {
	p := fake(t)
	if got := decode[told](t, p.ok("info", "--json")); got.ClusterID == "" || len(got.Nodes) != 5 || got.Topics != 1 || got.Partitions != 4 || got.Leaderless != 0 {
		t.Errorf("%+v", got)
	}
	if got := p.ok("info"); !strings.Contains(got, "partitions  4 (0 without leader") {
		t.Errorf("%s", got)
	}
	lines := decode[[]nodeLine](t, p.ok("nodes", "--json"))
	leads := 0
	for _, l := range lines {
		leads += l.Leads
	}
	if len(lines) != 5 || leads != 4 {
		t.Errorf("%+v", lines)
	}
	if got := p.ok("nodes"); strings.Count(got, "serving") != 5 {
		t.Errorf("%s", got)
	}
	if got := p.ok("health"); got != "healthy: 5 nodes, 4 partitions\n" {
		t.Errorf("%s", got)
	}
}

func TestUnhealthyIsAnExitCode(t *testing.T) {
	p := fake(t)
	p.fake.ControlKey(int16(kmsg.DescribeCluster), func(req kmsg.Request) (kmsg.Response, error, bool) {
		p.fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
		resp.ClusterID, resp.ControllerID = "c", 0
		for id := range int32(3) {
			b := kmsg.NewDescribeClusterResponseBroker()
			b.NodeID, b.Host, b.Port, b.IsFenced = id, "h", 1, id == 2
			resp.Brokers = append(resp.Brokers, b)
		}
		return resp, nil, true
	})
	code, out, err := p.run("health")
	if code != cli.ExitFailure || !strings.Contains(out, "node-fenced  node 2") || !strings.Contains(err, "not healthy: 1 problems") {
		t.Errorf("exit %d, %s, %s", code, out, err)
	}
	code, out, _ = p.run("health", "--json")
	if got := decode[struct {
		Healthy  bool
		Problems []problem
	}](t, out); code != cli.ExitFailure || got.Healthy || len(got.Problems) != 1 || *got.Problems[0].Node != 2 {
		t.Errorf("exit %d, %s", code, out)
	}
}

func TestPartitionsAreMoved(t *testing.T) {
	p := fake(t)
	done := decode[finished](t, p.ok("move", "orders", "0", "--to", "2,1", "--json"))
	if !done.Done || len(done.Moves) != 1 || list(done.Moves[0].To) != "2,1" || len(done.Moves[0].From) == 0 {
		t.Errorf("%+v", done)
	}
	p.ok("move", "orders", "1", "--to", "0", "--no-wait")
	p.ok("moves")
	p.refused(cli.ExitFailure, "nothing is to be cancelled", "move", "orders", "0", "--cancel")
	p.refused(cli.ExitFailure, "no such partition", "move", "orders", "9", "--to", "1")
	p.refused(cli.ExitFailure, "pawl topic create nowhere", "move", "nowhere", "0", "--to", "1")
	p.refused(cli.ExitFailure, "no such node", "drain", "7")
	plan := decode[finished](t, p.ok("drain", "2", "--dry-run", "--json"))
	if plan.Done || len(plan.Moves) == 0 {
		t.Errorf("%+v", plan)
	}
	if got := p.ok("drain", "2"); strings.Count(got, "orders/") != len(plan.Moves) {
		t.Errorf("%s", got)
	}
}

func TestLeadersAreElected(t *testing.T) {
	p := fake(t)
	if got := p.ok("leaders"); got != "every partition is led by its preferred replica\n" {
		t.Errorf("%s", got)
	}
	p.ok("elect", "orders", "0")
	p.refused(cli.ExitFailure, "topic nowhere", "elect", "nowhere", "0")
}

func TestVotersAreAddedAndRemoved(t *testing.T) {
	p := fake(t)
	p.refused(cli.ExitFailure, "does not tell who keeps the metadata log", "voters")
	var changed []string
	p.fake.ControlKey(int16(kmsg.ApiVersions), func(req kmsg.Request) (kmsg.Response, error, bool) {
		p.fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
		for key := range int16(kmsg.MaxKey + 1) {
			if r := kmsg.RequestForKey(key); r != nil {
				k := kmsg.NewApiVersionsResponseApiKey()
				k.ApiKey, k.MaxVersion = key, r.MaxVersion()
				resp.ApiKeys = append(resp.ApiKeys, k)
			}
		}
		return resp, nil, true
	})
	p.fake.ControlKey(int16(kmsg.DescribeQuorum), func(req kmsg.Request) (kmsg.Response, error, bool) {
		p.fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeQuorumResponse)
		topic, partition := kmsg.NewDescribeQuorumResponseTopic(), kmsg.NewDescribeQuorumResponseTopicPartition()
		partition.LeaderID, partition.LeaderEpoch = 1, 4
		for id := range int32(3) {
			r := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
			r.ReplicaID, r.LogEndOffset, r.ReplicaDirectoryID = id, 10, [16]byte{byte(id + 1)}
			if id < 2 {
				partition.CurrentVoters = append(partition.CurrentVoters, r)
			} else {
				partition.Observers = append(partition.Observers, r)
			}
		}
		topic.Partitions = append(topic.Partitions, partition)
		resp.Topics = append(resp.Topics, topic)
		n, l := kmsg.NewDescribeQuorumResponseNode(), kmsg.NewDescribeQuorumResponseNodeListener()
		l.Name, l.Host, l.Port = "CONTROLLER", "h", 9093
		n.NodeID, n.Listeners = 2, append(n.Listeners, l)
		resp.Nodes = append(resp.Nodes, n)
		return resp, nil, true
	})
	p.fake.ControlKey(int16(kmsg.AddRaftVoter), func(req kmsg.Request) (kmsg.Response, error, bool) {
		p.fake.KeepControl()
		r := req.(*kmsg.AddRaftVoterRequest)
		if r.VoterID != 2 || r.VoterDirectoryID != [16]byte{3} || len(r.Listeners) != 1 || r.Listeners[0].Port != 9093 {
			t.Errorf("%+v", r)
		}
		changed = append(changed, "add")
		return req.ResponseKind(), nil, true
	})
	p.fake.ControlKey(int16(kmsg.RemoveRaftVoter), func(req kmsg.Request) (kmsg.Response, error, bool) {
		p.fake.KeepControl()
		if r := req.(*kmsg.RemoveRaftVoterRequest); r.VoterID != 0 || r.VoterDirectoryID != [16]byte{1} {
			t.Errorf("%+v", r)
		}
		changed = append(changed, "remove")
		resp := req.ResponseKind().(*kmsg.RemoveRaftVoterResponse)
		resp.ErrorCode, resp.ErrorMessage = 127, kmsg.StringPtr("in so many words")
		return resp, nil, true
	})
	lines := decode[[]memberLine](t, p.ok("voters", "--json"))
	if len(lines) != 3 || lines[1].Role != "leader" || lines[2].Role != "observer" || lines[2].Address != "h:9093" {
		t.Errorf("%+v", lines)
	}
	p.ok("voters")
	if got := p.ok("voters", "add", "2"); got != "added node 2 to the voters\n" {
		t.Errorf("%s", got)
	}
	p.refused(cli.ExitFailure, "in so many words", "voters", "remove", "0")
	p.refused(cli.ExitFailure, "votes already", "voters", "add", "0")
	p.refused(cli.ExitFailure, "does not vote", "voters", "remove", "2")
	p.refused(cli.ExitFailure, "no such node", "voters", "remove", "7")
	if got := strings.Join(changed, " "); got != "add remove" {
		t.Errorf("the brokers were asked to %s", got)
	}
	if got := p.ok("info"); !strings.Contains(got, "voters      0,1") {
		t.Errorf("%s", got)
	}
}

func TestWrongUsageExitsWithTwo(t *testing.T) {
	p := pawl{t: t, brokers: "127.0.0.1:1"}
	for line, text := range map[string]string{
		"":                              "which command",
		"helth":                         "did you mean health",
		"move orders":                   "PARTITION is missing",
		"move orders x --to 1":          "want a number",
		"move orders 0":                 "either --to or --cancel",
		"move orders 0 --to 1 --cancel": "either --to or --cancel",
		"move orders 0 --to one":        "want numbers of nodes",
		"move orders 0 --to 1,1":        "twice",
		"drain":                         "NODE is missing",
		"drain x":                       "want a number",
		"elect orders -1":               "unknown shorthand flag",
		"elect orders x":                "want a number",
		"voters add x":                  "want a number",
		"unregister x":                  "want a number",
		"info surplus":                  "unexpected argument",
	} {
		p.refused(cli.ExitUsage, text, strings.Fields(line)...)
	}
	p.refused(cli.ExitFailure, "no broker at 127.0.0.1:1", "health")
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Example == "" || cmd.Short == "" {
			t.Errorf("%s has no example or no summary", cmd.CommandPath())
		}
		for _, below := range cmd.Commands() {
			visit(below)
		}
	}
	visit(Command(cli.New(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}, func(string) string { return "" })))
}
