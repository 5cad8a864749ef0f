package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/verb"
)

// body is the content of a benchmark's artifact: about 1.4 KB.
var body = json.RawMessage(`{"statement":"` + strings.Repeat("Amyloid beta and tau spread along connected neurons. ", 26) + `"}`)

// write measures creates a second against the same transaction without a feed:
// the same reads, the same inserts, an event and a change row with keys from a
// sequence, no lock and no reader.
func (b *bench) write(ctx context.Context) (err error) {
	pool, err := hub.OpenPool(ctx, b.url)
	if err != nil {
		return err
	}
	defer pool.Close()
	h, err := hub.Open(ctx, hub.Config{DB: pool, Limits: noLimits})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- h.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-stopped)
	}()
	if _, err := pool.Exec(ctx, floorTables); err != nil {
		return err
	}
	verbs := h.Verbs()
	var rows []row
	for _, writers := range []int{1, 8, 32} {
		r := row{name: fmt.Sprintf("create, %d writers", writers), unit: "/s"}
		for range b.rounds {
			floor, err := b.rate(ctx, writers, func(ctx context.Context) error { return floorCreate(ctx, pool) })
			if err != nil {
				return err
			}
			value, err := b.rate(ctx, writers, func(ctx context.Context) error { return create(ctx, verbs) })
			if err != nil {
				return err
			}
			r.floor, r.value = append(r.floor, floor), append(r.value, value)
		}
		rows = append(rows, r)
	}
	return b.table("Commits (floor: the same transaction without a feed)", rows)
}

// rate returns how often a second n workers together run f, over one slice.
func (b *bench) rate(ctx context.Context, n int, f func(context.Context) error) (float64, error) {
	var count atomic.Int64
	start := time.Now()
	deadline := start.Add(b.slice)
	g, ctx := errgroup.WithContext(ctx)
	for range n {
		g.Go(func() error {
			for time.Now().Before(deadline) {
				if err := f(ctx); err != nil {
					return err
				}
				count.Add(1)
			}
			return nil
		})
	}
	err := g.Wait()
	return float64(count.Load()) / time.Since(start).Seconds(), err
}

// as returns a context of a contributor.
func as(ctx context.Context) context.Context {
	return verb.WithCaller(ctx, &verb.Caller{
		Actor: artifact.Actor{ID: "bench", Kind: "ai_local"}, Permissions: []string{verb.Contributor},
		SessionID: "bench", RequestID: uuid.NewString(), Now: artifact.Now(),
	})
}

func create(ctx context.Context, inv verb.Invoker) error {
	_, err := verb.Create.Call(as(ctx), inv, verb.CreateRequest{Type: "hypothesis", Title: "A hypothesis of the benchmark", Content: body})
	return err
}

const floorTables = `
	CREATE SCHEMA IF NOT EXISTS floor;
	CREATE TABLE IF NOT EXISTS floor.artifact (LIKE public.artifact INCLUDING ALL);
	CREATE TABLE IF NOT EXISTS floor.artifact_revision (LIKE public.artifact_revision INCLUDING ALL);
	CREATE TABLE IF NOT EXISTS floor.event (seq bigserial PRIMARY KEY, type text, ref text, at timestamptz, payload text);
	CREATE TABLE IF NOT EXISTS floor.change (seq bigserial PRIMARY KEY, scope text, kind text, ref text, revision integer, hash bytea, data text, at timestamptz)`

func floorCreate(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	id := "h-" + uuid.NewString()
	now := time.Now()
	hash := artifact.HashBytes([]byte(id))
	b := new(pgx.Batch)
	b.Queue("BEGIN")
	b.Queue(`SELECT revision FROM floor.artifact WHERE type = $1 AND id = $2 FOR NO KEY UPDATE`, "hypothesis", id)
	b.Queue(`SELECT artifact_type, schema_version FROM schema_registry WHERE is_current AND artifact_type = ANY ($1)`, []string{"hypothesis"})
	b.Queue(`SELECT id FROM scope WHERE id = ANY ($1)`, []string{artifact.Commons})
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	b = new(pgx.Batch)
	b.Queue(`
		INSERT INTO floor.artifact (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, created_at, created_by, updated_at, updated_by, row_hash)
		VALUES ('hypothesis', $1, 'commons', 1, $2, 1, 'A hypothesis of the benchmark', 'proposed', true, $3, 'bench', $3, 'bench', $2)`, id, hash[:], now)
	b.Queue(`
		INSERT INTO floor.artifact_revision (type, id, revision, scope, content_hash, schema_version, title, state, content, note, provenance, created_at, created_by, row_hash)
		VALUES ('hypothesis', $1, 1, 'commons', $2, 1, 'A hypothesis of the benchmark', 'proposed', $4, '', '{}', $3, 'bench', $2)`, id, hash[:], now, string(body))
	b.Queue(`INSERT INTO floor.event (type, ref, at, payload) VALUES ('hypothesis.created', $1, $2, '{}')`, id, now)
	b.Queue(`
		INSERT INTO floor.change (scope, kind, ref, revision, hash, data, at)
		VALUES ('commons', 'artifact', $1, 1, $2, $3, $4)`, id, hash[:], `{"about":"three hundred bytes of metadata"}`, now)
	b.Queue("COMMIT")
	return conn.SendBatch(ctx, b).Close()
}
