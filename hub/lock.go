package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// A stored answer is what an idempotency key gave before.
type storedAnswer struct {
	requestHash artifact.Hash
	response    []byte
	seq         artifact.Seq
	at          time.Time
}

const headColumns = `
	a.type, a.id, a.scope, a.revision, a.content_hash, a.schema_version, a.title, a.state, a.is_latest, a.superseded_by,
	a.quality_score, a.created_at, a.created_by, a.updated_at, a.updated_by, a.row_hash, a.audience`

// Rows are locked in ref order: LockRows runs above the sort.
const (
	lockWriteQuery = `
		SELECT` + headColumns + `
		FROM artifact a JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON a.type = k.type AND a.id = k.id
		ORDER BY a.type, a.id
		FOR NO KEY UPDATE OF a`
	lockOneQuery = `
		SELECT` + headColumns + `
		FROM artifact a
		WHERE a.type = $1 AND a.id = $2
		FOR NO KEY UPDATE OF a`
	lockShareQuery = `
		SELECT` + headColumns + `
		FROM artifact a JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON a.type = k.type AND a.id = k.id
		ORDER BY a.type, a.id
		FOR KEY SHARE OF a`
	contentQuery = `
		SELECT a.type, a.id, r.content, r.provenance::json ->> 'actor_kind'
		FROM artifact a JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON a.type = k.type AND a.id = k.id
		JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision`
	basesQuery = `
		SELECT DISTINCT k.type, k.id, k.hash, r.scope
		FROM unnest($1::text[], $2::text[], $3::bytea[]) AS k (type, id, hash)
		JOIN artifact_revision r ON r.type = k.type AND r.id = k.id AND r.content_hash = k.hash
		WHERE r.scope = ANY ($4)`
	linksQuery = `
		SELECT l.from_type, l.from_id, l.predicate, l.to_type, l.to_id, l.created_by, l.id, l.to_ref, l.evidence_refs, l.evidence
		FROM link l JOIN unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) AS k (from_type, from_id, predicate, to_type, to_id, by)
			ON l.from_type = k.from_type AND l.from_id = k.from_id AND l.predicate = k.predicate
			AND l.to_type = k.to_type AND l.to_id = k.to_id AND l.created_by = k.by`
	signalsQuery = `
		SELECT k.type, k.artifact, k.kind, k.dimension, k.voter, s.id, s.value::text, s.weight::text, s.reason, s.voter_kind, s.metadata
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS k (type, artifact, kind, dimension, voter)
		CROSS JOIN LATERAL (
			SELECT s.id, s.value, s.weight, s.reason, s.voter_kind, s.metadata
			FROM signal s
			WHERE s.type = k.type AND s.artifact = k.artifact AND s.kind = k.kind AND s.dimension = k.dimension AND s.voter = k.voter
			ORDER BY s.id DESC LIMIT 1) s`
	// Ranks of all dimensions make the quality score.
	sumsQuery = `
		SELECT DISTINCT g.type, g.artifact, g.kind, g.dimension, g.n, g.voters, g.sum::text, g.sum_sq::text
		FROM signal_aggregate g JOIN unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS k (type, artifact, kind, dimension)
			ON g.type = k.type AND g.artifact = k.artifact AND g.kind = k.kind AND (g.dimension = k.dimension OR k.kind = 'rank')`
	registryQuery = `
		SELECT artifact_type, schema_version FROM schema_registry
		WHERE is_current AND artifact_type = ANY ($1)`
	scopesQuery  = `SELECT id FROM scope WHERE id = ANY ($1)`
	keyLockQuery = `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`

	// Idempotency keys, in one order for all.
	keysLockQuery = `
		SELECT k.n, pg_advisory_xact_lock(hashtextextended(k.name, 0)) IS NOT NULL
		FROM (SELECT n, name FROM unnest($1::text[]) WITH ORDINALITY AS k (name, n) ORDER BY name) k`
	keysTryQuery = `
		SELECT k.n, pg_try_advisory_xact_lock(hashtextextended(k.name, 0))
		FROM unnest($1::text[]) WITH ORDINALITY AS k (name, n)`
	keysQuery = `
		SELECT i.actor, i.key, i.request_hash, i.response, i.seq, i.created_at
		FROM idempotency i JOIN unnest($1::text[], $2::uuid[]) AS k (actor, key) ON i.actor = k.actor AND i.key = k.key
		WHERE i.created_at > $3`
	keysExpiredDelete = `
		DELETE FROM idempotency i USING unnest($1::text[], $2::uuid[]) AS k (actor, key)
		WHERE i.actor = k.actor AND i.key = k.key AND i.created_at <= $3`

	// presentQuery tells apart what is not there and what others hold.
	presentQuery = `
		SELECT a.type, a.id
		FROM artifact a JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON a.type = k.type AND a.id = k.id`
	presentOneQuery = `SELECT a.type, a.id FROM artifact a WHERE a.type = $1 AND a.id = $2`
)

// loaded is what a transaction has read, for all of its members.
type loaded struct {
	heads    map[artifact.Ref]*head
	missed   map[artifact.Ref]bool // heads that others hold
	bases    map[scopedRef]bool
	links    map[ownLink]string         // id of the link
	known    map[string]*replicate.Link // those links, by id
	singles  map[singleKey][]singleLink
	signals  map[signalKey]*lastSignal
	sums     map[signalKey]*signalSum // without voter
	versions map[string]int           // current schema version by type
	scopes   map[string]bool          // that there are
	papers   papers
	answers  map[answerKey]*storedAnswer
	held     map[answerKey]bool         // idempotency keys that this transaction has
	agents   map[string]replicate.Agent // that are new, as members make them known

	candidate *candidate // that is decided on
}

// An ownLink is a link by who made it.
type ownLink struct {
	triple
	by string
}

// An answerKey is an idempotency key by whose it is.
type answerKey struct {
	actor string
	key   uuid.UUID
}

func (k answerKey) String() string { return k.actor + "\n" + k.key.String() }

func newLoaded() *loaded {
	return &loaded{
		heads: make(map[artifact.Ref]*head), missed: make(map[artifact.Ref]bool), bases: make(map[scopedRef]bool),
		links: make(map[ownLink]string), known: make(map[string]*replicate.Link), singles: make(map[singleKey][]singleLink), signals: make(map[signalKey]*lastSignal), sums: make(map[signalKey]*signalSum),
		versions: make(map[string]int), scopes: make(map[string]bool), papers: make(papers),
		answers: make(map[answerKey]*storedAnswer), held: make(map[answerKey]bool),
		agents: make(map[string]replicate.Agent),
	}
}

// read begins the transaction, locks and reads what its members need, in one
// message. With wait unset it leaves out what others hold, instead of waiting.
func (l *loaded) read(ctx context.Context, conn *pgxpool.Conn, members []*member, wait bool) error {
	n := union(members)
	b := new(pgx.Batch)
	b.Queue("BEGIN")
	l.queueAnswers(b, members, wait)
	if n.review != nil {
		l.queueCandidate(b, n.seen, members[0].caller.Actor.ID, n.review) // a decision is alone
	}
	l.queueHeads(b, n, wait)
	l.queueLinks(b, members)
	l.queueSingles(b, n)
	l.queueSignals(b, n)
	l.papers.queue(b, n.seen, n.cited)
	if n.still {
		b.Queue(stillQuery)
	}
	if len(n.types) > 0 {
		b.Queue(registryQuery, keysOf(n.types)).Query(func(rows pgx.Rows) error {
			var typ string
			var version int
			_, err := pgx.ForEachRow(rows, []any{&typ, &version}, func() error {
				l.versions[typ] = version
				return nil
			})
			return err
		})
	}
	if len(n.scopes) > 0 {
		b.Queue(scopesQuery, keysOf(n.scopes)).Query(func(rows pgx.Rows) error {
			var id string
			_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
				l.scopes[id] = true
				return nil
			})
			return err
		})
	}
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("lock and read: %w", err)
	}
	return nil
}

// queueAnswers locks the members' idempotency keys and reads what they gave
// before.
func (l *loaded) queueAnswers(b *pgx.Batch, members []*member, wait bool) {
	var names, actors []string
	var keys []uuid.UUID
	var expired time.Time
	for _, m := range members {
		if m.key != nil {
			names, actors, keys = append(names, m.answerKey().String()), append(actors, m.caller.Actor.ID), append(keys, *m.key)
			expired = m.caller.Now.Add(-idempotencyTTL)
		}
	}
	if keys == nil {
		return
	}
	lock := keysLockQuery
	if !wait {
		lock = keysTryQuery
	}
	b.Queue(lock, names).Query(func(rows pgx.Rows) error {
		var i int
		var held bool
		_, err := pgx.ForEachRow(rows, []any{&i, &held}, func() error {
			if held {
				l.held[answerKey{actors[i-1], keys[i-1]}] = true
			}
			return nil
		})
		return err
	})
	b.Queue(keysExpiredDelete, actors, keys, expired)
	b.Queue(keysQuery, actors, keys, expired).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var k answerKey
			var hash []byte
			var response string
			stored := new(storedAnswer)
			if err := rows.Scan(&k.actor, &k.key, &hash, &response, &stored.seq, &stored.at); err != nil {
				return err
			}
			copy(stored.requestHash[:], hash)
			stored.response = []byte(response)
			l.answers[k] = stored
		}
		return rows.Err()
	})
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

func (l *loaded) queueHeads(b *pgx.Batch, n *needs, wait bool) {
	skip := ""
	if !wait {
		skip = " SKIP LOCKED"
	}
	// Who waits takes locks in ref order, as every write does. Where some are to
	// change and some to stay, all are kept from going away first.
	stay := n.share
	if wait && len(n.write) > 0 && len(n.share) > 0 {
		stay = maps.Clone(n.share)
		maps.Copy(stay, n.write)
	}
	if types, ids := splitRefs(stay, all); len(ids) > 0 {
		b.Queue(lockShareQuery+skip, types, ids).Query(l.scanHeads)
	}
	switch types, ids := splitRefs(n.write, all); len(ids) {
	case 0:
	case 1:
		b.Queue(lockOneQuery+skip, types[0], ids[0]).Query(l.scanHeads)
	default:
		b.Queue(lockWriteQuery+skip, types, ids).Query(l.scanHeads)
	}
	if !wait && len(n.write)+len(n.share) > 0 {
		types, ids := splitRefs(n.write, all)
		more, moreIDs := splitRefs(n.share, all)
		types, ids = append(types, more...), append(ids, moreIDs...)
		query, args := presentQuery, []any{types, ids}
		if len(ids) == 1 {
			query, args = presentOneQuery, []any{types[0], ids[0]}
		}
		b.Queue(query, args...).Query(func(rows pgx.Rows) error {
			var ref artifact.Ref
			_, err := pgx.ForEachRow(rows, []any{&ref.Type, &ref.ID}, func() error {
				if l.heads[ref] == nil {
					l.missed[ref] = true
				}
				return nil
			})
			return err
		})
	}
	if types, ids := splitRefs(n.write, func(content bool) bool { return content || n.conflict }); len(ids) > 0 {
		b.Queue(contentQuery, types, ids).Query(func(rows pgx.Rows) error {
			var ref artifact.Ref
			var content, kind string
			_, err := pgx.ForEachRow(rows, []any{&ref.Type, &ref.ID, &content, &kind}, func() error {
				if h, ok := l.heads[ref]; ok {
					h.content, h.updatedKind = []byte(content), kind
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
		b.Queue(basesQuery, types, ids, hashes, n.seen).Query(func(rows pgx.Rows) error {
			var ref artifact.Ref
			var hash []byte
			var scope string
			_, err := pgx.ForEachRow(rows, []any{&ref.Type, &ref.ID, &hash, &scope}, func() error {
				copy(ref.Hash[:], hash)
				l.bases[scopedRef{ref, scope}] = true
				return nil
			})
			return err
		})
	}
}

// scanHeads takes in heads, whoever may see them: see [loaded.view].
func (l *loaded) scanHeads(rows pgx.Rows) error {
	for rows.Next() {
		h, err := scanHead(rows)
		if err != nil {
			return err
		}
		l.heads[artifact.Ref{Type: h.Type, ID: h.ID}] = h
	}
	return rows.Err()
}

// scanHeads takes in heads that an op reads beside its needs.
func (s *state) scanHeads(rows pgx.Rows) error {
	for rows.Next() {
		h, err := scanHead(rows)
		if err != nil {
			return err
		}
		s.meet(artifact.Ref{Type: h.Type, ID: h.ID}, h)
	}
	return rows.Err()
}

// meet takes in a head that was not met before. One that the caller may not see is as if absent.
func (s *state) meet(ref artifact.Ref, h *head) {
	if !s.sees(h) {
		s.taken[ref] = true
	} else if s.heads[ref] == nil {
		s.heads[ref] = h
	}
}

// sees reports whether the caller may see the scope of a head.
func (s *state) sees(h *head) bool { return slices.Contains(s.scopes, h.Scope) }

func scanHead(row pgx.Row) (*head, error) {
	h := new(head)
	var contentHash, rowHash []byte
	if err := row.Scan(&h.Type, &h.ID, &h.Scope, &h.Revision, &contentHash, &h.SchemaVersion, &h.Title, &h.State, &h.IsLatest, &h.SupersededBy,
		&h.QualityScore, &h.CreatedAt, &h.CreatedBy, &h.UpdatedAt, &h.UpdatedBy, &rowHash, &h.audience); err != nil {
		return nil, err
	}
	copy(h.ContentHash[:], contentHash)
	copy(h.prev[:], rowHash)
	h.hash = h.prev
	h.CreatedAt, h.UpdatedAt = h.CreatedAt.UTC(), h.UpdatedAt.UTC()
	return h, nil
}

// participantsQuery tells which of some artifacts an agent takes part in.

func (l *loaded) queueLinks(b *pgx.Batch, members []*member) {
	var own []ownLink
	for _, m := range members {
		for k := range m.needs.links {
			own = append(own, ownLink{k, m.caller.Actor.ID})
		}
	}
	if own != nil {
		b.Queue(linksQuery, linkArgs(own)...).Query(func(rows pgx.Rows) error {
			return scanLinks(rows, func(k ownLink, link *replicate.Link) { l.links[k], l.known[link.ID] = link.ID, link })
		})
	}
}

// queueOwnLinks reads which of some links the caller has made already.
func (s *state) queueOwnLinks(b *pgx.Batch, keys map[triple]bool) {
	if len(keys) == 0 {
		return
	}
	var own []ownLink
	for k := range keys {
		own = append(own, ownLink{k, s.caller.Actor.ID})
	}
	b.Queue(linksQuery, linkArgs(own)...).Query(func(rows pgx.Rows) error {
		return scanLinks(rows, func(k ownLink, link *replicate.Link) { s.links[k.triple], s.knownLinks[link.ID] = link.ID, link })
	})
}

func linkArgs(keys []ownLink) []any {
	var fromTypes, fromIDs, predicates, toTypes, toIDs, by []string
	for _, k := range keys {
		fromTypes, fromIDs, predicates = append(fromTypes, k.from.Type), append(fromIDs, k.from.ID), append(predicates, k.predicate)
		toTypes, toIDs, by = append(toTypes, k.to.Type), append(toIDs, k.to.ID), append(by, k.by)
	}
	return []any{fromTypes, fromIDs, predicates, toTypes, toIDs, by}
}

// scanLinks reads links, in so far as [replicate.Link.Artifact]'s hash needs them.
func scanLinks(rows pgx.Rows, take func(k ownLink, link *replicate.Link)) error {
	var k ownLink
	var id, to, refs, evidence string
	_, err := pgx.ForEachRow(rows, []any{&k.from.Type, &k.from.ID, &k.predicate, &k.to.Type, &k.to.ID, &k.by, &id, &to, &refs, &evidence}, func() error {
		link := &replicate.Link{ID: id, From: k.from.String(), Predicate: k.predicate, To: to, Evidence: json.RawMessage(evidence)}
		take(k, link)
		return json.Unmarshal([]byte(refs), &link.EvidenceRefs)
	})
	return err
}

func (l *loaded) queueSignals(b *pgx.Batch, n *needs) {
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
		var id, value, weight, reason, voterKind, metadata string
		_, err := pgx.ForEachRow(rows, []any{&k.ref.Type, &k.ref.ID, &k.kind, &k.dimension, &k.voter, &id, &value, &weight, &reason, &voterKind, &metadata}, func() error {
			v, err := artifact.ParseDecimal(value)
			if err != nil {
				return err
			}
			w, err := artifact.ParseDecimal(weight)
			l.signals[k] = &lastSignal{id: id, value: v, weight: w, reason: reason, voterKind: voterKind, metadata: metadata}
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
			l.sums[k] = g
			return errors.Join(err1, err2)
		})
		return err
	})
}
