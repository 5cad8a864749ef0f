package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// seedSchemas registers shipped schema versions that the registry lacks, each
// with its artifact. A shipped version replaces the current one only when it is
// newer, so a type that was changed at run time stays as it is. Types that were
// registered before types were artifacts become such.
func seedSchemas(ctx context.Context, tx pgx.Tx, s *state) error {
	current, err := registered(ctx, tx)
	if err != nil {
		return err
	}
	for _, shipped := range artifact.ShippedSchemas() {
		known := current[shipped.Type]
		if known != nil && known.SchemaVersion >= shipped.SchemaVersion {
			continue
		}
		if err := s.putType(shipped); err != nil {
			return fmt.Errorf("register type %s: %w", shipped.Type, err)
		}
		current[shipped.Type] = shipped
	}
	for _, typ := range slices.Sorted(maps.Keys(current)) {
		if err := seedSchema(ctx, tx, s, current[typ], current[artifact.SchemaType]); err != nil {
			return fmt.Errorf("make the artifact of type %s: %w", typ, err)
		}
	}
	return nil
}

// registered returns the current schemas, by type.
func registered(ctx context.Context, tx pgx.Tx) (map[string]*artifact.Schema, error) {
	rows, err := tx.Query(ctx, `SELECT document FROM schema_registry WHERE is_current`)
	if err != nil {
		return nil, err
	}
	documents, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	current := make(map[string]*artifact.Schema, len(documents))
	for _, document := range documents {
		s, err := artifact.ParseSchema([]byte(document))
		if err != nil {
			return nil, fmt.Errorf("stored schema: %w", err)
		}
		current[s.Type] = s
	}
	return current, nil
}

// seedSchema makes the artifact of a type, or brings it to the registry's version.
// types is the type of such artifacts.
func seedSchema(ctx context.Context, tx pgx.Tx, s *state, schema, types *artifact.Schema) error {
	ref := artifact.Ref{Type: artifact.SchemaType, ID: schema.Type}
	now, by := s.caller.Now, s.caller.Actor.ID
	h, err := scanHead(tx.QueryRow(ctx, lockOneQuery, ref.Type, ref.ID))
	event := "updated"
	if errors.Is(err, pgx.ErrNoRows) {
		event = "created"
		h, err = &head{Head: replicate.Head{
			CreatedAt: now, CreatedBy: by, ID: ref.ID, IsLatest: true, Scope: artifact.Commons, Title: titleOf(schema), Type: ref.Type,
		}, created: true, audience: everyone}, nil
	}
	if err != nil {
		return err
	}
	hash := artifact.ContentHash(ref.Type, h.Title, h.State, schema.Document())
	if hash == h.ContentHash {
		return nil
	}
	h.ContentHash, h.SchemaVersion, h.UpdatedAt, h.UpdatedBy = hash, types.SchemaVersion, now, by
	h.words = wordsBy(types, h.ID, h.Title, schema.Document())
	h.Head.Revision++
	if err := s.addRevision(h, schema.Document(), provenance(s.caller, "init", false), "", nil); err != nil {
		return err
	}
	s.putFacets(h, nil, schema.Document())
	return s.addHead(h, &eventOf{typ: ref.Type + "." + event, ref: h.ref().String(), payload: map[string]any{"revision": h.Head.Revision, "schema_version": schema.SchemaVersion}})
}

func titleOf(s *artifact.Schema) string {
	if s.Title != "" {
		return s.Title
	}
	return s.Type
}
