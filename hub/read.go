package hub

import (
	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
)

// visible is what every read of artifacts asks of them, with the caller's scopes
// as $1 and the caller's id as $2. A version is visible with its artifact if its
// own scope is, which a move may have left behind. Those without a token are in no
// audience.
const (
	visible = `
		a.scope = ANY ($1) AND (a.audience = 'scope' OR EXISTS (
			SELECT FROM participant p WHERE p.type = a.type AND p.id = a.id AND p.agent IN ($2, '*') AND $2 <> 'anonymous'))`
	visibleVersion = visible + ` AND r.scope = ANY ($1)`
)

// Reads run in one statement, whose snapshot also gives the log's head: what is
// read is the state as of that seq.
const (
	artifactColumns = `
		a.type, a.id, r.scope, r.revision, r.content_hash, r.schema_version, r.title, r.state,
		a.created_at, a.created_by, r.created_at, r.created_by, a.is_latest AND r.revision = a.revision, a.superseded_by, a.quality_score,
		r.additional_signatures, r.redaction`
	listQuery = `
		SELECT` + artifactColumns + `, CASE WHEN $3 THEN r.content ELSE '' END, (` + headQuery + `)
		FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE a.is_latest AND` + visible
)

// scanArtifact reads the columns of the queries above, the log's head, and more.
func scanArtifact(row pgx.Row, a *artifact.Artifact, asOf *artifact.Seq, more ...any) error {
	var hash []byte
	var content string
	var signatures, redaction *string
	if err := row.Scan(append([]any{
		&a.Type, &a.ID, &a.Scope, &a.Revision, &hash, &a.SchemaVersion, &a.Title, &a.State,
		&a.CreatedAt, &a.CreatedBy, &a.UpdatedAt, &a.UpdatedBy, &a.IsLatest, &a.SupersededBy, &a.QualityScore,
		&signatures, &redaction, &content, asOf,
	}, more...)...); err != nil {
		return err
	}
	copy(a.ContentHash[:], hash)
	a.Ref = artifact.Ref{Type: a.Type, ID: a.ID, Hash: a.ContentHash}
	a.CreatedAt, a.UpdatedAt = a.CreatedAt.UTC(), a.UpdatedAt.UTC()
	if signatures != nil {
		a.Signatures = []byte(*signatures)
	}
	if redaction != nil {
		a.Redaction = []byte(*redaction)
	}
	if content != "" {
		a.Content = []byte(content)
	}
	return nil
}
