package node_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

// TestLag holds a node up that hears its hub but cannot apply: what it lags is told
// in events, not by when it last heard, and alike wherever one asks.
func TestLag(t *testing.T) {
	w := newWorld(t, initHub)
	counts := prometheus.NewRegistry()
	r := w.nodeWith(node.Config{Dir: t.TempDir(), Token: w.token("ada", verb.Contributor), Metrics: counts})
	w.some("h", "", 3, 100)
	w.caughtUp(r)
	type told struct {
		Status string `json:"status"`
		Seq    int64  `json:"applied_seq"`
		Head   int64  `json:"hub_seq"`
		Lag    int64  `json:"lag_events"`
		LagMS  int64  `json:"lag_ms"`
		Stale  bool   `json:"stale"`
	}
	ready := func() (about told) {
		_, body := r.ask("/readyz")
		if err := json.Unmarshal([]byte(body), &about); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return about
	}
	eventually(t, 20*time.Second, "the node is at the head", func() bool {
		a := ready()
		return a.Lag == 0 && a.LagMS == 0 && !a.Stale && a.Status == "ready"
	})

	db, err := sql.Open("sqlite3", "file:"+filepath.Join(r.dir, node.ReplicaFile)+"?_txlock=immediate&_busy_timeout=5000")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	held, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback()
	before := ready().Seq
	w.some("late", "", 4, 100)
	head, err := w.hub.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the node tells what it lags", func() bool {
		a := ready()
		return a.Seq == before && a.Head > before && a.Lag == a.Head-a.Seq && a.LagMS > 0 && a.Head <= int64(head)
	})
	if n := gathered(t, counts, "scidex_node_lag_events"); n <= 0 {
		t.Errorf("a metric tells of %v events", n)
	}
	n := &network{url: r.url}
	_, a := n.query(t, r.token, `{ replica { lagEvents lagMs } }`, nil)
	var data struct {
		Replica struct{ LagEvents, LagMs json.Number }
	}
	if err := json.Unmarshal(a.Data, &data); err != nil || data.Replica.LagEvents == "0" || data.Replica.LagMs == "0" {
		t.Errorf("GraphQL tells %s (%v), %v", a.Data, a.Errors, err)
	}
	if err := held.Rollback(); err != nil {
		t.Fatal(err)
	}
	w.caughtUp(r)
	eventually(t, 30*time.Second, "the node is at the head again", func() bool {
		a := ready()
		return a.Lag == 0 && a.LagMS == 0 && a.Seq >= int64(head)
	})
	if err := r.get(t, fmt.Sprint("hypothesis:", "late", 3)); err != nil {
		t.Error(err)
	}
}
