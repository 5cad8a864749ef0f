package node

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mattn/go-sqlite3"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	_ "github.com/scidex-ai/substrate/internal/sqlite" // plans that stay
	"github.com/scidex-ai/substrate/rank"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// fileSchema is the user_version of the files that this build reads.
const fileSchema = 6

// leastSQLite is the oldest SQLite that is used: 3.51.3 mended a rare corruption
// of databases in WAL mode.
const leastSQLite = 3_051_003

// ErrOtherSchema reports a file that another build wrote, or that is no replica.
// The replica must be rebuilt from the hub.
var ErrOtherSchema = errors.New("the file has another schema")

// ErrForeignHub reports a source that is not the hub, or not the epoch of the
// hub, that the replica was copied from.
var ErrForeignHub = errors.New("the replica was copied from another hub")

// errRestored reports the hub of the replica, in a later epoch.
var errRestored = errors.New("the hub was restored since")

// errRetired reports a store that another one has taken the place of.
var errRetired = errors.New("another replica has taken the place of this one")

//go:embed schema.sql
var tablesSQL string

// A Store is a replica in one SQLite file: a [replicate.Sink] that applies the
// feed, and what reads and subscriptions are answered from.
//
// One goroutine at a time calls Hello, Apply and Abort, as a
// [replicate.Follower] does. All else is safe for concurrent use, and nothing
// that reads ever waits for what is applied.
type Store struct {
	file      sqliteFile
	writer    *sql.DB
	conn      *sql.Conn // the writer's only connection
	readers   *sql.DB
	access    *verb.Directory                       // who may do what, as the replica says
	followed  map[string]bool                       // the scopes that it holds; for the follower alone
	gained    atomic.Pointer[[]string]              // scopes that the hub sends and it does not hold; nil for none
	holds     atomic.Pointer[[]string]              // scopes that it holds
	behind    atomic.Pointer[[]string]              // types of which not all is indexed; nil for none
	declared  atomic.Pointer[declaredTypes]         // as the schemas say
	facetsDue atomic.Bool                           // facets may be to be made
	hubOnly   atomic.Pointer[map[string]bool]       // types of which the hub alone holds artifacts
	upgrades  atomic.Pointer[artifact.Upgrades]     // of contents to the form of the current schemas
	models    *rank.Models                          // that searches ask; never nil
	vectors   atomic.Pointer[replicate.VectorModel] // by which model searches are; nil for none
	write     writeStatements
	read      readStatements
	writing   sync.Mutex                  // guards the writer's connection and what follows, up to now
	touched   map[touchedRow]artifact.Seq // what was applied since a repair began; nil for none
	commit    *commit                     // being applied; nil for none
	trail     replicate.Trail             // the last row of each scope that is in the file, or that the hello named
	erasing   bool                        // the WAL may hold what was erased
	now       atomic.Pointer[moment]      // after the last commit; never nil
	uses      uses
	restored  bool // it took the place of one of another history of the log
}

// OpenStore opens the replica at path, or makes an empty one. It takes the same
// time whatever the size. Its error wraps [ErrOtherSchema] when the replica must
// be rebuilt.
func OpenStore(ctx context.Context, path string) (*Store, error) {
	return openStore(ctx, path, "NORMAL")
}

// openStore opens a replica whose commits are as safe as synchronous, a setting of
// SQLite, says.
func openStore(ctx context.Context, path, synchronous string) (*Store, error) {
	useVectors()
	s := &Store{access: new(verb.Directory), models: new(rank.Models), uses: newUses()}
	if err := s.open(ctx, path, synchronous); err != nil {
		return nil, errors.Join(fmt.Errorf("open replica %s: %w", path, err), s.Close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, path, synchronous string) (err error) {
	// A replica may hold what only the lab may read. SQLite gives its other
	// files the mode of this one.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the operator names it
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if version, number, _ := sqlite3.Version(); number < leastSQLite {
		return fmt.Errorf("SQLite is %s; 3.51.3 or later is needed", version)
	}
	s.file.path = path
	s.writer = s.file.pool(url.Values{
		"_journal_mode": {"WAL"}, "_synchronous": {synchronous}, "_txlock": {"immediate"},
		"_busy_timeout": {"5000"}, "_cache_size": {"-65536"},
		"_secure_delete": {"true"}, // what is moved away or redacted leaves no bytes
	})
	s.writer.SetMaxOpenConns(1)
	if s.conn, err = s.writer.Conn(ctx); err != nil {
		return err
	}
	if err := s.prepareFile(ctx); err != nil {
		return err
	}
	s.readers = s.file.pool(url.Values{
		"mode": {"ro"}, "_query_only": {"true"}, "_busy_timeout": {"5000"}, "_cache_size": {"-8192"},
	})
	n := max(4, 2*runtime.NumCPU())
	s.readers.SetMaxOpenConns(n)
	s.readers.SetMaxIdleConns(n)
	s.write.upgrades = s.upgrades.Load
	if err := s.write.prepare(ctx, s.conn); err != nil {
		return err
	}
	if err := s.read.prepare(ctx, s.readers); err != nil {
		return err
	}
	p, err := s.storedPosition(ctx)
	if err != nil {
		return err
	}
	if err := s.loadTrail(ctx); err != nil {
		return err
	}
	if err := errors.Join(s.loadFollowed(ctx), s.loadAccess(ctx), s.loadElsewhere(ctx), s.loadUpgrades(ctx), s.loadRules(ctx), s.loadTypes(ctx), s.loadVectors(ctx)); err != nil {
		return err
	}
	s.now.Store(&moment{position: p, recent: event.Recent{Floor: p.Seq}, next: make(chan struct{})})
	s.erasing = true // a process that was killed may have left something
	s.emptyWAL(ctx)
	return nil
}

// prepareFile makes the tables of a new file, in one transaction, and refuses a
// file of another schema.
func (s *Store) prepareFile(ctx context.Context) error {
	var version, tables int
	if err := s.conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if err := s.conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return err
	}
	// Pages that many batches change are written back once for all: every 32 MB.
	const journal = "PRAGMA wal_autocheckpoint = 8000; PRAGMA journal_size_limit = 67108864"
	if _, err := s.conn.ExecContext(ctx, journal); err != nil {
		return err
	}
	if version == fileSchema {
		return nil
	}
	if version != 0 || tables != 0 {
		return fmt.Errorf("%w: it has schema %d and this build reads %d; scidex node run copies the hub anew by itself", ErrOtherSchema, version, fileSchema)
	}
	tx, err := s.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after a commit
	const state = `INSERT INTO replica_state (one, hub_id, epoch, seq, chain, scopes, hub_schema, file_schema)
		VALUES (1, '', 0, 0, x'', '[]', 0, ?1)`
	if _, err := tx.ExecContext(ctx, tablesSQL); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, state, fileSchema); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", fileSchema)); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *Store) storedPosition(ctx context.Context) (p replicate.Position, err error) {
	var chain []byte
	const query = `SELECT hub_id, epoch, seq, chain FROM replica_state`
	err = s.conn.QueryRowContext(ctx, query).Scan(&p.HubID, &p.Epoch, &p.Seq, &chain)
	copy(p.Chain[:], chain)
	return p, err
}

func (s *Store) loadTrail(ctx context.Context) error {
	s.trail = make(replicate.Trail)
	rows, err := s.conn.QueryContext(ctx, `SELECT scope, seq FROM scope_last`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var scope string
		var seq artifact.Seq
		if err := rows.Scan(&scope, &seq); err != nil {
			return err
		}
		s.trail[scope] = seq
	}
	return rows.Err()
}

// Close closes the file, once nobody reads from it.
func (s *Store) Close() error {
	s.uses.end()
	var errs []error
	if s.readers != nil {
		errs = append(errs, s.readers.Close())
	}
	return errors.Join(append(errs, s.closeWriter())...)
}

// closeWriter ends applying.
func (s *Store) closeWriter() error {
	var errs []error
	if s.conn != nil {
		errs = append(errs, s.conn.Close()) // a commit that did not end is undone
		s.conn = nil
	}
	if s.writer != nil {
		errs = append(errs, s.writer.Close()) // last, so that it empties the WAL
		s.writer = nil
	}
	return errors.Join(errs...)
}

// Position implements [replicate.Sink].
func (s *Store) Position(context.Context) (replicate.Position, error) {
	return s.now.Load().position, nil
}

// Applied returns the seq of the last commit applied. It costs nothing.
func (s *Store) Applied() artifact.Seq { return s.now.Load().position.Seq }

// WaitApplied waits until the changes up to seq are readable. It returns ctx's
// error when they are not by its end.
func (s *Store) WaitApplied(ctx context.Context, seq artifact.Seq) error {
	for {
		m := s.now.Load()
		switch {
		case m.position.Seq >= seq:
			return nil
		case m.retired:
			return errRetired
		}
		select {
		case <-m.next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A preparer is a connection or a pool.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// prepare makes statements of texts.
func prepare(ctx context.Context, p preparer, texts map[**sql.Stmt]string) (err error) {
	for stmt, text := range texts {
		if *stmt, err = p.PrepareContext(ctx, text); err != nil { //nolint:sqlclosecheck // Store.Close closes them
			return fmt.Errorf("prepare %.60q: %w", strings.Join(strings.Fields(text), " "), err)
		}
	}
	return nil
}
