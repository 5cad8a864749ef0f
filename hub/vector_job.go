package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/analysis"
	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/replicate"
)

const (
	// vectorLock is the advisory lock under which one hub of several makes vectors.
	vectorLock = 0x5c1dea
	// vectorBatch is how many artifacts are looked at, and asked about, at a time.
	vectorBatch = 64
	// vectorBytes bounds the texts of one question.
	vectorBytes = 128 << 10
	// vectorLook is how often all artifacts are looked at: what changes is told by the
	// log meanwhile.
	vectorLook  = 10 * time.Minute
	vectorRetry = 10 * time.Second
	// vectorGather is how long what changes is gathered before it is looked at.
	vectorGather = 200 * time.Millisecond
)

const (
	unvectoredFrom = `
		SELECT a.id, a.revision, a.title, r.content, v.text_hash
		FROM artifact a
		JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		LEFT JOIN artifact_vector v ON v.model = $2 AND v.type = a.type AND v.id = a.id
		WHERE a.type = $1 AND a.is_latest AND a.audience = 'scope' AND r.redaction IS NULL
			AND (v.id IS NULL OR v.revision <> a.revision OR v.rule <> $3)`
	unvectoredQuery = unvectoredFrom + ` AND a.id > $4 ORDER BY a.id LIMIT $5`
	dueVectorsQuery = unvectoredFrom + ` AND a.id = ANY ($4) ORDER BY a.id`
	// lockVectoredQuery keeps those who write off the artifacts, and leaves those alone
	// that are being written: their writers note them as changed.
	lockVectoredQuery = `
		SELECT a.id FROM artifact a
		WHERE a.type = $1 AND a.id = ANY ($2)
		ORDER BY a.id
		FOR SHARE OF a SKIP LOCKED`
	// vectoredQuery sees what was committed before the locks.
	vectoredQuery = `
		SELECT a.id, a.scope, a.revision
		FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE a.type = $1 AND a.id = ANY ($2) AND a.is_latest AND r.redaction IS NULL
		ORDER BY a.id`
	putVectorsQuery = `
		INSERT INTO artifact_vector (type, id, model, scope, revision, rule, text_hash, vector)
		SELECT $1, k.id, $2, k.scope, k.revision, $3, k.text_hash, k.vector
		FROM unnest($4::text[], $5::text[], $6::integer[], $7::bytea[], $8::bytea[]) AS k (id, scope, revision, text_hash, vector)
		ON CONFLICT (type, id, model) DO UPDATE SET scope = excluded.scope, revision = excluded.revision, rule = excluded.rule,
			text_hash = excluded.text_hash, vector = excluded.vector`
	sameVectorsQuery = `
		UPDATE artifact_vector v SET revision = k.revision, rule = $3
		FROM unnest($4::text[], $5::integer[]) AS k (id, revision)
		WHERE v.type = $1 AND v.model = $2 AND v.id = k.id`
	noteModelQuery  = `INSERT INTO vector_model (model, dims, serves) VALUES ($1, $2, false) ON CONFLICT DO NOTHING`
	modelDimsQuery  = `SELECT dims FROM vector_model WHERE model = $1`
	modelStateQuery = `SELECT dims, serves AND NOT EXISTS (SELECT FROM vector_model o WHERE o.model <> $1) FROM vector_model WHERE model = $1`
	serveModelQuery = `UPDATE vector_model SET serves = true WHERE model = $1`
	dropModelsQuery = `DELETE FROM vector_model WHERE model <> $1`
	dropOthersQuery = `DELETE FROM artifact_vector WHERE model <> $1`
)

// keepVectors asks what artifacts mean, until ctx ends. Of several hubs one does it.
// It goes on where it was killed: what has a vector says so itself.
func (h *Hub) keepVectors(ctx context.Context) error {
	if h.config.Embeddings == nil {
		return nil
	}
	h.useVectorExtension(ctx)
	for ctx.Err() == nil {
		conn, err := h.db.Acquire(ctx)
		if err == nil {
			err = h.holdVectors(ctx, conn)
		}
		if err != nil && ctx.Err() == nil {
			h.log.WarnContext(ctx, "artifacts wait for their vectors; it is tried again", "err", err)
		}
		sleep(ctx, vectorRetry)
	}
	return nil
}

// holdVectors makes vectors while it holds the lock on one connection, if no other
// hub does.
func (h *Hub) holdVectors(ctx context.Context, conn *pgxpool.Conn) error {
	// Closed rather than given back: the lock is the session's.
	raw := conn.Hijack()
	defer raw.Close(context.WithoutCancel(ctx))
	var mine bool
	if err := raw.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, vectorLock).Scan(&mine); err != nil || !mine {
		return err
	}
	j := &vectorJob{hub: h, client: h.config.Embeddings, lock: raw}
	if err := j.all(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(vectorLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := j.all(ctx); err != nil {
				return err
			}
		case <-h.vectors.wanted:
			if !sleep(ctx, vectorGather) {
				return nil
			}
			if err := j.changed(ctx); err != nil {
				return err
			}
		}
	}
}

// A vectorJob makes vectors by one model.
type vectorJob struct {
	hub    *Hub
	client *embed.Client
	lock   *pgx.Conn
}

// A meant artifact is one whose text is to be asked about.
type meant struct {
	id       string
	revision int
	text     string
	hash     []byte
	vector   embed.Vector
}

// all looks at all artifacts, and then has searches be by the model.
func (j *vectorJob) all(ctx context.Context) error {
	j.hub.useVectorExtension(ctx)
	j.hub.vectors.take() // they are among them
	left := 0
	for _, typ := range j.hub.schemas.types() {
		schema := j.hub.schemas.get(typ)
		if schema == nil || !embeds(schema) {
			continue
		}
		rule := analysis.NewRule(schema)
		for after, n := "", vectorBatch; n == vectorBatch; {
			refused, last, count, err := j.some(ctx, typ, rule, unvectoredQuery, after, vectorBatch)
			if err != nil {
				return err
			}
			after, n, left = last, count, left+refused
		}
	}
	if left > 0 {
		j.hub.log.WarnContext(ctx, "the embeddings endpoint refused the texts of some artifacts: they are found by words alone", "artifacts", left)
	}
	return j.serve(ctx)
}

// changed looks at what has changed.
func (j *vectorJob) changed(ctx context.Context) error {
	due, all := j.hub.vectors.take()
	if all {
		return j.all(ctx)
	}
	for typ, ids := range due {
		schema := j.hub.schemas.get(typ)
		if schema == nil || !embeds(schema) {
			continue
		}
		rule := analysis.NewRule(schema)
		slices.Sort(ids)
		for some := range slices.Chunk(ids, vectorBatch) {
			if _, _, _, err := j.some(ctx, typ, rule, dueVectorsQuery, some); err != nil {
				return err
			}
		}
	}
	if serving := j.hub.vectors.serving.Load(); serving == nil || serving.Model != j.client.Model() {
		return j.serve(ctx) // of an empty hub the first ones
	}
	return nil
}

// some looks at the artifacts of a query. It returns how many the endpoint refused,
// the last id and how many there were.
func (j *vectorJob) some(ctx context.Context, typ string, rule *analysis.Rule, query string, args ...any) (refused int, last string, n int, err error) {
	if err := j.lock.Ping(ctx); err != nil {
		return 0, "", 0, fmt.Errorf("the lock on making vectors is lost: %w", err)
	}
	rows, err := j.hub.db.Query(ctx, query, append([]any{typ, j.client.Model(), rule.ID()}, args...)...)
	if err != nil {
		return 0, "", 0, err
	}
	var changed, same []*meant
	var id, title, content string
	var revision int
	var hash []byte
	if _, err := pgx.ForEachRow(rows, []any{&id, &revision, &title, &content, &hash}, func() error {
		m := &meant{id: id, revision: revision, text: textOf(rule, title, []byte(content))}
		if m.hash = embed.Hash(m.text); bytes.Equal(m.hash, hash) {
			same = append(same, m)
		} else {
			changed = append(changed, m)
		}
		last, n = id, n+1
		return nil
	}); err != nil {
		return 0, "", 0, err
	}
	if len(same) > 0 {
		ids, revisions := make([]string, len(same)), make([]int, len(same))
		for i, m := range same {
			ids[i], revisions[i] = m.id, m.revision
		}
		if _, err := j.hub.db.Exec(ctx, sameVectorsQuery, typ, j.client.Model(), rule.ID(), ids, revisions); err != nil {
			return 0, "", 0, err
		}
	}
	for len(changed) > 0 {
		size, count := 0, 0
		for count < len(changed) && (count == 0 || size+len(changed[count].text) <= vectorBytes) {
			size += len(changed[count].text)
			count++
		}
		not, err := j.ask(ctx, typ, rule, changed[:count])
		if err != nil {
			return 0, "", 0, err
		}
		refused, changed = refused+not, changed[count:]
	}
	return refused, last, n, nil
}

// ask asks what some artifacts mean and stores it. Of a question that is refused each
// text is asked by itself: one of them may be what the endpoint does not take.
func (j *vectorJob) ask(ctx context.Context, typ string, rule *analysis.Rule, some []*meant) (refused int, err error) {
	texts := make([]string, len(some))
	for i, m := range some {
		texts[i] = m.text
	}
	vectors, err := j.client.Embed(ctx, texts)
	var no *embed.RefusedError
	switch {
	case errors.As(err, &no) && no.ForAll():
		return 0, err
	case errors.As(err, &no) && len(some) == 1:
		return 1, nil
	case errors.As(err, &no):
		for _, m := range some {
			n, err := j.ask(ctx, typ, rule, []*meant{m})
			if err != nil {
				return refused, err
			}
			refused += n
		}
		return refused, nil
	case err != nil:
		return 0, err
	}
	for i, m := range some {
		m.vector = vectors[i]
	}
	return 0, j.store(ctx, typ, rule, some)
}

// store writes vectors and their rows in the log, of artifacts that are still as they
// were asked about.
func (j *vectorJob) store(ctx context.Context, typ string, rule *analysis.Rule, some []*meant) error {
	model, dims := j.client.Model(), len(some[0].vector)
	if _, err := j.hub.db.Exec(ctx, noteModelQuery, model, dims); err != nil {
		return err
	}
	var stored int
	if err := j.hub.db.QueryRow(ctx, modelDimsQuery, model).Scan(&stored); err != nil {
		return err
	}
	if stored != dims {
		return fmt.Errorf("the endpoint's vectors by %s have %d dimensions, and those that are stored %d: is it another model? give it another name", model, dims, stored)
	}
	byID := make(map[string]*meant, len(some))
	ids := make([]string, len(some))
	for i, m := range some {
		byID[m.id], ids[i] = m, m.id
	}
	return j.commit(ctx, "vectors", func(tx querier, rows *changeRows, b *pgx.Batch) error {
		found, err := tx.Query(ctx, lockVectoredQuery, typ, ids)
		if err != nil {
			return err
		}
		locked, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil || len(locked) == 0 {
			return err
		}
		if found, err = tx.Query(ctx, vectoredQuery, typ, locked); err != nil {
			return err
		}
		var put vectorRows
		var id, scope string
		var revision int
		if _, err := pgx.ForEachRow(found, []any{&id, &scope, &revision}, func() error {
			m := byID[id]
			if m.revision != revision {
				return nil // its writer has noted it as changed
			}
			put.add(m, scope)
			v := replicate.Vector{ID: id, Model: model, Scope: scope, Type: typ, Vector: m.vector}
			return rows.put(scope, replicate.KindVector, typ+":"+id, revision, noHash, v, nil)
		}); err != nil {
			return err
		}
		j.queue(b, typ, rule, &put)
		return nil
	})
}

// vectorRows are rows of vectors, column by column.
type vectorRows struct {
	id, scope    []string
	revision     []int
	hash, vector [][]byte
	numbers      [][]float32
}

func (r *vectorRows) add(m *meant, scope string) {
	r.id, r.scope, r.revision = append(r.id, m.id), append(r.scope, scope), append(r.revision, m.revision)
	r.hash, r.vector, r.numbers = append(r.hash, m.hash), append(r.vector, m.vector), append(r.numbers, m.vector.Floats())
}

func (j *vectorJob) queue(b *pgx.Batch, typ string, rule *analysis.Rule, r *vectorRows) {
	if len(r.id) == 0 {
		return
	}
	b.Queue(putVectorsQuery, typ, j.client.Model(), rule.ID(), r.id, r.scope, r.revision, r.hash, r.vector)
	if j.hub.vectors.embedded.Load() {
		for i, id := range r.id {
			b.Queue(embeddingQuery, typ, id, j.client.Model(), r.numbers[i])
		}
	}
}

// serve has searches be by the model, of which all vectors are made now. Those by
// others are not needed any more.
func (j *vectorJob) serve(ctx context.Context) error {
	now := replicate.VectorModel{Model: j.client.Model()}
	var done bool
	err := j.hub.db.QueryRow(ctx, modelStateQuery, now.Model).Scan(&now.Dims, &done)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // there is nothing yet to make one of
		return nil
	case err != nil || done:
		return err
	}
	err = j.commit(ctx, "vector_model", func(_ querier, rows *changeRows, b *pgx.Batch) error {
		b.Queue(dropModelsQuery, now.Model)
		b.Queue(serveModelQuery, now.Model)
		b.Queue(dropOthersQuery, now.Model)
		return rows.put(artifact.Commons, replicate.KindVectorModel, replicate.VectorModelRef, 1, noHash, now, nil)
	})
	if err == nil {
		j.hub.vectors.serving.Store(&now)
		j.hub.log.InfoContext(ctx, "searches by meaning are by this model now", "model", now.Model, "dims", now.Dims)
	}
	return err
}

// commit runs f in a transaction that ends with what f queues and its rows in the
// log, in one message. Without rows it writes nothing.
func (j *vectorJob) commit(ctx context.Context, what string, f func(tx querier, rows *changeRows, b *pgx.Batch) error) error {
	for try := 1; ; try++ {
		err := j.once(ctx, what, f)
		full, ok := errors.AsType[*logFullError](err)
		switch {
		case err == nil:
			return nil
		case ok && try < maxTries:
			if err := ensurePartitions(ctx, j.hub.db, j.hub.config.PartitionRows, full.rows); err != nil {
				return err
			}
		case retryReason(err) == "" || try == maxTries:
			return fmt.Errorf("store %s: %w", what, err)
		}
	}
}

func (j *vectorJob) once(ctx context.Context, what string, f func(tx querier, rows *changeRows, b *pgx.Batch) error) error {
	last, err := systemCommit(ctx, j.hub.db, what, f)
	if last > 0 {
		j.hub.pump.wake(last)
	}
	return err
}
