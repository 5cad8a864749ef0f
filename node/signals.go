package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

const (
	// One statement: sums and rows are of one snapshot. The artifact's row alone
	// comes back when it has no signals.
	signalsOfSQL = `SELECT g.kind, g.dimension, g.n, g.voters, g.sum, g.sum_sq, s.voter, s.value, s.metadata, s.created_at, (SELECT seq FROM replica_state)
		FROM artifact AS a
		LEFT JOIN signal_aggregate AS g ON g.type = a.type AND g.artifact = a.id AND (?3 = '[]' OR g.kind IN (SELECT value FROM json_each(?3)))
		LEFT JOIN signal AS s ON s.type = g.type AND s.artifact = g.artifact AND s.kind = g.kind AND s.dimension = g.dimension
		WHERE a.type = ?1 AND a.id = ?2 AND a.scope IN ({scopes})
		ORDER BY g.kind, g.dimension, s.id`
	duelsSQL = `SELECT dimension, type || ':' || artifact, value, metadata, created_at
		FROM signal WHERE type = ?1 AND kind = 'duel' AND scope IN ({scopes}) ORDER BY id`
)

func (s *Store) signals(ctx context.Context, in verb.SignalsRequest) (out verb.SignalsResponse, err error) {
	if _, err := reader(ctx); err != nil {
		return out, err
	}
	if err := s.oneState(ctx, func(tx *sql.Tx) error { return s.signalsIn(ctx, tx, &in, &out) }); err != nil {
		return verb.SignalsResponse{}, s.absent(err, in.Ref.Current())
	}
	return out, nil
}

// signalsIn answers signals in a transaction, or [sql.ErrNoRows] when what they are
// on is not there for the caller. On links and signals there are none.
func (s *Store) signalsIn(ctx context.Context, tx *sql.Tx, in *verb.SignalsRequest, out *verb.SignalsResponse) error {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return err
	}
	schema, err := s.signalRules(ctx, in.Ref.Type)
	if err != nil {
		return err
	}
	if problems := schema.CheckKinds(in.Kinds, "/kinds"); problems != nil {
		return artifact.Invalid(problems...)
	}
	groups, found, err := s.signalGroups(ctx, tx, schema, in, in.Time(c.Now), &out.AsOf)
	if err != nil {
		return err
	}
	if !found {
		return sql.ErrNoRows
	}
	var duels artifact.Duels
	if in.Duels(schema) {
		if duels, err = s.duels(ctx, tx, in.Ref.Type); err != nil {
			return err
		}
	}
	out.Place(schema, in, groups, duels, c.Now)
	return nil
}

// signalRules returns the part of a type's schema that says which signals it has.
func (s *Store) signalRules(ctx context.Context, typ string) (*artifact.Schema, error) {
	var version, created int64
	var current bool
	var document []byte
	if err := s.read.schemas.QueryRowContext(ctx, typ, 0, false, 1).Scan(&typ, &version, &current, &document, &created); err != nil {
		return nil, err
	}
	rules := struct {
		Signals map[string]artifact.SignalRule `json:"signals"`
	}{}
	err := json.Unmarshal(document, &rules)
	return &artifact.Schema{Type: typ, Signals: rules.Signals}, err
}

func (s *Store) signalGroups(ctx context.Context, tx *sql.Tx, schema *artifact.Schema, in *verb.SignalsRequest, of time.Time, asOf *artifact.Seq) (groups []artifact.SignalGroup, found bool, err error) {
	kinds, err := jsonArrays(in.Kinds)
	if err != nil {
		return nil, false, err
	}
	rows, err := s.read.signalsOf.rows(ctx, tx, in.Ref.Type, in.Ref.ID, kinds[0])
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	for rows.Next() {
		var r signalRow
		if err := rows.Scan(append(r.into(), asOf)...); err != nil {
			return nil, false, err
		}
		found = true
		if groups, err = r.addTo(groups, schema, of); err != nil {
			return nil, false, err
		}
	}
	return groups, found, rows.Err()
}

// A signalRow is an aggregate with one of its signals, as far as there are any.
type signalRow struct {
	kind, dimension, sum, sumSq, voter, value, metadata sql.NullString
	n, voters, at                                       sql.NullInt64
}

func (r *signalRow) into() []any {
	return []any{&r.kind, &r.dimension, &r.n, &r.voters, &r.sum, &r.sumSq, &r.voter, &r.value, &r.metadata, &r.at}
}

// addTo adds the row to groups, whose last one it is of, or else begins the next.
func (r *signalRow) addTo(groups []artifact.SignalGroup, schema *artifact.Schema, of time.Time) ([]artifact.SignalGroup, error) {
	if !r.kind.Valid {
		return groups, nil
	}
	last := len(groups) - 1
	if last < 0 || groups[last].Kind != r.kind.String || groups[last].Dimension != r.dimension.String {
		total, err1 := artifact.ParseSum(r.sum.String)
		squares, err2 := artifact.ParseSum(r.sumSq.String)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		groups = append(groups, artifact.SignalGroup{Aggregate: artifact.NewAggregate(r.kind.String, r.dimension.String, r.n.Int64, r.voters.Int64, total, squares)})
		last++
	}
	if !r.voter.Valid {
		return groups, nil
	}
	v, err := artifact.ParseDecimal(r.value.String)
	if err != nil {
		return nil, err
	}
	schema.Add(&groups[last], artifact.SignalRow{Voter: r.voter.String, Value: v, At: fromMillis(r.at.Int64), Metadata: []byte(r.metadata.String)}, of)
	return groups, nil
}

// duels returns the duels of a type that the caller may see, by dimension: what
// each is on stands for its voter.
func (s *Store) duels(ctx context.Context, tx *sql.Tx, typ string) (artifact.Duels, error) {
	rows, err := s.read.duels.rows(ctx, tx, typ)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	duels := artifact.Duels{}
	for rows.Next() {
		var dimension, ref, value, metadata string
		var at int64
		if err := rows.Scan(&dimension, &ref, &value, &metadata, &at); err != nil {
			return nil, err
		}
		v, err := artifact.ParseDecimal(value)
		if err != nil {
			return nil, err
		}
		duels.Add(dimension, &artifact.SignalRow{Voter: ref, Value: v, At: fromMillis(at), Metadata: []byte(metadata)})
	}
	return duels, rows.Err()
}
