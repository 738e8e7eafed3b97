package broker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/controller"
)

// What nodes could not agree on is refused before it does harm.
func TestConfigurationThatCannotBeIsRefused(t *testing.T) {
	for want, spoil := range map[string]func(*broker.Config){
		"node.id":                   func(c *broker.Config) { c.ID = -1 },
		"cluster.id":                func(c *broker.Config) { c.ClusterID = "" },
		"checkpoint bytes":          func(c *broker.Config) { c.CheckpointBytes = 0 },
		"snapshot entries":          func(c *broker.Config) { c.SnapshotEntries = 0 },
		"lease of 500.000001ms":     func(c *broker.Config) { c.Membership.Lease = controller.LongestLease + time.Nanosecond },
		"replica.fetch.wait.max.ms": func(c *broker.Config) { c.Fetcher.MaxWait = c.Partition.MaxLag + time.Millisecond },
	} {
		cfg := broker.DefaultConfig(1, "cluster")
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		spoil(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
