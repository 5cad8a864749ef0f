package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/analysis"
	"github.com/scidex-ai/substrate/artifact"
)

// words are what an artifact is found by, as one rule makes them.
type words struct {
	rule   string
	vector string // text of a tsvector
}

// wordsBy returns the words of an artifact by its type's schema.
func wordsBy(schema *artifact.Schema, id, title string, content []byte) *words {
	rule := analysis.NewRule(schema)
	return &words{rule: rule.ID(), vector: rule.Document(id, title, content).Vector()}
}

// wordsOf returns the words of a version that a transaction makes.
func (s *state) wordsOf(h *head, content []byte) (*words, error) {
	if made := h.words; made != nil {
		h.words = nil
		return made, nil
	}
	schema, err := s.schemaOf(h.Type)
	if err != nil {
		return nil, err
	}
	return wordsBy(schema, h.ID, h.Title, content), nil
}

const (
	putWordsQuery = `
		INSERT INTO search_document (type, id, revision, rule, words)
		SELECT k.type, k.id, k.revision, k.rule, k.words::tsvector
		FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[], $5::text[]) AS k (type, id, revision, rule, words)
		ON CONFLICT (type, id) DO UPDATE SET revision = excluded.revision, rule = excluded.rule, words = excluded.words`
	retireDocumentsQuery = `
		DELETE FROM search_document d
		USING unnest($1::text[], $2::text[]) AS k (type, id)
		WHERE d.type = k.type AND d.id = k.id`
	// forgetWordsQuery leaves the row: the artifact is there, and holds no word.
	forgetWordsQuery = `UPDATE search_document SET words = '' WHERE type = $1 AND id = $2`
)

// wordRows are rows of the index, column by column.
type wordRows struct {
	typ, id, rule, vector []string
	revision              []int
}

func (r *wordRows) add(ref artifact.Ref, revision int, w *words) {
	r.typ, r.id, r.revision = append(r.typ, ref.Type), append(r.id, ref.ID), append(r.revision, revision)
	r.rule, r.vector = append(r.rule, w.rule), append(r.vector, w.vector)
}

func (r *wordRows) queue(b *pgx.Batch) {
	if len(r.id) > 0 {
		b.Queue(putWordsQuery, r.typ, r.id, r.revision, r.rule, r.vector)
	}
}

// queueWords queues what changes in the index: the words of new versions that are
// current, and the rows of artifacts that are retired.
func (w *writes) queueWords(b *pgx.Batch) {
	made := make(map[artifact.Ref]*revisionRow, len(w.revisions))
	for _, r := range w.revisions { // of several of one artifact the last one counts
		made[artifact.Ref{Type: r.Type, ID: r.ID}] = r
	}
	var put wordRows
	var goneTypes, goneIDs []string
	for _, h := range w.written {
		ref := h.ref().Current()
		switch r := made[ref]; {
		case !h.IsLatest:
			goneTypes, goneIDs = append(goneTypes, h.Type), append(goneIDs, h.ID)
		case r != nil:
			put.add(ref, r.Revision.Revision, r.words)
		}
	}
	put.queue(b)
	if goneIDs != nil {
		b.Queue(retireDocumentsQuery, goneTypes, goneIDs)
		b.Queue(dropVectorsQuery, goneTypes, goneIDs)
	}
}

// indexed says of which types all artifacts are in the index, by the rule of the
// type's current schema. Others are indexed in the background.
type indexed struct {
	wanted chan struct{} // there is something to index

	mu    sync.Mutex
	rules map[string]string // guarded by mu: by type, the rule by which all are
	asked map[string]time.Time
}

// askAgain is how long a type is taken for unfinished without another look.
const askAgain = time.Second

const (
	unindexedQuery = `
		SELECT EXISTS (
			SELECT FROM artifact a
			WHERE a.type = $1 AND a.is_latest AND NOT EXISTS (
				SELECT FROM search_document d WHERE d.type = a.type AND d.id = a.id AND d.rule = $2))`
	// lockUnindexedQuery keeps those who write off the artifacts for the moment that
	// it takes to index them, and leaves those alone that are being written: their
	// writers index them.
	lockUnindexedQuery = `
		SELECT a.id, a.revision, a.title, r.content, r.redaction IS NOT NULL
		FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE a.type = $1 AND a.id > $3 AND a.is_latest AND NOT EXISTS (
			SELECT FROM search_document d WHERE d.type = a.type AND d.id = a.id AND d.rule = $2)
		ORDER BY a.id
		LIMIT $4
		FOR NO KEY UPDATE OF a SKIP LOCKED`
)

// unindexed returns which of some types have artifacts that the index lacks.
func (h *Hub) unindexed(ctx context.Context, types []string) (behind []string, err error) {
	for _, typ := range types {
		schema := h.schemas.get(typ)
		if schema == nil {
			continue
		}
		rule := analysis.NewRule(schema).ID()
		h.indexed.mu.Lock()
		known, recent := h.indexed.rules[typ] == rule, time.Since(h.indexed.asked[typ+" "+rule]) < askAgain
		h.indexed.mu.Unlock()
		switch {
		case known:
			continue
		case recent:
			behind = append(behind, typ)
			continue
		}
		var missing bool
		if err := h.db.QueryRow(ctx, unindexedQuery, typ, rule).Scan(&missing); err != nil {
			return nil, err
		}
		h.indexed.mu.Lock()
		if missing {
			behind = append(behind, typ)
			if h.indexed.asked == nil {
				h.indexed.asked = make(map[string]time.Time)
			}
			h.indexed.asked[typ+" "+rule] = time.Now()
		} else {
			if h.indexed.rules == nil {
				h.indexed.rules = make(map[string]string)
			}
			h.indexed.rules[typ] = rule
		}
		h.indexed.mu.Unlock()
	}
	if behind != nil {
		select {
		case h.indexed.wanted <- struct{}{}:
		default:
		}
	}
	return behind, nil
}

// Batches of what is indexed in the background, and the pause between them.
const (
	indexBatch = 50
	indexPause = 5 * time.Millisecond
	indexLook  = time.Minute // how often it looks by itself
)

// keepIndex indexes what the index lacks, until ctx ends. It goes on where it was
// killed: what is indexed says so itself.
func (h *Hub) keepIndex(ctx context.Context) error {
	tick := time.NewTicker(indexLook)
	defer tick.Stop()
	for {
		if err := h.index(ctx); err != nil && ctx.Err() == nil {
			h.log.WarnContext(ctx, "the search index is not complete; it is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-h.indexed.wanted:
		}
	}
}

// index indexes all types that are behind.
func (h *Hub) index(ctx context.Context) error {
	behind, err := h.unindexed(ctx, h.schemas.types())
	var errs []error
	for _, typ := range behind {
		schema := h.schemas.get(typ)
		for after, n := "", indexBatch; n == indexBatch && err == nil; {
			after, n, err = h.indexSome(ctx, schema, after)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(indexPause):
			}
		}
		errs = append(errs, err)
		err = nil
		h.indexed.mu.Lock()
		maps.DeleteFunc(h.indexed.asked, func(_ string, _ time.Time) bool { return true })
		h.indexed.mu.Unlock()
	}
	return errors.Join(append(errs, err)...)
}

// indexSome indexes the next artifacts of a type after an id. The lock on each keeps
// its words from becoming older than the artifact.
func (h *Hub) indexSome(ctx context.Context, schema *artifact.Schema, after string) (last string, n int, err error) {
	rule := analysis.NewRule(schema)
	err = pgx.BeginFunc(ctx, h.db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, lockUnindexedQuery, schema.Type, rule.ID(), after, indexBatch)
		if err != nil {
			return err
		}
		var put wordRows
		var id, title, content string
		var revision int
		var redacted bool
		last = after
		_, err = pgx.ForEachRow(rows, []any{&id, &revision, &title, &content, &redacted}, func() error {
			w := &words{rule: rule.ID()}
			if !redacted {
				w.vector = rule.Document(id, title, []byte(content)).Vector()
			}
			put.add(artifact.Ref{Type: schema.Type, ID: id}, revision, w)
			last = id
			return nil
		})
		if n = len(put.id); err != nil || n == 0 {
			return err
		}
		b := new(pgx.Batch)
		put.queue(b)
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return after, 0, fmt.Errorf("index %s: %w", schema.Type, err)
	}
	return last, n, nil
}

// typesOrAll returns the types that a search is in.
func (h *Hub) typesOrAll(types []string) []string {
	if len(types) > 0 {
		return slices.Clone(types)
	}
	return h.schemas.types()
}
