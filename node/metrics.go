package node

import "github.com/prometheus/client_golang/prometheus"

// registerMetrics registers what a node tells of itself.
func registerMetrics(n *Node, r prometheus.Registerer) {
	gauge := func(name, help string, value func(freshness) float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(n.freshness()) }))
	}
	gauge("scidex_node_applied_seq", "Last seq that the replica holds.", func(f freshness) float64 { return float64(f.applied) })
	gauge("scidex_node_hub_seq", "Last seq of the hub, as last heard.", func(f freshness) float64 { return float64(f.head) })
	gauge("scidex_node_lag_events", "Changes that the replica lags behind the hub.", func(f freshness) float64 { return float64(f.head - f.applied) })
	gauge("scidex_node_lag_seconds", "Time since the replica was last known to be at the hub's head.", func(f freshness) float64 { return f.lag.Seconds() })
	gauge("scidex_node_connected", "1 while the hub is followed.", func(f freshness) float64 {
		if f.connected {
			return 1
		}
		return 0
	})
	gauge("scidex_node_subscribers", "Subscriptions to events that are open.", func(freshness) float64 { return float64(n.readers.Load()) })
	gauge("scidex_node_database_bytes", "Size of the replica's files.", func(freshness) float64 { return float64(n.databaseBytes()) })
	gauge("scidex_node_diverged", "1 while the replica is known to differ from its hub.", func(freshness) float64 {
		if n.checkup().diverged() {
			return 1
		}
		return 0
	})
	gauge("scidex_node_last_check_timestamp_seconds", "When the replica was last compared with its hub, row for row; 0 for never.", func(freshness) float64 {
		if c := n.checkup(); c != nil {
			return float64(c.At.UnixMilli()) / 1000
		}
		return 0
	})
	counter := func(name, help string, value func() int64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) }))
	}
	counter("scidex_node_rows_mended_total", "Rows that were fetched from the hub again because they differed.", n.checks.mended.Load)
	counter("scidex_node_divergences_total", "Self-checks that found the replica to differ from its hub.", n.checks.found.Load)
	gauge("scidex_node_bootstrapped", "1 once there is a replica to serve.", func(freshness) float64 {
		if n.held.load() == nil {
			return 0
		}
		return 1
	})
	building := func(name, help string, value func(Building) float64) {
		gauge(name, help, func(freshness) float64 { return value(n.progress.now()) })
	}
	building("scidex_node_building", "1 while a replica is being built.", func(b Building) float64 {
		if b.Reason == "" {
			return 0
		}
		return 1
	})
	building("scidex_node_building_rows", "Rows that the replica has which is being built.", func(b Building) float64 { return float64(b.Rows) })
	building("scidex_node_building_rows_expected", "Rows that it will have, about.", func(b Building) float64 { return float64(b.Total) })
	building("scidex_node_building_eta_seconds", "Time until it has them, about.", func(b Building) float64 { return b.ETA.Seconds() })
}
