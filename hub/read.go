package hub

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
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

// list answers the verb of that name: newest first, ties by ref.
func (h *Hub) list(ctx context.Context, in verb.ListRequest) (out verb.ListResponse, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	limit, err := verb.PageSize(in.Limit)
	if err != nil {
		return out, err
	}
	if err := h.schemas.ensure(ctx, h.db, in.Type); err != nil {
		return out, err
	}
	if in.Type != "" && h.schemas.get(in.Type) == nil {
		return out, artifact.Invalid(artifact.UnknownType(in.Type, h.schemas.types(), "/type"))
	}
	query, args := listQuery, []any{c.VisibleScopes(), c.Actor.ID, in.IncludeContent}
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	if in.Type == "" {
		query += ` AND a.audience = 'scope'` // messages are listed when they are asked for
	} else {
		query += ` AND a.type = ` + arg(in.Type)
	}
	if in.Cursor != "" {
		after, err := verb.DecodeCursor(in.Cursor, in.Type)
		if err != nil {
			return out, err
		}
		at := arg(after.At.UTC())
		query += ` AND a.created_at <= ` + at + ` AND (a.created_at < ` + at + ` OR (a.type, a.id) > (` + arg(after.Type) + `, ` + arg(after.ID) + `))`
	}
	// The limit is our own number, and in the text so that the plan knows it.
	query += ` ORDER BY a.created_at DESC, a.type, a.id LIMIT ` + strconv.Itoa(limit+1)
	rows, err := h.db.Query(ctx, query, args...)
	if err != nil {
		return out, callerError(fmt.Errorf("list artifacts: %w", err))
	}
	defer rows.Close()
	out.Artifacts = []artifact.Artifact{}
	for rows.Next() {
		var a artifact.Artifact
		if err := scanArtifact(rows, &a, &out.AsOf); err != nil {
			return out, callerError(fmt.Errorf("list artifacts: %w", err))
		}
		h.schemas.upgrade(&a)
		out.Artifacts = append(out.Artifacts, a)
	}
	if err := rows.Err(); err != nil {
		return out, callerError(fmt.Errorf("list artifacts: %w", err))
	}
	if len(out.Artifacts) > limit {
		out.Artifacts = out.Artifacts[:limit]
		last := out.Artifacts[limit-1]
		out.NextCursor = verb.EncodeCursor(verb.ListCursor{At: last.CreatedAt.Truncate(time.Millisecond), Type: last.Type, ID: last.ID}, in.Type)
	}
	if len(out.Artifacts) == 0 {
		out.AsOf, err = h.Head(ctx)
	}
	return out, err
}
