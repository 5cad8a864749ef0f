package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/scidex-ai/substrate/analysis"
	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

const (
	putDocumentSQL = `INSERT INTO search_document (type, id, scope, revision, rule) VALUES (?1, ?2, ?3, ?4, ?5)
		ON CONFLICT (type, id) DO UPDATE SET scope = excluded.scope, revision = excluded.revision, rule = excluded.rule
		RETURNING n`
	// newDocumentSQL is for what is likely not there.
	newDocumentSQL    = `INSERT INTO search_document (type, id, scope, revision, rule) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING`
	newWordsSQL       = `INSERT INTO search_index (rowid, name, title, first, second, rest, title_joined, joined) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`
	documentSQL       = `SELECT n, scope, revision, rule FROM search_document WHERE type = ?1 AND id = ?2`
	moveDocumentSQL   = `UPDATE search_document SET scope = ?2 WHERE n = ?1`
	dropDocumentSQL   = `DELETE FROM search_document WHERE n = ?1`
	putWordsSQL       = `INSERT OR REPLACE INTO search_index (rowid, name, title, first, second, rest, title_joined, joined) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`
	dropWordsSQL      = `DELETE FROM search_index WHERE rowid = ?1`
	dropScopeWordsSQL = `DELETE FROM search_index WHERE rowid IN (SELECT n FROM search_document WHERE scope = ?1)`
	// optimizeSQL takes the words of what was deleted out of the file: until then the
	// index only knows that they count no more.
	optimizeSQL = `INSERT INTO search_index (search_index) VALUES ('optimize')`
	// Of the version that is current.
	contentSQL = `SELECT content, redaction IS NOT NULL FROM artifact_revision WHERE type = ?1 AND id = ?2 AND revision = ?3`
	rulesSQL   = `SELECT s.type, json_extract(s.document, '$.search'), coalesce(r.rule, '')
		FROM schema_registry AS s LEFT JOIN search_rule AS r ON r.type = s.type
		WHERE s.is_current AND (?1 = '' OR s.type = ?1)`
	putRuleSQL   = `INSERT OR REPLACE INTO search_rule (type, rule) VALUES (?1, ?2)`
	unindexedSQL = `SELECT a.id, a.scope, a.revision, a.title
		FROM artifact AS a LEFT JOIN search_document AS d ON d.type = a.type AND d.id = a.id
		WHERE a.type = ?1 AND a.id > ?3 AND a.is_latest AND (d.n IS NULL OR d.rule <> ?2 OR d.revision <> a.revision)
		ORDER BY a.id LIMIT ?4`
)

// A version is one of an artifact as the feed brought it last: its head follows.
type version struct {
	typ, id  string
	revision int
	content  []byte
	redacted bool
}

// An indexWriter keeps up what artifacts are found by, in the transactions that
// change them.
type indexWriter struct {
	putDocument, newDocument, document, moveDocument, dropDocument *sql.Stmt
	putWords, newWords, dropWords, optimize                        *sql.Stmt
	content, readRules, putRule, unindexed                         *sql.Stmt

	rules  atomic.Pointer[map[string]*analysis.Rule] // by type; replaced, never changed
	last   version
	ahead  map[versionKey]*madeAhead // words that are made while other rows are applied
	later  bool                      // a back-fill, which is indexed at its end
	forgot bool                      // this transaction takes words out that must leave the file
	after  string                    // the last id that was indexed in the background, of the first type that is behind
}

func (x *indexWriter) prepare(ctx context.Context, conn *sql.Conn) error {
	return prepare(ctx, conn, map[**sql.Stmt]string{
		&x.putDocument: putDocumentSQL, &x.newDocument: newDocumentSQL, &x.newWords: newWordsSQL, &x.document: documentSQL, &x.moveDocument: moveDocumentSQL, &x.dropDocument: dropDocumentSQL,
		&x.putWords: putWordsSQL, &x.dropWords: dropWordsSQL, &x.optimize: optimizeSQL,
		&x.content: contentSQL, &x.readRules: rulesSQL, &x.putRule: putRuleSQL, &x.unindexed: unindexedSQL,
	})
}

// of reports whether the version is a head's.
func (v *version) of(h *replicate.Head) bool {
	return v.typ == h.Type && v.id == h.ID && v.revision == h.Revision
}

// put indexes an artifact whose head was put. One that is new was not there before.
func (x *indexWriter) put(ctx context.Context, h *replicate.Head, isNew bool) error {
	switch {
	case x.later:
		return nil
	case !h.IsLatest:
		return x.drop(ctx, h.Type, h.ID)
	}
	rule := x.rule(h.Type)
	if rule == nil {
		return nil // of a type that is not known yet
	}
	v := x.last
	if !v.of(h) {
		var n int64
		var scope, by string
		var revision int
		err := x.document.QueryRowContext(ctx, h.Type, h.ID).Scan(&n, &scope, &revision, &by)
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return err
		case err == nil && revision == h.Revision && by == rule.ID():
			if scope != h.Scope {
				_, err = x.moveDocument.ExecContext(ctx, n, h.Scope)
			}
			return err
		}
		v = version{typ: h.Type, id: h.ID, revision: h.Revision}
		err = x.content.QueryRowContext(ctx, v.typ, v.id, v.revision).Scan(&v.content, &v.redacted)
		if errors.Is(err, sql.ErrNoRows) {
			return nil // the version is to come; the head comes after it
		} else if err != nil {
			return err
		}
	}
	if isNew && !v.redacted {
		if done, err := x.writeNew(ctx, rule, &v, h.Scope, h.Title); done || err != nil {
			return err
		}
	}
	return x.write(ctx, rule, &v, h.Scope, h.Title)
}

// writeNew indexes a version of what was not there before; false when it was.
func (x *indexWriter) writeNew(ctx context.Context, rule *analysis.Rule, v *version, scope, title string) (bool, error) {
	res, err := x.newDocument.ExecContext(ctx, v.typ, v.id, scope, v.revision, rule.ID())
	if err != nil {
		return false, err
	}
	if made, err := res.RowsAffected(); err != nil || made == 0 {
		return false, err
	}
	n, err := res.LastInsertId()
	if err == nil {
		_, err = x.newWords.ExecContext(ctx, x.row(n, rule, v, title)...)
	}
	return err == nil, err
}

// row returns a row of the index.
func (x *indexWriter) row(n int64, rule *analysis.Rule, v *version, title string) []any {
	args := make([]any, 0, 8)
	args = append(args, n)
	for _, column := range x.columns(rule, v, title) {
		args = append(args, column)
	}
	return args
}

// write indexes a version. One that was redacted has no words.
func (x *indexWriter) write(ctx context.Context, rule *analysis.Rule, v *version, scope, title string) error {
	var n int64
	if err := x.putDocument.QueryRowContext(ctx, v.typ, v.id, scope, v.revision, rule.ID()).Scan(&n); err != nil {
		return err
	}
	if v.redacted {
		x.forgot = true
		_, err := x.dropWords.ExecContext(ctx, n)
		return err
	}
	_, err := x.putWords.ExecContext(ctx, x.row(n, rule, v, title)...)
	return err
}

// drop takes an artifact out of the index.
func (x *indexWriter) drop(ctx context.Context, typ, id string) error {
	var n int64
	var scope, by string
	var revision int
	err := x.document.QueryRowContext(ctx, typ, id).Scan(&n, &scope, &revision, &by)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	if _, err := x.dropWords.ExecContext(ctx, n); err != nil {
		return err
	}
	_, err = x.dropDocument.ExecContext(ctx, n)
	return err
}

// forget ends a transaction: words that it took out for good leave the file with it.
func (w *writeStatements) forget(ctx context.Context) error {
	if !w.index.forgot {
		return nil
	}
	w.index.forgot = false
	_, err := w.index.optimize.ExecContext(ctx)
	return err
}

// undone notes that the transaction was rolled back.
func (w *writeStatements) undone() { w.index.last, w.index.forgot = version{}, false }

// learn reads the rules of one type, or of all types for "".
func (x *indexWriter) learn(ctx context.Context, typ string) error {
	_, err := x.readAll(ctx, typ)
	return err
}

// readAll reads rules and returns, by type, those by which all is indexed.
func (x *indexWriter) readAll(ctx context.Context, typ string) (done map[string]string, err error) {
	rows, err := x.readRules.QueryContext(ctx, typ)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	done = make(map[string]string)
	rules := make(map[string]*analysis.Rule)
	for rows.Next() {
		s := new(artifact.Schema)
		var search []byte
		var all string
		if err := rows.Scan(&s.Type, &search, &all); err != nil {
			return nil, err
		}
		if search != nil {
			if err := json.Unmarshal(search, &s.Search); err != nil {
				return nil, err
			}
		}
		rules[s.Type], done[s.Type] = analysis.NewRule(s), all
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if known := x.rules.Load(); typ != "" && known != nil {
		next := maps.Clone(*known)
		maps.Copy(next, rules)
		rules = next
	}
	x.rules.Store(&rules)
	return done, nil
}

// rule returns the rule of a type; nil for one that is not known.
func (x *indexWriter) rule(typ string) *analysis.Rule {
	rules := x.rules.Load()
	if rules == nil {
		return nil
	}
	return (*rules)[typ]
}

// loadRules reads how artifacts are indexed, and of which types not all are. The
// caller holds s.writing, or is alone.
func (s *Store) loadRules(ctx context.Context) error {
	x := &s.write.index
	x.after = ""
	done, err := x.readAll(ctx, "")
	if err != nil {
		return err
	}
	var behind []string
	for _, typ := range slices.Sorted(maps.Keys(done)) {
		if done[typ] == x.rule(typ).ID() {
			continue
		}
		missing, err := s.missing(ctx, typ, "", 1)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			behind = append(behind, typ)
			continue
		}
		if _, err := x.putRule.ExecContext(ctx, typ, x.rule(typ).ID()); err != nil {
			return err
		}
	}
	s.setBehind(behind)
	return nil
}

func (s *Store) setBehind(types []string) {
	if len(types) == 0 {
		s.behind.Store(nil)
		return
	}
	s.behind.Store(&types)
}

// A lacking artifact is one that the index lacks.
type lacking struct {
	version
	scope, title string
}

func (s *Store) missing(ctx context.Context, typ, after string, limit int) (out []lacking, err error) {
	rows, err := s.write.index.unindexed.QueryContext(ctx, typ, s.write.index.rule(typ).ID(), after, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		l := lacking{version: version{typ: typ}}
		if err := rows.Scan(&l.id, &l.scope, &l.revision, &l.title); err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, rows.Err()
}

// indexSome indexes the next artifacts of the first type that is behind. It runs in a
// transaction of the writer.
func (s *Store) indexSome(ctx context.Context, limit int) error {
	behind := s.behind.Load()
	if behind == nil {
		return nil
	}
	x, typ := &s.write.index, (*behind)[0]
	missing, err := s.missing(ctx, typ, x.after, limit)
	if err != nil {
		return err
	}
	for rest := missing; len(rest) > 0; {
		n, err := x.readContents(ctx, rest)
		if err == nil {
			err = x.writeAll(ctx, rest[:n])
		}
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	if len(missing) == limit {
		return nil
	}
	if _, err := x.putRule.ExecContext(ctx, typ, x.rule(typ).ID()); err != nil {
		return err
	}
	x.after = ""
	s.setBehind((*behind)[1:])
	return nil
}

// aheadBytes is about how much content is held while its words are made.
const aheadBytes = 4 << 20

// readContents reads the contents of the first versions, and returns how many.
func (x *indexWriter) readContents(ctx context.Context, versions []lacking) (n int, err error) {
	for size := 0; n < len(versions) && size < aheadBytes; n++ {
		l := &versions[n]
		err := x.content.QueryRowContext(ctx, l.typ, l.id, l.revision).Scan(&l.content, &l.redacted)
		if err != nil && !errors.Is(err, sql.ErrNoRows) { // one that was lost, a repair brings
			return 0, err
		}
		size += len(l.content)
	}
	return n, nil
}

// writeAll indexes versions, whose words are found on all processors.
func (x *indexWriter) writeAll(ctx context.Context, versions []lacking) error {
	defer x.makeAllAhead(versions)()
	for i := range versions {
		l := &versions[i]
		if l.content == nil {
			continue
		}
		if err := x.writeOne(ctx, l); err != nil {
			return err
		}
		x.after, l.content = l.id, nil
	}
	return nil
}

func (x *indexWriter) writeOne(ctx context.Context, l *lacking) error {
	rule := x.rule(l.typ)
	if !l.redacted {
		if done, err := x.writeNew(ctx, rule, &l.version, l.scope, l.title); done || err != nil {
			return err
		}
	}
	return x.write(ctx, rule, &l.version, l.scope, l.title)
}

// Batches of what is indexed in the background, and the pause between them.
const (
	indexBatch = 50
	indexPause = 10 * time.Millisecond
	indexLook  = time.Second
)

// keepIndex indexes what types say anew is to be found, beside the feed, until ctx
// ends. It goes on where it was killed: what is indexed says so itself.
func (n *Node) keepIndex(ctx context.Context) {
	for ctx.Err() == nil {
		wait := indexLook
		if s := n.held.use(); s != nil {
			if s.behind.Load() != nil {
				wait = indexPause
				if err := s.amend(ctx, func(ctx context.Context) error { return s.indexSome(ctx, indexBatch) }); err != nil && ctx.Err() == nil {
					n.log.WarnContext(ctx, "the search index is not complete; it is tried again", "err", err)
					wait = indexLook
				}
			}
			s.uses.done()
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}
