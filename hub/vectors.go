package hub

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/analysis"
	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/rank"
	"github.com/scidex-ai/substrate/replicate"
)

// vectors is what the hub knows of what artifacts mean.
type vectors struct {
	wanted   chan struct{} // there is something to look at
	serving  atomic.Pointer[replicate.VectorModel]
	embedded atomic.Bool // the column that pgvector searches is there and full

	mu  sync.Mutex
	due map[artifact.Ref]bool // guarded by mu: artifacts that changed since they were looked at
	all bool                  // guarded by mu: too many did
}

// mostDue bounds how many artifacts are noted one by one.
const mostDue = 10_000

const (
	// dropVectorsQuery forgets what artifacts mean.
	dropVectorsQuery = `
		DELETE FROM artifact_vector v USING unnest($1::text[], $2::text[]) AS k (type, id)
		WHERE v.type = k.type AND v.id = k.id`
	servingQuery = `SELECT model, dims FROM vector_model WHERE serves`
)

// loadVectors reads by which model searches are.
func (h *Hub) loadVectors(ctx context.Context) error {
	m := new(replicate.VectorModel)
	err := h.db.QueryRow(ctx, servingQuery).Scan(&m.Model, &m.Dims)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		m = nil
	case err != nil:
		return err
	}
	h.vectors.serving.Store(m)
	return nil
}

// followVectors takes in what the log says: by which model searches are, and which
// artifacts may be to be looked at.
func (h *Hub) followVectors(rows []logRow) {
	wake := false
	v := &h.vectors
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Kind == replicate.KindVectorModel && len(r.Data) > 0:
			m := new(replicate.VectorModel)
			if json.Unmarshal(r.Data, m) == nil {
				v.serving.Store(m)
			}
		case h.config.Embeddings == nil || r.Kind != replicate.KindArtifact || r.Op != replicate.Put || r.class != replicate.Public:
		default:
			ref, err := artifact.ParseRef(r.Ref)
			if err != nil {
				continue
			}
			wake = true
			v.mu.Lock()
			if v.due == nil {
				v.due = make(map[artifact.Ref]bool)
			}
			if v.due[ref] = true; len(v.due) > mostDue {
				v.due, v.all = nil, true
			}
			v.mu.Unlock()
		}
	}
	if wake {
		select {
		case v.wanted <- struct{}{}:
		default:
		}
	}
}

// take returns the artifacts that are to be looked at, by type, and whether all are.
func (v *vectors) take() (due map[string][]string, all bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	due = make(map[string][]string)
	for ref := range v.due {
		due[ref.Type] = append(due[ref.Type], ref.ID)
	}
	all = v.all
	v.due, v.all = nil, false
	return due, all
}

// have says which vectors searches can be by. Without an endpoint to ask there are
// none: what a hub is not configured to do is no less than it could.
func (v *vectors) have(configured bool) (out rank.Vectors) {
	out.Building = configured
	if m := v.serving.Load(); m != nil && configured {
		out.Model, out.Dims = m.Model, m.Dims
	}
	return out
}

// embeds reports whether artifacts of a type have vectors: their schema says what
// their texts are.
func embeds(s *artifact.Schema) bool {
	return s.Search != nil && len(s.Search.Body) > 0 && s.Type != artifact.SchemaType && s.Visibility != participants
}

// textOf returns what a model is told of an artifact.
func textOf(rule *analysis.Rule, title string, content []byte) string {
	fields := rule.Fields(title, content)
	texts := make([]string, len(fields))
	for i := range fields {
		texts[i] = fields[i].Text
	}
	return embed.Text(texts)
}
