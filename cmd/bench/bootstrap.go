package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/load"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

// copied are the tables that a node copies.
var copied = []string{"artifact", "artifact_revision", "link", "signal", "event"}

// bootstrap measures the rows a second that a new node copies and checks before it
// serves them, in a process of its own, whose memory and restart it tells too. The
// floor is COPY out of the same tables, each line inserted into SQLite as it is.
func (b *bench) bootstrap(ctx context.Context) (err error) {
	pool, err := hub.OpenPool(ctx, b.url)
	if err != nil {
		return err
	}
	defer pool.Close()
	h, err := hub.Open(ctx, hub.Config{DB: pool, Limits: noLimits})
	if err != nil {
		return err
	}
	what, err := b.fillHub(ctx, pool, h)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	srv := httptest.NewServer(h.Handler(nil, done))
	var g errgroup.Group
	g.Go(func() error { return h.Run(running) })
	defer func() {
		close(done)
		srv.Close()
		stop()
		err = errors.Join(err, g.Wait())
	}()
	if err := indexed(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "ANALYZE"); err != nil {
		return err
	}
	c := verb.Claims{ActorKind: "ai_local", Permissions: []string{verb.Viewer}}
	c.Subject = "bench"
	token, err := h.SigningKey().Sign(c, 24*time.Hour)
	if err != nil {
		return err
	}
	rate := row{name: "rows copied", unit: "/s"}
	var memory, restart []float64
	for i := range b.rounds {
		floor, rows, err := copyOut(ctx, pool, filepath.Join(b.dir, fmt.Sprintf("copy-%d.db", i)))
		if err != nil {
			return err
		}
		dir := filepath.Join(b.dir, fmt.Sprintf("bootstrap-%d", i))
		first, err := b.child(ctx, dir, srv.URL, token)
		if err != nil {
			return err
		}
		again, err := b.child(ctx, dir, srv.URL, token)
		if err != nil {
			return err
		}
		rate.floor, rate.value = append(rate.floor, floor), append(rate.value, float64(rows)/first.seconds)
		memory, restart = append(memory, first.memory), append(restart, again.opened*1000)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := b.table("Bootstrap of "+what+", checked (floor: COPY out, each line a row in SQLite)", []row{rate}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(b.out, "the node's process: at most %.0f MB; started again it serves after %.0f ms\n", median(memory), median(restart))
	return err
}

// fillHub loads the real records if they are there, and makes as many others as
// are asked for.
func (b *bench) fillHub(ctx context.Context, pool *pgxpool.Pool, h *hub.Hub) (what string, err error) {
	if dir := os.Getenv("SCIDEX_TEST_DATA"); dir != "" && b.artifacts == 0 {
		files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
		if err != nil || len(files) == 0 {
			return "", errors.Join(err, errors.New("SCIDEX_TEST_DATA names a directory without *.jsonl"))
		}
		var inputs []load.Input
		for _, name := range files {
			inputs = append(inputs, load.Input{Name: name, Open: func() (io.ReadCloser, error) { return os.Open(name) }}) //nolint:gosec // the caller's own choice
		}
		admin := verb.WithCaller(ctx, &verb.Caller{
			Actor: artifact.Actor{ID: "bench", Kind: "ai_local"}, Permissions: []string{verb.Contributor, verb.Admin},
			SessionID: "bench", RequestID: "00000000-0000-4000-8000-000000000000", Now: artifact.Now(),
		})
		sum, err := load.Run(admin, load.Config{Invoker: h.Verbs(), Inputs: inputs, Import: true})
		return fmt.Sprintf("%d real records", sum.Lines), err
	}
	n := b.artifacts
	if n == 0 {
		n = applyArtifacts
	}
	return fmt.Sprintf("%d generated artifacts", n), multiply(ctx, pool, h, n)
}

// indexed waits until the hub itself has the words and facets of what was made past its
// verbs: it makes them in the background.
func indexed(ctx context.Context, pool *pgxpool.Pool) error {
	const query = `
		SELECT EXISTS (SELECT FROM artifact a WHERE a.is_latest AND NOT EXISTS (SELECT FROM search_document d WHERE d.type = a.type AND d.id = a.id))
			OR EXISTS (SELECT FROM schema_registry s WHERE s.is_current AND NOT EXISTS (SELECT FROM facet_build b WHERE b.type = s.artifact_type AND b.done))`
	for {
		var behind bool
		if err := pool.QueryRow(ctx, query).Scan(&behind); err != nil || !behind {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// seeds is how many artifacts are written by the verbs; the others are like them.
const seeds = 20

// multiply fills the tables with artifacts as the verbs would, past the log.
func multiply(ctx context.Context, pool *pgxpool.Pool, h *hub.Hub, n int) error {
	var refs []artifact.Ref
	for i := range seeds {
		out, err := verb.Create.Call(as(ctx), h.Verbs(), verb.CreateRequest{Type: "hypothesis", ID: fmt.Sprint("seed-", i), Title: fmt.Sprint("Number ", i), Content: body})
		if err != nil {
			return err
		}
		refs = append(refs, out.Ref)
	}
	// A row's hash is that of its canonical JSON, in which the id stands.
	const rows = `
		WITH n AS (SELECT n, 'made-' || lpad(n::text, 9, '0') AS id FROM generate_series($1::int, $2::int) n),
		v AS (
			INSERT INTO artifact_revision (type, id, revision, scope, content_hash, schema_version, title, state, content, note, provenance, created_at, created_by, row_hash)
			SELECT r.type, n.id, 1, r.scope, r.content_hash, r.schema_version, r.title, r.state, r.content, r.note, r.provenance, r.created_at, r.created_by,
				sha256(convert_to(replace(c.data, '"id":"' || r.id || '"', '"id":"' || n.id || '"'), 'UTF8'))
			FROM n JOIN artifact_revision r ON r.type = $3 AND r.id = $4
			JOIN feed.change c ON c.ref = r.type || ':' || r.id AND c.kind = 'revision' AND c.data IS NOT NULL)
		INSERT INTO artifact (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by, created_at, created_by, updated_at, updated_by, row_hash)
		SELECT a.type, n.id, a.scope, 1, a.content_hash, a.schema_version, a.title, a.state, a.is_latest, '', a.created_at, a.created_by, a.updated_at, a.updated_by,
			sha256(convert_to(replace(c.data, '"id":"' || a.id || '"', '"id":"' || n.id || '"'), 'UTF8'))
		FROM n JOIN artifact a ON a.type = $3 AND a.id = $4
		JOIN feed.change c ON c.ref = a.type || ':' || a.id AND c.kind = 'artifact' AND c.data IS NOT NULL`
	for done, round := 0, 0; done < n; round++ {
		to := min(done+10_000, n)
		ref := refs[round%seeds]
		if _, err := pool.Exec(ctx, rows, done+1, to, ref.Type, ref.ID); err != nil {
			return fmt.Errorf("make artifacts: %w", err)
		}
		done = to
	}
	return nil
}

// copyOut is the floor.
func copyOut(ctx context.Context, pool *pgxpool.Pool, path string) (rate float64, rows int, err error) {
	db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL&_synchronous=NORMAL")
	if err != nil {
		return 0, 0, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE line (n INTEGER PRIMARY KEY, line TEXT)`); err != nil {
		return 0, 0, err
	}
	start := time.Now()
	for _, table := range copied {
		n, err := copyTable(ctx, pool, db, table)
		if err != nil {
			return 0, 0, fmt.Errorf("copy %s: %w", table, err)
		}
		rows += n
	}
	return float64(rows) / time.Since(start).Seconds(), rows, errors.Join(db.Close(), os.Remove(path))
}

func copyTable(ctx context.Context, pool *pgxpool.Pool, db *sql.DB, table string) (rows int, err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "SET statement_timeout = 0"); err != nil {
		return 0, err
	}
	defer func() {
		_, reset := conn.Exec(ctx, "RESET statement_timeout")
		err = errors.Join(err, reset)
	}()
	read, write := io.Pipe()
	var g errgroup.Group
	g.Go(func() error {
		_, err := conn.Conn().PgConn().CopyTo(ctx, write, "COPY (SELECT * FROM "+table+") TO STDOUT")
		return errors.Join(err, write.CloseWithError(err))
	})
	lines := bufio.NewScanner(read)
	lines.Buffer(make([]byte, 1<<20), 8<<20)
	for more := true; more; {
		var n int
		if n, more, err = insertLines(ctx, db, lines); err != nil {
			return rows, err
		}
		rows += n
	}
	return rows, errors.Join(lines.Err(), g.Wait())
}

// insertLines inserts a thousand lines in one transaction, or as many as there are.
func insertLines(ctx context.Context, db *sql.DB, lines *bufio.Scanner) (n int, more bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, false, err
	}
	defer func() {
		if err == nil {
			err = tx.Commit()
		} else {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	stmt, err := tx.PrepareContext(ctx, `INSERT INTO line (line) VALUES (?)`)
	if err != nil {
		return 0, false, err
	}
	defer stmt.Close()
	for n < 1000 {
		if !lines.Scan() {
			return n, false, nil
		}
		if _, err := stmt.ExecContext(ctx, lines.Text()); err != nil {
			return n, false, err
		}
		n++
	}
	return n, true, nil
}

// childEnv names to a process of this program the node that it is to run until it
// serves: directory, hub and token.
const childEnv = "SCIDEX_BENCH_NODE"

// A report is what such a process tells.
type report struct {
	opened  float64 // seconds until a replica that was there was open
	seconds float64 // until it was served
	memory  float64 // MB, at most
}

func (b *bench) child(ctx context.Context, dir, url, token string) (r report, err error) {
	cmd := exec.CommandContext(ctx, os.Args[0]) //nolint:gosec // itself
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{dir, url, token}, "\n"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		_, err = fmt.Sscan(string(out), &r.opened, &r.seconds, &r.memory)
	}
	return r, err
}

// runChild runs a node until it serves what the hub has.
func runChild(ctx context.Context, spec string, out io.Writer) error {
	part := strings.SplitN(spec, "\n", 3)
	start := time.Now()
	n, err := node.Open(ctx, node.Config{Dir: part[0], HubURL: part[1], Token: part[2]})
	if err != nil {
		return err
	}
	opened := time.Since(start)
	running, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return n.Run(running) })
	err = n.WaitApplied(ctx, 1)
	served := time.Since(start)
	stop()
	if err := errors.Join(err, g.Wait(), n.Close()); err != nil {
		return err
	}
	memory, err := peakMemory()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, opened.Seconds(), served.Seconds(), memory)
	return err
}

// peakMemory returns the most memory that this process had, in MB.
func peakMemory() (float64, error) {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, errors.New("the system does not tell a process's memory")
}
