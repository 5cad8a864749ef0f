package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/scidex-ai/substrate/artifact"
)

const (
	// facetRows is how many artifacts' facets are made in one transaction, which
	// keeps those who write them waiting.
	facetRows = 100
	// facetCheck is how often the hub looks whether facets are to be made: another
	// one may have changed a type.
	facetCheck = 30 * time.Second
	facetRetry = time.Second
	facetPause = 20 * time.Millisecond // at most, before what is being written is tried again
)

const (
	builtQuery       = `SELECT b.type, b.declared, b.done FROM facet_build b`
	insertBuildQuery = `INSERT INTO facet_build (type, declared, after, done) VALUES ($1, '', '', false) ON CONFLICT DO NOTHING`
	// buildQuery makes hubs take turns, and says whether the type is still the one
	// that this hub knows: no writer has an older one then, because who changes a
	// type waits for all who have read the registry.
	buildQuery = `
		SELECT b.declared, b.after, b.done, (SELECT s.schema_version FROM schema_registry s WHERE s.artifact_type = b.type AND s.is_current)
		FROM facet_build b WHERE b.type = $1 FOR UPDATE OF b`
	// buildHeadsQuery waits for nobody: who writes may wait for what it holds already.
	// The contents are read in a statement of their own, which sees what was committed
	// while these were locked.
	buildHeadsQuery    = `SELECT a.id FROM artifact a WHERE a.type = $1 AND a.id > $2 ORDER BY a.id LIMIT $3 FOR NO KEY UPDATE NOWAIT`
	buildContentsQuery = `
		SELECT a.id, a.scope, a.is_latest AND a.audience = 'scope', a.schema_version, r.title, r.state, r.content
		FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE a.type = $1 AND a.id = ANY ($2)`
	moveBuildQuery = `UPDATE facet_build SET declared = $2, after = $3, done = $4 WHERE type = $1`
)

// keepFacets makes the facets of types whose declaration is not the one that they
// were made by, until ctx ends.
func (h *Hub) keepFacets(ctx context.Context) error {
	for ctx.Err() == nil {
		wait := facetCheck
		if err := h.buildFacets(ctx); err != nil && ctx.Err() == nil {
			h.log.WarnContext(ctx, "facets are not made yet", "err", err)
			wait = facetRetry
		}
		select {
		case <-ctx.Done():
		case <-h.schemas.changed:
		case <-time.After(wait):
		}
	}
	return nil
}

// buildFacets makes all facets that are to be made.
func (h *Hub) buildFacets(ctx context.Context) error {
	rows, err := h.db.Query(ctx, builtQuery)
	if err != nil {
		return err
	}
	built := make(map[string]string)
	var typ, declared string
	var done bool
	if _, err := pgx.ForEachRow(rows, []any{&typ, &declared, &done}, func() error {
		if done {
			built[typ] = declared
		}
		return nil
	}); err != nil {
		return err
	}
	for _, typ := range h.schemas.types() {
		key, ok := built[typ]
		if ok && key == h.schemas.facetKey(typ) {
			continue
		}
		for more := true; more; {
			var pg *pgconn.PgError
			switch more, err = h.buildSome(ctx, typ); {
			case errors.As(err, &pg) && pg.Code == lockNotAvailable: // somebody writes one of them
				if more = true; !sleep(ctx, rand.N(facetPause)) { //nolint:gosec // jitter, not a secret
					return ctx.Err()
				}
			case err != nil:
				return fmt.Errorf("facets of type %s: %w", typ, err)
			}
		}
	}
	return nil
}

// errOtherType means that the type is not as this hub knows it, yet or any more.
var errOtherType = errors.New("the type has changed")

// buildSome goes on with a type, in one transaction, and reports whether there is
// more to do.
func (h *Hub) buildSome(ctx context.Context, typ string) (more bool, err error) {
	schema, key := h.schemas.get(typ), h.schemas.facetKey(typ)
	if schema == nil {
		return false, nil
	}
	paths := schema.FacetPaths()
	err = pgx.BeginFunc(ctx, h.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertBuildQuery, typ); err != nil {
			return err
		}
		var declared, after string
		var done bool
		var version int
		if err := tx.QueryRow(ctx, buildQuery, typ).Scan(&declared, &after, &done, &version); err != nil {
			return err
		}
		switch {
		case version != schema.SchemaVersion:
			return errOtherType
		case declared != key:
			after = ""
		case done:
			return nil // by another hub
		}
		found, err := tx.Query(ctx, buildHeadsQuery, typ, after, facetRows)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil {
			return err
		}
		if found, err = tx.Query(ctx, buildContentsQuery, typ, ids); err != nil {
			return err
		}
		var rows facetColumns
		types := make([]string, len(ids))
		for i := range types {
			types[i] = typ
		}
		ref := artifact.Ref{Type: typ}
		var scope, title, state, content string
		var has bool
		if _, err := pgx.ForEachRow(found, []any{&ref.ID, &scope, &has, &version, &title, &state, &content}, func() error {
			if has {
				v := h.schemas.inForm(typ, version, artifact.Version{Title: title, State: state, Content: []byte(content)})
				rows.add(ref, scope, artifact.FacetsOf(v.Content, paths))
			}
			return nil
		}); err != nil {
			return err
		}
		if more = len(ids) == facetRows; len(ids) > 0 {
			after = ids[len(ids)-1]
		}
		b := new(pgx.Batch)
		queueFacetRows(b, types, ids, &rows)
		b.Queue(moveBuildQuery, typ, key, after, !more)
		return tx.SendBatch(ctx, b).Close()
	})
	return more, err
}

// facetPaths returns the pointers that a type declares as facets.
func (c *schemaCache) facetPaths(typ string) []string {
	if s := c.get(typ); s != nil {
		return s.FacetPaths()
	}
	return nil
}

// facetKey returns what facets of a type are made by: its pointers, and the form of
// contents.
func (c *schemaCache) facetKey(typ string) string {
	c.mu.RLock()
	upgrades := c.upgrades
	c.mu.RUnlock()
	return artifact.FacetKeyOf(upgrades.Form(typ), c.facetPaths(typ))
}

// inForm returns a version in the form of its type's current schema, or as it is
// where that cannot be made.
func (c *schemaCache) inForm(typ string, version int, v artifact.Version) artifact.Version {
	c.mu.RLock()
	upgrades := c.upgrades
	c.mu.RUnlock()
	if next, _, err := upgrades.Upgrade(typ, version, v); err == nil {
		return next
	}
	return v
}

// wakeFacets tells that types have changed.
func (c *schemaCache) wakeFacets() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
