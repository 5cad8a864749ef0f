package hub

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

const (
	// One statement: sums and rows are of one snapshot. The artifact's row alone
	// comes back when it has no signals.
	signalsOfQuery = `
		SELECT g.kind, g.dimension, g.n, g.voters, g.sum::text, g.sum_sq::text, s.voter, s.value::text, s.metadata, s.created_at, (` + headQuery + `)
		FROM artifact a
		LEFT JOIN signal_aggregate g ON g.type = a.type AND g.artifact = a.id AND (cardinality($5::text[]) = 0 OR g.kind = ANY ($5))
		LEFT JOIN signal s ON s.type = g.type AND s.artifact = g.artifact AND s.kind = g.kind AND s.dimension = g.dimension
		WHERE a.type = $3 AND a.id = $4 AND` + visible + `
		ORDER BY g.kind, g.dimension, s.id`
	duelsQuery = `
		SELECT s.dimension, s.type || ':' || s.artifact, s.value::text, s.metadata, s.created_at
		FROM signal s
		WHERE s.scope = ANY ($1) AND s.type = $2 AND s.kind = 'duel'
		ORDER BY s.id`
)

// signals answers the verb of that name.
func (h *Hub) signals(ctx context.Context, in verb.SignalsRequest) (out verb.SignalsResponse, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if err := h.oneState(ctx, func(tx pgx.Tx) error { return h.signalsIn(ctx, tx, c, &in, &out) }); err != nil {
		return verb.SignalsResponse{}, h.absent(fmt.Errorf("read signals of %s: %w", in.Ref, err), in.Ref.Current(), "/ref")
	}
	return out, nil
}

// signalsIn answers signals in a transaction, or [pgx.ErrNoRows] when what they are
// on is not there for the caller. On links and signals there are none.
func (h *Hub) signalsIn(ctx context.Context, tx pgx.Tx, c *verb.Caller, in *verb.SignalsRequest, out *verb.SignalsResponse) error {
	schema := h.schemas.get(in.Ref.Type)
	if schema == nil {
		return pgx.ErrNoRows
	}
	if problems := schema.CheckKinds(in.Kinds, "/kinds"); problems != nil {
		return artifact.Invalid(problems...)
	}
	groups, found, err := signalGroups(ctx, tx, c, schema, in, &out.AsOf)
	if err != nil {
		return err
	}
	if !found {
		return pgx.ErrNoRows
	}
	var duels artifact.Duels
	if in.Duels(schema) {
		if duels, err = readDuels(ctx, tx, c, in.Ref.Type); err != nil {
			return err
		}
	}
	out.Place(schema, in, groups, duels, c.Now)
	return nil
}

func signalGroups(ctx context.Context, db querier, c *verb.Caller, schema *artifact.Schema, in *verb.SignalsRequest, asOf *artifact.Seq) (groups []artifact.SignalGroup, found bool, err error) {
	kinds := append([]string{}, in.Kinds...)
	rows, err := db.Query(ctx, signalsOfQuery, c.VisibleScopes(), c.Actor.ID, in.Ref.Type, in.Ref.ID, kinds)
	if err != nil {
		return nil, false, err
	}
	var kind, dimension, sum, sumSq, voter, value, metadata *string
	var n, voters *int64
	var at *time.Time
	_, err = pgx.ForEachRow(rows, []any{&kind, &dimension, &n, &voters, &sum, &sumSq, &voter, &value, &metadata, &at, asOf}, func() error {
		found = true
		if kind == nil {
			return nil
		}
		if groups, err = grouped(groups, *kind, *dimension, *n, *voters, *sum, *sumSq); err != nil || voter == nil {
			return err
		}
		return addSignal(schema, groups, *voter, *value, *metadata, *at, in.Time(c.Now))
	})
	return groups, found, err
}

// grouped returns groups of which the last one is of a kind and dimension.
func grouped(groups []artifact.SignalGroup, kind, dimension string, n, voters int64, sum, sumSq string) ([]artifact.SignalGroup, error) {
	if last := len(groups) - 1; last >= 0 && groups[last].Kind == kind && groups[last].Dimension == dimension {
		return groups, nil
	}
	a, err := aggregateOf(kind, dimension, n, voters, sum, sumSq)
	return append(groups, artifact.SignalGroup{Aggregate: a}), err
}

// addSignal adds a signal to the last group.
func addSignal(schema *artifact.Schema, groups []artifact.SignalGroup, voter, value, metadata string, made, of time.Time) error {
	v, err := artifact.ParseDecimal(value)
	schema.Add(&groups[len(groups)-1], artifact.SignalRow{Voter: voter, Value: v, At: made.UTC(), Metadata: []byte(metadata)}, of)
	return err
}

func aggregateOf(kind, dimension string, n, voters int64, sum, sumSq string) (a artifact.Aggregate, err error) {
	total, err := artifact.ParseSum(sum)
	if err != nil {
		return a, err
	}
	squares, err := artifact.ParseSum(sumSq)
	return artifact.NewAggregate(kind, dimension, n, voters, total, squares), err
}

// readDuels returns the duels of a type that the caller may see, by dimension: what
// each is on stands for its voter.
func readDuels(ctx context.Context, db querier, c *verb.Caller, typ string) (artifact.Duels, error) {
	rows, err := db.Query(ctx, duelsQuery, c.VisibleScopes(), typ)
	if err != nil {
		return nil, err
	}
	duels := artifact.Duels{}
	var dimension, ref, value, metadata string
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&dimension, &ref, &value, &metadata, &at}, func() error {
		v, err := artifact.ParseDecimal(value)
		duels.Add(dimension, &artifact.SignalRow{Voter: ref, Value: v, At: at.UTC(), Metadata: []byte(metadata)})
		return err
	})
	return duels, err
}
