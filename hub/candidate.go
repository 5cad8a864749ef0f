package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// kindCandidate is the kind of the log's rows of candidates. They are in no feed.
const kindCandidate = "candidate"

// A candidateKey names a candidate.
type candidateKey struct{ scope, id string }

// A candidate is one as it is stored.
type candidate struct {
	verb.Candidate
	authorKind string // of CreatedBy
}

const (
	candidateColumns = `
		SELECT c.scope, c.id, c.kind, c.family, c.origin, c.version, c.status, c.target_type, c.target_id, c.target_revision, t.content_hash,
			c.created_by, c.created_by_kind, c.created_at, c.decided_by, c.decided_at, c.decision_reason,
			c.result_type, c.result_id, c.result_revision, c.result_content_hash,
			v.proposal, v.evidence, v.reason, v.written_by, v.written_at
		FROM candidate c JOIN candidate_version v ON v.scope = c.scope AND v.id = c.id AND v.version = c.version
		LEFT JOIN artifact_revision t ON t.type = c.target_type AND t.id = c.target_id AND t.revision = c.target_revision`
	// candidateVisible is what every read of candidates asks of them, with the caller's
	// scopes as $1 and the caller's id as $2. What has moved out of the caller's sight
	// takes along what was proposed of it.
	candidateVisible = `
		c.scope = ANY ($1) AND NOT EXISTS (
			SELECT FROM artifact a
			WHERE (a.type, a.id) IN ((c.target_type, c.target_id), (c.result_type, c.result_id)) AND NOT (` + visible + `))`
	candidateQuery = candidateColumns + `
		WHERE` + candidateVisible + ` AND c.scope = $3 AND c.id = $4`
	// lockCandidateQuery comes before any artifact is locked, and before the candidate is
	// read: a statement that waits for a row looks at others as they were.
	lockCandidateQuery = `
		SELECT FROM candidate c
		WHERE c.scope = ANY ($1) AND c.scope = $2 AND c.id = $3
		FOR UPDATE`
	candidatesQuery = candidateColumns + `
		WHERE` + candidateVisible + ` AND c.scope = $3 AND c.status = $4 AND ($5 = '' OR c.kind = $5) AND ($6 = '' OR c.family = $6)
			AND ($7::timestamptz IS NULL OR (c.created_at, c.id) > ($7, $8))
		ORDER BY c.created_at, c.id
		LIMIT $9`
	candidateVersionsQuery = `
		SELECT v.version, v.proposal, v.evidence, v.reason, v.written_by, v.written_at
		FROM candidate_version v
		WHERE v.scope = ANY ($1) AND v.scope = $2 AND v.id = $3
		ORDER BY v.version`
)

// redactCandidatesQuery takes out what candidates say of an artifact that they would
// change or have made.
const redactCandidatesQuery = `
	UPDATE candidate_version v
	SET proposal = '{"content":{},"title":"` + redactedTitle + `"}', reason = ''
	FROM candidate c
	WHERE v.scope = c.scope AND v.id = c.id AND (c.target_type = $1 AND c.target_id = $2 OR c.result_type = $1 AND c.result_id = $2)`

// redactDecisionsQuery takes out why such candidates were rejected.
const redactDecisionsQuery = `
	UPDATE candidate c SET decision_reason = '` + redactedTitle + `'
	WHERE c.status = 'rejected' AND (c.target_type = $1 AND c.target_id = $2 OR c.result_type = $1 AND c.result_id = $2)`

func scanCandidate(row pgx.Row) (*candidate, error) {
	c := new(candidate)
	var targetType, targetID, resultType, resultID, decidedBy, decisionReason *string
	var targetRevision, resultRevision *int
	var targetHash, resultHash []byte
	var decidedAt *timeOf
	var proposal, evidence string
	err := row.Scan(&c.ScopeID, &c.CandidateID, &c.CandidateKind, &c.Family, &c.Origin, &c.Version, &c.Status, &targetType, &targetID, &targetRevision, &targetHash,
		&c.CreatedBy, &c.authorKind, &c.CreatedAt, &decidedBy, &decidedAt, &decisionReason, &resultType, &resultID, &resultRevision, &resultHash,
		&proposal, &evidence, &c.Reason, &c.WrittenBy, &c.WrittenAt)
	if err != nil {
		return nil, err
	}
	c.CreatedAt, c.WrittenAt = c.CreatedAt.UTC(), c.WrittenAt.UTC()
	if targetID != nil {
		c.Target = exactly(*targetType, *targetID, *targetRevision, targetHash)
	}
	if resultID != nil {
		c.ResultArtifact = exactly(*resultType, *resultID, *resultRevision, resultHash)
	}
	if decidedBy != nil {
		c.DecidedBy, c.DecidedAt = *decidedBy, decidedAt.UTC()
	}
	if decisionReason != nil {
		c.DecisionReason = *decisionReason
	}
	if err := json.Unmarshal([]byte(proposal), &c.Proposal); err != nil {
		return nil, fmt.Errorf("proposal of %s: %w", c.Ref(), err)
	}
	if err := json.Unmarshal([]byte(evidence), &c.Artifacts); err != nil {
		return nil, fmt.Errorf("evidence of %s: %w", c.Ref(), err)
	}
	return c, nil
}

func exactly(typ, id string, revision int, hash []byte) *verb.ExactRef {
	return &verb.ExactRef{Family: typ, ArtifactID: id, Revision: revision, ContentHash: artifact.Hash(hash)}
}

// noCandidate is the answer for one that is not there, or that the caller may not
// know of.
func noCandidate() *artifact.Error {
	return &artifact.Error{Code: artifact.CodeNotFound, Reason: artifact.ReasonCandidateNotFound, Message: "there is no such candidate in a scope that you may see"}
}

// queueCandidate locks and reads the candidate that a request decides on.
func (l *loaded) queueCandidate(b *pgx.Batch, scopes []string, agent string, k *candidateKey) {
	b.Queue(lockCandidateQuery, scopes, k.scope, k.id)
	b.Queue(candidateQuery, scopes, agent, k.scope, k.id).QueryRow(func(row pgx.Row) (err error) {
		if l.candidate, err = scanCandidate(row); errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
}

// reviewReader returns the caller, who has a token: what was not reviewed is not for
// everyone.
func reviewReader(ctx context.Context) (*verb.Caller, error) {
	c, err := verb.CallerFrom(ctx)
	if err == nil && c.Anonymous {
		err = verb.Unauthenticated("candidates are for those with a token")
	}
	return c, err
}

// findCandidate reads a candidate as it is now.
func (h *Hub) findCandidate(ctx context.Context, c *verb.Caller, scope, id string) (*candidate, error) {
	found, err := scanCandidate(h.db.QueryRow(ctx, candidateQuery, c.VisibleScopes(), c.Actor.ID, scope, id))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, noCandidate()
	}
	return found, err
}

// candidatesGet answers the verb of that name.
func (h *Hub) candidatesGet(ctx context.Context, in verb.CandidatesGetRequest) (out verb.Candidate, err error) {
	c, err := reviewReader(ctx)
	if err != nil {
		return out, err
	}
	found, err := h.findCandidate(ctx, c, in.ScopeID, in.CandidateID)
	if err != nil {
		return out, callerError(err)
	}
	return found.Candidate, nil
}

// candidatesList answers the verb of that name.
func (h *Hub) candidatesList(ctx context.Context, in verb.CandidatesListRequest) (out verb.CandidatesListResponse, err error) {
	c, err := reviewReader(ctx)
	if err != nil {
		return out, err
	}
	p, err := in.Plan()
	if in.Family != "" && h.schemas.get(in.Family) == nil {
		err = gather(err, artifact.Invalid(artifact.UnknownType(in.Family, h.schemas.types(), "/family")))
	}
	if err != nil {
		return out, err
	}
	if !slices.Contains(c.VisibleScopes(), in.ScopeID) {
		return out, noCandidate()
	}
	var at *timeOf
	var id string
	if p.After != nil {
		at, id = &p.After.At, p.After.ID
	}
	rows, err := h.db.Query(ctx, candidatesQuery, c.VisibleScopes(), c.Actor.ID, in.ScopeID, p.Status, in.Kind, in.Family, at, id, p.Limit+1)
	if err != nil {
		return out, callerError(err)
	}
	out.Candidates, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (verb.Candidate, error) {
		found, err := scanCandidate(row)
		if err != nil {
			return verb.Candidate{}, err
		}
		return found.Candidate, nil
	})
	if err != nil {
		return out, callerError(fmt.Errorf("list candidates: %w", err))
	}
	if len(out.Candidates) > p.Limit {
		out.Candidates = out.Candidates[:p.Limit]
		last := &out.Candidates[p.Limit-1]
		next := in.NextCursorAfter(verb.CandidatePlace{At: last.CreatedAt, ID: last.CandidateID})
		out.NextCursor = &next
	}
	return out, nil
}

// candidatesHistory answers the verb of that name.
func (h *Hub) candidatesHistory(ctx context.Context, in verb.CandidatesGetRequest) (out verb.CandidateHistory, err error) {
	c, err := reviewReader(ctx)
	if err != nil {
		return out, err
	}
	err = h.oneState(ctx, func(tx pgx.Tx) error {
		now, err := scanCandidate(tx.QueryRow(ctx, candidateQuery, c.VisibleScopes(), c.Actor.ID, in.ScopeID, in.CandidateID))
		if errors.Is(err, pgx.ErrNoRows) {
			return noCandidate()
		} else if err != nil {
			return err
		}
		out.CandidateID, out.Kind = now.CandidateID, now.CandidateKind
		if now.Status != verb.CandidatePending {
			out.Decision = &verb.CandidateDecision{
				Status: now.Status, Version: now.Version, Reason: now.DecisionReason, By: now.DecidedBy, At: now.DecidedAt, Result: now.ResultArtifact,
			}
		}
		rows, err := tx.Query(ctx, candidateVersionsQuery, c.VisibleScopes(), in.ScopeID, in.CandidateID)
		if err != nil {
			return err
		}
		out.Versions, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (v verb.CandidateVersion, err error) {
			var proposal, evidence string
			if err := row.Scan(&v.Version, &proposal, &evidence, &v.Reason, &v.WrittenBy, &v.WrittenAt); err != nil {
				return v, err
			}
			v.WrittenAt = v.WrittenAt.UTC()
			return v, errors.Join(json.Unmarshal([]byte(proposal), &v.Proposal), json.Unmarshal([]byte(evidence), &v.Artifacts))
		})
		return err
	})
	return out, callerError(err)
}

// checkVersionGiven checks the version that a decision names.
func checkVersionGiven(version int) []artifact.Problem {
	if version >= 1 {
		return nil
	}
	return []artifact.Problem{{
		Path: "/expected_version", Constraint: "range", Message: "give the version of the candidate that you read, 1 or more", Value: json.RawMessage(strconv.Itoa(version)),
	}}
}
