// Package admin is the HTTP side of a broker: metrics, health and profiles, for
// those who operate it.
package admin

import (
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pawlbroker/pawl/broker/standalone"
)

// Handler serves /metrics, /live, /ready and /debug/pprof/ of a broker.
func Handler(b *standalone.Broker) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{b}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if s := b.Status(); !s.Ready {
			http.Error(w, s.Phase, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
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
}

type collector struct{ b *standalone.Broker }

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.b.Status()
	for _, m := range metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(m.value(s)))
	}
}
