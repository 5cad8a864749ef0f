package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// An endQueries reads the links of one end in one direction.
type endQueries struct {
	direction           string
	page, count, listed scopedQuery
}

const (
	presentArtifactSQL = `SELECT (SELECT seq FROM replica_state) FROM artifact WHERE type = ?1 AND id = ?2 AND scope IN ({scopes})`
	presentLinkSQL     = `SELECT (SELECT seq FROM replica_state) FROM link WHERE ?1 <> '' AND id = ?2 AND scope IN ({scopes})`
	presentSignalSQL   = `SELECT (SELECT seq FROM replica_state) FROM signal WHERE ?1 <> '' AND id = ?2 AND scope IN ({scopes})`

	// ofEnd are the links of an end, of the predicates ?3 and with the types ?4 at
	// the other end; empty arrays are for all. seenLinks are those among them that
	// the caller may see, and whose other end, o, too. What hangs on links and
	// signals has no artifact at its other end.
	ofEnd = `l.{own}_type = ?1 AND l.{own}_id = ?2 AND l.scope IN ({scopes})
			AND (?3 = '[]' OR l.predicate IN (SELECT value FROM json_each(?3)))
			AND (?4 = '[]' OR l.{other}_type IN (SELECT value FROM json_each(?4)))`
	seenLinks  = seenOfSQL + ` WHERE ` + ofEnd + ` AND ` + seenEndSQL
	seenOfSQL  = `FROM link AS l LEFT JOIN artifact AS o ON o.type = l.{other}_type AND o.id = l.{other}_id`
	seenEndSQL = `(o.scope IN ({scopes}) OR l.{other}_type IN ('` + replicate.LinkType + `', '` + replicate.SignalType + `'))`
	linksOfSQL = `SELECT l.id, l.from_type || ':' || l.from_id, l.predicate, l.to_ref, l.scope, l.evidence_refs, l.evidence, l.created_at, l.created_by,
			l.{other}_type, l.{other}_id, o.content_hash, o.title, o.state, o.revision, o.is_latest, o.superseded_by
		` + seenLinks + ` AND (l.predicate, l.{other}_type, l.{other}_id, l.id) > (?5, ?6, ?7, ?8)
		ORDER BY l.predicate, l.{other}_type, l.{other}_id, l.id LIMIT ?9`

	// A step for each predicate, whatever number of links it has.
	predicatesOfSQL = `WITH RECURSIVE p (predicate) AS (
			SELECT * FROM (SELECT l.predicate FROM link AS l WHERE ` + ofEnd + ` ORDER BY l.predicate LIMIT 1)
			UNION ALL
			SELECT (SELECT l.predicate FROM link AS l WHERE ` + ofEnd + ` AND l.predicate > p.predicate ORDER BY l.predicate LIMIT 1)
			FROM p WHERE p.predicate IS NOT NULL
		)
		SELECT p.predicate, (SELECT count(*) FROM (SELECT 1 ` + seenLinks + ` AND l.predicate = p.predicate LIMIT {max}))
		FROM p WHERE p.predicate IS NOT NULL ORDER BY p.predicate`
)

func (q *endQueries) prepare(pool *sql.DB, direction, own, other string) {
	fill := strings.NewReplacer("{own}", own, "{other}", other, "{max}", strconv.Itoa(verb.MaxLinkCount+1))
	q.direction = direction
	q.page.pool, q.page.text = pool, fill.Replace(linksOfSQL)
	q.listed.pool, q.listed.text = pool, fill.Replace(listedLinksSQL)
	q.count.pool, q.count.text = pool, fill.Replace(predicatesOfSQL)
}

func (s *Store) links(ctx context.Context, in verb.LinksRequest) (out verb.LinksResponse, err error) {
	if _, err := reader(ctx); err != nil {
		return out, err
	}
	if err := s.oneState(ctx, func(tx *sql.Tx) error { return s.linksIn(ctx, tx, &in, &out) }); err != nil {
		return verb.LinksResponse{}, s.absent(err, in.Ref.Current())
	}
	return out, nil
}

// linksIn answers links in a transaction, or [sql.ErrNoRows] when what they are on
// is not there for the caller.
func (s *Store) linksIn(ctx context.Context, tx *sql.Tx, in *verb.LinksRequest, out *verb.LinksResponse) error {
	known := s.typeNames()
	plan, err := in.Plan(append(known, replicate.LinkType, replicate.SignalType))
	if err != nil {
		return err
	}
	if err := s.present(ctx, tx, in.Ref, &out.AsOf); err != nil {
		return err
	}
	return s.readLinks(ctx, tx, in, &plan, out)
}

// present reads the replica's position, or returns [sql.ErrNoRows] when what a ref
// names is not there for the caller.
func (s *Store) present(ctx context.Context, tx *sql.Tx, ref artifact.Ref, asOf *artifact.Seq) error {
	query := &s.read.present
	switch ref.Type {
	case replicate.LinkType:
		query = &s.read.presentLink
	case replicate.SignalType:
		query = &s.read.presentSignal
	}
	row, err := query.row(ctx, tx, ref.Type, ref.ID)
	if err != nil {
		return err
	}
	return row.Scan(asOf)
}

// absent turns an error of a read of a ref into what the caller is told.
func (s *Store) absent(err error, ref artifact.Ref) error {
	if errors.Is(err, sql.ErrNoRows) {
		return s.notFound(ref)
	}
	return err
}

// readLinks reads a page.
func (s *Store) readLinks(ctx context.Context, tx *sql.Tx, in *verb.LinksRequest, plan *verb.LinkPlan, out *verb.LinksResponse) error {
	keys, err := jsonArrays(in.Predicates, in.Types)
	if err != nil {
		return err
	}
	var links []verb.PlacedLink
	for _, direction := range plan.Directions {
		q := &s.read.out
		if direction == verb.DirectionIn {
			q = &s.read.in
		}
		base := []any{in.Ref.Type, in.Ref.ID, keys[0], keys[1]}
		if left := plan.Size + 1 - len(links); left > 0 {
			after := plan.AfterIn(direction)
			if links, err = q.read(ctx, tx, links, append(base, after.Predicate, after.Type, after.ID, after.Link, left)); err != nil {
				return err
			}
		}
		if !plan.Counts() {
			continue
		}
		if out.Counts, err = q.counted(ctx, tx, out.Counts, base); err != nil {
			return err
		}
	}
	out.Place(in, plan, links)
	return nil
}

// jsonArrays writes lists for json_each.
func jsonArrays(lists ...[]string) (texts []string, err error) {
	for _, list := range lists {
		raw, err := json.Marshal(append([]string{}, list...))
		if err != nil {
			return nil, err
		}
		texts = append(texts, string(raw))
	}
	return texts, nil
}

func (q *endQueries) read(ctx context.Context, tx *sql.Tx, links []verb.PlacedLink, args []any) ([]verb.PlacedLink, error) {
	rows, err := q.page.rows(ctx, tx, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		l, err := scanLinkItem(rows.Scan, q.direction)
		if err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	return links, rows.Err()
}

func scanLinkItem(scan func(...any) error, direction string) (l verb.PlacedLink, err error) {
	var refs, evidence string
	var hash []byte
	var at int64
	var title, state, by sql.NullString
	var revision sql.NullInt64
	var latest sql.NullBool
	if err := scan(&l.Link, &l.From, &l.LinkItem.Predicate, &l.To, &l.Scope, &refs, &evidence, &at, &l.CreatedBy,
		&l.Type, &l.ID, &hash, &title, &state, &revision, &latest, &by); err != nil {
		return l, err
	}
	if err := json.Unmarshal([]byte(refs), &l.EvidenceRefs); err != nil {
		return l, err
	}
	l.Ref, l.LinkItem.Direction, l.LinkPlace.Direction = replicate.LinkType+":"+l.Link, direction, direction
	l.LinkPlace.Predicate, l.Evidence, l.CreatedAt = l.LinkItem.Predicate, []byte(evidence), fromMillis(at)
	if title.Valid {
		l.Target = &verb.LinkTarget{
			Ref:  artifact.Ref{Type: l.Type, ID: l.ID, Hash: artifact.Hash(hash)},
			Type: l.Type, Title: title.String, State: state.String, Revision: int(revision.Int64), IsLatest: latest.Bool, SupersededBy: by.String,
		}
	}
	return l, nil
}

func (q *endQueries) counted(ctx context.Context, tx *sql.Tx, counts []verb.LinkCount, args []any) ([]verb.LinkCount, error) {
	rows, err := q.count.rows(ctx, tx, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var predicate string
		var n int
		if err := rows.Scan(&predicate, &n); err != nil {
			return nil, err
		}
		if n > 0 {
			counts = append(counts, verb.Counted(q.direction, predicate, n))
		}
	}
	return counts, rows.Err()
}
