package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// batch measures items a second of batches against bare multi-row inserts of the
// same rows into tables with the same indexes.
func (b *bench) batch(ctx context.Context) (err error) {
	h, pool, stop, err := b.runHub(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if _, err := pool.Exec(ctx, floorTables+floorBatchTables); err != nil {
		return err
	}
	verbs := h.Verbs()
	if err := learnIndex(ctx, pool, verbs); err != nil {
		return err
	}
	target, err := verb.Create.Call(as(ctx), verbs, verb.CreateRequest{Type: "hypothesis", Title: "What all link to", Content: body})
	if err != nil {
		return err
	}
	var rows []row
	for _, v := range []struct {
		name  string
		items int
		whole bool // a link and a signal with each artifact
	}{
		{"200 artifacts", 200, false},
		{"1000 artifacts", 1000, false},
		{"66 artifacts, links, votes", 66, true},
		{"333 artifacts, links, votes", 333, true},
	} {
		r := row{name: v.name, unit: "items/s"}
		per := v.items
		if v.whole {
			per *= 3
		}
		for range b.rounds {
			floor, err := b.rate(ctx, 1, func(ctx context.Context, _ int) error { return floorBatch(ctx, pool, v.items, v.whole) })
			if err != nil {
				return err
			}
			value, err := b.rate(ctx, 1, func(ctx context.Context, _ int) error { return batch(ctx, verbs, target.Ref, v.items, v.whole) })
			if err != nil {
				return err
			}
			r.floor, r.value = append(r.floor, floor*float64(per)), append(r.value, value*float64(per))
		}
		rows = append(rows, r)
	}
	return b.table("Batches (floor: bare multi-row inserts of the same rows)", rows)
}

func batch(ctx context.Context, inv verb.Invoker, target artifact.Ref, n int, whole bool) error {
	in := verb.BatchRequest{Atomic: true}
	for i := range n {
		item := verb.BatchItem{Create: &verb.CreateRequest{Type: "hypothesis", Title: "A hypothesis of the benchmark", Content: body}}
		if !whole {
			in.Items = append(in.Items, item)
			continue
		}
		item.RefAlias = "a" + strconv.Itoa(i)
		alias := "@" + item.RefAlias
		in.Items = append(in.Items, item,
			verb.BatchItem{Link: &verb.LinkRequest{From: alias, LinkSpec: verb.LinkSpec{Predicate: "supports", To: target.Current().String()}}},
			verb.BatchItem{Signal: &verb.SignalRequest{Ref: alias, Kind: "vote", Value: json.Number("1")}})
	}
	out, err := verb.Batch.Call(as(ctx), inv, in)
	if err == nil && !out.Committed {
		return fmt.Errorf("a batch was not written: %+v", out)
	}
	return err
}

const floorBatchTables = `;
	CREATE TABLE IF NOT EXISTS floor.link (LIKE public.link INCLUDING ALL);
	CREATE TABLE IF NOT EXISTS floor.signal (LIKE public.signal INCLUDING ALL);
	CREATE TABLE IF NOT EXISTS floor.signal_aggregate (LIKE public.signal_aggregate INCLUDING ALL)`

// floorBatch inserts the rows of a batch, which a program that checks nothing
// would have at hand.
func floorBatch(ctx context.Context, pool *pgxpool.Pool, n int, whole bool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	now := time.Now()
	ids, links, signals := make([]string, n), make([]string, n), make([]string, n)
	hashes := make([][]byte, n)
	contents := make([]string, n)
	for i := range n {
		ids[i], links[i], signals[i] = newID("h-"), newID("k-"), newID("s-")
		hash := artifact.HashBytes([]byte(ids[i]))
		hashes[i], contents[i] = hash[:], string(body)
	}
	b := new(pgx.Batch)
	b.Queue("BEGIN")
	b.Queue(`
		INSERT INTO floor.artifact (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, created_at, created_by, updated_at, updated_by, row_hash)
		SELECT 'hypothesis', id, 'commons', 1, hash, 1, 'A hypothesis of the benchmark', 'proposed', true, $3, 'bench', $3, 'bench', hash
		FROM unnest($1::text[], $2::bytea[]) AS r (id, hash)`, ids, hashes, now)
	b.Queue(`
		INSERT INTO floor.artifact_revision (type, id, revision, scope, content_hash, schema_version, title, state, content, note, provenance, created_at, created_by, row_hash)
		SELECT 'hypothesis', id, 1, 'commons', hash, 1, 'A hypothesis of the benchmark', 'proposed', content, '', '{}', $3, 'bench', hash
		FROM unnest($1::text[], $2::bytea[], $4::text[]) AS r (id, hash, content)`, ids, hashes, now, contents)
	b.Queue(`
		INSERT INTO floor.search_document (type, id, revision, rule, words)
		SELECT 'hypothesis', id, 1, $2, words::tsvector FROM unnest($1::text[], $3::text[]) AS r (id, words)`, ids, floorIndex.rule, slices.Repeat([]string{floorIndex.words}, n))
	if len(floorIndex.paths) > 0 {
		b.Queue(`
			INSERT INTO floor.facet (type, id, path, n, scope, kind, text)
			SELECT 'hypothesis', id, path, 0, 'commons', 's', 'x' FROM unnest($1::text[]) AS id, unnest($2::text[]) AS path`, ids, floorIndex.paths)
	}
	kinds := []string{"revision", "artifact"}
	events := []*string{nil, new("hypothesis.created")}
	if whole {
		b.Queue(`
			INSERT INTO floor.link (id, from_type, from_id, predicate, to_type, to_id, to_ref, scope, evidence_refs, evidence, created_at, created_by, row_hash)
			SELECT link, 'hypothesis', id, 'supports', 'hypothesis', 'h-target', 'hypothesis:h-target', 'commons', '[]', 'null', $4, 'bench', hash
			FROM unnest($1::text[], $2::text[], $3::bytea[]) AS r (link, id, hash)`, links, ids, hashes, now)
		b.Queue(`
			INSERT INTO floor.signal (id, type, artifact, scope, kind, dimension, voter, voter_kind, value, weight, reason, metadata, created_at, created_by, row_hash, aggregate)
			SELECT signal, 'hypothesis', id, 'commons', 'vote', '', 'bench', 'ai_local', 1, 1, '', 'null', $4, 'bench', hash, '{"count":1,"voters":1,"sum":1,"sum_sq":1}'
			FROM unnest($1::text[], $2::text[], $3::bytea[]) AS r (signal, id, hash)`, signals, ids, hashes, now)
		b.Queue(`
			INSERT INTO floor.signal_aggregate (type, artifact, kind, dimension, n, voters, sum, sum_sq)
			SELECT 'hypothesis', id, 'vote', '', 1, 1, 1, 1 FROM unnest($1::text[]) AS id`, ids)
		kinds = append(kinds, "link", "event", "signal")
		events = append(events, new("kg_edge.created"), new("hypothesis.linked"), new("hypothesis.signaled"))
	}
	b.Queue(`
		WITH change AS (
			INSERT INTO floor.change (seq, commit_seq, class, scope, kind, op, ref, revision, hash, event_type, data, at)
			SELECT nextval('floor.seq'), 0, 'public', 'commons', r.kind, 'P', 'hypothesis:' || a.id, 1, a.hash, r.event, $5, $6
			FROM unnest($1::text[], $2::bytea[]) AS a (id, hash) CROSS JOIN unnest($3::text[], $4::text[]) AS r (kind, event)
			RETURNING seq, ref, event_type
		), event AS (
			INSERT INTO floor.event (seq, type, ref, scope, class, actor_id, actor_kind, at, payload)
			SELECT seq, event_type, ref, 'commons', 'public', 'bench', 'ai_local', $6, '{"revision":1}' FROM change WHERE event_type IS NOT NULL
		)
		INSERT INTO floor.write_journal (last_seq, first_seq, request_id, verb, actor_id, actor_kind, session_id, parent_session_id, delegation_chain, task_id, at)
		SELECT max(seq), min(seq), gen_random_uuid(), 'batch', 'bench', 'ai_local', 'bench', '', '[]', '', $6 FROM change`,
		ids, hashes, kinds, events, floorRow, now)
	b.Queue("COMMIT")
	return conn.SendBatch(ctx, b).Close()
}

// newID is an id as the hub makes them: later ones sort later.
func newID(prefix string) string { return prefix + uuid.Must(uuid.NewV7()).String() }
