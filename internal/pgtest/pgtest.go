// Package pgtest gives each test a PostgreSQL database of its own. Start with this
// file; server.go sees to the server that holds them.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/internal/postgres"
)

// Env is the environment variable that may hold the connection string, a URL, of a
// server where tests create databases. Without it the test binary runs a server of
// its own.
const Env = "SCIDEX_TEST_DATABASE"

// Setup prepares an empty database, as migrations do.
type Setup = func(context.Context, *pgxpool.Pool) error

// A template is a database that one setup has prepared, once per test binary.
type template struct {
	once sync.Once
	name string
	err  error
}

var (
	// prefix differs between the test binaries that share a server.
	prefix = "scidex_test_" + strings.ToLower(rand.Text()[:10])
	count  atomic.Int64

	templatesMu sync.Mutex
	templates   = map[uintptr]*template{} // guarded by templatesMu; by the setup's code
)

// New returns a pool on a fresh copy of a database that setup has prepared. Setup
// runs once per test binary, on a template; a copy takes about 0.1 s. Two
// closures of one function literal are the same setup. A nil setup prepares nothing.
//
// The test is skipped when there is no PostgreSQL and CI is not set.
func New(tb testing.TB, setup Setup) *pgxpool.Pool {
	tb.Helper()
	ctx := tb.Context()
	pool, err := pgxpool.New(ctx, URL(tb, setup))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close) // runs before the database is dropped
	return pool
}

// URL returns the connection string of a fresh database, as New makes it. It is
// dropped when the test ends, whoever is connected.
func URL(tb testing.TB, setup Setup) string {
	tb.Helper()
	ctx := tb.Context()
	server, err := serverURL(context.WithoutCancel(ctx))
	if missing := (*postgres.NoBinariesError)(nil); errors.As(err, &missing) && os.Getenv("CI") == "" {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatalf("start a test server: %v", err)
	}
	t := templateOf(setup)
	t.once.Do(func() { t.err = t.create(ctx, server, setup) })
	if t.err != nil {
		tb.Fatalf("set up template database: %v", t.err)
	}
	name := fmt.Sprintf("%s_%d", prefix, count.Add(1))
	if err := execute(ctx, server, "CREATE DATABASE "+name+" TEMPLATE "+t.name); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		checkDeadlocks(context.WithoutCancel(ctx), tb, server, name)
		if err := dropDatabase(context.WithoutCancel(ctx), server, name); err != nil {
			tb.Error(err)
		}
	})
	u, err := withDatabase(server, name)
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

// checkDeadlocks fails a test in whose database transactions waited for each other.
// The product runs such again, so that nobody else would tell.
func checkDeadlocks(ctx context.Context, tb testing.TB, server, name string) {
	tb.Helper()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return // a test has stopped the server
	}
	defer func() { _ = conn.Close(ctx) }()
	// A connection tells what it met when it ends.
	for range 20 {
		var n int
		if err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = $1`, name).Scan(&n); err != nil || n == 0 {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	var n int
	if err := conn.QueryRow(ctx, `SELECT deadlocks FROM pg_stat_database WHERE datname = $1`, name).Scan(&n); err == nil && n > 0 {
		tb.Errorf("%d deadlocks in the database of the test", n)
	}
}

// dropDatabase drops a database. The server's own autovacuum may be in it, which our role
// may not end: that is waited for.
func dropDatabase(ctx context.Context, server, name string) error {
	for deadline := time.Now().Add(30 * time.Second); ; {
		err := execute(ctx, server, "DROP DATABASE "+name+" WITH (FORCE)")
		pg, ok := errors.AsType[*pgconn.PgError](err)
		const notOurs, inUse = "42501", "55006"
		if !ok || pg.Code != notOurs && pg.Code != inUse || time.Now().After(deadline) {
			return err
		}
		<-time.After(100 * time.Millisecond)
	}
}

func templateOf(setup Setup) *template {
	key := reflect.ValueOf(setup).Pointer() // 0 for nil
	templatesMu.Lock()
	defer templatesMu.Unlock()
	if templates[key] == nil {
		templates[key] = &template{name: fmt.Sprintf("%s_template_%d", prefix, len(templates)+1)}
	}
	return templates[key]
}

func (t *template) create(ctx context.Context, server string, setup Setup) error {
	if err := execute(ctx, server, "CREATE DATABASE "+t.name+" TEMPLATE template0"); err != nil {
		return err
	}
	if setup == nil {
		return nil
	}
	u, err := withDatabase(server, t.name)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, u)
	if err != nil {
		return err
	}
	defer pool.Close()
	return setup(ctx, pool)
}

func execute(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

func withDatabase(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("parse %s: %w", Env, err)
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", fmt.Errorf("%s is no URL like postgres://user@host/database", Env)
	}
	u.Path = "/" + name
	return u.String(), nil
}
