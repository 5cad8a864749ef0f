package node

import (
	"context"
	"database/sql"
	"slices"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// readStatements are prepared on the pool of readers.
type readStatements struct {
	get, getPinned, getFollowed       scopedQuery
	getLink, getSignal                scopedQuery
	list, listOfType                  scopedQuery
	search, blindSearch, searchFacets scopedQuery
	signalsOf, duels, listedSignals   scopedQuery
	history, linkPast                 scopedQuery
	asOfHead, asOfEvents, getAsOf     scopedQuery
	present, presentLink              scopedQuery
	presentSignal                     scopedQuery
	out, in                           endQueries // links
	applied, events, schemas          *sql.Stmt
	facetsMade, counted               *sql.Stmt
	scopes, scopeKnown, members       *sql.Stmt
	agents                            agentQueries
}

const (
	getSQL = `SELECT a.type, a.id, a.scope, a.revision, a.content_hash, a.schema_version, a.title, a.state,
			a.created_at, a.created_by, a.updated_at, a.updated_by, a.is_latest, a.superseded_by, a.quality_score,
			r.additional_signatures, r.redaction, CASE WHEN ?3 THEN r.content END, (SELECT seq FROM replica_state), r.provenance
		FROM artifact AS a
		CROSS JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE a.type = ?1 AND a.id = ?2 AND a.scope IN ({scopes})`

	// Two revisions may have one hash: the later one is meant. The + keeps SQLite
	// from walking all revisions in order instead of looking up the hash.
	getPinnedSQL = `SELECT r.type, r.id, r.scope, r.revision, r.content_hash, r.schema_version, r.title, r.state,
			a.created_at, a.created_by, r.created_at, r.created_by, a.is_latest AND a.revision = r.revision,
			a.superseded_by, a.quality_score,
			r.additional_signatures, r.redaction, CASE WHEN ?3 THEN r.content END, (SELECT seq FROM replica_state), r.provenance
		FROM artifact_revision AS r
		CROSS JOIN artifact AS a ON a.type = r.type AND a.id = r.id
		WHERE r.type = ?1 AND r.id = ?2 AND r.content_hash = ?4 AND r.scope IN ({scopes}) AND a.scope IN ({scopes})
		ORDER BY +r.revision DESC LIMIT 1`

	// getFollowedSQL ends where nothing replaces, where the caller may not see what
	// does, or before it comes round in a circle. Refs hold no space.
	getFollowedSQL = `WITH RECURSIVE chain (type, id, next, path, depth) AS (
			SELECT a.type, a.id, a.superseded_by, ' ' || a.type || ':' || a.id || ' ', 0
			FROM artifact AS a WHERE a.type = ?1 AND a.id = ?2 AND a.scope IN ({scopes})
			UNION ALL
			SELECT a.type, a.id, a.superseded_by, c.path || c.next || ' ', c.depth + 1
			FROM chain AS c CROSS JOIN artifact AS a
				ON a.type = substr(c.next, 1, instr(c.next, ':') - 1) AND a.id = substr(c.next, instr(c.next, ':') + 1)
			WHERE instr(c.path, ' ' || c.next || ' ') = 0 AND c.depth < 999 AND a.scope IN ({scopes})
		)
		SELECT a.type, a.id, a.scope, a.revision, a.content_hash, a.schema_version, a.title, a.state,
			a.created_at, a.created_by, a.updated_at, a.updated_by, a.is_latest, a.superseded_by, a.quality_score,
			r.additional_signatures, r.redaction, CASE WHEN ?3 THEN r.content END, (SELECT seq FROM replica_state), r.provenance
		FROM chain AS c CROSS JOIN artifact AS a ON a.type = c.type AND a.id = c.id
		CROSS JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		ORDER BY c.depth DESC LIMIT 1`

	listColumns = `SELECT a.type, a.id, a.scope, a.revision, a.content_hash, a.schema_version, a.title, a.state,
			a.created_at, a.created_by, a.updated_at, a.updated_by, a.is_latest, a.superseded_by, a.quality_score,
			r.additional_signatures, r.redaction, CASE WHEN ?2 THEN r.content END
		FROM artifact AS a
		CROSS JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE a.scope IN ({scopes}) AND a.is_latest = 1`
	listSQL = listColumns + ` AND a.created_at <= ?3 AND (a.created_at < ?3 OR (a.type, a.id) > (?4, ?5))
		ORDER BY a.created_at DESC, a.type, a.id LIMIT ?1`
	listOfTypeSQL = listColumns + ` AND a.type = ?4 AND a.created_at <= ?3 AND (a.created_at < ?3 OR a.id > ?5)
		ORDER BY a.created_at DESC, a.id LIMIT ?1`

	schemasSQL = `SELECT type, version, is_current, document, created_at FROM schema_registry
		WHERE (?1 = '' OR type = ?1) AND CASE WHEN ?3 THEN 1 WHEN ?2 = 0 THEN is_current ELSE version = ?2 END
		ORDER BY type, version DESC LIMIT CASE WHEN ?3 THEN ?4 ELSE -1 END`
)

func (r *readStatements) prepare(ctx context.Context, pool *sql.DB) error {
	for q, text := range map[*scopedQuery]string{
		&r.get: getSQL, &r.getPinned: getPinnedSQL, &r.getFollowed: getFollowedSQL, &r.getLink: getLinkSQL, &r.getSignal: getSignalSQL,
		&r.signalsOf: signalsOfSQL, &r.duels: duelsSQL, &r.listedSignals: listedSignalsSQL, &r.list: listSQL, &r.listOfType: listOfTypeSQL,
		&r.history: historySQL, &r.linkPast: linkPastSQL,
		&r.asOfHead: asOfHeadSQL, &r.asOfEvents: asOfEventsSQL, &r.getAsOf: getAsOfSQL,
		&r.present: presentArtifactSQL, &r.presentLink: presentLinkSQL, &r.presentSignal: presentSignalSQL,
		&r.search: searchSQL, &r.blindSearch: blindSearchSQL, &r.searchFacets: searchFacetsSQL,
	} {
		q.pool, q.text = pool, text
	}
	r.out.prepare(pool, verb.DirectionOut, "from", "to")
	r.in.prepare(pool, verb.DirectionIn, "to", "from")
	r.agents.prepare(pool)
	return prepare(ctx, pool, map[**sql.Stmt]string{
		&r.applied: appliedSQL, &r.facetsMade: facetsMadeSQL, &r.counted: countedSQL, &r.events: eventsSQL, &r.schemas: schemasSQL,
		&r.scopes: scopesSQL, &r.scopeKnown: scopeKnownSQL, &r.members: membersSQL,
	})
}

// Verbs binds the verbs that are answered from the replica. What no replica
// holds, artifacts that are for their participants alone, the hub is asked for.
func (s *Store) Verbs(r *verb.Registry, hub verb.Invoker) {
	bindReads(r, hub, func() (*Store, error) {
		if !s.uses.begin() {
			return nil, errRetired
		}
		return s, nil
	})
}

// bindReads binds the read verbs to whatever store lease returns for each call.
func bindReads(r *verb.Registry, hub verb.Invoker, lease func() (*Store, error)) {
	bindRead(r, verb.Get, lease, func(s *Store, ctx context.Context, in verb.GetRequest) (verb.GetResponse, error) {
		if s.elsewhere(ctx, in.Ref.Type) {
			return verb.Get.Call(ctx, hub, in)
		}
		return s.get(ctx, in)
	})
	bindRead(r, verb.List, lease, func(s *Store, ctx context.Context, in verb.ListRequest) (verb.ListResponse, error) {
		if s.elsewhere(ctx, in.Type) {
			return verb.List.Call(ctx, hub, in)
		}
		return s.list(ctx, in)
	})
	bindRead(r, verb.History, lease, func(s *Store, ctx context.Context, in verb.HistoryRequest) (verb.HistoryResponse, error) {
		if s.elsewhere(ctx, in.Ref.Type) {
			return verb.History.Call(ctx, hub, in)
		}
		return s.history(ctx, in)
	})
	bindRead(r, verb.Diff, lease, func(s *Store, ctx context.Context, in verb.DiffRequest) (verb.DiffResponse, error) {
		if s.elsewhere(ctx, in.RefA.Type) || s.elsewhere(ctx, in.RefB.Type) {
			return verb.Diff.Call(ctx, hub, in)
		}
		return s.diff(ctx, in)
	})
	bindRead(r, verb.Search, lease, func(s *Store, ctx context.Context, in verb.SearchRequest) (verb.SearchResponse, error) {
		if slices.ContainsFunc(in.Types, func(typ string) bool { return s.elsewhere(ctx, typ) }) {
			return verb.Search.Call(ctx, hub, in)
		}
		return s.search(ctx, in)
	})
	bindRead(r, verb.Schema, lease, (*Store).schema)
	bindRead(r, verb.Links, lease, func(s *Store, ctx context.Context, in verb.LinksRequest) (verb.LinksResponse, error) {
		if s.elsewhere(ctx, in.Ref.Type) {
			return verb.Links.Call(ctx, hub, in)
		}
		return s.links(ctx, in)
	})
	bindRead(r, verb.Signals, lease, func(s *Store, ctx context.Context, in verb.SignalsRequest) (verb.SignalsResponse, error) {
		if s.elsewhere(ctx, in.Ref.Type) {
			return verb.Signals.Call(ctx, hub, in)
		}
		return s.signals(ctx, in)
	})
	bindRead(r, verb.ScopesList, lease, (*Store).scopesList)
	bindRead(r, verb.ScopesMembers, lease, (*Store).scopesMembers)
	bindRead(r, verb.AgentsGet, lease, (*Store).agentsGet)
	bindRead(r, verb.AgentsList, lease, (*Store).agentsList)
	bindRead(r, verb.AgentsResolve, lease, (*Store).agentsResolve)
}

// bindRead binds one of them.
func bindRead[In, Out any](r *verb.Registry, v verb.Verb[In, Out], lease func() (*Store, error), f func(*Store, context.Context, In) (Out, error)) {
	verb.Bind(r, v, func(ctx context.Context, in In) (out Out, err error) {
		s, err := lease()
		if err != nil {
			return out, err
		}
		defer s.uses.done()
		return f(s, ctx, in)
	})
}

const elsewhereSQL = `SELECT type FROM schema_registry
	WHERE is_current AND json_extract(document, '$.visibility') = 'participants'`

// loadElsewhere reads which types' artifacts the hub alone holds.
func (s *Store) loadElsewhere(ctx context.Context) error {
	rows, err := s.conn.QueryContext(ctx, elsewhereSQL)
	if err != nil {
		return err
	}
	defer rows.Close()
	types := make(map[string]bool)
	for rows.Next() {
		var typ string
		if err := rows.Scan(&typ); err != nil {
			return err
		}
		types[typ] = true
	}
	s.hubOnly.Store(&types)
	return rows.Err()
}

// elsewhere reports whether the hub is to be asked for artifacts of a type, which
// it alone holds. It has none for those without a token.
func (s *Store) elsewhere(ctx context.Context, typ string) bool {
	c, err := verb.CallerFrom(ctx)
	return err == nil && !c.Anonymous && (*s.hubOnly.Load())[typ]
}

// scanArtifact reads the columns of the queries above, and then more.
func scanArtifact(scan func(...any) error, more ...any) (artifact.Artifact, error) {
	var row struct { // one allocation, of what scan keeps pointers to
		a                artifact.Artifact
		hash             []byte
		created, updated int64
		into             [24]any
	}
	a := &row.a
	err := scan(append(append(row.into[:0],
		&a.Type, &a.ID, &a.Scope, &a.Revision, &row.hash, &a.SchemaVersion, &a.Title, &a.State,
		&row.created, &a.CreatedBy, &row.updated, &a.UpdatedBy, &a.IsLatest, &a.SupersededBy, &a.QualityScore,
		(*[]byte)(&a.Signatures), (*[]byte)(&a.Redaction), (*[]byte)(&a.Content),
	), more...)...)
	copy(a.ContentHash[:], row.hash)
	a.Ref = artifact.Ref{Type: a.Type, ID: a.ID, Hash: a.ContentHash}
	a.CreatedAt, a.UpdatedAt = fromMillis(row.created), fromMillis(row.updated)
	return *a, err
}

// notFound is the error of the ref of what is not there.
func (s *Store) notFound(ref artifact.Ref) error {
	return s.notFoundAt(ref, "/ref")
}

func (s *Store) notFoundAt(ref artifact.Ref, at string) error {
	return artifact.NotFound(ref.String()).Typed(ref, append(s.typeNames(), replicate.LinkType, replicate.SignalType), at)
}

func (s *Store) schema(ctx context.Context, in verb.SchemaRequest) (out verb.SchemaResponse, err error) {
	if _, err := verb.CallerFrom(ctx); err != nil {
		return out, err
	}
	if err := in.Check(); err != nil {
		return out, err
	}
	rows, err := s.read.schemas.QueryContext(ctx, in.Type, in.Version, in.AllVersions, verb.MaxSchemaVersions)
	if err != nil {
		return out, err
	}
	defer rows.Close()
	out.Schemas = []verb.SchemaDocument{}
	for rows.Next() {
		var d verb.SchemaDocument
		var created int64
		if err := rows.Scan(&d.Type, &d.Version, &d.IsCurrent, (*[]byte)(&d.Document), &created); err != nil {
			return verb.SchemaResponse{}, err
		}
		d.CreatedAt = fromMillis(created)
		out.Schemas = append(out.Schemas, d)
	}
	if err := rows.Err(); err != nil {
		return verb.SchemaResponse{}, err
	}
	return out, out.Place(&in)
}
