package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

type timeOf = time.Time

// A schemaCache holds the current schema of every type, compiled. A write reads
// the versions in its transaction; when the cache is behind, it loads again.
type schemaCache struct {
	mu     sync.RWMutex
	byType map[string]*artifact.Schema // guarded by mu; replaced, never changed
}

func (c *schemaCache) load(ctx context.Context, db *pgxpool.Pool) error {
	rows, err := db.Query(ctx, `SELECT document FROM schema_registry WHERE is_current`)
	if err != nil {
		return fmt.Errorf("read schemas: %w", err)
	}
	documents, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read schemas: %w", err)
	}
	fresh := make(map[string]*artifact.Schema, len(documents))
	for _, doc := range documents {
		s, err := artifact.ParseSchema([]byte(doc))
		if err != nil {
			return fmt.Errorf("stored schema: %w", err)
		}
		fresh[s.Type] = s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byType = fresh
	return nil
}

// get returns the schema of a type, or nil.
func (c *schemaCache) get(typ string) *artifact.Schema {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byType[typ]
}

// types returns the names of all types, in order.
func (c *schemaCache) types() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Sorted(maps.Keys(c.byType))
}

// registerSchema makes s the current schema of its type.
func registerSchema(ctx context.Context, tx pgx.Tx, rows *changeRows, s *artifact.Schema, by string, now timeOf) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	document, problems := artifact.Canonical(raw, "")
	if problems != nil {
		return artifact.Invalid(problems...)
	}
	const retire = `UPDATE schema_registry SET is_current = false WHERE artifact_type = $1 AND is_current`
	if _, err := tx.Exec(ctx, retire, s.Type); err != nil {
		return err
	}
	const insert = `
		INSERT INTO schema_registry (id, artifact_type, schema_version, is_current, document, proposed_by, created_at)
		VALUES ($1, $2, $3, true, $4, $5, $6)`
	id := fmt.Sprintf("%s@v%d", s.Type, s.SchemaVersion)
	if _, err := tx.Exec(ctx, insert, id, s.Type, s.SchemaVersion, string(document), by, now); err != nil {
		return err
	}
	verbName := "created"
	if s.SchemaVersion > 1 {
		verbName = "updated"
	}
	data := replicate.Schema{CreatedAt: now, Document: document, SchemaVersion: s.SchemaVersion, Type: s.Type}
	return rows.put(artifact.Commons, replicate.KindSchema, "schema:"+s.Type, s.SchemaVersion, artifact.Hash{}, data,
		&eventOf{typ: "schema." + verbName, ref: "schema:" + s.Type, payload: map[string]any{"schema_version": s.SchemaVersion}})
}

// schema answers the verb of that name.
func (h *Hub) schema(ctx context.Context, in verb.SchemaRequest) (out verb.SchemaResponse, err error) {
	if _, err := verb.CallerFrom(ctx); err != nil {
		return out, err
	}
	if in.Version < 0 || in.Version > math.MaxInt32 {
		return out, artifact.NotFound("schema:" + in.Type)
	}
	const query = `
		SELECT artifact_type, schema_version, is_current, document, created_at
		FROM schema_registry
		WHERE ($1 = '' OR artifact_type = $1) AND CASE WHEN $2 = 0 THEN is_current ELSE schema_version = $2 END
		ORDER BY artifact_type`
	rows, err := h.db.Query(ctx, query, in.Type, in.Version)
	if err != nil {
		return out, callerError(fmt.Errorf("read schemas: %w", err))
	}
	out.Schemas, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d verb.SchemaDocument, err error) {
		var document string
		err = row.Scan(&d.Type, &d.Version, &d.IsCurrent, &document, &d.CreatedAt)
		d.Document = json.RawMessage(document)
		return d, err
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return out, callerError(fmt.Errorf("read schemas: %w", err))
	}
	if in.Type != "" && len(out.Schemas) == 0 {
		return out, artifact.NotFound("schema:" + in.Type)
	}
	return out, nil
}
