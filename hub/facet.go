package hub

import (
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
)

const (
	// deleteFacetsQuery leaves those that are to be there.
	deleteFacetsQuery = `
		DELETE FROM facet f USING unnest($1::text[], $2::text[]) AS k (type, id)
		WHERE f.type = k.type AND f.id = k.id AND NOT EXISTS (
			SELECT FROM unnest($3::text[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::text[], $9::float8[], $10::text[])
				AS w (type, id, path, n, scope, kind, num, text)
			WHERE w.type = f.type AND w.id = f.id AND w.path = f.path AND w.n = f.n AND w.scope = f.scope AND w.kind = f.kind::text
				AND w.num IS NOT DISTINCT FROM f.num AND w.text IS NOT DISTINCT FROM f.text)`
	insertFacetsQuery = `
		INSERT INTO facet (type, id, path, n, scope, kind, num, text)
		SELECT w.type, w.id, w.path, w.n, w.scope, w.kind::"char", w.num, w.text
		FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::text[], $7::float8[], $8::text[])
			AS w (type, id, path, n, scope, kind, num, text)
		ON CONFLICT DO NOTHING`
	moveFacetsQuery = `
		UPDATE facet f SET scope = $3 FROM unnest($1::text[], $2::text[]) AS k (type, id)
		WHERE f.type = k.type AND f.id = k.id`
)

// A facetSet is the facets of an artifact as they are to be.
type facetSet struct {
	head   *head
	facets []artifact.Facet
}

// putFacets notes the facets of an artifact's new content. Was is the content
// before it in the same form, nil for none: what stays is not written again.
func (s *state) putFacets(h *head, was, content []byte) {
	paths := s.facetPaths(h.Type)
	if len(paths) == 0 || h.audience == participants || !h.IsLatest {
		return
	}
	facets := artifact.FacetsOf(content, paths)
	if was != nil && slices.EqualFunc(artifact.FacetsOf(was, paths), facets, artifact.Facet.Equal) {
		return
	}
	set(s, s.facets, h.ref().Current(), facetSet{h, facets})
}

// dropFacets notes that an artifact has none any more.
func (s *state) dropFacets(h *head) {
	set(s, s.facets, h.ref().Current(), facetSet{head: h})
}

// facetPaths returns the pointers that a type declares as facets.
func (s *state) facetPaths(typ string) []string {
	if s.hub != nil {
		return s.hub.schemas.facetPaths(typ)
	}
	for _, shipped := range artifact.ShippedSchemas() { // there is no hub yet
		if shipped.Type == typ {
			return shipped.FacetPaths()
		}
	}
	return nil
}

// facetColumns are rows of facets, column by column.
type facetColumns struct {
	typ, id, path, scope, kind []string
	n                          []int16
	num                        []*float64
	text                       []*string
}

func (c *facetColumns) add(ref artifact.Ref, scope string, facets []artifact.Facet) {
	for _, f := range facets {
		c.typ, c.id, c.path, c.scope, c.kind = append(c.typ, ref.Type), append(c.id, ref.ID), append(c.path, f.Path), append(c.scope, scope), append(c.kind, string(f.Kind))
		c.n, c.num, c.text = append(c.n, int16(f.N)), append(c.num, f.Num), append(c.text, f.Text) //nolint:gosec // at most MaxFacetValues
	}
}

func (c *facetColumns) args() []any {
	return []any{c.typ, c.id, c.path, c.n, c.scope, c.kind, c.num, c.text}
}

// queueFacets queues the changes of facets.
func (w *writes) queueFacets(b *pgx.Batch) {
	var rows facetColumns
	var types, ids []string // of those that may have had others
	for _, ref := range slices.SortedFunc(maps.Keys(w.facets), artifact.Ref.Compare) {
		set := w.facets[ref]
		if !set.head.created {
			types, ids = append(types, ref.Type), append(ids, ref.ID)
		}
		rows.add(ref, set.head.Scope, set.facets)
	}
	queueFacetRows(b, types, ids, &rows)
}

// queueFacetRows queues the facets of artifacts, of which some may have had others.
func queueFacetRows(b *pgx.Batch, types, ids []string, rows *facetColumns) {
	if len(ids) > 0 {
		b.Queue(deleteFacetsQuery, append([]any{types, ids}, rows.args()...)...)
	}
	if len(rows.id) > 0 {
		b.Queue(insertFacetsQuery, rows.args()...)
	}
}
