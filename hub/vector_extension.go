package hub

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/embed"
)

const (
	mayCreateVectorQuery = `SELECT to_regtype('vector') IS NULL AND EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector')`
	createVectorQuery    = `CREATE EXTENSION IF NOT EXISTS vector`
	hasVectorQuery       = `
		SELECT to_regtype('vector') IS NOT NULL,
			EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'artifact_vector'::regclass AND attname = 'embedding' AND NOT attisdropped)`
	addEmbeddingQuery = `ALTER TABLE artifact_vector ADD COLUMN IF NOT EXISTS embedding vector`
	embeddingQuery    = `UPDATE artifact_vector SET embedding = $4::real[]::vector WHERE type = $1 AND id = $2 AND model = $3`
	plainVectorsQuery = `SELECT type, id, model, vector FROM artifact_vector WHERE embedding IS NULL LIMIT 500`
)

// useVectorExtension has PostgreSQL compare vectors, where the extension pgvector is
// there or may be made: it keeps each once more, in a column of its own. Without it
// nothing is changed, and the hub compares vectors itself.
func (h *Hub) useVectorExtension(ctx context.Context) {
	if err := h.keepEmbeddings(ctx); err != nil && ctx.Err() == nil {
		h.log.WarnContext(ctx, "the vector extension is not used", "err", err)
	}
}

func (h *Hub) keepEmbeddings(ctx context.Context) error {
	var may, has, kept bool
	if err := h.db.QueryRow(ctx, mayCreateVectorQuery).Scan(&may); err != nil {
		return err
	}
	if may {
		if _, err := h.db.Exec(ctx, createVectorQuery); err != nil {
			return fmt.Errorf("make the extension: %w", err)
		}
	}
	if err := h.db.QueryRow(ctx, hasVectorQuery).Scan(&has, &kept); err != nil || !has {
		return err
	}
	if !kept { // even to find it there would keep searches waiting
		if _, err := h.db.Exec(ctx, addEmbeddingQuery); err != nil {
			return err
		}
	}
	for {
		rows, err := h.db.Query(ctx, plainVectorsQuery)
		if err != nil {
			return err
		}
		b := new(pgx.Batch)
		var typ, id, model string
		var v []byte
		if _, err := pgx.ForEachRow(rows, []any{&typ, &id, &model, &v}, func() error {
			b.Queue(embeddingQuery, typ, id, model, embed.Vector(v).Floats())
			return nil
		}); err != nil {
			return err
		}
		if b.Len() == 0 {
			break
		}
		if err := h.db.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
	}
	h.vectors.embedded.Store(true)
	return nil
}
