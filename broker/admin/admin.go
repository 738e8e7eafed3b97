// Package admin is the HTTP side of a broker: metrics, health and profiles, for
// those who operate it.
package admin

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pawlbroker/pawl/broker/standalone"
)

// maxReasons is how many reasons /safe-to-restart gives.
const maxReasons = 20

// Handler serves /metrics, /live, /ready, /safe-to-restart and /debug/pprof/ of a
// broker.
func Handler(b *standalone.Broker) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{b}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if why := b.NotReady(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("GET /safe-to-restart", func(w http.ResponseWriter, _ *http.Request) {
		if reasons := b.UnsafeToRestart(maxReasons); len(reasons) > 0 {
			http.Error(w, strings.Join(reasons, "\n"), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "safe")
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// A metric is one number of a broker. Names keep Kafka's meaning where Kafka
// has the metric.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(standalone.Status) int64
}

func counter(name, help string, value func(standalone.Status) int64) metric {
	return metric{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, value}
}

func gauge(name, help string, value func(standalone.Status) int64) metric {
	return metric{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value}
}

var metrics = []metric{
	counter("pawl_produce_requests_total", "Produce requests taken. Kafka: TotalProduceRequestsPerSec.",
		func(s standalone.Status) int64 { return s.Stats.ProduceRequests }),
	counter("pawl_fetch_requests_total", "Fetch requests taken. Kafka: TotalFetchRequestsPerSec.",
		func(s standalone.Status) int64 { return s.Stats.FetchRequests }),
	counter("pawl_produced_records_total", "Records accepted. Kafka: MessagesInPerSec.",
		func(s standalone.Status) int64 { return s.Stats.RecordsIn }),
	counter("pawl_produced_batches_total", "Record batches accepted.",
		func(s standalone.Status) int64 { return s.Stats.BatchesIn }),
	counter("pawl_produced_bytes_total", "Bytes of record batches accepted. Kafka: BytesInPerSec.",
		func(s standalone.Status) int64 { return s.Stats.BytesIn }),
	counter("pawl_fetched_bytes_total", "Bytes of record batches sent. Kafka: BytesOutPerSec.",
		func(s standalone.Status) int64 { return s.Stats.BytesOut }),
	counter("pawl_duplicate_batches_total", "Batches of idempotent producers that were there already.",
		func(s standalone.Status) int64 { return s.Stats.Duplicates }),
	counter("pawl_storage_syncs_total", "Syncs of files, directories and file systems.",
		func(s standalone.Status) int64 { return s.Disk.Syncs }),
	counter("pawl_storage_written_bytes_total", "Bytes written to files, the journal's included.",
		func(s standalone.Status) int64 { return s.Disk.BytesWritten }),
	gauge("pawl_topics", "Topics of the cluster. Kafka: GlobalTopicCount.",
		func(s standalone.Status) int64 { return int64(s.Topics) }),
	gauge("pawl_partitions", "Partitions of the cluster. Kafka: GlobalPartitionCount.",
		func(s standalone.Status) int64 { return int64(s.Partitions) }),
	gauge("pawl_brokers", "Brokers of the cluster.",
		func(s standalone.Status) int64 { return int64(s.Brokers) }),
	gauge("pawl_leaderless_partitions", "Partitions of the cluster that nobody leads. Kafka: OfflinePartitionsCount.",
		func(s standalone.Status) int64 { return int64(s.Leaderless) }),
	gauge("pawl_moving_partitions", "Partitions of the cluster that are being reassigned. Kafka: ReassigningPartitions.",
		func(s standalone.Status) int64 { return int64(s.Moving) }),
	gauge("pawl_active_controller", "Whether this node is the active controller, 1 or 0. Kafka: ActiveControllerCount.",
		func(s standalone.Status) int64 { return flag(s.Controller) }),
	gauge("pawl_fenced", "Whether the controller has given this node's place to others, 1 or 0.",
		func(s standalone.Status) int64 { return flag(s.Fenced) }),
	counter("pawl_replicated_bytes_total", "Bytes of record batches taken from leaders. Kafka: ReplicationBytesInPerSec.",
		func(s standalone.Status) int64 { return s.Stats.ReplicatedBytes }),
	counter("pawl_replicated_batches_total", "Record batches taken from leaders.",
		func(s standalone.Status) int64 { return s.Stats.ReplicatedBatches }),
	counter("pawl_replicated_sent_bytes_total", "Bytes of record batches sent to followers. Kafka: ReplicationBytesOutPerSec.",
		func(s standalone.Status) int64 { return s.Stats.ReplicatedBytesOut }),
	counter("pawl_isr_proposals_total", "Changes of in-sync replicas that this node asked for as a leader. Kafka: IsrShrinksPerSec and IsrExpandsPerSec.",
		func(s standalone.Status) int64 { return s.Stats.ISRProposals }),
	counter("pawl_truncations_total", "Times that a replica of this node was cut back to what its leader has.",
		func(s standalone.Status) int64 { return s.Stats.Truncations }),
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// health are the numbers for which every partition is looked at.
var health = []struct {
	desc  *prometheus.Desc
	value func(standalone.Health) int
}{
	{prometheus.NewDesc("pawl_replicas", "Replicas on this node. Kafka: PartitionCount.", nil, nil),
		func(h standalone.Health) int { return h.Replicas }},
	{prometheus.NewDesc("pawl_leaders", "Partitions that this node leads. Kafka: LeaderCount.", nil, nil),
		func(h standalone.Health) int { return h.Leads }},
	{prometheus.NewDesc("pawl_under_replicated_partitions", "Partitions that this node leads with replicas that are not in sync. Kafka: UnderReplicatedPartitions.", nil, nil),
		func(h standalone.Health) int { return h.UnderReplicated }},
	{prometheus.NewDesc("pawl_under_min_isr_partitions", "Partitions that this node leads with fewer replicas in sync than acks=all needs. Kafka: UnderMinIsrPartitionCount.", nil, nil),
		func(h standalone.Health) int { return h.UnderMinISR }},
}

type collector struct{ b *standalone.Broker }

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics {
		ch <- m.desc
	}
	for _, m := range health {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.b.Status()
	for _, m := range metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(m.value(s)))
	}
	h := c.b.Health()
	for _, m := range health {
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(m.value(h)))
	}
}
