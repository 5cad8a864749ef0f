package hub

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	commits       *prometheus.HistogramVec
	retries       *prometheus.CounterVec
	grouped       *prometheus.CounterVec
	shadowed      *prometheus.CounterVec
	followers     prometheus.Gauge
	trimmed       prometheus.Counter
	eventsTrimmed prometheus.Counter
	eventsFloor   prometheus.Gauge
	logFirst      prometheus.Gauge
	logBytes      prometheus.Gauge
	behind        prometheus.Gauge
	nodes         *prometheus.GaugeVec
	jobs          jobMetrics
}

func newMetrics(h *Hub, r prometheus.Registerer) *metrics {
	m := &metrics{
		jobs: newJobMetrics(r),
		commits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scidex_hub_write_seconds", Help: "Time of writes that succeeded, by verb.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"verb"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scidex_hub_write_retries_total", Help: "Writes that lost a race and ran again, by why.",
		}, []string{"reason"}),
		grouped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scidex_hub_writes_grouped_total", Help: "Writes that waited for others, by whether they shared a transaction then or had to run alone.",
		}, []string{"how"}),
		shadowed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scidex_hub_validator_shadowed_total", Help: "Faults that validators in shadow mode found, by validator.",
		}, []string{"validator"}),
		followers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "scidex_hub_feed_followers", Help: "Streams of the feed that are open.",
		}),
		trimmed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scidex_hub_log_partitions_trimmed_total", Help: "Partitions of the log that this process dropped.",
		}),
		eventsTrimmed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scidex_hub_events_trimmed_total", Help: "Events that this process took out.",
		}),
		eventsFloor: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "scidex_hub_events_floor", Help: "Seq up to which events are no longer kept.",
		}),
		logFirst: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "scidex_hub_log_first", Help: "First seq that the log keeps.",
		}),
		logBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "scidex_hub_log_bytes", Help: "Size of the log with its indexes, in bytes.",
		}),
		// Not by node: whoever may read metrics need not know of labs.
		behind: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "scidex_hub_feed_behind", Help: "Changes that the enrolled node that is furthest behind has not got, of those that the log is kept for.",
		}),
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scidex_hub_feed_nodes", Help: "Enrolled nodes by how they stand to the log: leased, lapsed, or lost, which must copy anew.",
		}, []string{"state"}),
	}
	head := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scidex_hub_log_head", Help: "Last seq of the log that the feed has read.",
	}, func() float64 {
		h.pump.ring.mu.RLock()
		defer h.pump.ring.mu.RUnlock()
		return float64(h.pump.ring.head)
	})
	ringBytes := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scidex_hub_feed_ring_bytes", Help: "Encoded rows that the feed keeps in memory, in bytes.",
	}, func() float64 {
		h.pump.ring.mu.RLock()
		defer h.pump.ring.mu.RUnlock()
		return float64(h.pump.ring.bytes)
	})
	connections := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scidex_hub_db_connections_in_use", Help: "Connections to PostgreSQL that are in use.",
	}, func() float64 { return float64(h.db.Stat().AcquiredConns()) })
	scans := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "scidex_hub_digest_scans_total", Help: "Times that all rows were read for the digests of nodes.",
	}, func() float64 { return float64(h.digests.made.Load()) })
	r.MustRegister(m.commits, m.retries, m.grouped, m.shadowed, m.followers, m.trimmed, m.eventsTrimmed, m.eventsFloor, m.logFirst, m.logBytes, m.behind, m.nodes, head, ringBytes, connections, scans)
	return m
}
