package hub

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
)

// A Fault is something that a hub's tables hold and no write of a hub makes.
type Fault struct {
	Kind     string `json:"kind"` // of row; or "aggregate", "type" or "log"
	Ref      string `json:"ref"`
	Revision int    `json:"revision,omitempty"`
	What     string `json:"what"`
}

// A Verification is the outcome of checking a hub's tables against themselves.
type Verification struct {
	First   artifact.Seq     `json:"first"` // the first change that the log keeps
	Head    artifact.Seq     `json:"head"`  // the log's last change when the check began
	Chain   artifact.Hash    `json:"chain"` // after the last change that was read; zero where the log has no checkpoint to start from
	Seconds float64          `json:"seconds"`
	Rows    map[string]int64 `json:"rows"`   // that were read, by kind
	Found   map[string]int64 `json:"found"`  // faults, by kind
	Total   int64            `json:"total"`  // of faults
	Faults  []Fault          `json:"faults"` // the first ones
}

// maxFaults bounds how many faults are told one by one.
const maxFaults = 100

// Kinds of fault beside those of rows.
const (
	faultAggregate = "aggregate"
	faultFacet     = "facet"
	faultType      = "type"
	faultLog       = "log"
)

// verifyRows is how many rows are read in one snapshot.
const verifyRows = 2000

// A storeVerifier proves a store, piece by piece.
type storeVerifier struct {
	conn     *pgx.Conn
	report   Verification
	progress func(kind string, rows int64)
	logged   time.Time // what was written after this is in the log
	schemas  schemaCache
}

// Verify proves that a hub's database is whole: that each row is what its hash
// says, and each version what its content hash says; that the tables agree with each
// other, with the sums and facets that are kept of them and with the log; and that the log
// leads without a hole from one checkpoint of its chain to the next. The hub may be
// running: every piece is read in a short snapshot of its own. Progress, if given, is
// told how many rows of a kind were read.
func Verify(ctx context.Context, db *pgxpool.Pool, progress func(kind string, rows int64)) (report Verification, err error) {
	begun := time.Now()
	if err := CheckMigrated(ctx, db); err != nil {
		return report, err
	}
	// The log is not trimmed meanwhile.
	err = withTrimLock(ctx, db, func(conn *pgx.Conn) error {
		v := &storeVerifier{conn: conn, progress: progress}
		v.report.Rows, v.report.Found, v.report.Faults = make(map[string]int64), make(map[string]int64), []Fault{}
		defer func() { report = v.report }()
		// Pieces are small beside the tables, which the planner would read whole for each.
		const settings = `SELECT set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false)`
		if _, err := conn.Exec(ctx, settings); err != nil {
			return err
		}
		if err := v.schemas.load(ctx, db); err != nil {
			return err
		}
		if err := v.begin(ctx); err != nil {
			return err
		}
		for _, t := range []*checkedTable{revisionsTable(), headsTable(), linksTable(), signalsTable()} {
			if err := v.table(ctx, t); err != nil {
				return fmt.Errorf("verify %ss: %w", t.kind, err)
			}
		}
		for _, step := range []struct {
			kind string
			run  func(context.Context) error
		}{{faultAggregate, v.aggregates}, {faultFacet, v.facets}, {faultType, v.types}, {faultLog, v.log}} {
			if err := step.run(ctx); err != nil {
				return fmt.Errorf("verify the %s: %w", step.kind, err)
			}
		}
		return nil
	})
	report.Seconds = time.Since(begun).Seconds()
	return report, err
}

// withTrimLock runs f on a connection of its own that keeps the log from being
// trimmed.
func withTrimLock(ctx context.Context, db *pgxpool.Pool, f func(*pgx.Conn) error) error {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire a connection: %w", err)
	}
	// Closed rather than given back: the lock and the settings are the session's.
	raw := conn.Hijack()
	defer raw.Close(context.WithoutCancel(ctx))
	const settings = `
		SELECT set_config('lock_timeout', '10min', false), set_config('statement_timeout', '10min', false),
			set_config('idle_in_transaction_session_timeout', '10min', false), set_config('jit', 'off', false)` // to compile takes longer than to read a piece
	if _, err := raw.Exec(ctx, settings); err != nil {
		return err
	}
	if _, err := raw.Exec(ctx, `SELECT pg_advisory_lock_shared($1)`, trimLock); err != nil {
		return fmt.Errorf("wait for the log to be trimmed: %w", err)
	}
	return f(raw)
}

// begin notes how far the log goes, and since when it tells of what was written. A
// write has the time at which it was asked for, which may be before those that
// stand before it in the log.
func (v *storeVerifier) begin(ctx context.Context) (err error) {
	if v.report.First, v.report.Head, err = bounds(ctx, v.conn); err != nil || v.report.First <= 1 {
		return err
	}
	const query = `SELECT at + interval '10 minutes' FROM feed.change WHERE seq = $1`
	return v.conn.QueryRow(ctx, query, int64(v.report.First)).Scan(&v.logged)
}

// snapshot runs f on one state of the store.
func (v *storeVerifier) snapshot(ctx context.Context, f func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, v.conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, longReadQuery); err != nil {
			return err
		}
		return f(tx)
	})
}

func (v *storeVerifier) read(kind string, rows int) {
	v.report.Rows[kind] += int64(rows)
	if v.progress != nil {
		v.progress(kind, v.report.Rows[kind])
	}
}

func (v *storeVerifier) fault(kind, ref, format string, args ...any) {
	v.note(Fault{Kind: kind, Ref: ref, What: fmt.Sprintf(format, args...)})
}

func (v *storeVerifier) note(f Fault) {
	v.report.Total++
	v.report.Found[f.Kind]++
	if len(v.report.Faults) < maxFaults {
		v.report.Faults = append(v.report.Faults, f)
	}
}

// faults notes a fault for each row of a query, which tells its name and what is
// wrong with it.
func (v *storeVerifier) faults(ctx context.Context, tx pgx.Tx, kind, query string, args ...any) error {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	var row, what string
	_, err = pgx.ForEachRow(rows, []any{&row, &what}, func() error {
		v.fault(kind, row, "%s", what)
		return nil
	})
	return err
}
