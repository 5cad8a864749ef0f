package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/postgres"
	"github.com/scidex-ai/substrate/verb"
)

// TestFieldLesson3 is for row 3 of the lessons, a PostgreSQL that went away and left
// subscriptions open and silent: when the hub's PostgreSQL is killed, a client of a node
// is told within a bound that what it reads is stale; and that it is not, once
// PostgreSQL is back. Nothing that was acknowledged is lost.
func TestFieldLesson3(t *testing.T) {
	c := postgres.Config{Dir: t.TempDir(), Settings: map[string]string{"shared_buffers": "16MB"}}
	server, err := postgres.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.WithoutCancel(t.Context())) })
	db, err := hub.OpenPool(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := initHub(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	w := newWorldOn(t, db)
	w.some("h", "", 5, 100)
	r := w.node(t.TempDir(), "ada", verb.Contributor)
	w.caughtUp(r)
	eventually(t, 30*time.Second, "a client is told that the node is up to date", func() bool { return !r.stale() })
	for round := range 2 {
		began := time.Now()
		killPostgres(t, server)
		eventually(t, 30*time.Second, "a client is told that the node is stale", r.stale)
		t.Logf("told after %v", time.Since(began))
		if err := r.get(t, "hypothesis:h3"); err != nil {
			t.Errorf("a read meanwhile: %v", err)
		}
		if server, err = postgres.Start(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint("after", round)
		eventually(t, 30*time.Second, "the hub takes writes again", func() bool {
			_, err := verb.Create.Call(w.as("ada", verb.Contributor), w.hub.Verbs(), statement("", id, id))
			return err == nil || artifact.IsCode(err, artifact.CodeVersionConflict)
		})
		eventually(t, 30*time.Second, "a client is told that the node is up to date", func() bool { return !r.stale() })
		w.equal(r)
		if err := r.get(t, "hypothesis:"+id); err != nil {
			t.Error(err)
		}
	}
}

// killPostgres ends a server as a crash would, at once.
func killPostgres(t *testing.T, s *postgres.Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	var dir string
	if err := conn.QueryRow(t.Context(), `SHOW data_directory`).Scan(&dir); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.SplitN(string(raw), "\n", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
}

// stale reports whether a node tells a client of GraphQL that it is stale.
func (r *runner) stale() bool {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+"/graphql", bytes.NewReader([]byte(`{"query":"{ replica { phase } }"}`)))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+r.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Extensions struct {
			Replica *struct{ Stale bool }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Extensions.Replica == nil {
		r.t.Fatalf("the node's answer: %v", err)
	}
	return answer.Extensions.Replica.Stale
}
