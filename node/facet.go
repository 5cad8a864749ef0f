package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

const (
	currentSchemasSQL = `SELECT document FROM schema_registry WHERE is_current`

	headAsIsSQL    = `SELECT revision, scope, is_latest, schema_version FROM artifact WHERE type = ?1 AND id = ?2`
	currentTextSQL = `SELECT a.scope, a.is_latest, r.schema_version, r.title, r.state, r.content FROM artifact AS a
		JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision WHERE a.type = ?1 AND a.id = ?2`
	facetsSQL       = `SELECT path, n, scope, kind, num, text FROM facet WHERE type = ?1 AND id = ?2`
	deleteFacetsSQL = `DELETE FROM facet WHERE type = ?1 AND id = ?2`
	putFacetSQL     = `INSERT INTO facet (type, id, path, n, scope, kind, num, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`

	builtSQL      = `SELECT declared, after, done FROM facet_build WHERE type = ?1`
	putBuiltSQL   = `INSERT OR REPLACE INTO facet_build (type, declared, after, done) VALUES (?1, ?2, ?3, ?4)`
	buildHeadsSQL = `SELECT id FROM artifact WHERE type = ?1 AND id > ?2 ORDER BY id LIMIT ?3`
	facetsMadeSQL = `SELECT EXISTS (SELECT 1 FROM facet_build WHERE type = ?1 AND declared = ?2 AND done)`
)

// facetRows is how many artifacts' facets are made in one transaction.
const facetRows = 500

// A declaredType is a type as far as lists must know it.
type declaredType struct {
	schema *artifact.Schema // not compiled: it checks no content
	paths  []string         // of facets
	key    string           // what they are made by
}

type declaredTypes map[string]*declaredType

// loadTypes reads what types declare, and notes that facets may be to be made.
func (s *Store) loadTypes(ctx context.Context) error {
	rows, err := s.conn.QueryContext(ctx, currentSchemasSQL)
	if err != nil {
		return err
	}
	defer rows.Close()
	types := make(declaredTypes)
	for rows.Next() {
		var document []byte
		d := &declaredType{schema: new(artifact.Schema)}
		if err := rows.Scan(&document); err != nil {
			return err
		}
		if err := json.Unmarshal(document, d.schema); err != nil {
			return fmt.Errorf("read a schema document: %w", err)
		}
		d.paths = d.schema.FacetPaths()
		d.key = artifact.FacetKeyOf(s.upgrades.Load().Form(d.schema.Type), d.paths)
		types[d.schema.Type] = d
	}
	if err := rows.Err(); err != nil {
		return err
	}
	s.declared.Store(&types)
	s.write.types = types
	s.facetsDue.Store(true)
	return nil
}

// typeNamed returns the schema of a type, nil for one that is not there.
func (s *Store) typeNamed(typ string) *artifact.Schema {
	if d := (*s.declared.Load())[typ]; d != nil {
		return d.schema
	}
	return nil
}

func (s *Store) typeNames() []string { return slices.Sorted(maps.Keys(*s.declared.Load())) }

// facets say which pointers of a type are kept in the index.
type facets struct {
	declared func(path string) bool
	indexed  func(path string) bool // nil: none, yet or at all
	building bool
}

// facetsOf looks up, in a transaction, what is kept of a type's facets.
func (s *Store) facetsOf(ctx context.Context, tx *sql.Tx, typ string) (f facets, err error) {
	d := (*s.declared.Load())[typ]
	if d == nil {
		f.declared = func(string) bool { return false }
		return f, nil
	}
	f.declared = func(path string) bool { return slices.Contains(d.paths, path) }
	var made bool
	if err := tx.StmtContext(ctx, s.read.facetsMade).QueryRowContext(ctx, typ, d.key).Scan(&made); err != nil { //nolint:sqlclosecheck // the transaction closes it
		return f, err
	}
	if f.building = !made; made {
		f.indexed = f.declared
	}
	return f, nil
}

// replacing returns the types of whose signals of a kind each voter's last counts.
func (s *Store) replacing(kind string) (types []string) {
	for typ, d := range *s.declared.Load() {
		if d.schema.Signals[kind].Aggregation == artifact.AggregateReplace {
			types = append(types, typ)
		}
	}
	return types
}

// facetStatements keep facets up.
type facetStatements struct {
	headAsIs, currentText, facets, deleteFacets, putFacet *sql.Stmt

	types    declaredTypes // nil while a replica is filled, whose facets are made at the end
	upgrades func() *artifact.Upgrades
}

func (f *facetStatements) texts() map[**sql.Stmt]string {
	return map[**sql.Stmt]string{
		&f.headAsIs: headAsIsSQL, &f.currentText: currentTextSQL, &f.facets: facetsSQL, &f.deleteFacets: deleteFacetsSQL, &f.putFacet: putFacetSQL,
	}
}

// A headState is what of a head its facets depend on.
type headState struct {
	revision, version int
	scope             string
	latest            bool
}

// stored reports whether a head is in the file, and whether it is as it is to be,
// as far as its facets depend on it.
func (f *facetStatements) stored(ctx context.Context, typ, id string, want headState) (there, same bool, err error) {
	var is headState
	err = f.headAsIs.QueryRowContext(ctx, typ, id).Scan(&is.revision, &is.scope, &is.latest, &is.version)
	if errors.Is(err, sql.ErrNoRows) {
		return false, false, nil
	}
	return true, is == want, err
}

// make makes the facets of a new artifact, whose version came just before.
func (f *facetStatements) make(ctx context.Context, h *replicate.Head, content []byte) error {
	d := f.types[h.Type]
	if d == nil || !h.IsLatest {
		return nil
	}
	v := artifact.Version{Title: h.Title, State: h.State, Content: content}
	if next, _, err := f.upgrades().Upgrade(h.Type, h.SchemaVersion, v); err == nil {
		v = next
	}
	return f.put(ctx, h.Type, h.ID, h.Scope, artifact.FacetsOf(v.Content, d.paths))
}

func (f *facetStatements) put(ctx context.Context, typ, id, scope string, facets []artifact.Facet) error {
	for i := range facets {
		w := &facets[i]
		if _, err := f.putFacet.ExecContext(ctx, typ, id, w.Path, w.N, scope, string(w.Kind), w.Num, w.Text); err != nil {
			return err
		}
	}
	return nil
}

// remake makes the facets of an artifact anew.
func (f *facetStatements) remake(ctx context.Context, typ, id string) error {
	d := f.types[typ]
	if d == nil {
		return nil
	}
	var want []artifact.Facet
	var v artifact.Version
	var scope string
	var latest bool
	var version int
	switch err := f.currentText.QueryRowContext(ctx, typ, id).Scan(&scope, &latest, &version, &v.Title, &v.State, &v.Content); {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	case latest:
		if next, _, err := f.upgrades().Upgrade(typ, version, v); err == nil {
			v = next
		}
		want = artifact.FacetsOf(v.Content, d.paths)
	}
	if same, err := f.same(ctx, typ, id, scope, want); same || err != nil {
		return err
	}
	if _, err := f.deleteFacets.ExecContext(ctx, typ, id); err != nil {
		return err
	}
	return f.put(ctx, typ, id, scope, want)
}

// same reports whether an artifact's facets are those that it is to have.
func (f *facetStatements) same(ctx context.Context, typ, id, scope string, want []artifact.Facet) (bool, error) {
	rows, err := f.facets.QueryContext(ctx, typ, id)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var is artifact.Facet
		var kind, in string
		if err := rows.Scan(&is.Path, &is.N, &in, &kind, &is.Num, &is.Text); err != nil {
			return false, err
		}
		is.Kind = artifact.FacetKind(kind[0])
		if n >= len(want) || in != scope || !is.Equal(want[n]) {
			return false, nil
		}
	}
	return n == len(want), rows.Err()
}

// buildFacets goes on with the facets of types whose declaration is not what they
// were made by, and reports whether there is more to do.
func (s *Store) buildFacets(ctx context.Context) (more bool, err error) {
	s.facetsDue.Store(false)
	err = s.between(ctx, func(ctx context.Context) error {
		for _, typ := range s.typeNames() {
			if more, err = s.buildSome(ctx, typ); more || err != nil {
				return err
			}
		}
		return nil
	})
	if more || err != nil {
		s.facetsDue.Store(true)
	}
	return more, err
}

// buildSome goes on with a type, in a transaction of the writer. It reports whether
// it did anything.
func (s *Store) buildSome(ctx context.Context, typ string) (did bool, err error) {
	d := (*s.declared.Load())[typ]
	var declared, after string
	var done bool
	err = s.conn.QueryRowContext(ctx, builtSQL, typ).Scan(&declared, &after, &done)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return false, err
	case declared != d.key:
		after = ""
	case done:
		return false, nil
	}
	rows, err := s.conn.QueryContext(ctx, buildHeadsSQL, typ, after, facetRows)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return false, err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return false, err
	}
	for _, id := range ids {
		if err := s.write.remake(ctx, typ, id); err != nil {
			return false, fmt.Errorf("facets of %s:%s: %w", typ, id, err)
		}
	}
	if done, after = len(ids) < facetRows, ""; !done { // an id is nobody's business for longer
		after = ids[len(ids)-1]
	}
	_, err = s.conn.ExecContext(ctx, putBuiltSQL, typ, d.key, after, done)
	return len(ids) > 0, err
}

// keepFacets makes facets that are to be made, until ctx ends.
func (n *Node) keepFacets(ctx context.Context) {
	const wait = 200 * time.Millisecond // after a type has changed
	for tick := time.NewTicker(wait); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		store, err := n.lease()
		if err != nil {
			continue // there is none yet
		}
		for more := store.facetsDue.Load(); more && ctx.Err() == nil && err == nil; {
			more, err = store.buildFacets(ctx)
		}
		store.uses.done()
		if err != nil && ctx.Err() == nil {
			n.log.WarnContext(ctx, "facets are not made yet", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
			}
		}
	}
}
