package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

const (
	getColumns      = artifactColumns + `, CASE WHEN $5 THEN r.content ELSE '' END, (` + headQuery + `), r.provenance`
	getCurrentQuery = `
		SELECT` + getColumns + `
		FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE a.type = $3 AND a.id = $4 AND` + visible
	getPinnedQuery = `
		SELECT` + getColumns + `
		FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id
		WHERE a.type = $3 AND a.id = $4 AND r.content_hash = $6 AND` + visibleVersion + `
		ORDER BY r.revision DESC LIMIT 1`

	// getFollowedQuery ends where nothing replaces, where the caller may not see
	// what does, or before it comes round in a circle.
	getFollowedQuery = `
		WITH RECURSIVE chain (type, id, next, path) AS (
			SELECT a.type, a.id, a.superseded_by, ARRAY[(a.type || ':' || a.id) COLLATE "C"] FROM artifact a WHERE a.type = $3 AND a.id = $4 AND` + visible + `
			UNION ALL
			SELECT a.type, a.id, a.superseded_by, c.path || (c.next COLLATE "C")
			FROM chain c JOIN artifact a ON a.type = split_part(c.next, ':', 1) AND a.id = substr(c.next, strpos(c.next, ':') + 1)
			WHERE c.next <> ALL (c.path) AND cardinality(c.path) < 1000 AND` + visible + `
		)
		SELECT` + getColumns + `
		FROM chain c JOIN artifact a ON a.type = c.type AND a.id = c.id
		JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		ORDER BY cardinality(c.path) DESC LIMIT 1`

	// Links of what is for its participants alone are in no replica, and at the hub
	// answered to nobody either.
	linkColumns = `
		l.id, l.from_type || ':' || l.from_id, l.predicate, l.to_ref, l.scope, l.evidence_refs, l.evidence, l.created_at, l.created_by`
	visibleLink = `
		l.scope = ANY ($1) AND NOT EXISTS (
			SELECT FROM artifact e WHERE e.audience = 'participants' AND (e.type = l.from_type AND e.id = l.from_id OR e.type = l.to_type AND e.id = l.to_id))`
	getLinkQuery = `
		SELECT` + linkColumns + `, (` + headQuery + `)
		FROM link l
		WHERE l.id = $2 AND` + visibleLink

	signalColumns = `
		s.id, s.type || ':' || s.artifact, s.scope, s.kind, s.dimension, s.voter, s.voter_kind, s.value::text, s.weight::text, s.reason, s.metadata,
		s.created_at, s.created_by`
	visibleSignal = `
		s.scope = ANY ($1) AND NOT EXISTS (
			SELECT FROM artifact e WHERE e.audience = 'participants' AND e.type = s.type AND e.id = s.artifact)`
	getSignalQuery = `
		SELECT` + signalColumns + `, (` + headQuery + `)
		FROM signal s
		WHERE s.id = $2 AND` + visibleSignal
)

// get answers the verb of that name.
func (h *Hub) get(ctx context.Context, in verb.GetRequest) (out verb.GetResponse, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if err := in.Check(); err != nil {
		return out, err
	}
	if in.Plain() {
		err = h.read(ctx, h.db, c, &in, &out)
	} else {
		err = h.oneState(ctx, func(tx pgx.Tx) error { return h.getMore(ctx, tx, c, &in, &out) })
	}
	if err != nil {
		return verb.GetResponse{}, h.absent(fmt.Errorf("read %s: %w", in.Ref, err), in.Ref, "/ref")
	}
	return out, nil
}

// read reads what a ref names, or returns [pgx.ErrNoRows] when it is not there for
// the caller.
func (h *Hub) read(ctx context.Context, db querier, c *verb.Caller, in *verb.GetRequest, out *verb.GetResponse) (err error) {
	switch in.Ref.Type {
	case replicate.LinkType:
		out.Artifact, err = scanLink(db.QueryRow(ctx, getLinkQuery, c.VisibleScopes(), in.Ref.ID), &out.AsOf)
	case replicate.SignalType:
		out.Artifact, err = scanSignal(db.QueryRow(ctx, getSignalQuery, c.VisibleScopes(), in.Ref.ID), &out.AsOf)
	default:
		err = h.readArtifact(ctx, db, c, in, out)
	}
	if err == nil && in.Ref.IsPinned() && in.Ref.Hash != out.Artifact.ContentHash {
		err = pgx.ErrNoRows
	}
	if !in.WithContent() {
		out.Artifact.Content = nil
	}
	return err
}

func (h *Hub) readArtifact(ctx context.Context, db querier, c *verb.Caller, in *verb.GetRequest, out *verb.GetResponse) error {
	query, args := getCurrentQuery, []any{c.VisibleScopes(), c.Actor.ID, in.Ref.Type, in.Ref.ID, in.WithContent()}
	switch {
	case in.Ref.IsPinned():
		query, args = getPinnedQuery, append(args, in.Ref.Hash[:])
	case in.Follow:
		query = getFollowedQuery
	}
	return h.scanVersion(db.QueryRow(ctx, query, args...), out)
}

// scanVersion reads a row of getColumns.
func (h *Hub) scanVersion(row pgx.Row, out *verb.GetResponse) (err error) {
	var stamped string
	if err := scanArtifact(row, &out.Artifact, &out.AsOf, &stamped); err != nil {
		return err
	}
	h.schemas.upgrade(&out.Artifact)
	out.Artifact.Provenance, err = provenanceOf(stamped)
	return err
}

// getMore answers a get that asks for more than the artifact as it is now.
func (h *Hub) getMore(ctx context.Context, tx pgx.Tx, c *verb.Caller, in *verb.GetRequest, out *verb.GetResponse) error {
	if in.AsOfSeq > 0 {
		return h.readAsOf(ctx, tx, c, in, out)
	}
	if err := h.read(ctx, tx, c, in, out); err != nil {
		return err
	}
	ref := out.Artifact.Ref.Current()
	if in.IncludeLinks {
		out.Links = new(verb.GetLinks)
		for _, r := range out.Links.Requests(ref) {
			page := verb.LinksResponse{}
			if err := h.linksIn(ctx, tx, c, &r, &page); err != nil {
				return err
			}
			out.Links.Add(r, &page)
		}
	}
	switch {
	case !in.IncludeSignals:
	case ref.Type == replicate.LinkType || ref.Type == replicate.SignalType:
		out.Signals = []artifact.SignalSummary{} // there are none on those
	default:
		signals := verb.SignalsResponse{}
		if err := h.signalsIn(ctx, tx, c, &verb.SignalsRequest{Ref: ref}, &signals); err != nil {
			return err
		}
		out.Signals = signals.Signals
	}
	return nil
}

// scanLink reads a link's columns, and then more.
func scanLink(row pgx.Row, more ...any) (artifact.Artifact, error) {
	var l replicate.Link
	var refs, evidence string
	err := row.Scan(append([]any{&l.ID, &l.From, &l.Predicate, &l.To, &l.Scope, &refs, &evidence, &l.At, &l.By}, more...)...)
	if err != nil {
		return artifact.Artifact{}, err
	}
	if err := json.Unmarshal([]byte(refs), &l.EvidenceRefs); err != nil {
		return artifact.Artifact{}, err
	}
	l.Evidence, l.At = []byte(evidence), l.At.UTC()
	return l.Artifact()
}

// scanSignal reads a signal's columns, and then more.
func scanSignal(row pgx.Row, more ...any) (artifact.Artifact, error) {
	g, err := signalOf(row, more...)
	if err != nil {
		return artifact.Artifact{}, err
	}
	return g.Artifact()
}

func signalOf(row pgx.Row, more ...any) (*replicate.Signal, error) {
	g := new(replicate.Signal)
	var value, weight, metadata string
	err := row.Scan(append([]any{
		&g.ID, &g.Ref, &g.Scope, &g.Kind, &g.Dimension, &g.Voter, &g.VoterKind, &value, &weight, &g.Reason, &metadata, &g.At, &g.By,
	}, more...)...)
	if err != nil {
		return nil, err
	}
	v, err1 := artifact.ParseDecimal(value)
	w, err2 := artifact.ParseDecimal(weight)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	g.Value, g.Weight = json.Number(v.String()), json.Number(w.String())
	g.Metadata, g.At = []byte(metadata), g.At.UTC()
	return g, nil
}
