package hub

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
)

const participantsQuery = `
	SELECT DISTINCT p.type, p.id
	FROM participant p JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON p.type = k.type AND p.id = k.id
	WHERE p.agent IN ($3, '*')`

// dropUnaddressed takes out heads that are for others alone.
func (s *state) dropUnaddressed(ctx context.Context, db querier) error {
	var types, ids []string
	for ref, h := range s.heads {
		if h.audience == participants {
			types, ids = append(types, ref.Type), append(ids, ref.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := db.Query(ctx, participantsQuery, types, ids, s.caller.Actor.ID)
	if err != nil {
		return err
	}
	addressed := make(map[artifact.Ref]bool)
	var ref artifact.Ref
	if _, err := pgx.ForEachRow(rows, []any{&ref.Type, &ref.ID}, func() error {
		addressed[ref] = true
		return nil
	}); err != nil {
		return err
	}
	for ref, h := range s.heads {
		if h.audience == participants && !addressed[ref] {
			delete(s.heads, ref)
			s.taken[ref] = true
		}
	}
	return nil
}
