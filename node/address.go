package node

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

const (
	getLinkSQL = `SELECT id, from_type || ':' || from_id, predicate, to_ref, scope, evidence_refs, evidence, created_at, created_by,
			(SELECT seq FROM replica_state)
		FROM link WHERE id = ?1 AND scope IN ({scopes})`
	getSignalSQL = `SELECT id, type || ':' || artifact, scope, kind, dimension, voter, voter_kind, value, weight, reason, metadata, created_at, created_by,
			(SELECT seq FROM replica_state)
		FROM signal WHERE id = ?1 AND scope IN ({scopes})`
)

// readAddressed reads what is no artifact, but has a ref.
func (s *Store) readAddressed(ctx context.Context, tx *sql.Tx, in *verb.GetRequest, out *verb.GetResponse) error {
	query, scan := &s.read.getLink, scanLink
	if in.Ref.Type == replicate.SignalType {
		query, scan = &s.read.getSignal, scanSignal
	}
	row, err := query.row(context.WithoutCancel(ctx), tx, in.Ref.ID)
	if err != nil {
		return err
	}
	out.Artifact, err = scan(row.Scan, &out.AsOf)
	if err == nil && in.Ref.IsPinned() && in.Ref.Hash != out.Artifact.ContentHash {
		return sql.ErrNoRows
	}
	if !in.WithContent() {
		out.Artifact.Content = nil
	}
	return err
}

func scanLink(scan func(...any) error, more ...any) (artifact.Artifact, error) {
	var l replicate.Link
	var refs, evidence string
	var at int64
	if err := scan(append([]any{&l.ID, &l.From, &l.Predicate, &l.To, &l.Scope, &refs, &evidence, &at, &l.By}, more...)...); err != nil {
		return artifact.Artifact{}, err
	}
	if err := json.Unmarshal([]byte(refs), &l.EvidenceRefs); err != nil {
		return artifact.Artifact{}, err
	}
	l.Evidence, l.At = []byte(evidence), fromMillis(at)
	return l.Artifact()
}

func scanSignal(scan func(...any) error, more ...any) (artifact.Artifact, error) {
	var g replicate.Signal
	var value, weight, metadata string
	var at int64
	if err := scan(append([]any{
		&g.ID, &g.Ref, &g.Scope, &g.Kind, &g.Dimension, &g.Voter, &g.VoterKind, &value, &weight, &g.Reason, &metadata, &at, &g.By,
	}, more...)...); err != nil {
		return artifact.Artifact{}, err
	}
	g.Value, g.Weight, g.Metadata, g.At = json.Number(value), json.Number(weight), []byte(metadata), fromMillis(at)
	return g.Artifact()
}
