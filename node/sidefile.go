package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/replicate"
)

// Names of files in a node's directory beside [ReplicaFile]. A replica is made in
// the first one; once it is whole and checked it has the second name, and from
// then on it is certain to take the replica's place. The one whose place it takes
// has the third while it is still read.
const (
	sideFile  = "replica.db.new"
	wholeFile = "replica.db.whole"
	oldFile   = "replica.db.old"
	badFile   = "replica.db.bad" // the last one that was refused, for those who look into it
)

// A plan says what is to be built beside the replica, and why.
type plan struct {
	Reason string `json:"reason"`
	// Gained are the scopes that a copy of the replica is to have besides; nil for
	// a whole new copy of the hub.
	Gained []string `json:"gained,omitempty"`
	// Restored is true when the replica's history of the log is not the hub's.
	Restored bool `json:"restored,omitempty"`
}

// A side is a replica that is being made. How far it has come stands in the file
// itself, in the transactions that bring it there: whoever is killed goes on.
type side struct {
	*Store
	path string
	plan plan

	fresh  bool             // the hub has not said yet what the file is of
	upTo   artifact.Seq     // where the feed takes over
	place  *replicate.Place // of the next page; nil when all is there
	head   artifact.Seq     // the latest that a page knew of
	rows   int64            // that the pages brought
	total  int64            // that they will bring, about
	scopes []string         // that the file is to hold, in order
}

const sideTable = `CREATE TABLE bootstrap (
	one   INTEGER PRIMARY KEY CHECK (one = 1),
	plan  TEXT NOT NULL,    -- JSON
	up_to INTEGER NOT NULL,
	place TEXT NOT NULL,    -- JSON
	head  INTEGER NOT NULL,
	n     INTEGER NOT NULL,
	total INTEGER NOT NULL
) STRICT`

// removeFile removes a database.
func removeFile(path string) error {
	var errs []error
	for _, suffix := range []string{"-wal", "-shm", "-journal", ""} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// openSide opens a file that was begun before. It returns an error for whatever
// cannot be gone on with.
func openSide(ctx context.Context, path string) (*side, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	// What a loss of power leaves is found by the check at the end.
	store, err := openStore(ctx, path, "OFF")
	if err != nil {
		return nil, err
	}
	s := &side{Store: store, path: path}
	s.write.types = nil
	var rawPlan, rawPlace, scopes string
	const query = `SELECT b.plan, b.up_to, b.place, b.head, b.n, b.total, s.scopes FROM bootstrap AS b, replica_state AS s`
	err = s.conn.QueryRowContext(ctx, query).Scan(&rawPlan, &s.upTo, &rawPlace, &s.head, &s.rows, &s.total, &scopes)
	if err == nil {
		err = errors.Join(json.Unmarshal([]byte(rawPlan), &s.plan), json.Unmarshal([]byte(rawPlace), &s.place), json.Unmarshal([]byte(scopes), &s.scopes))
	}
	if p := s.now.Load().position; err == nil && p.HubID == "" {
		err = errors.New("the file is of no hub")
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return s, nil
}

// newSide begins an empty file.
func newSide(ctx context.Context, path string, p plan) (*side, error) {
	if err := removeFile(path); err != nil {
		return nil, err
	}
	store, err := openStore(ctx, path, "OFF")
	if err != nil {
		return nil, err
	}
	s := &side{Store: store, path: path, plan: p, fresh: true, place: new(replicate.Place)}
	s.write.types = nil
	// They are built at the end: it is faster than to keep them up.
	for name := range indexes() {
		if _, err := s.conn.ExecContext(ctx, "DROP INDEX IF EXISTS "+name); err != nil {
			return nil, errors.Join(err, store.Close())
		}
	}
	return s, nil
}

// copySide begins with a copy of a replica, which may be read and written
// meanwhile.
func copySide(ctx context.Context, path string, p plan, of *Store) (*side, error) {
	if err := removeFile(path); err != nil {
		return nil, err
	}
	if err := of.copyTo(ctx, path); err != nil {
		return nil, fmt.Errorf("copy the replica: %w", errors.Join(err, removeFile(path)))
	}
	store, err := openStore(ctx, path, "OFF")
	if err != nil {
		return nil, err
	}
	s := &side{Store: store, path: path, plan: p, place: new(replicate.Place)}
	s.write.types = nil
	if _, err := s.conn.ExecContext(ctx, "DELETE FROM facet_build"); err != nil { // those of what is gained are to be made
		return nil, errors.Join(err, store.Close())
	}
	s.upTo = s.now.Load().position.Seq
	s.scopes = slices.Sorted(func(yield func(string) bool) {
		for scope := range s.followed {
			if !yield(scope) {
				return
			}
		}
		for _, scope := range p.Gained {
			if !s.followed[scope] && !yield(scope) {
				return
			}
		}
	})
	if err := s.begin(ctx, s.now.Load().position, 0, 0); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return s, nil
}

// copyTo writes a copy of the replica as it is at one moment.
func (s *Store) copyTo(ctx context.Context, path string) error {
	if !s.uses.begin() {
		return errRetired
	}
	defer s.uses.done()
	empty, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // of the node's own directory
	if err != nil {
		return err
	}
	if err := empty.Close(); err != nil {
		return err
	}
	from := s.file.pool(url.Values{"_busy_timeout": {"5000"}})
	_, err = from.ExecContext(ctx, "VACUUM INTO ?1", path)
	return errors.Join(err, from.Close())
}

// begin notes what the file is of, where it begins and which scopes it will hold.
func (s *side) begin(ctx context.Context, p replicate.Position, schema int, total int64) error {
	scopes, err := json.Marshal(s.scopes)
	if err != nil {
		return err
	}
	return s.transact(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, sideTable); err != nil {
			return err
		}
		const state = `UPDATE replica_state SET hub_id = ?1, epoch = ?2, seq = ?3, scopes = ?4, hub_schema = max(hub_schema, ?5)`
		if _, err := tx.ExecContext(ctx, state, p.HubID, p.Epoch, int64(p.Seq), string(scopes), schema); err != nil {
			return err
		}
		const row = `INSERT INTO bootstrap (one, plan, up_to, place, head, n, total) VALUES (1, '', ?1, 'null', 0, 0, ?2)`
		if _, err := tx.ExecContext(ctx, row, int64(p.Seq), total); err != nil {
			return err
		}
		s.upTo, s.total, s.fresh = p.Seq, total, false
		s.hold(s.scopes)
		s.publish(p, event.Recent{Floor: p.Seq})
		return s.note(ctx, tx)
	})
}

// note keeps how far the file has come, in a transaction that brought it there.
func (s *side) note(ctx context.Context, tx *sql.Tx) error {
	rawPlan, err := json.Marshal(s.plan)
	if err != nil {
		return err
	}
	place, err := json.Marshal(s.place)
	if err != nil {
		return err
	}
	const update = `UPDATE bootstrap SET plan = ?1, place = ?2, head = ?3, n = ?4`
	_, err = tx.ExecContext(ctx, update, string(rawPlan), string(place), int64(s.head), s.rows)
	return err
}

func (s *side) transact(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after a commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// fill stores a page, and where to go on after it, in one transaction.
func (s *side) fill(ctx context.Context, f *replicate.Fill) error {
	for i := range f.Rows {
		r := &f.Rows[i]
		if !s.followed[r.Scope] || r.Seq > s.upTo {
			return fmt.Errorf("back-fill %s %s: it is of %s at %d, which was not asked for", r.Kind, r.Ref, r.Scope, r.Seq)
		}
	}
	before := *s
	s.write.index.later = true
	err := s.transact(ctx, func(tx *sql.Tx) error {
		for i := range f.Rows {
			r := &f.Rows[i]
			if err := s.write.fill(ctx, r); err != nil {
				return fmt.Errorf("back-fill %s %s: %w", r.Kind, r.Ref, err)
			}
		}
		s.place, s.head, s.rows = f.Next, max(s.head, f.Head), s.rows+int64(len(f.Rows))
		return s.note(ctx, tx)
	})
	if err != nil {
		s.place, s.head, s.rows = before.place, before.head, before.rows
	}
	return err
}

// fill stores a row of a back-fill.
func (w *writeStatements) fill(ctx context.Context, r *replicate.Row) error {
	switch {
	case r.Kind == replicate.KindAggregate:
		var a artifact.Aggregate
		if err := json.Unmarshal(r.Data, &a); err != nil {
			return err
		}
		typ, id, _ := strings.Cut(r.Ref, ":")
		_, err := w.putAggregate.ExecContext(ctx, typ, id, a.Kind, a.Dimension, a.Count, a.Voters, a.Sum.String(), a.SumSq.String())
		return err
	case r.Event != nil:
		e := eventOf(r)
		return w.event(ctx, &e)
	}
	return w.put(ctx, r)
}

// indexes returns the statements that make the schema's indexes, by name.
func indexes() map[string]string {
	out := make(map[string]string)
	for statement := range strings.SplitSeq(tablesSQL, ";") {
		if _, rest, found := strings.Cut(statement, "CREATE INDEX "); found {
			name, _, _ := strings.Cut(rest, " ")
			out[name] = "CREATE INDEX IF NOT EXISTS " + rest
		}
	}
	return out
}

// index makes the facets and indexes that are not there yet. While pages came none
// were kept up: a page may bring an artifact before what it holds.
func (s *side) index(ctx context.Context) error {
	if err := errors.Join(s.loadUpgrades(ctx), s.loadTypes(ctx)); err != nil {
		return err
	}
	for more := true; more; {
		var err error
		if more, err = s.buildFacets(ctx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	all := indexes()
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range all {
			if !yield(name) {
				return
			}
		}
	}) {
		if _, err := s.conn.ExecContext(ctx, all[name]); err != nil {
			return fmt.Errorf("make index %s: %w", name, err)
		}
	}
	return s.indexWords(ctx)
}

// indexWords indexes the words of what the back-fill brought.
func (s *side) indexWords(ctx context.Context) error {
	s.write.index.later = false
	if err := s.loadRules(ctx); err != nil {
		return err
	}
	for s.behind.Load() != nil {
		if err := s.transact(ctx, func(*sql.Tx) error { return s.indexSome(ctx, sideIndexBatch) }); err != nil {
			return fmt.Errorf("index words: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// sideIndexBatch is how many artifacts are indexed in a transaction of a file that
// nobody reads yet.
const sideIndexBatch = 2000

// sum counts all rows anew and keeps the digest that they make.
func (s *side) sum(ctx context.Context) (replicate.Digest, error) {
	d, err := s.Recount(ctx)
	if err != nil {
		return d, err
	}
	return d, s.transact(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM digest"); err != nil {
			return err
		}
		for i := range d.Entries {
			e := &d.Entries[i]
			if _, err := tx.ExecContext(ctx, putSumSQL, e.Scope, e.Kind, e.Type, e.Count, e.XOR[:]); err != nil {
				return err
			}
		}
		return nil
	})
}

// quickCheck asks SQLite whether the file is sound.
func (s *side) quickCheck(ctx context.Context) error {
	var said string
	if err := s.conn.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&said); err != nil {
		return err
	}
	if said != "ok" {
		return fmt.Errorf("the file is damaged: %s", said)
	}
	return nil
}

// finish closes a file that is whole and makes sure that the disk has it.
func (s *side) finish(ctx context.Context, as string) error {
	if _, err := s.conn.ExecContext(ctx, "DROP TABLE bootstrap"); err != nil {
		return err
	}
	var busy, pages, moved int
	if err := s.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if err := syncPath(s.path); err != nil {
		return err
	}
	for _, suffix := range []string{"-wal", "-shm"} { // empty, if they are there at all
		if err := os.Remove(s.path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return os.Rename(s.path, as)
}

// syncPath makes the disk have a file or directory as it is.
func syncPath(path string) error {
	f, err := os.Open(path) //nolint:gosec // of the node's own directory
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
