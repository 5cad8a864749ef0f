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

// write measures creates a second, and the database's CPU for each, against a
// transaction that writes the same rows by hand: the same reads and inserts, but
// no lock that orders commits, no check and no reader. Updates it measures against
// creates.
func (b *bench) write(ctx context.Context) (err error) {
	h, pool, stop, err := b.runHub(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if _, err := pool.Exec(ctx, floorTables); err != nil {
		return err
	}
	verbs := h.Verbs()
	if err := learnIndex(ctx, pool, verbs); err != nil {
		return err
	}
	var rows, cpu, updates []row
	for _, writers := range []int{1, 8, 32} {
		r := row{name: fmt.Sprintf("create, %d writers", writers), unit: "/s"}
		c := row{name: fmt.Sprintf("create, %d writers", writers), unit: "ms"}
		u := row{name: fmt.Sprintf("update, %d writers", writers), unit: "/s"}
		for range b.rounds {
			floor, floorCPU, err := b.costly(ctx, pool, writers, func(ctx context.Context, _ int) error { return floorCreate(ctx, pool) })
			if err != nil {
				return err
			}
			value, valueCPU, err := b.costly(ctx, pool, writers, func(ctx context.Context, _ int) error { return create(ctx, verbs) })
			if err != nil {
				return err
			}
			r.floor, r.value = append(r.floor, floor), append(r.value, value)
			c.floor, c.value = append(c.floor, floorCPU), append(c.value, valueCPU)
			changed, err := b.updates(ctx, verbs, writers)
			if err != nil {
				return err
			}
			u.floor, u.value = append(u.floor, value), append(u.value, changed)
		}
		rows, cpu, updates = append(rows, r), append(cpu, c), append(updates, u)
	}
	if err := b.table("Commits (floor: the same rows by hand, unordered and unchecked)", rows); err != nil {
		return err
	}
	if err := b.table("CPU of the database for a commit (floor: as above; less is better)", cpu); err != nil {
		return err
	}
	return b.table("Updates by whole content (floor: creates)", updates)
}

// updates returns how often a second so many writers update an artifact of their
// own.
func (b *bench) updates(ctx context.Context, inv verb.Invoker, writers int) (float64, error) {
	made := make([]verb.WriteResult, writers)
	for i := range made {
		var err error
		if made[i], err = verb.Create.Call(as(ctx), inv, verb.CreateRequest{Type: "hypothesis", Title: "A hypothesis of the benchmark", Content: body}); err != nil {
			return 0, err
		}
	}
	return b.rate(ctx, writers, func(ctx context.Context, i int) error {
		own := &made[i]
		next, err := verb.Update.Call(as(ctx), inv, verb.UpdateRequest{
			Ref: own.Ref.Current().String(), BaseContentHash: own.ContentHash,
			Content: json.RawMessage(fmt.Sprintf(`{"description":"revision %d",%s`, own.Revision+1, body[1:])),
		})
		made[i] = next
		return err
	})
}

// costly is rate with the milliseconds of the database's CPU for each call.
func (b *bench) costly(ctx context.Context, pool *pgxpool.Pool, n int, f func(context.Context, int) error) (rate, cpu float64, err error) {
	before, err := databaseCPU(ctx, pool)
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if rate, err = b.rate(ctx, n, f); err != nil {
		return 0, 0, err
	}
	took := time.Since(start).Seconds()
	after, err := databaseCPU(ctx, pool)
	return rate, float64((after - before).Milliseconds()) / (rate * took), err
}

// runHub runs a hub on the benchmark's database until stop is called.
func (b *bench) runHub(ctx context.Context) (h *hub.Hub, pool *pgxpool.Pool, stop func() error, err error) {
	if pool, err = hub.OpenPool(ctx, b.url); err != nil {
		return nil, nil, nil, err
	}
	if h, err = hub.Open(ctx, hub.Config{DB: pool, Limits: noLimits}); err != nil {
		pool.Close()
		return nil, nil, nil, err
	}
	running, cancel := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- h.Run(running) }()
	return h, pool, func() error {
		cancel()
		defer pool.Close()
		return <-stopped
	}, nil
}

// rate returns how often a second n workers together run f, over one slice.
func (b *bench) rate(ctx context.Context, n int, f func(ctx context.Context, worker int) error) (float64, error) {
	var count atomic.Int64
	start := time.Now()
	deadline := start.Add(b.slice)
	g, ctx := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error {
			for time.Now().Before(deadline) {
				if err := f(ctx, i); err != nil {
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
	CREATE TABLE IF NOT EXISTS floor.write_journal (LIKE public.write_journal INCLUDING ALL);
	CREATE TABLE IF NOT EXISTS floor.event (LIKE public.event INCLUDING ALL);
	CREATE TABLE IF NOT EXISTS floor.change (LIKE feed.change INCLUDING ALL);
	CREATE TABLE IF NOT EXISTS floor.search_document (LIKE public.search_document INCLUDING ALL);
	CREATE TABLE IF NOT EXISTS floor.facet (LIKE public.facet INCLUDING ALL);
	CREATE SEQUENCE IF NOT EXISTS floor.seq`

// floorIndex is what a benchmark's artifact is found by: its words, ready-made, and
// the facets that it has.
var floorIndex struct {
	rule, words string
	paths       []string
}

// learnIndex makes an artifact and reads how the hub indexed it.
func learnIndex(ctx context.Context, pool *pgxpool.Pool, verbs verb.Invoker) error {
	made, err := verb.Create.Call(as(ctx), verbs, verb.CreateRequest{Type: "hypothesis", Title: "A hypothesis of the benchmark", Content: body})
	if err != nil {
		return err
	}
	return pool.QueryRow(ctx, `
		SELECT d.rule, d.words::text, ARRAY (SELECT f.path FROM facet f WHERE f.type = d.type AND f.id = d.id)
		FROM search_document d WHERE d.type = 'hypothesis' AND d.id = $1`, made.Ref.ID).Scan(&floorIndex.rule, &floorIndex.words, &floorIndex.paths)
}

func floorCreate(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	id := newID("h-")
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
	b.Queue(`INSERT INTO floor.search_document (type, id, revision, rule, words) VALUES ('hypothesis', $1, 1, $2, $3::text::tsvector)`, id, floorIndex.rule, floorIndex.words)
	if len(floorIndex.paths) > 0 {
		b.Queue(`INSERT INTO floor.facet (type, id, path, n, scope, kind, text) SELECT 'hypothesis', $1, path, 0, 'commons', 's', 'x' FROM unnest($2::text[]) AS path`, id, floorIndex.paths)
	}
	b.Queue(`
		WITH change AS (
			INSERT INTO floor.change (seq, commit_seq, class, scope, kind, op, ref, revision, hash, event_type, data, at)
			SELECT nextval('floor.seq'), 0, 'public', 'commons', r.kind, 'P', $1, 1, $2, r.event, $3, $4
			FROM unnest(ARRAY['revision', 'artifact'], ARRAY[NULL, 'hypothesis.created']) AS r (kind, event)
			RETURNING seq, event_type
		), event AS (
			INSERT INTO floor.event (seq, type, ref, scope, class, actor_id, actor_kind, at, payload)
			SELECT seq, event_type, $1, 'commons', 'public', 'bench', 'ai_local', $4, '{"revision":1}' FROM change WHERE event_type IS NOT NULL
		)
		INSERT INTO floor.write_journal (last_seq, first_seq, request_id, verb, actor_id, actor_kind, session_id, parent_session_id, delegation_chain, task_id, at)
		SELECT max(seq), min(seq), gen_random_uuid(), 'create', 'bench', 'ai_local', 'bench', '', '[]', '', $4 FROM change`,
		"hypothesis:"+id, hash[:], floorRow, now)
	b.Queue("COMMIT")
	return conn.SendBatch(ctx, b).Close()
}

// floorRow is as long as a row of the log.
var floorRow = `{"about":"` + strings.Repeat("metadata ", 48) + `"}`
