package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	vec "github.com/asg017/sqlite-vec-go-bindings/cgo"

	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/rank"
	"github.com/scidex-ai/substrate/replicate"
)

// useVectors gives the functions of sqlite-vec to all connections that are opened from
// then on.
var useVectors = sync.OnceFunc(vec.Auto)

const (
	putVectorSQL     = `INSERT OR REPLACE INTO vector (type, id, model, scope, vector) VALUES (?1, ?2, ?3, ?4, ?5)`
	dropVectorsSQL   = `DELETE FROM vector WHERE type = ?1 AND id = ?2`
	dropVectorsInSQL = `DELETE FROM vector WHERE type = ?1 AND id = ?2 AND scope = ?3`
	// redactVectorsSQL leaves those of a version after the one that was redacted.
	redactVectorsSQL = `DELETE FROM vector WHERE type = ?1 AND id = ?2
		AND NOT EXISTS (SELECT 1 FROM artifact AS a WHERE a.type = ?1 AND a.id = ?2 AND a.revision > ?3)`
	putVectorModelSQL = `INSERT OR REPLACE INTO vector_model (one, model, dims) VALUES (1, ?1, ?2)`
	otherVectorsSQL   = `DELETE FROM vector WHERE model <> ?1`
	vectorModelSQL    = `SELECT model, dims FROM vector_model`
)

// vectorStatements change what artifacts mean, in the transactions that change them.
type vectorStatements struct {
	putVector, dropVectors, dropVectorsIn, redactVectors *sql.Stmt
	putVectorModel, otherVectors                         *sql.Stmt
}

func (w *vectorStatements) prepare(ctx context.Context, conn *sql.Conn) error {
	return prepare(ctx, conn, map[**sql.Stmt]string{
		&w.putVector: putVectorSQL, &w.dropVectors: dropVectorsSQL, &w.dropVectorsIn: dropVectorsInSQL, &w.redactVectors: redactVectorsSQL,
		&w.putVectorModel: putVectorModelSQL, &w.otherVectors: otherVectorsSQL,
	})
}

func (w *vectorStatements) vector(ctx context.Context, r *replicate.Row) error {
	var v replicate.Vector
	if err := json.Unmarshal(r.Data, &v); err != nil {
		return err
	}
	if err := check(r, v.Type, v.ID, v.Scope); err != nil {
		return err
	}
	if len(v.Vector) == 0 || len(v.Vector) > embed.MaxDims {
		return fmt.Errorf("a vector of %d dimensions", len(v.Vector))
	}
	_, err := w.putVector.ExecContext(ctx, v.Type, v.ID, v.Model, v.Scope, v.Vector)
	return err
}

// vectorModel has searches be by a model. Vectors by others are not needed any more.
func (w *vectorStatements) vectorModel(ctx context.Context, r *replicate.Row) error {
	var v replicate.VectorModel
	if err := json.Unmarshal(r.Data, &v); err != nil {
		return err
	}
	if _, err := w.putVectorModel.ExecContext(ctx, v.Model, v.Dims); err != nil {
		return err
	}
	_, err := w.otherVectors.ExecContext(ctx, v.Model)
	return err
}

// loadVectors reads by which model searches are. The caller holds s.writing, or is
// alone.
func (s *Store) loadVectors(ctx context.Context) error {
	m := new(replicate.VectorModel)
	err := s.conn.QueryRowContext(ctx, vectorModelSQL).Scan(&m.Model, &m.Dims)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		m = nil
	case err != nil:
		return err
	}
	s.vectors.Store(m)
	return nil
}

// haveVectors says which vectors searches can be by.
func (s *Store) haveVectors() (out rank.Vectors) {
	if m := s.vectors.Load(); m != nil {
		out.Model, out.Dims = m.Model, m.Dims
	}
	return out
}
