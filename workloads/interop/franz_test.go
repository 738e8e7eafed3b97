//go:build interop

package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// TestFranz writes with every codec, with every acks, idempotent or not, and in
// the versions of brokers from 1.0 on.
func TestFranz(t *testing.T) {
	addr := serve(t)
	compression := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for _, codec := range codecs {
		for name, opts := range map[string][]kgo.Opt{
			"idempotent": nil,
			"all":        {kgo.DisableIdempotentWrite()},
			"leader":     {kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())},
			"none":       {kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.NoAck())},
		} {
			topic := "franz-" + codec + "-" + name
			fill(t, addr, topic, 2000, append(opts, kgo.ProducerBatchCompression(compression[codec]))...)
			verify(t, addr, topic, 2000, codec)
		}
	}
	for name, v := range map[string]*kversion.Versions{
		"1.0": kversion.V1_0_0(), "2.0": kversion.V2_0_0(), "2.1": kversion.V2_1_0(), "2.4": kversion.V2_4_0(), "2.8": kversion.V2_8_0(), "3.6": kversion.V3_6_0(), "4.0": kversion.V4_0_0(),
	} {
		topic := "franz-" + name
		fill(t, addr, topic, 500, kgo.MaxVersions(v))
		verify(t, addr, topic, 500, "any")
	}
}

// TestKadm calls what kadm has for the APIs that are served.
func TestKadm(t *testing.T) {
	addr := serve(t)
	a := kadm.NewClient(franz(t, addr))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	size := "2000000"
	created, err := a.CreateTopics(ctx, 3, 1, map[string]*string{"max.message.bytes": &size}, "a", "b")
	must(err)
	must(created.Error())
	if _, err := a.CreateTopic(ctx, 1, 1, nil, "a"); err != kerr.TopicAlreadyExists {
		t.Errorf("create again: %v", err)
	}
	validated, err := a.ValidateCreateTopics(ctx, 1, 1, nil, "c")
	must(err)
	must(validated.Error())
	fill(t, addr, "a", 10)

	topics, err := a.ListTopics(ctx)
	must(err)
	if names := topics.Names(); !slices.Equal(names, []string{"a", "b"}) || len(topics["a"].Partitions) != 3 {
		t.Errorf("topics %v", names)
	}
	brokers, err := a.ListBrokers(ctx)
	must(err)
	if len(brokers) != 1 || brokers[0].NodeID != 1 {
		t.Errorf("brokers %v", brokers)
	}
	meta, err := a.BrokerMetadata(ctx)
	must(err)
	if len(meta.Cluster) != 22 || meta.Controller != 1 {
		t.Errorf("cluster %q, controller %d", meta.Cluster, meta.Controller)
	}
	configs, err := a.DescribeTopicConfigs(ctx, "a")
	must(err)
	i := slices.IndexFunc(configs[0].Configs, func(c kadm.Config) bool { return c.Key == "max.message.bytes" })
	if i < 0 || *configs[0].Configs[i].Value != size || configs[0].Configs[i].Source != kmsg.ConfigSourceDynamicTopicConfig {
		t.Errorf("configurations %v", configs)
	}
	configs, err = a.DescribeBrokerConfigs(ctx, 1)
	must(err)
	if len(configs) != 1 || len(configs[0].Configs) < 20 {
		t.Errorf("broker configurations %v", configs)
	}
	for what, list := range map[string]func(context.Context, ...string) (kadm.ListedOffsets, error){
		"0": a.ListStartOffsets, "10": a.ListEndOffsets, "10 ": a.ListCommittedOffsets, "9": a.ListMaxTimestampOffsets,
	} {
		listed, err := list(ctx, "a")
		must(err)
		if o, _ := listed.Lookup("a", 0); what != "9" && fmt.Sprint(o.Offset) != strings.TrimSpace(what) || what == "9" && o.Offset < 0 || o.Err != nil {
			t.Errorf("offset %d (%v), want %s", o.Offset, o.Err, what)
		}
	}
	after, err := a.ListOffsetsAfterMilli(ctx, time.Now().Add(time.Hour).UnixMilli(), "a")
	must(err)
	if o, _ := after.Lookup("a", 0); o.Offset != 10 { // kadm asks for the end when there is none after
		t.Errorf("offset in an hour: %d", o.Offset)
	}
	var epochs kadm.OffsetForLeaderEpochRequest
	epochs.Add("a", 0, 0)
	ends, err := a.OffsetForLeaderEpoch(ctx, epochs)
	must(err)
	if end := ends["a"][0]; end.Err != nil || end.EndOffset != 10 {
		t.Errorf("end of the epoch: %+v", end)
	}
	versions, err := a.ApiVersions(ctx)
	must(err)
	if len(versions) != 1 || versions[1].Err != nil {
		t.Errorf("versions %v", versions)
	}
	deleted, err := a.DeleteTopics(ctx, "a", "b", "nonesuch")
	must(err)
	if deleted["a"].Err != nil || deleted["b"].Err != nil || deleted["nonesuch"].Err != kerr.UnknownTopicOrPartition {
		t.Errorf("deleted %v", deleted)
	}
}

// withoutGroups are franz-go's own tests of kgo that need a broker and neither
// groups nor transactions. TestConsumeRegex and TestIssue523 are of that file
// too, and need groups.
var withoutGroups = []string{
	"TestPing", "TestMaxVersions", "TestClient_Produce", "TestClient_ProduceLargeMessages", "TestIssue769", "TestIssue831",
	"TestIssueProduceSyncManualPartitionNegativeDoesNotPanic", "TestIssue325", "TestIssue337", "TestIssue434", "TestIssue648", "TestIssue810", "TestIssue865",
	"TestConsumeTopicRetrieval", "TestConsumeTopicRetrieval_Many", "TestDirectPartitionPurge", "TestAddRemovePartitions", "TestPauseIssue489",
	"TestPauseIssueOct2023", "TestIssueFetchLargerThanBrokerMaxReadBytes", "TestPooling", "TestHookPollStart", "TestLookbackMilli",
	"TestConsumeMaxDecompressBatchBytes",
}

// TestFranzOwnTests runs them against one broker and against a cluster that
// replicates, and once more with connections that die.
func TestFranzOwnTests(t *testing.T) {
	dir := t.TempDir()
	module := strings.TrimSpace(command{args: []string{"go", "list", "-m", "-f", "{{.Dir}}", "github.com/twmb/franz-go"}}.output(t))
	if err := os.CopyFS(dir, os.DirFS(module)); err != nil {
		t.Fatal(err)
	}
	suite := filepath.Join(dir, "kgo.test")
	command{dir: filepath.Join(dir, "pkg", "kgo"), args: []string{"go", "test", "-c", "-o", suite, "."}}.output(t)
	passed := regexp.MustCompile(`(?m)^--- PASS: (\S+)`)
	alone := func(t *testing.T) string { return serve(t) }
	for name, c := range map[string]struct {
		start func(*testing.T) string
		env   []string
	}{
		"calm": {alone, []string{"KGO_TEST_RF=1"}}, "chaos": {alone, []string{"KGO_TEST_RF=1", "KGO_TEST_CHAOS=1"}},
		"cluster": {cluster, []string{"KGO_TEST_RF=3"}}, "cluster chaos": {cluster, []string{"KGO_TEST_RF=3", "KGO_TEST_CHAOS=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			addr := c.start(t)
			out := command{
				dir:  filepath.Join(dir, "pkg", "kgo"),
				env:  append(c.env, "KGO_SEEDS="+addr, "KGO_TEST_RECORDS=20000", "KGO_LOG_LEVEL=none"),
				args: []string{suite, "-test.v", "-test.run", "^(" + strings.Join(withoutGroups, "|") + ")$"},
			}.output(t)
			found := map[string]bool{}
			for _, m := range passed.FindAllStringSubmatch(out, -1) {
				found[m[1]] = true
			}
			for _, test := range withoutGroups {
				if !found[test] {
					t.Errorf("%s did not pass", test)
				}
			}
		})
	}
}
