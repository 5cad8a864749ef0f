package hub

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Reasons for which a hub does not start. The text of the error says what to do.
var (
	ErrNotInitialised = errors.New("migration_required: the database holds no hub: run scidex hub init")
	ErrPending        = errors.New("migration_required: migrations are pending: run scidex hub migrate plan, then scidex hub migrate apply")
	ErrNewer          = errors.New("migration_unknown: the database was migrated by a newer scidex: install that version")
	ErrChanged        = errors.New("migration_changed: an applied migration is not the one of this program: run scidex hub migrate verify")
)

// A Migration is one step of the database's schema.
type Migration struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
	SHA256  string `json:"sha256"` // of the step's file, as the program has it
}

func provider(db *pgxpool.Pool) (*goose.Provider, func(), error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, nil, err
	}
	std := stdlib.OpenDBFromPool(db)
	p, err := goose.NewProvider(goose.DialectPostgres, std, files, goose.WithSessionLocker(locker))
	if err != nil {
		_ = std.Close() // the error that matters is the other
		return nil, nil, fmt.Errorf("load migrations: %w", err)
	}
	return p, func() { _ = std.Close() }, nil
}

// Migrations returns all steps in order, with what the database has of them. It
// changes nothing.
func Migrations(ctx context.Context, db *pgxpool.Pool) ([]Migration, error) {
	applied, err := appliedVersions(ctx, db)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	all := make([]Migration, 0, len(names))
	for _, name := range names {
		raw, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(raw)
		_, done := applied[version]
		all = append(all, Migration{Version: version, Name: path.Base(name), Applied: done, SHA256: hex.EncodeToString(sum[:])})
	}
	return all, nil
}

// appliedVersions returns the versions that the database has, with the checksum
// noted when each was applied ("" when none was).
func appliedVersions(ctx context.Context, db *pgxpool.Pool) (map[int64]string, error) {
	var made bool
	if err := db.QueryRow(ctx, `SELECT to_regclass('goose_db_version') IS NOT NULL AND to_regclass('migration_checksum') IS NOT NULL`).Scan(&made); err != nil {
		return nil, fmt.Errorf("look for migrations: %w", err)
	}
	applied := make(map[int64]string)
	if !made {
		return applied, nil
	}
	const query = `
		SELECT g.version_id, coalesce(c.sha256, '')
		FROM goose_db_version g LEFT JOIN migration_checksum c ON c.version = g.version_id
		WHERE g.version_id > 0 AND g.is_applied`
	rows, err := db.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("read applied migrations: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var version int64
		var sum string
		if err := rows.Scan(&version, &sum); err != nil {
			return nil, err
		}
		applied[version] = sum
	}
	return applied, rows.Err()
}

// CheckMigrated returns nil when the database has exactly this program's
// migrations, and otherwise one of the errors above.
func CheckMigrated(ctx context.Context, db *pgxpool.Pool) error {
	applied, err := appliedVersions(ctx, db)
	if err != nil {
		return err
	}
	if len(applied) == 0 {
		return ErrNotInitialised
	}
	all, err := Migrations(ctx, db)
	if err != nil {
		return err
	}
	for _, m := range all {
		sum, done := applied[m.Version]
		switch {
		case !done || sum == "": // or not noted, if it was interrupted
			return ErrPending
		case sum != m.SHA256:
			return fmt.Errorf("%w (%s)", ErrChanged, m.Name)
		}
		delete(applied, m.Version)
	}
	if len(applied) > 0 {
		return ErrNewer
	}
	return nil
}

// Migrate applies what is pending and registers what is newly shipped. Programs
// that start it together take turns under an advisory lock.
func Migrate(ctx context.Context, db *pgxpool.Pool) (applied []string, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// IF NOT EXISTS alone fails when two run it at the same time.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, initLock); err != nil {
			return err
		}
		const checksums = `CREATE TABLE IF NOT EXISTS migration_checksum (version bigint PRIMARY KEY, sha256 text NOT NULL)`
		_, err := tx.Exec(ctx, checksums)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("note migrations: %w", err)
	}
	p, done, err := provider(db)
	if err != nil {
		return nil, err
	}
	defer done()
	results, err := p.Up(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	for _, r := range results {
		applied = append(applied, path.Base(r.Source.Path))
	}
	all, err := Migrations(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		const note = `
			INSERT INTO migration_checksum (version, sha256) VALUES ($1, $2)
			ON CONFLICT DO NOTHING`
		if _, err := db.Exec(ctx, note, m.Version, m.SHA256); err != nil {
			return nil, fmt.Errorf("note migration %s: %w", m.Name, err)
		}
	}
	return applied, seed(ctx, db)
}

// VerifyMigrations returns what differs between the migrations as they were
// applied and as the program has them.
func VerifyMigrations(ctx context.Context, db *pgxpool.Pool) (faults []string, err error) {
	applied, err := appliedVersions(ctx, db)
	if err != nil {
		return nil, err
	}
	all, err := Migrations(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		sum, done := applied[m.Version]
		if done && sum != m.SHA256 {
			faults = append(faults, fmt.Sprintf("%s was applied with sha256 %s and is %s in this program", m.Name, sum, m.SHA256))
		}
		delete(applied, m.Version)
	}
	for version := range applied {
		faults = append(faults, fmt.Sprintf("migration %d is applied and unknown to this program", version))
	}
	return faults, nil
}
