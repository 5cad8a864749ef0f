package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// What a replica's own row can be found to be.
const (
	notItsHash    = "it is not what its hash says"
	notItsContent = "its content is not what its hash says"
	notItsSums    = "the sums are not those of the signals"
)

// A finding is a row that is found out without asking the hub.
type finding struct {
	replicate.DigestKey
	replicate.Thing
	what string
}

const (
	headRowsSQL = `SELECT type, id, scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by,
			quality_score, created_at, created_by, updated_at, updated_by, row_hash
		FROM artifact`
	revisionRowsSQL = `SELECT type, id, revision, scope, content_hash, schema_version, title, state, created_at, created_by,
			row_hash, note, provenance, additional_signatures, redaction, content
		FROM artifact_revision`
	linkRowsSQL = `SELECT id, from_type, from_id, predicate, to_ref, scope, evidence_refs, evidence, created_at, created_by, row_hash
		FROM link`
	signalRowsSQL = `SELECT s.id, s.type, s.artifact, s.scope, s.kind, s.dimension, s.voter, s.voter_kind, s.value, s.weight, s.reason,
			s.metadata, s.created_at, s.created_by, s.row_hash, coalesce(g.n, 0), coalesce(g.voters, 0), coalesce(g.sum, ''), coalesce(g.sum_sq, '')
		FROM signal AS s
		LEFT JOIN signal_aggregate AS g ON g.type = s.type AND g.artifact = s.artifact AND g.kind = s.kind AND g.dimension = s.dimension
		ORDER BY s.type, s.artifact, s.kind, s.dimension, s.id`
)

// An inspection reads all rows that the digest covers, sums them up and makes each
// row's data again, whose hash must be the one that stands beside it.
type inspection struct {
	sums  replicate.Sums
	found []finding

	// unknown says that the hub's rows may have members that this build does not
	// store: then their data cannot be made again.
	unknown bool
}

// maxFindings bounds what is told; a replica with more is to be copied anew.
const maxFindings = 10_000

func (p *inspection) note(k replicate.DigestKey, t replicate.Thing, what string) {
	if len(p.found) <= maxFindings {
		p.found = append(p.found, finding{k, t, what})
	}
}

// row counts a row, and proves it unless it cannot be.
func (p *inspection) row(k replicate.DigestKey, t replicate.Thing, rowHash []byte, data any) error {
	var hash artifact.Hash
	copy(hash[:], rowHash)
	count(p.sums, k, hash)
	if len(rowHash) != artifact.HashSize {
		p.note(k, t, notItsHash)
		return nil
	}
	if p.unknown || data == nil {
		return nil
	}
	_, made, err := replicate.Encode(data)
	if err != nil || made != hash { // such as JSON that is none any more
		p.note(k, t, notItsHash)
	}
	return nil
}

func (p *inspection) all(ctx context.Context, tx *sql.Tx) error {
	for _, read := range []func(context.Context, *sql.Tx) error{p.heads, p.revisions, p.links, p.signals, p.events} {
		if err := read(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

func (p *inspection) heads(ctx context.Context, tx *sql.Tx) error {
	return each(ctx, tx, headRowsSQL, func(rows *sql.Rows) error {
		var h replicate.Head
		var contentHash, rowHash sql.RawBytes
		var created, updated int64
		if err := rows.Scan(&h.Type, &h.ID, &h.Scope, &h.Revision, &contentHash, &h.SchemaVersion, &h.Title, &h.State, &h.IsLatest, &h.SupersededBy,
			&h.QualityScore, &created, &h.CreatedBy, &updated, &h.UpdatedBy, &rowHash); err != nil {
			return err
		}
		copy(h.ContentHash[:], contentHash)
		h.CreatedAt, h.UpdatedAt = fromMillis(created), fromMillis(updated)
		return p.row(replicate.DigestKey{Scope: h.Scope, Kind: replicate.KindArtifact, Type: h.Type}, replicate.Thing{Key: h.ID}, rowHash, &h)
	})
}

// A storedRevision is a [replicate.Revision] of which some members are kept as they
// are.
type storedRevision struct {
	Signatures    json.RawMessage `json:"additional_signatures,omitempty"`
	ContentHash   artifact.Hash   `json:"content_hash"`
	CreatedAt     time.Time       `json:"created_at"`
	CreatedBy     string          `json:"created_by"`
	ID            string          `json:"id"`
	Note          string          `json:"note"`
	Provenance    json.RawMessage `json:"provenance"`
	Redaction     json.RawMessage `json:"redaction,omitempty"`
	Revision      int             `json:"revision"`
	SchemaVersion int             `json:"schema_version"`
	Scope         string          `json:"scope"`
	State         string          `json:"state"`
	Title         string          `json:"title"`
	Type          string          `json:"type"`
}

func (p *inspection) revisions(ctx context.Context, tx *sql.Tx) error {
	return each(ctx, tx, revisionRowsSQL, func(rows *sql.Rows) error {
		var v storedRevision
		var contentHash, rowHash, provenance, signatures, redaction, content sql.RawBytes
		var created int64
		if err := rows.Scan(&v.Type, &v.ID, &v.Revision, &v.Scope, &contentHash, &v.SchemaVersion, &v.Title, &v.State, &created, &v.CreatedBy,
			&rowHash, &v.Note, &provenance, &signatures, &redaction, &content); err != nil {
			return err
		}
		copy(v.ContentHash[:], contentHash)
		v.CreatedAt = fromMillis(created)
		v.Provenance, v.Signatures, v.Redaction = json.RawMessage(provenance), json.RawMessage(signatures), json.RawMessage(redaction)
		k, t := replicate.DigestKey{Scope: v.Scope, Kind: replicate.KindRevision, Type: v.Type}, replicate.Thing{Key: v.ID, Revision: v.Revision}
		if redaction == nil && artifact.ContentHash(v.Type, v.Title, v.State, json.RawMessage(content)) != v.ContentHash || redaction != nil && string(content) != "{}" {
			p.note(k, t, notItsContent)
		}
		return p.row(k, t, rowHash, &v)
	})
}

func (p *inspection) links(ctx context.Context, tx *sql.Tx) error {
	return each(ctx, tx, linkRowsSQL, func(rows *sql.Rows) error {
		var l struct {
			At           time.Time       `json:"at"`
			By           string          `json:"by"`
			Evidence     json.RawMessage `json:"evidence"`
			EvidenceRefs json.RawMessage `json:"evidence_refs"`
			From         string          `json:"from"`
			ID           string          `json:"id"`
			Predicate    string          `json:"predicate"`
			Scope        string          `json:"scope"`
			To           string          `json:"to"`
		}
		var from artifact.Ref
		var refs, evidence, rowHash sql.RawBytes
		var created int64
		if err := rows.Scan(&l.ID, &from.Type, &from.ID, &l.Predicate, &l.To, &l.Scope, &refs, &evidence, &created, &l.By, &rowHash); err != nil {
			return err
		}
		l.At, l.From, l.EvidenceRefs, l.Evidence = fromMillis(created), from.String(), json.RawMessage(refs), json.RawMessage(evidence)
		return p.row(replicate.DigestKey{Scope: l.Scope, Kind: replicate.KindLink, Type: replicate.LinkType}, replicate.Thing{Key: l.ID}, rowHash, &l)
	})
}

// signals proves signals with all that they are summed up with.
func (p *inspection) signals(ctx context.Context, tx *sql.Tx) error {
	var group []replicate.Signal
	var hashes []artifact.Hash
	var sums artifact.Aggregate
	err := each(ctx, tx, signalRowsSQL, func(rows *sql.Rows) error {
		var g replicate.Signal
		var ref artifact.Ref
		var value, weight, metadata, sum, sumSq string
		var rowHash sql.RawBytes
		var created, n, voters int64
		if err := rows.Scan(&g.ID, &ref.Type, &ref.ID, &g.Scope, &g.Kind, &g.Dimension, &g.Voter, &g.VoterKind, &value, &weight, &g.Reason,
			&metadata, &created, &g.By, &rowHash, &n, &voters, &sum, &sumSq); err != nil {
			return err
		}
		g.Ref, g.Value, g.Weight, g.Metadata, g.At = ref.String(), json.Number(value), json.Number(weight), json.RawMessage(metadata), fromMillis(created)
		if err := p.row(signalKey(&g), replicate.Thing{Key: g.ID}, rowHash, nil); err != nil {
			return err
		}
		if i := len(group); i > 0 && (group[i-1].Ref != g.Ref || group[i-1].Kind != g.Kind || group[i-1].Dimension != g.Dimension) {
			p.summed(group, hashes, &sums)
			group, hashes = nil, nil
		}
		var hash artifact.Hash
		copy(hash[:], rowHash)
		group, hashes = append(group, g), append(hashes, hash)
		sums = artifact.Aggregate{Count: n, Voters: voters, Sum: json.Number(sum), SumSq: json.Number(sumSq)}
		return nil
	})
	if err == nil {
		p.summed(group, hashes, &sums)
	}
	return err
}

func signalKey(g *replicate.Signal) replicate.DigestKey {
	return replicate.DigestKey{Scope: g.Scope, Kind: replicate.KindSignal, Type: replicate.SignalType}
}

// summed proves the signals of one artifact, kind and dimension, and what is stored
// as their sums.
func (p *inspection) summed(group []replicate.Signal, hashes []artifact.Hash, sums *artifact.Aggregate) {
	if p.unknown || len(group) == 0 {
		return
	}
	ok, last, err := replicate.ProveSignals(group, hashes)
	all := err == nil
	for i := range group {
		if err != nil || !ok[i] {
			all = false
			p.note(signalKey(&group[i]), replicate.Thing{Key: group[i].ID}, notItsHash)
		}
	}
	for i := range last {
		if l := &last[i]; l.Count == sums.Count && l.Voters == sums.Voters && l.Sum == sums.Sum && l.SumSq == sums.SumSq {
			return
		}
	}
	if g := &group[len(group)-1]; all {
		p.note(signalKey(g), replicate.Thing{Key: g.ID}, notItsSums)
	}
}

// events are proved by their hashes, which stand nowhere: one that was changed has
// another.
func (p *inspection) events(ctx context.Context, tx *sql.Tx) error {
	return each(ctx, tx, allEventsSQL, func(rows *sql.Rows) error {
		k, _, hash, err := scanEventHash(rows)
		if err != nil {
			return err
		}
		count(p.sums, k, hash)
		return nil
	})
}

func scanEventHash(rows *sql.Rows) (k replicate.DigestKey, t replicate.Thing, h artifact.Hash, err error) {
	e, err := scanEvent(rows)
	if err != nil {
		return k, t, h, err
	}
	r := replicate.Row{Seq: e.ID, Scope: e.Scope, At: e.At, Event: &replicate.RowEvent{Type: e.Type, Ref: e.Ref, ActorID: e.Actor.ID, Payload: e.Payload}}
	k, t, _ = r.EventThing()
	return k, t, r.EventHash(), nil
}

// A census is what the replica holds at one place of the log: as it kept count, and
// as its rows say.
type census struct {
	at            replicate.Position
	scopes        []string
	kept, counted replicate.Digest
	found         []finding
}

// census inspects all rows in one read transaction. Begun is told where it is as
// soon as that is known, so that the hub can be asked meanwhile.
func (s *Store) census(ctx context.Context, begun func(replicate.Position)) (c census, err error) {
	err = s.reading(ctx, func(tx *sql.Tx, at replicate.Position) error {
		c.at = at
		begun(at)
		var scopes string
		var revision int
		if err := tx.QueryRowContext(ctx, `SELECT scopes, hub_schema FROM replica_state`).Scan(&scopes, &revision); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(scopes), &c.scopes); err != nil {
			return err
		}
		kept := make(replicate.Sums)
		if err := readSums(ctx, tx, kept); err != nil {
			return err
		}
		p := &inspection{sums: make(replicate.Sums), unknown: revision > replicate.WireVersion}
		if err := p.all(ctx, tx); err != nil {
			return err
		}
		c.kept, c.counted, c.found = kept.Digest(at.Seq), p.sums.Digest(at.Seq), p.found
		return nil
	})
	if err != nil {
		return c, fmt.Errorf("inspect the replica: %w", err)
	}
	return c, nil
}

// reading runs f in a read transaction, with the place of the log that it sees.
func (s *Store) reading(ctx context.Context, f func(tx *sql.Tx, at replicate.Position) error) error {
	tx, err := s.readers.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it only read
	var at replicate.Position
	var chain []byte
	const query = `SELECT hub_id, epoch, seq, chain FROM replica_state`
	if err := tx.QueryRowContext(ctx, query).Scan(&at.HubID, &at.Epoch, &at.Seq, &chain); err != nil {
		return err
	}
	copy(at.Chain[:], chain)
	return f(tx, at)
}
