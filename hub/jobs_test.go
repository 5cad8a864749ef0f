package hub_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
)

// TestJobTables holds the tables that our migration made against those that River's
// own would make.
func TestJobTables(t *testing.T) {
	db := pgtest.New(t, initHub)
	execute(t, db, `CREATE SCHEMA river`)
	m, err := rivermigrate.New(riverpgxv5.New(db), &rivermigrate.Config{Schema: "river"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	shape := func(schema string) []string {
		const query = `
			SELECT concat_ws(' ', c.relname, c.relpersistence, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid))
			FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
			LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
			WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r' AND c.relname <> 'river_migration'
			UNION ALL
			SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
			WHERE c.relnamespace = $1::regnamespace AND c.relname <> 'river_migration'
			UNION ALL
			SELECT concat_ws(' ', c.conname, pg_get_constraintdef(c.oid)) FROM pg_constraint c
			WHERE c.connamespace = $1::regnamespace AND c.conrelid <> coalesce(to_regclass($1 || '.river_migration'), 0)
			UNION ALL
			SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = $1::regnamespace
			UNION ALL
			SELECT concat_ws(' ', t.typname, e.enumlabel) FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid WHERE t.typnamespace = $1::regnamespace`
		rows, err := db.Query(t.Context(), query, schema)
		if err != nil {
			t.Fatal(err)
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			all[i] = strings.Join(strings.Fields(strings.ReplaceAll(all[i], schema+".", "")), " ")
		}
		slices.Sort(all)
		return all
	}
	if diff := cmp.Diff(shape("river"), shape("job")); diff != "" {
		t.Errorf("a migration is due (- River's, + ours):\n%s", diff)
	}
}

// expired fills a database with n of each thing that a job clears away, and one of
// each that it must leave.
func expired(t *testing.T, db *pgxpool.Pool, n int) {
	t.Helper()
	execute(t, db, `
		INSERT INTO idempotency (actor, key, request_hash, response, seq, created_at)
		SELECT 'ada', gen_random_uuid(), '', '{}', 0, now() - CASE WHEN i <= $1 THEN '25 hours' ELSE '24 hours' END::interval
		FROM generate_series(1, $1 + 1) i`, n)
	execute(t, db, `
		INSERT INTO consumer_subscriptions (agent, consumer_id, filter_json, epoch, generation, cursor, session, created_at, last_activity_at)
		SELECT 'ada', gen_random_uuid(), '{}', 1, 1, 0, '', now(), now() - CASE WHEN i <= $1 THEN '31 days' ELSE '29 days' END::interval
		FROM generate_series(1, $1 + 1) i`, n)
	execute(t, db, `
		WITH m AS (
			INSERT INTO mail (message, thread, sender, priority, sent_at, everyone)
			SELECT gen_random_uuid(), 't', 'ada', 'normal', now(), false FROM generate_series(1, $1 + 2) RETURNING message
		), k AS (SELECT message, row_number() OVER () AS i FROM m)
		INSERT INTO delivery (recipient, message, sent_at, status, ack_at, response)
		SELECT 'bob', message, now(), CASE WHEN i <= $1 + 1 THEN 'completed' ELSE 'rejected' END,
			now() - CASE WHEN i = $1 + 1 THEN '89 days' ELSE '91 days' END::interval, '' FROM k`, n)
}

const (
	leftExpired = `
		SELECT (SELECT count(*) FROM idempotency WHERE created_at < now() - interval '24 hours 15 minutes')
			+ (SELECT count(*) FROM consumer_subscriptions WHERE last_activity_at < now() - interval '30 days')
			+ (SELECT count(*) FROM delivery WHERE status = 'completed' AND ack_at < now() - interval '90 days' AND NOT archived)`
	leftOthers = `
		SELECT (SELECT count(*) FROM idempotency) * 1000000 + (SELECT count(*) FROM consumer_subscriptions) * 1000
			+ (SELECT count(*) FROM delivery WHERE NOT archived)`
)

// until waits for a condition.
func until(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v: %s", limit, what)
		}
	}
}

// TestJobsClear has two hubs on one database clear away what has expired, and
// nothing else, page after page; each run is one hub's.
func TestJobsClear(t *testing.T) {
	db := pgtest.New(t, initHub)
	expired(t, db, 2100)
	registries := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	for _, r := range registries {
		newHubWith(t, hub.Config{DB: db, Metrics: r, Jobs: hub.JobConfig{Every: 200 * time.Millisecond, Look: 50 * time.Millisecond}})
	}
	f := &fixture{db: db}
	until(t, 20*time.Second, "expired rows are left", func() bool { return f.count(t, leftExpired) == 0 })
	if n := f.count(t, leftOthers); n != 1_001_002 {
		t.Errorf("of what is to stay there are %d", n)
	}
	var cleared float64
	until(t, 10*time.Second, "the metrics tell of fewer rows", func() bool {
		cleared = 0
		for _, r := range registries {
			cleared += sumOf(t, r, "scidex_hub_job_rows_total")
		}
		return cleared >= 3*2100
	})
	if cleared != 3*2100 {
		t.Errorf("the metrics tell of %v rows", cleared)
	}
	if n := f.count(t, `SELECT count(*) FROM job.river_leader`); n != 1 {
		t.Errorf("there are %d leaders", n)
	}
	// What was done before is not in the way of being asked for again.
	expired(t, db, 1)
	until(t, 20*time.Second, "rows that expired later are left", func() bool { return f.count(t, leftExpired) == 0 })
}

// sumOf adds up a counter's series, or the runs that a histogram counts.
func sumOf(t *testing.T, r *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// safeBuffer is a buffer that a hub writes and a test reads.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestJobFails takes a table from a job: that is logged and counted, the others go
// on, and the job is tried again until it is done.
func TestJobFails(t *testing.T) {
	db := pgtest.New(t, initHub)
	registry, log := prometheus.NewRegistry(), new(safeBuffer)
	expired(t, db, 1)
	execute(t, db, `ALTER TABLE mail RENAME TO mail_gone; ALTER TABLE delivery RENAME TO delivery_gone`)
	f := newHubWith(t, hub.Config{
		DB: db, Metrics: registry, Log: slog.New(slog.NewTextHandler(log, nil)), Jobs: hub.JobConfig{Look: 50 * time.Millisecond},
	})
	until(t, 20*time.Second, "the job did not fail", func() bool {
		return strings.Count(log.String(), `msg="a job failed" job=completed_mail`) >= 1
	})
	until(t, 10*time.Second, "the others were not done", func() bool { return f.count(t, `SELECT count(*) FROM job.river_job WHERE state = 'completed'`) == 2 })
	execute(t, db, `ALTER TABLE mail_gone RENAME TO mail; ALTER TABLE delivery_gone RENAME TO delivery`)
	until(t, 60*time.Second, "the job was not done in the end", func() bool { return f.count(t, leftExpired) == 0 })
	f.stop()
	if n := sumOf(t, registry, "scidex_hub_job_rows_total"); n != 3 {
		t.Errorf("%v rows were counted", n)
	}
	if n := sumOf(t, registry, "scidex_hub_job_seconds"); n < 4 {
		t.Errorf("%v runs were counted", n)
	}
}

// TestJobsFailOver kills the hub that leads, with kill -9 and in the middle of a job:
// another leads then, and does that job too.
func TestJobsFailOver(t *testing.T) {
	db := pgtest.New(t, initHub)
	expired(t, db, 1)
	holder, err := pgx.ConnectConfig(t.Context(), db.Config().ConnConfig.Copy())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close(context.WithoutCancel(t.Context())) }()
	if _, err := holder.Exec(t.Context(), `SET idle_in_transaction_session_timeout = 0; BEGIN; LOCK TABLE delivery`); err != nil {
		t.Fatal(err)
	}
	f := &fixture{db: db}
	leads := startChild(t, db.Config().ConnString())
	defer leads.kill()
	until(t, 20*time.Second, "no job waits", func() bool {
		return f.count(t, `SELECT count(*) FROM job.river_job WHERE state = 'running' AND args ->> 'job' = 'completed_mail'`) == 1
	})
	leads.kill()
	if _, err := holder.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	newHubWith(t, hub.Config{DB: db, Metrics: registry, Jobs: hub.JobConfig{
		Every: time.Second, Look: 50 * time.Millisecond, Timeout: time.Second, Rescue: 2 * time.Second,
	}})
	until(t, 2*time.Minute, "the job of the dead hub was not done", func() bool { return f.count(t, leftExpired) == 0 })
	if n := f.count(t, `SELECT count(*) FROM job.river_job WHERE state = 'running' AND attempted_at < now() - interval '1 minute'`); n != 0 {
		t.Errorf("%d jobs run for ever", n)
	}
	if n := f.count(t, leftOthers); n != 1_001_002 {
		t.Errorf("of what is to stay there are %d", n)
	}
}
