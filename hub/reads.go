package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
)

// A reader is an op that must read more than needs can name, once what that named
// was read.
type reader interface {
	// reads names it. It is called in rounds, each of which sees what the one before
	// has read; what all ops name in a round is read in one message.
	reads(s *state, round readRound, r *reads)
}

// A readRound is a time that a [reader] is asked.
type readRound int

// Locks on links come after all locks on artifacts.
const (
	roundFind  readRound = iota // what is there, and locks on artifacts
	roundAgain                  // links to links, for as long as they lead to more
	roundLinks                  // locks on links and signals
	roundEnds                   // what those join
	rounds
)

// reads is what ops read beside their needs. Locks are taken in the order of the
// members, and for rows of one kind in the order of their keys.
type reads struct {
	turn     bool                  // take turns with others that replace artifacts
	linkRows map[string]bool       // ids of links to lock and read
	taken    bool                  // some of those are to be taken back
	signals  map[string]bool       // ids of signals to lock and read
	share    map[artifact.Ref]bool // heads that must stay
	heads    map[artifact.Ref]bool // heads to read as they are
	links    map[triple]bool       // links that the caller may have made
	contents map[artifact.Ref]bool // pinned
	chains   map[artifact.Ref]bool // artifacts that may have been replaced
	threads  map[commentOn]bool
	cited    map[citation]bool
}

const (
	// chainTurnQuery makes those who replace take turns: of several that would
	// close a circle together no two have an artifact in common.
	chainTurnQuery = `SELECT pg_advisory_xact_lock(hashtextextended('supersede', 0))`
	// lockLinksQuery locks the rows: of two who take a link back one finds it gone.
	lockLinksQuery = linkRowsQuery + `
		FOR UPDATE`
	// lockLinksShareQuery lets others do so too who only need the links to stay.
	lockLinksShareQuery = linkRowsQuery + `
		FOR KEY SHARE`
	linkRowsQuery = `
		SELECT l.id, l.from_type, l.from_id, l.predicate, l.to_ref, l.to_type, l.to_id, l.scope, l.evidence_refs, l.evidence, l.created_at, l.created_by, l.row_hash,
			EXISTS (SELECT FROM artifact e WHERE e.audience = 'participants' AND (e.type = l.from_type AND e.id = l.from_id OR e.type = l.to_type AND e.id = l.to_id))
		FROM link l
		WHERE l.scope = ANY ($1) AND l.id = ANY ($2)
		ORDER BY l.id`
	lockSignalsQuery = `
		SELECT` + signalColumns + `
		FROM signal s
		WHERE s.id = ANY ($2) AND` + visibleSignal + `
		ORDER BY s.id
		FOR KEY SHARE`
	headsQuery = `
		SELECT` + headColumns + `
		FROM artifact a JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON a.type = k.type AND a.id = k.id`
	contentsQuery = `
		SELECT DISTINCT ON (r.type, r.id, r.content_hash) r.type, r.id, r.content_hash, r.title, r.state, r.content, r.schema_version
		FROM artifact_revision r JOIN unnest($2::text[], $3::text[], $4::bytea[]) AS k (type, id, hash)
			ON r.type = k.type AND r.id = k.id AND r.content_hash = k.hash
		WHERE r.scope = ANY ($1)
		ORDER BY r.type, r.id, r.content_hash, r.revision DESC`
	threadsQuery = `
		SELECT l.from_id, l.to_type, l.to_id
		FROM link l JOIN unnest($2::text[], $3::text[], $4::text[]) AS k (comment, type, id)
			ON l.from_type = 'comment' AND l.from_id = k.comment AND l.predicate = 'comments_on' AND l.to_type = k.type AND l.to_id = k.id
		WHERE l.scope = ANY ($1)`
	// chainsQuery follows what artifacts were replaced by. It runs once both ends
	// are locked, so that no circle closes unseen; but for one through a scope that
	// the caller may not know of, which is not to be told.
	chainsQuery = `
		WITH RECURSIVE chain (type, id, superseded_by) AS (
			SELECT a.type, a.id, a.superseded_by
			FROM artifact a JOIN unnest($2::text[], $3::text[]) AS k (type, id) ON a.type = k.type AND a.id = k.id
			WHERE a.scope = ANY ($1)
			UNION
			SELECT a.type, a.id, a.superseded_by
			FROM chain c JOIN artifact a ON a.type = split_part(c.superseded_by, ':', 1) AND a.id = substr(c.superseded_by, strpos(c.superseded_by, ':') + 1)
			WHERE a.scope = ANY ($1)
		)
		SELECT type, id, superseded_by FROM chain WHERE superseded_by <> '' LIMIT 100000`
)

// readMore reads what ops name beside their needs.
func (s *state) readMore(ctx context.Context, db querier, ops []op) error {
	for round := roundFind; round < rounds; {
		r := &reads{
			linkRows: make(map[string]bool), signals: make(map[string]bool), share: make(map[artifact.Ref]bool), heads: make(map[artifact.Ref]bool), links: make(map[triple]bool),
			contents: make(map[artifact.Ref]bool), chains: make(map[artifact.Ref]bool), threads: make(map[commentOn]bool), cited: make(map[citation]bool),
		}
		for _, o := range ops {
			if o, ok := o.(reader); ok {
				o.reads(s, round, r)
			}
		}
		b := new(pgx.Batch)
		s.queueReads(b, r)
		if round != roundAgain || len(r.links) == 0 {
			round++
		}
		if b.Len() == 0 {
			continue
		}
		if err := db.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("read more: %w", err)
		}
		if len(r.share)+len(r.heads) > 0 {
			if err := s.dropUnaddressed(ctx, db); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *state) queueReads(b *pgx.Batch, r *reads) {
	if r.turn {
		b.Queue(chainTurnQuery)
	}
	if types, ids := splitRefs(r.share, all); len(ids) > 0 {
		b.Queue(lockShareQuery, types, ids).Query(s.scanHeads)
	}
	if types, ids := splitRefs(r.heads, all); len(ids) > 0 {
		b.Queue(headsQuery, types, ids).Query(s.scanHeads)
	}
	if len(r.linkRows) > 0 {
		query := lockLinksShareQuery
		if r.taken {
			query = lockLinksQuery
		}
		b.Queue(query, s.scopes, keysOf(r.linkRows)).Query(s.scanLinkRows)
	}
	if len(r.signals) > 0 {
		b.Queue(lockSignalsQuery, s.scopes, keysOf(r.signals)).Query(s.scanSignals)
	}
	s.queueOwnLinks(b, r.links)
	if len(r.contents) > 0 {
		types, ids, hashes := pinnedColumns(r.contents)
		b.Queue(contentsQuery, s.scopes, types, ids, hashes).Query(s.scanContents)
	}
	if types, ids := splitRefs(r.chains, all); len(ids) > 0 {
		b.Queue(chainsQuery, s.scopes, types, ids).Query(s.scanChains)
	}
	s.queueThreads(b, r.threads)
	s.papers.queue(b, s.scopes, r.cited)
}

func (s *state) queueThreads(b *pgx.Batch, threads map[commentOn]bool) {
	if len(threads) == 0 {
		return
	}
	var comments, types, ids []string
	for k := range threads {
		comments, types, ids = append(comments, k.comment.ID), append(types, k.on.Type), append(ids, k.on.ID)
	}
	b.Queue(threadsQuery, s.scopes, comments, types, ids).Query(func(rows pgx.Rows) error {
		k := commentOn{comment: artifact.Ref{Type: commentType}}
		_, err := pgx.ForEachRow(rows, []any{&k.comment.ID, &k.on.Type, &k.on.ID}, func() error {
			s.threads[k] = true
			return nil
		})
		return err
	})
}

func pinnedColumns(refs map[artifact.Ref]bool) (types, ids []string, hashes [][]byte) {
	for _, ref := range slices.Collect(maps.Keys(refs)) {
		types, ids, hashes = append(types, ref.Type), append(ids, ref.ID), append(hashes, ref.Hash[:])
	}
	return types, ids, hashes
}

func (s *state) scanLinkRows(rows pgx.Rows) error {
	for rows.Next() {
		l := new(linkRow)
		var refs, evidence string
		var rowHash []byte
		var internal bool
		if err := rows.Scan(&l.ID, &l.key.from.Type, &l.key.from.ID, &l.Predicate, &l.To, &l.key.to.Type, &l.key.to.ID, &l.Scope,
			&refs, &evidence, &l.At, &l.By, &rowHash, &internal); err != nil {
			return err
		}
		l.key.predicate, l.From = l.Predicate, l.key.from.String()
		l.hash, l.Evidence, l.At = artifact.Hash(rowHash), json.RawMessage(evidence), l.At.UTC()
		if err := json.Unmarshal([]byte(refs), &l.EvidenceRefs); err != nil {
			return err
		}
		s.linkRows[l.ID] = l
		if internal {
			continue // nobody is told of it
		}
		if err := s.meetLink(l); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (s *state) scanContents(rows pgx.Rows) error {
	var ref artifact.Ref
	var hash []byte
	var title, state, content string
	var version int
	_, err := pgx.ForEachRow(rows, []any{&ref.Type, &ref.ID, &hash, &title, &state, &content, &version}, func() error {
		ref.Hash = artifact.Hash(hash)
		v, _ := s.inForm(ref.Type, version, artifact.Version{Title: title, State: state, Content: []byte(content)})
		s.contents[ref] = &v
		return nil
	})
	return err
}

func (s *state) scanChains(rows pgx.Rows) error {
	var ref artifact.Ref
	var by string
	_, err := pgx.ForEachRow(rows, []any{&ref.Type, &ref.ID, &by}, func() error {
		next, err := artifact.ParseRef(by)
		s.chains[ref] = next
		return err
	})
	return err
}

// content returns a version in the form of its type's current schema, if it was read
// or made: nil otherwise.
func (s *state) content(ref artifact.Ref) *artifact.Version {
	if h := s.heads[ref.Current()]; h != nil && h.ContentHash == ref.Hash && h.content != nil {
		v, _ := s.inForm(h.Type, h.SchemaVersion, artifact.Version{Title: h.Title, State: h.State, Content: h.content})
		return &v
	}
	return s.contents[ref]
}

// replacedBy returns what an artifact was replaced by, zero for nothing.
func (s *state) replacedBy(ref artifact.Ref) artifact.Ref {
	h, ok := s.heads[ref]
	if !ok {
		return s.chains[ref]
	}
	if h.SupersededBy == "" {
		return artifact.Ref{}
	}
	next, err := artifact.ParseRef(h.SupersededBy)
	if err != nil { // only refs are stored
		return artifact.Ref{}
	}
	return next
}
