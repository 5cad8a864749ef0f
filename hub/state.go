package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// needs is what a transaction locks and reads before it decides.
type needs struct {
	write    map[artifact.Ref]bool // heads to change; true: with their content
	share    map[artifact.Ref]bool // heads that must stay, such as links' targets
	bases    map[artifact.Ref]bool // pinned versions that must have been
	links    map[triple]bool
	signals  map[signalKey]bool
	types    map[string]bool
	scopes   map[string]bool
	versions map[string]int // schema version by type, as the ops were checked
}

// A triple identifies a link, with who makes it.
type triple struct {
	from      artifact.Ref
	predicate string
	to        artifact.Ref // not pinned
}

// A signalKey identifies what a signal adds to and whose it is.
type signalKey struct {
	ref       artifact.Ref
	kind      string
	dimension string
	voter     string
}

func newNeeds(ops []op) *needs {
	n := &needs{
		write: make(map[artifact.Ref]bool), share: make(map[artifact.Ref]bool), bases: make(map[artifact.Ref]bool),
		links: make(map[triple]bool), signals: make(map[signalKey]bool),
		types: make(map[string]bool), scopes: make(map[string]bool), versions: make(map[string]int),
	}
	for _, o := range ops {
		o.needs(n)
	}
	for ref := range n.write {
		delete(n.share, ref)
	}
	return n
}

// state is what a transaction has read, and what its ops make of it.
type state struct {
	hub      *Hub
	caller   *verb.Caller
	imported bool
	scopes   []string // that the caller may see
	known    map[string]bool
	versions map[string]int // current schema version by type

	heads   map[artifact.Ref]*head
	bases   map[artifact.Ref]bool
	links   map[triple]string // id of the caller's link
	signals map[signalKey]*lastSignal
	sums    map[signalKey]*signalSum // without voter
	aliases map[string]artifact.Ref  // of a batch's earlier items

	rows       changeRows
	written    []*head // new and changed, each once
	revisions  []*revisionRow
	newLinks   []*linkRow
	newSignals []*signalRow
	sumOrder   []*signalSum
}

// A head is an artifact as it is now.
type head struct {
	replicate.Head
	prev    artifact.Hash // row hash as stored; zero for a new one
	hash    artifact.Hash // row hash as it will be
	created bool          // by this transaction
	changed bool
	content []byte // of the current revision, when it was asked for
}

func (h *head) ref() artifact.Ref { return artifact.Ref{Type: h.Type, ID: h.ID, Hash: h.ContentHash} }

type revisionRow struct {
	replicate.Revision
	content    []byte
	provenance []byte
	hash       artifact.Hash
}

type linkRow struct {
	replicate.Link
	key  triple
	hash artifact.Hash
}

type signalRow struct {
	replicate.Signal
	key  signalKey
	hash artifact.Hash
}

type lastSignal struct {
	id            string
	value, weight artifact.Decimal
	reason        string
}

type signalSum struct {
	key        signalKey // without voter
	n, voters  int64
	sum, sumSq artifact.Decimal
	queued     bool
}

// errStaleSchemas means that a type changed since the ops were checked.
var errStaleSchemas = errors.New("schemas changed")

func newState(h *Hub, c *verb.Caller, imported bool) *state {
	return &state{
		hub: h, caller: c, imported: imported, scopes: c.VisibleScopes(),
		known: make(map[string]bool), versions: make(map[string]int),
		heads: make(map[artifact.Ref]*head), bases: make(map[artifact.Ref]bool), links: make(map[triple]string),
		signals: make(map[signalKey]*lastSignal), sums: make(map[signalKey]*signalSum), aliases: make(map[string]artifact.Ref),
	}
}

// A stored answer is what an idempotency key gave before.
type storedAnswer struct {
	requestHash artifact.Hash
	response    []byte
	seq         artifact.Seq
	at          time.Time
}

const headColumns = `
	a.type, a.id, a.scope, a.revision, a.content_hash, a.schema_version, a.title, a.state, a.is_latest, a.superseded_by,
	a.quality_score, a.created_at, a.created_by, a.updated_at, a.updated_by, a.row_hash`

// Rows are locked in ref order: LockRows runs above the sort.
const (
	lockWriteQuery = `
		SELECT` + headColumns + `
		FROM artifact a JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON a.type = k.type AND a.id = k.id
		ORDER BY a.type, a.id
		FOR NO KEY UPDATE OF a`
	lockShareQuery = `
		SELECT` + headColumns + `
		FROM artifact a JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON a.type = k.type AND a.id = k.id
		ORDER BY a.type, a.id
		FOR KEY SHARE OF a`
	contentQuery = `
		SELECT a.type, a.id, r.content
		FROM artifact a JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON a.type = k.type AND a.id = k.id
		JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision`
	basesQuery = `
		SELECT k.type, k.id, k.hash
		FROM unnest($1::text[], $2::text[], $3::bytea[]) AS k (type, id, hash)
		WHERE EXISTS (SELECT 1 FROM artifact_revision r WHERE r.type = k.type AND r.id = k.id AND r.content_hash = k.hash)`
	linksQuery = `
		SELECT l.from_type, l.from_id, l.predicate, l.to_type, l.to_id, l.id
		FROM link l JOIN unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS k (from_type, from_id, predicate, to_type, to_id)
			ON l.from_type = k.from_type AND l.from_id = k.from_id AND l.predicate = k.predicate
			AND l.to_type = k.to_type AND l.to_id = k.to_id
		WHERE l.created_by = $6`
	signalsQuery = `
		SELECT k.type, k.artifact, k.kind, k.dimension, k.voter, s.id, s.value::text, s.weight::text, s.reason
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS k (type, artifact, kind, dimension, voter)
		CROSS JOIN LATERAL (
			SELECT s.id, s.value, s.weight, s.reason
			FROM signal s
			WHERE s.type = k.type AND s.artifact = k.artifact AND s.kind = k.kind AND s.dimension = k.dimension AND s.voter = k.voter
			ORDER BY s.id DESC LIMIT 1) s`
	sumsQuery = `
		SELECT g.type, g.artifact, g.kind, g.dimension, g.n, g.voters, g.sum::text, g.sum_sq::text
		FROM signal_aggregate g JOIN unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS k (type, artifact, kind, dimension)
			ON g.type = k.type AND g.artifact = k.artifact AND g.kind = k.kind AND g.dimension = k.dimension`
	registryQuery = `
		SELECT artifact_type, schema_version FROM schema_registry
		WHERE is_current AND artifact_type = ANY ($1)`
	scopesQuery      = `SELECT id FROM scope WHERE id = ANY ($1)`
	keyLockQuery     = `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`
	keyQuery         = `SELECT request_hash, response, seq, created_at FROM idempotency WHERE actor = $1 AND key = $2 AND created_at > $3`
	keyExpiredDelete = `DELETE FROM idempotency WHERE actor = $1 AND key = $2 AND created_at <= $3`
)

// read begins the transaction, locks and reads what n names, in one message.
func (s *state) read(ctx context.Context, conn *pgxpool.Conn, n *needs, key *uuid.UUID) (stored *storedAnswer, err error) {
	b := new(pgx.Batch)
	b.Queue("BEGIN")
	if key != nil {
		expired := s.caller.Now.Add(-idempotencyTTL)
		b.Queue(keyLockQuery, s.caller.Actor.ID+"\n"+key.String())
		b.Queue(keyExpiredDelete, s.caller.Actor.ID, *key, expired)
		b.Queue(keyQuery, s.caller.Actor.ID, *key, expired).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var hash []byte
				var response string
				stored = new(storedAnswer)
				if err := rows.Scan(&hash, &response, &stored.seq, &stored.at); err != nil {
					return err
				}
				copy(stored.requestHash[:], hash)
				stored.response = []byte(response)
			}
			return rows.Err()
		})
	}
	s.queueHeads(b, n)
	s.queueLinks(b, n)
	s.queueSignals(b, n)
	if len(n.types) > 0 {
		b.Queue(registryQuery, keysOf(n.types)).Query(func(rows pgx.Rows) error {
			var typ string
			var version int
			_, err := pgx.ForEachRow(rows, []any{&typ, &version}, func() error {
				s.versions[typ] = version
				return nil
			})
			return err
		})
	}
	if len(n.scopes) > 0 {
		b.Queue(scopesQuery, keysOf(n.scopes)).Query(func(rows pgx.Rows) error {
			var id string
			_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
				s.known[id] = slices.Contains(s.scopes, id)
				return nil
			})
			return err
		})
	}
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("lock and read: %w", err)
	}
	return stored, nil
}

func keysOf(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}

func splitRefs(m map[artifact.Ref]bool, with func(bool) bool) (types, ids []string) {
	for ref, v := range m {
		if with(v) {
			types, ids = append(types, ref.Type), append(ids, ref.ID)
		}
	}
	return types, ids
}

func all(bool) bool { return true }

func (s *state) queueHeads(b *pgx.Batch, n *needs) {
	if types, ids := splitRefs(n.write, all); len(ids) > 0 {
		b.Queue(lockWriteQuery, types, ids).Query(s.scanHeads)
	}
	if types, ids := splitRefs(n.share, all); len(ids) > 0 {
		b.Queue(lockShareQuery, types, ids).Query(s.scanHeads)
	}
	if types, ids := splitRefs(n.write, func(content bool) bool { return content }); len(ids) > 0 {
		b.Queue(contentQuery, types, ids).Query(func(rows pgx.Rows) error {
			var ref artifact.Ref
			var content string
			_, err := pgx.ForEachRow(rows, []any{&ref.Type, &ref.ID, &content}, func() error {
				if h, ok := s.heads[ref]; ok {
					h.content = []byte(content)
				}
				return nil
			})
			return err
		})
	}
	if len(n.bases) > 0 {
		var types, ids []string
		var hashes [][]byte
		for ref := range n.bases {
			types, ids, hashes = append(types, ref.Type), append(ids, ref.ID), append(hashes, ref.Hash[:])
		}
		b.Queue(basesQuery, types, ids, hashes).Query(func(rows pgx.Rows) error {
			var ref artifact.Ref
			var hash []byte
			_, err := pgx.ForEachRow(rows, []any{&ref.Type, &ref.ID, &hash}, func() error {
				copy(ref.Hash[:], hash)
				s.bases[ref] = true
				return nil
			})
			return err
		})
	}
}

// scanHeads takes in heads. One that the caller may not see is as if absent.
func (s *state) scanHeads(rows pgx.Rows) error {
	for rows.Next() {
		h := new(head)
		var contentHash, rowHash []byte
		if err := rows.Scan(&h.Type, &h.ID, &h.Scope, &h.Revision, &contentHash, &h.SchemaVersion, &h.Title, &h.State, &h.IsLatest, &h.SupersededBy,
			&h.QualityScore, &h.CreatedAt, &h.CreatedBy, &h.UpdatedAt, &h.UpdatedBy, &rowHash); err != nil {
			return err
		}
		if !slices.Contains(s.scopes, h.Scope) {
			continue
		}
		copy(h.ContentHash[:], contentHash)
		copy(h.prev[:], rowHash)
		h.hash = h.prev
		h.CreatedAt, h.UpdatedAt = h.CreatedAt.UTC(), h.UpdatedAt.UTC()
		s.heads[artifact.Ref{Type: h.Type, ID: h.ID}] = h
	}
	return rows.Err()
}

func (s *state) queueLinks(b *pgx.Batch, n *needs) {
	if len(n.links) == 0 {
		return
	}
	var fromTypes, fromIDs, predicates, toTypes, toIDs []string
	for k := range n.links {
		fromTypes, fromIDs, predicates = append(fromTypes, k.from.Type), append(fromIDs, k.from.ID), append(predicates, k.predicate)
		toTypes, toIDs = append(toTypes, k.to.Type), append(toIDs, k.to.ID)
	}
	b.Queue(linksQuery, fromTypes, fromIDs, predicates, toTypes, toIDs, s.caller.Actor.ID).Query(func(rows pgx.Rows) error {
		var k triple
		var id string
		_, err := pgx.ForEachRow(rows, []any{&k.from.Type, &k.from.ID, &k.predicate, &k.to.Type, &k.to.ID, &id}, func() error {
			s.links[k] = id
			return nil
		})
		return err
	})
}

func (s *state) queueSignals(b *pgx.Batch, n *needs) {
	if len(n.signals) == 0 {
		return
	}
	var types, ids, kinds, dimensions, voters []string
	for k := range n.signals {
		types, ids, kinds = append(types, k.ref.Type), append(ids, k.ref.ID), append(kinds, k.kind)
		dimensions, voters = append(dimensions, k.dimension), append(voters, k.voter)
	}
	b.Queue(signalsQuery, types, ids, kinds, dimensions, voters).Query(func(rows pgx.Rows) error {
		var k signalKey
		var id, value, weight, reason string
		_, err := pgx.ForEachRow(rows, []any{&k.ref.Type, &k.ref.ID, &k.kind, &k.dimension, &k.voter, &id, &value, &weight, &reason}, func() error {
			v, err := artifact.ParseDecimal(value)
			if err != nil {
				return err
			}
			w, err := artifact.ParseDecimal(weight)
			s.signals[k] = &lastSignal{id: id, value: v, weight: w, reason: reason}
			return err
		})
		return err
	})
	b.Queue(sumsQuery, types, ids, kinds, dimensions).Query(func(rows pgx.Rows) error {
		var k signalKey
		var count, voters int64
		var sum, sumSq string
		_, err := pgx.ForEachRow(rows, []any{&k.ref.Type, &k.ref.ID, &k.kind, &k.dimension, &count, &voters, &sum, &sumSq}, func() error {
			g := &signalSum{key: k, n: count, voters: voters}
			var err1, err2 error
			g.sum, err1 = artifact.ParseSum(sum)
			g.sumSq, err2 = artifact.ParseSum(sumSq)
			s.sums[k] = g
			return errors.Join(err1, err2)
		})
		return err
	})
}

// checkSchemas refuses to go on with schemas older than the registry's.
func (s *state) checkSchemas(n *needs) error {
	for typ, version := range n.versions {
		if s.versions[typ] != version {
			return errStaleSchemas
		}
	}
	return nil
}

// visible returns the head of ref, or not_found.
func (s *state) visible(ref artifact.Ref) (*head, error) {
	if h, ok := s.heads[ref.Current()]; ok {
		return h, nil
	}
	return nil, artifact.NotFound(ref.Current().String())
}

// resolve returns the ref that a text means: a ref, or @alias of an item before.
func (s *state) resolve(text string) (artifact.Ref, error) {
	if len(text) > 0 && text[0] == '@' {
		ref, ok := s.aliases[text[1:]]
		if !ok {
			return ref, artifact.Invalid(artifact.Problem{
				Constraint: "ref_alias", Message: "no earlier item of the batch has this alias", Value: artifact.Received(text),
			})
		}
		return ref, nil
	}
	return artifact.ParseRef(text)
}

// touch notes that a head is new or changed.
func (s *state) touch(h *head) {
	if !h.changed {
		h.changed = true
		s.written = append(s.written, h)
	}
}

// addRevision adds a version and its row.
func (s *state) addRevision(h *head, content []byte, p replicate.Provenance, note string) error {
	r := &revisionRow{
		Revision: replicate.Revision{
			ContentHash: h.ContentHash, CreatedAt: s.caller.Now, CreatedBy: s.caller.Actor.ID, ID: h.ID, Note: note,
			Provenance: p, Revision: h.Head.Revision, SchemaVersion: h.SchemaVersion, Scope: h.Scope, State: h.State, Title: h.Title, Type: h.Type,
		},
		content: content,
	}
	raw, hash, err := replicate.Encode(r.Revision)
	if err != nil {
		return err
	}
	r.hash = hash
	if r.provenance, err = json.Marshal(p); err != nil {
		return err
	}
	s.revisions = append(s.revisions, r)
	s.rows.putEncoded(h.Scope, replicate.KindRevision, h.ref().Current().String(), h.Head.Revision, hash, artifact.Hash{}, raw)
	return s.rows.event(nil)
}

// addHead adds the row of a head as it is now.
func (s *state) addHead(h *head, e *eventOf) error {
	raw, hash, err := replicate.Encode(h.Head)
	if err != nil {
		return err
	}
	s.rows.putEncoded(h.Scope, replicate.KindArtifact, h.ref().Current().String(), h.Head.Revision, hash, h.hash, raw)
	h.hash = hash
	s.touch(h)
	return s.rows.event(e)
}
