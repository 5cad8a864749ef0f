package hub

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
)

const (
	madeFacetsQuery = `
		SELECT b.type, b.declared, s.schema_version
		FROM facet_build b JOIN schema_registry s ON s.artifact_type = b.type AND s.is_current WHERE b.done`
	keptFacetsQuery = `
		SELECT f.type, f.id, f.path, f.n, f.scope, f.kind::text, f.num, f.text FROM facet f
		WHERE (f.type, f.id) > ($1, $2) AND ($3 = '' OR (f.type, f.id) <= ($3, $4)) ORDER BY f.type, f.id, f.path, f.n`
	facetedQuery = `
		SELECT a.type, a.id, a.scope, a.is_latest AND a.audience = 'scope', a.schema_version, r.title, r.state, r.content
		FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE (a.type, a.id) > ($1, $2) AND (a.type, a.id) <= ($3, $4)`
)

// A keptFacet is a row of the index of facets.
type keptFacet struct {
	artifact.Facet
	scope string
}

// facets makes the facets of artifacts anew and compares them with those that are
// kept, of types whose facets are all made.
func (v *storeVerifier) facets(ctx context.Context) error {
	var after, to artifact.Ref
	for more := true; more; after = to {
		n := 0
		if err := v.snapshot(ctx, func(tx pgx.Tx) error {
			err := tx.QueryRow(ctx, pageEndQuery, after.Type, after.ID, verifyRows).Scan(&to.Type, &to.ID, &n)
			if errors.Is(err, pgx.ErrNoRows) {
				to = artifact.Ref{} // what else is kept is of nothing
			} else if err != nil {
				return err
			}
			return v.refaceted(ctx, tx, after, to)
		}); err != nil {
			return err
		}
		v.read(faultFacet, n)
		more = to.Type != ""
	}
	return nil
}

// refaceted compares the facets of artifacts between two keys.
func (v *storeVerifier) refaceted(ctx context.Context, tx pgx.Tx, after, to artifact.Ref) error {
	made, err := v.madeFacets(ctx, tx)
	if err != nil {
		return err
	}
	kept := make(map[artifact.Ref][]keptFacet)
	rows, err := tx.Query(ctx, keptFacetsQuery, after.Type, after.ID, to.Type, to.ID)
	if err != nil {
		return err
	}
	var ref artifact.Ref
	var f keptFacet
	var kind string
	if _, err := pgx.ForEachRow(rows, []any{&ref.Type, &ref.ID, &f.Path, &f.N, &f.scope, &kind, &f.Num, &f.Text}, func() error {
		f.Kind = artifact.FacetKind(kind[0])
		kept[ref] = append(kept[ref], f)
		return nil
	}); err != nil {
		return err
	}
	if rows, err = tx.Query(ctx, facetedQuery, after.Type, after.ID, to.Type, to.ID); err != nil {
		return err
	}
	var scope, title, state, content string
	var has bool
	var version int
	if _, err := pgx.ForEachRow(rows, []any{&ref.Type, &ref.ID, &scope, &has, &version, &title, &state, &content}, func() error {
		is := kept[ref]
		delete(kept, ref)
		if !made[ref.Type] {
			return nil
		}
		var want []artifact.Facet
		if has {
			form := v.schemas.inForm(ref.Type, version, artifact.Version{Title: title, State: state, Content: []byte(content)})
			want = artifact.FacetsOf(form.Content, v.schemas.facetPaths(ref.Type))
		}
		if what := facetFault(is, want, scope); what != "" {
			v.fault(faultFacet, ref.String(), "%s", what)
		}
		return nil
	}); err != nil {
		return err
	}
	for ref := range kept {
		v.fault(faultFacet, ref.String(), "facets are kept of it, and it is missing")
	}
	return nil
}

// madeFacets returns the types whose facets are all made, and made as this check would.
func (v *storeVerifier) madeFacets(ctx context.Context, tx pgx.Tx) (map[string]bool, error) {
	rows, err := tx.Query(ctx, madeFacetsQuery)
	if err != nil {
		return nil, err
	}
	made := make(map[string]bool)
	var typ, declared string
	var version int
	_, err = pgx.ForEachRow(rows, []any{&typ, &declared, &version}, func() error {
		s := v.schemas.get(typ)
		made[typ] = s != nil && s.SchemaVersion == version && declared == v.schemas.facetKey(typ)
		return nil
	})
	return made, err
}

// facetFault says what is wrong with the facets of an artifact, "" when nothing is.
func facetFault(is []keptFacet, want []artifact.Facet, scope string) string {
	for i := range is {
		switch f := &is[i]; {
		case f.scope != scope:
			return fmt.Sprintf("its facet at %s is in the scope %s, and it is in %s", f.Path, f.scope, scope)
		case i >= len(want) || !f.Equal(want[i]):
			return fmt.Sprintf("its facet %d at %s is not what its content makes", f.N, f.Path)
		}
	}
	if len(is) < len(want) {
		return fmt.Sprintf("%d facets are kept of it, and its content makes %d", len(is), len(want))
	}
	return ""
}
