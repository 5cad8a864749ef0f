package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// writeStatements are prepared on the writer's connection.
type writeStatements struct {
	begin, commit, rollback                         *sql.Stmt
	putHead, dropHead, deleteHead, deleteAggregates *sql.Stmt
	putRevision, deleteRevision                     *sql.Stmt
	putLink, deleteLink                             *sql.Stmt
	putSignal, putAggregate, deleteSignal           *sql.Stmt
	putSchema, currentSchema, putScope, deleteScope *sql.Stmt
	putMembership, deleteMembership                 *sql.Stmt
	putAgent, deleteAgent, putHandle, deleteHandles *sql.Stmt
	putRevocation                                   *sql.Stmt
	putEvent, setPosition, sum, putSum, deleteSum   *sql.Stmt
	dropEvents, setEventFloor                       *sql.Stmt
	putScopeLast                                    *sql.Stmt
	index                                           indexWriter
	vectorStatements
	facetStatements
}

const (
	// Setting created_at would rewrite two indexes even where it stays the same,
	// which it does unless an artifact was made again.
	putHeadSQL = `INSERT INTO artifact (type, id, scope, revision, content_hash, schema_version, title, state,
			is_latest, superseded_by, quality_score, created_at, created_by, updated_at, updated_by, row_hash)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
		ON CONFLICT (type, id) DO UPDATE SET scope = excluded.scope, revision = excluded.revision,
			content_hash = excluded.content_hash, schema_version = excluded.schema_version, title = excluded.title,
			state = excluded.state, is_latest = excluded.is_latest, superseded_by = excluded.superseded_by,
			quality_score = excluded.quality_score, created_by = excluded.created_by,
			updated_at = excluded.updated_at, updated_by = excluded.updated_by, row_hash = excluded.row_hash
		WHERE created_at = excluded.created_at`
	dropHeadSQL         = `DELETE FROM artifact WHERE type = ?1 AND id = ?2`
	deleteHeadSQL       = `DELETE FROM artifact WHERE type = ?1 AND id = ?2 AND scope = ?3`
	deleteAggregatesSQL = `DELETE FROM signal_aggregate WHERE type = ?1 AND artifact = ?2`

	putRevisionSQL = `INSERT INTO artifact_revision (type, id, revision, scope, content_hash, schema_version, title,
			state, created_at, created_by, row_hash, note, provenance, content,
			additional_signatures, redaction)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, CAST(?13 AS TEXT), CAST(?14 AS TEXT), CAST(?15 AS TEXT), CAST(?16 AS TEXT))
		ON CONFLICT (type, id, revision) DO UPDATE SET scope = excluded.scope, content_hash = excluded.content_hash,
			schema_version = excluded.schema_version, title = excluded.title, state = excluded.state,
			created_at = excluded.created_at, created_by = excluded.created_by, row_hash = excluded.row_hash,
			note = excluded.note, provenance = excluded.provenance, content = excluded.content,
			additional_signatures = excluded.additional_signatures, redaction = excluded.redaction`
	deleteRevisionSQL = `DELETE FROM artifact_revision WHERE type = ?1 AND id = ?2 AND revision = ?3 AND scope = ?4`

	putLinkSQL = `INSERT OR REPLACE INTO link (id, from_type, from_id, predicate, to_type, to_id, to_ref, scope,
			evidence_refs, evidence, created_at, created_by, row_hash)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)`
	deleteLinkSQL = `DELETE FROM link WHERE id = ?1 AND scope = ?2`

	putSignalSQL = `INSERT OR REPLACE INTO signal (id, type, artifact, scope, kind, dimension, voter, voter_kind,
			value, weight, reason, metadata, created_at, created_by, row_hash)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)`
	putAggregateSQL = `INSERT OR REPLACE INTO signal_aggregate (type, artifact, kind, dimension, n, voters, sum, sum_sq)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`
	deleteSignalSQL = `DELETE FROM signal WHERE id = ?1 AND scope = ?2`

	putSchemaSQL = `INSERT OR REPLACE INTO schema_registry (type, version, is_current, document, created_at)
		VALUES (?1, ?2, 0, ?3, ?4)`
	currentSchemaSQL = `UPDATE schema_registry
		SET is_current = (version = (SELECT max(s.version) FROM schema_registry AS s WHERE s.type = ?1)) WHERE type = ?1`
	putScopeSQL    = `INSERT OR REPLACE INTO scope (id, title, created_at) VALUES (?1, ?2, ?3)`
	deleteScopeSQL = `DELETE FROM scope WHERE id = ?1`

	putMembershipSQL    = `INSERT OR REPLACE INTO membership (scope, agent, roles, granted_at, granted_by) VALUES (?1, ?2, ?3, ?4, ?5)`
	deleteMembershipSQL = `DELETE FROM membership WHERE scope = ?1 AND agent = ?2`
	putAgentSQL         = `INSERT OR REPLACE INTO agent (scope, id, kind, handle, title, roles, may_delegate, created_at, updated_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)`
	deleteAgentSQL   = `DELETE FROM agent WHERE scope = ?1 AND id = ?2`
	putHandleSQL     = `INSERT OR REPLACE INTO handle (scope, handle, agent) VALUES (?1, ?2, ?3)`
	deleteHandlesSQL = `DELETE FROM handle WHERE scope = ?1 AND agent = ?2`
	putRevocationSQL = `INSERT OR REPLACE INTO revocation (hash, of, before) VALUES (?1, ?2, ?3)`

	putEventSQL = `INSERT INTO event (seq, type, ref, scope, actor_id, actor_kind, at, payload)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`
	// Another process that writes the same file would have moved it.
	setPositionSQL   = `UPDATE replica_state SET seq = ?2, chain = ?3 WHERE seq = ?1`
	dropEventsSQL    = `DELETE FROM event WHERE seq <= ?1 AND scope = ?2`
	setEventFloorSQL = `UPDATE replica_state SET event_floor = max(event_floor, ?1)`
	sumSQL           = `SELECT n, acc FROM digest WHERE scope = ?1 AND kind = ?2 AND type = ?3`
	putSumSQL        = `INSERT OR REPLACE INTO digest (scope, kind, type, n, acc) VALUES (?1, ?2, ?3, ?4, ?5)`
	putScopeLastSQL  = `INSERT OR REPLACE INTO scope_last (scope, seq) VALUES (?1, ?2)`
	deleteSumSQL     = `DELETE FROM digest WHERE scope = ?1 AND kind = ?2 AND type = ?3`
)

func (w *writeStatements) prepare(ctx context.Context, conn *sql.Conn) error {
	if err := errors.Join(w.index.prepare(ctx, conn), prepare(ctx, conn, w.texts()), w.vectorStatements.prepare(ctx, conn)); err != nil {
		return err
	}
	return prepare(ctx, conn, map[**sql.Stmt]string{
		&w.begin: "BEGIN IMMEDIATE", &w.commit: "COMMIT", &w.rollback: "ROLLBACK",
		&w.putHead: putHeadSQL, &w.dropHead: dropHeadSQL, &w.deleteHead: deleteHeadSQL, &w.deleteAggregates: deleteAggregatesSQL,
		&w.putRevision: putRevisionSQL, &w.deleteRevision: deleteRevisionSQL,
		&w.putLink: putLinkSQL, &w.deleteLink: deleteLinkSQL,
		&w.putSignal: putSignalSQL, &w.putAggregate: putAggregateSQL, &w.deleteSignal: deleteSignalSQL,
		&w.putSchema: putSchemaSQL, &w.currentSchema: currentSchemaSQL,
		&w.putScope: putScopeSQL, &w.deleteScope: deleteScopeSQL,
		&w.putMembership: putMembershipSQL, &w.deleteMembership: deleteMembershipSQL,
		&w.putAgent: putAgentSQL, &w.deleteAgent: deleteAgentSQL, &w.putHandle: putHandleSQL, &w.deleteHandles: deleteHandlesSQL,
		&w.putRevocation: putRevocationSQL,
		&w.putEvent:      putEventSQL, &w.setPosition: setPositionSQL,
		&w.dropEvents: dropEventsSQL, &w.setEventFloor: setEventFloorSQL,
		&w.sum: sumSQL, &w.putSum: putSumSQL, &w.deleteSum: deleteSumSQL, &w.putScopeLast: putScopeLastSQL,
	})
}

// row stores what a row says of its thing. A kind that this build does not know
// stores nothing: a newer hub may have more of them.
func (w *writeStatements) row(ctx context.Context, r *replicate.Row) error {
	switch r.Op {
	case replicate.Put:
		return w.put(ctx, r)
	case replicate.Delete:
		return w.delete(ctx, r)
	case replicate.Emit:
		return nil
	}
	return fmt.Errorf("unknown op %.10q", r.Op)
}

func (w *writeStatements) put(ctx context.Context, r *replicate.Row) error {
	if len(r.Data) == 0 {
		return nil // withheld: a later row says how it is now
	}
	switch r.Kind {
	case replicate.KindArtifact:
		return w.head(ctx, r)
	case replicate.KindRevision:
		return w.revision(ctx, r)
	case replicate.KindLink:
		return w.link(ctx, r)
	case replicate.KindSignal:
		return w.signal(ctx, r)
	case replicate.KindSchema:
		return w.schema(ctx, r)
	case replicate.KindScope:
		return w.scope(ctx, r)
	case replicate.KindMembership:
		return w.membership(ctx, r)
	case replicate.KindAgent:
		return w.agent(ctx, r)
	case replicate.KindRevocation:
		return w.revocation(ctx, r)
	case replicate.KindVector:
		return w.vector(ctx, r)
	case replicate.KindVectorModel:
		return w.vectorModel(ctx, r)
	case replicate.KindEventFloor:
		return w.eventFloor(ctx, r)
	}
	return nil
}

// eventFloor deletes the events that are no longer kept. What the digest loses by it
// is what the row says, not what is here: else an event that is missing would never
// be missed.
func (w *writeStatements) eventFloor(ctx context.Context, r *replicate.Row) error {
	f, err := r.EventFloor()
	if err != nil {
		return err
	}
	if _, err := w.dropEvents.ExecContext(ctx, int64(f.UpTo), f.Scope); err != nil {
		return err
	}
	_, err = w.setEventFloor.ExecContext(ctx, int64(f.UpTo))
	return err
}

func (w *writeStatements) delete(ctx context.Context, r *replicate.Row) (err error) {
	typ, id, _ := strings.Cut(r.Ref, ":")
	switch r.Kind {
	case replicate.KindArtifact:
		// Signals that move with it bring their aggregates anew.
		if err = w.deleteArtifact(ctx, typ, id, r.Scope); err == nil {
			if _, err = w.deleteAggregates.ExecContext(ctx, typ, id); err == nil {
				err = w.remake(ctx, typ, id)
			}
		}
	case replicate.KindRevision:
		_, err = w.deleteRevision.ExecContext(ctx, typ, id, r.Revision, r.Scope)
	case replicate.KindLink:
		_, err = w.deleteLink.ExecContext(ctx, id, r.Scope)
	case replicate.KindSignal:
		_, err = w.deleteSignal.ExecContext(ctx, id, r.Scope)
	case replicate.KindScope:
		_, err = w.deleteScope.ExecContext(ctx, id)
	case replicate.KindVector:
		_, err = w.dropVectorsIn.ExecContext(ctx, typ, id, r.Scope)
	case replicate.KindMembership:
		_, agent, _ := strings.Cut(id, "/")
		_, err = w.deleteMembership.ExecContext(ctx, r.Scope, agent)
	case replicate.KindAgent:
		if _, err = w.deleteAgent.ExecContext(ctx, r.Scope, id); err == nil {
			_, err = w.deleteHandles.ExecContext(ctx, r.Scope, id)
		}
	}
	return err
}

// deleteArtifact deletes a head, its words and what it means.
func (w *writeStatements) deleteArtifact(ctx context.Context, typ, id, scope string) error {
	if _, err := w.dropVectorsIn.ExecContext(ctx, typ, id, scope); err != nil {
		return err
	}
	res, err := w.deleteHead.ExecContext(ctx, typ, id, scope)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); n == 0 || err != nil {
		return err
	}
	w.index.forgot = true
	return w.index.drop(ctx, typ, id)
}

func (w *writeStatements) head(ctx context.Context, r *replicate.Row) error {
	h, err := decodeHead(r.Data)
	if err != nil {
		return err
	}
	if err := check(r, h.Type, h.ID, h.Scope); err != nil {
		return err
	}
	args := []any{
		h.Type, h.ID, h.Scope, h.Revision, h.ContentHash[:], h.SchemaVersion,
		h.Title, h.State, h.IsLatest, h.SupersededBy, h.QualityScore,
		h.CreatedAt.UnixMilli(), h.CreatedBy, h.UpdatedAt.UnixMilli(), h.UpdatedBy, r.Hash[:],
	}
	there, same, err := w.stored(ctx, h.Type, h.ID, headState{h.Revision, h.SchemaVersion, h.Scope, h.IsLatest})
	if err != nil {
		return err
	}
	res, err := w.putHead.ExecContext(ctx, args...)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		if _, err := w.dropHead.ExecContext(ctx, h.Type, h.ID); err != nil {
			return err
		}
		if _, err = w.putHead.ExecContext(ctx, args...); err != nil {
			return err
		}
	}
	switch v := &w.index.last; {
	case same:
	case !there && v.of(&h) && !v.redacted:
		err = w.make(ctx, &h, v.content)
	default:
		err = w.remake(ctx, h.Type, h.ID)
	}
	if err == nil && !h.IsLatest {
		_, err = w.dropVectors.ExecContext(ctx, h.Type, h.ID)
	}
	if err != nil {
		return err
	}
	return w.index.put(ctx, &h, !there)
}

func (w *writeStatements) revision(ctx context.Context, r *replicate.Row) error {
	v, err := decodeRevision(r.Data)
	if err != nil {
		return err
	}
	if err := check(r, v.Type, v.ID, v.Scope); err != nil {
		return err
	}
	if v.Redaction == nil && artifact.ContentHash(v.Type, v.Title, v.State, r.Content) != v.ContentHash {
		return errors.New("the content is not what its hash says")
	}
	w.index.last = version{v.Type, v.ID, v.Revision.Revision, r.Content, v.Redaction != nil}
	_, err = w.putRevision.ExecContext(ctx, v.Type, v.ID, v.Revision.Revision, v.Scope, v.ContentHash[:], v.SchemaVersion,
		v.Title, v.State, v.CreatedAt.UnixMilli(), v.CreatedBy, r.Hash[:], v.Note, []byte(v.Provenance), []byte(r.Content),
		[]byte(v.Signatures), []byte(v.Redaction))
	if err != nil || r.Seq != 0 && v.Redaction == nil {
		return err // its head comes after it
	}
	if v.Redaction != nil {
		if _, err := w.redactVectors.ExecContext(ctx, v.Type, v.ID, v.Revision.Revision); err != nil {
			return err
		}
	}
	return w.remake(ctx, v.Type, v.ID)
}

func (w *writeStatements) link(ctx context.Context, r *replicate.Row) error {
	var l struct {
		replicate.Link
		EvidenceRefs json.RawMessage `json:"evidence_refs"` // kept as it is
	}
	if err := json.Unmarshal(r.Data, &l); err != nil {
		return err
	}
	if err := check(r, replicate.LinkType, l.ID, l.Scope); err != nil {
		return err
	}
	from, err := artifact.ParseRef(l.From)
	if err != nil {
		return err
	}
	to, err := artifact.ParseRef(l.To)
	if err != nil {
		return err
	}
	_, err = w.putLink.ExecContext(ctx, l.ID, from.Type, from.ID, l.Predicate, to.Type, to.ID, l.To, l.Scope,
		string(l.EvidenceRefs), string(l.Evidence), l.At.UnixMilli(), l.By, r.Hash[:])
	return err
}

func decodeSignal(data []byte) (g replicate.Signal, err error) { return g, json.Unmarshal(data, &g) }

func (w *writeStatements) signal(ctx context.Context, r *replicate.Row) error {
	g, err := decodeSignal(r.Data)
	if err != nil {
		return err
	}
	if err := check(r, replicate.SignalType, g.ID, g.Scope); err != nil {
		return err
	}
	ref, err := artifact.ParseRef(g.Ref)
	if err != nil {
		return err
	}
	if _, err := w.putSignal.ExecContext(ctx, g.ID, ref.Type, ref.ID, g.Scope, g.Kind, g.Dimension, g.Voter, g.VoterKind,
		g.Value.String(), g.Weight.String(), g.Reason, string(g.Metadata), g.At.UnixMilli(), g.By, r.Hash[:]); err != nil {
		return err
	}
	if r.Seq == 0 {
		return nil // of a repair, which puts the sums where they are the latest
	}
	return w.aggregate(ctx, ref, &g.Aggregate)
}

func (w *writeStatements) aggregate(ctx context.Context, ref artifact.Ref, a *artifact.Aggregate) error {
	_, err := w.putAggregate.ExecContext(ctx, ref.Type, ref.ID, a.Kind, a.Dimension, a.Count, a.Voters, a.Sum.String(), a.SumSq.String())
	return err
}

func (w *writeStatements) schema(ctx context.Context, r *replicate.Row) error {
	var c replicate.Schema
	if err := json.Unmarshal(r.Data, &c); err != nil {
		return err
	}
	if _, err := w.putSchema.ExecContext(ctx, c.Type, c.SchemaVersion, string(c.Document), c.CreatedAt.UnixMilli()); err != nil {
		return err
	}
	if _, err := w.currentSchema.ExecContext(ctx, c.Type); err != nil {
		return err
	}
	return w.index.learn(ctx, c.Type)
}

func (w *writeStatements) scope(ctx context.Context, r *replicate.Row) error {
	var c replicate.Scope
	if err := json.Unmarshal(r.Data, &c); err != nil {
		return err
	}
	_, err := w.putScope.ExecContext(ctx, c.ID, c.Title, c.CreatedAt.UnixMilli())
	return err
}

func (w *writeStatements) membership(ctx context.Context, r *replicate.Row) error {
	var m replicate.Membership
	if err := json.Unmarshal(r.Data, &m); err != nil {
		return err
	}
	if err := check(r, replicate.KindMembership, m.Scope+"/"+m.Agent, m.Scope); err != nil {
		return err
	}
	roles, err := json.Marshal(m.Roles)
	if err != nil {
		return err
	}
	_, err = w.putMembership.ExecContext(ctx, m.Scope, m.Agent, string(roles), m.GrantedAt.UnixMilli(), m.GrantedBy)
	return err
}

// agent stores an agent with all its handles. One scope's row says nothing of
// another's.
func (w *writeStatements) agent(ctx context.Context, r *replicate.Row) error {
	var a replicate.Agent
	if err := json.Unmarshal(r.Data, &a); err != nil {
		return err
	}
	if err := check(r, replicate.KindAgent, a.ID, r.Scope); err != nil {
		return err
	}
	roles, err := json.Marshal(a.Roles)
	if err != nil {
		return err
	}
	if _, err := w.putAgent.ExecContext(ctx, r.Scope, a.ID, a.Kind, a.Handle, a.Title, string(roles), a.MayDelegate,
		a.CreatedAt.UnixMilli(), a.UpdatedAt.UnixMilli()); err != nil {
		return err
	}
	if _, err := w.deleteHandles.ExecContext(ctx, r.Scope, a.ID); err != nil {
		return err
	}
	for _, handle := range append([]string{a.Handle}, a.FormerHandles...) {
		if handle == "" {
			continue
		}
		if _, err := w.putHandle.ExecContext(ctx, r.Scope, handle, a.ID); err != nil {
			return err
		}
	}
	return nil
}

func (w *writeStatements) revocation(ctx context.Context, r *replicate.Row) error {
	var v replicate.Revocation
	if err := json.Unmarshal(r.Data, &v); err != nil {
		return err
	}
	_, err := w.putRevocation.ExecContext(ctx, v.Hash[:], v.Of, v.Before.UnixMilli())
	return err
}

// check refuses data that speaks of another thing than its row: the digest is
// kept by the row, and what is read is the data.
func check(r *replicate.Row, typ, id, scope string) error {
	rest, ok := strings.CutPrefix(r.Ref, typ)
	if !ok || len(rest) != len(id)+1 || rest[0] != ':' || rest[1:] != id || r.Scope != scope {
		return fmt.Errorf("the row is of %s in %s and its data of %s:%s in %s", r.Ref, r.Scope, typ, id, scope)
	}
	return nil
}

func (w *writeStatements) event(ctx context.Context, e *artifact.Event) error {
	_, err := w.putEvent.ExecContext(ctx, int64(e.ID), e.Type, e.Ref, e.Scope, e.Actor.ID, e.Actor.Kind, e.At.UnixMilli(), string(e.Payload))
	return err
}

// digest merges what a commit changes into the stored sums.
func (w *writeStatements) digest(ctx context.Context, sums replicate.Sums) error {
	for k, change := range sums {
		var n int64
		var acc []byte
		err := w.sum.QueryRowContext(ctx, k.Scope, k.Kind, k.Type).Scan(&n, &acc)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		n += change.Count
		xor := change.XOR
		for i := range acc {
			xor[i] ^= acc[i]
		}
		if n == 0 && xor.IsZero() {
			_, err = w.deleteSum.ExecContext(ctx, k.Scope, k.Kind, k.Type)
		} else {
			_, err = w.putSum.ExecContext(ctx, k.Scope, k.Kind, k.Type, n, xor[:])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// position moves the stored position, unless it is not where it is to move from.
func (w *writeStatements) position(ctx context.Context, from artifact.Seq, to replicate.Position) (moved bool, err error) {
	chain := to.Chain[:]
	if to.Chain.IsZero() {
		chain = []byte{}
	}
	res, err := w.setPosition.ExecContext(ctx, int64(from), int64(to.Seq), chain)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}
