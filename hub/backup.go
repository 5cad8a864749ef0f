package hub

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// A Manifest says what a backup holds.
type Manifest struct {
	Format     int              `json:"format"` // 1
	HubID      string           `json:"hub_id"`
	Epoch      int              `json:"epoch"`
	Seq        artifact.Seq     `json:"seq"`   // the last change that the backup holds
	Chain      artifact.Hash    `json:"chain"` // the log's chain there
	Digest     replicate.Digest `json:"digest"`
	Migrations map[int64]string `json:"migrations"` // checksums, by version
	Version    string           `json:"version"`    // of the program
	At         time.Time        `json:"at"`
	SHA256     artifact.Hash    `json:"sha256"` // of the dump
	Bytes      int64            `json:"bytes"`
}

const (
	backupFormat = 1
	dumpName     = "hub.dump" // in the archive; pg_restore reads it
	manifestName = "manifest.json"
	tarBlock     = 512
	// unready is the table whose rows no dump holds: without them no hub runs on the
	// database, so that none does before a restore is done.
	unready = "public.migration_checksum"
)

type (
	// A Dumper writes a database as a snapshot sees it.
	Dumper interface {
		Dump(ctx context.Context, w io.Writer, snapshot string, without ...string) error
	}
	// A Restorer makes a database of what a Dumper wrote.
	Restorer interface {
		Restore(ctx context.Context, r io.Reader) error
	}
)

// Backup writes all of a hub's database, as it is at one seq, to a file: an archive
// of a dump and a manifest. The hub may be running; its log is not trimmed meanwhile.
// Progress, if given, is told how many bytes were written.
func Backup(ctx context.Context, db *pgxpool.Pool, d Dumper, version string, w io.WriteSeeker, progress func(int64)) (m Manifest, err error) {
	if err := CheckMigrated(ctx, db); err != nil {
		return m, err
	}
	err = withTrimLock(ctx, db, func(conn *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
				return err
			}
			var snapshot string
			if err := tx.QueryRow(ctx, `SELECT pg_export_snapshot()`).Scan(&snapshot); err != nil {
				return err
			}
			if m, err = manifestOf(ctx, tx, db); err != nil {
				return err
			}
			m.Version = version
			if _, err := w.Seek(tarBlock, io.SeekStart); err != nil {
				return err
			}
			c := &counted{w: w, hash: sha256.New(), progress: progress}
			if err := d.Dump(ctx, c, snapshot, unready); err != nil {
				return err
			}
			m.Bytes, m.SHA256 = c.n, artifact.Hash(c.hash.Sum(nil))
			return m.close(w)
		})
	})
	if err != nil {
		return m, fmt.Errorf("back up: %w", err)
	}
	return m, nil
}

func manifestOf(ctx context.Context, tx pgx.Tx, db *pgxpool.Pool) (m Manifest, err error) {
	m.Format, m.At = backupFormat, time.Now().UTC()
	const query = `SELECT h.hub_id, max(e.epoch), (` + headQuery + `) FROM hub h CROSS JOIN epoch e GROUP BY h.hub_id`
	if err := tx.QueryRow(ctx, query).Scan(&m.HubID, &m.Epoch, &m.Seq); err != nil {
		return m, err
	}
	if m.Chain, err = chainAt(ctx, tx, m.Seq); err != nil {
		return m, err
	}
	if m.Digest, err = digestNow(ctx, tx, m.Seq); err != nil {
		return m, err
	}
	m.Migrations, err = appliedVersions(ctx, db)
	return m, err
}

// digestNow sums up all scopes.
func digestNow(ctx context.Context, tx pgx.Tx, at artifact.Seq) (d replicate.Digest, err error) {
	rows, err := tx.Query(ctx, digestQuery)
	if err != nil {
		return d, err
	}
	sums := make(replicate.Sums)
	var k replicate.DigestKey
	var count int64
	var bits string
	_, err = pgx.ForEachRow(rows, []any{&k.Scope, &k.Kind, &k.Type, &count, &bits}, func() error {
		sums[k] = &replicate.DigestSum{DigestKey: k, Count: count, XOR: fromBits(bits)}
		return nil
	})
	return sums.Digest(at), err
}

// close ends the archive whose dump stands after the first block.
func (m *Manifest) close(w io.WriteSeeker) error {
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if _, err := w.Write(make([]byte, (tarBlock-m.Bytes%tarBlock)%tarBlock)); err != nil {
		return err
	}
	t := tar.NewWriter(w)
	if err := t.WriteHeader(&tar.Header{Name: manifestName, Mode: 0o600, Size: int64(len(raw)), ModTime: m.At, Format: tar.FormatGNU}); err != nil {
		return err
	}
	if _, err := t.Write(raw); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	if _, err := w.Seek(0, io.SeekStart); err != nil {
		return err
	}
	// In GNU's format a header is one block, however large the file.
	return tar.NewWriter(w).WriteHeader(&tar.Header{Name: dumpName, Mode: 0o600, Size: m.Bytes, ModTime: m.At, Format: tar.FormatGNU})
}

// counted counts and hashes what goes through it.
type counted struct {
	w        io.Writer
	n        int64
	hash     hash.Hash
	progress func(int64)
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.hash.Write(b[:n])
	if c.progress != nil {
		c.progress(c.n)
	}
	return n, err
}

// ErrHoldsSomething reports a database that is to be restored into and is not empty.
var ErrHoldsSomething = errors.New("the database is not empty: give a new one to restore into")

// A BackupFile is a backup that was found whole.
type BackupFile struct {
	Manifest

	dump io.Reader
}

// Restore makes a hub of a backup in an empty database. It begins a new epoch whose
// seqs lie far beyond any that the hub used after the backup, so that whoever holds
// those changes notices; and it proves what it made. Until all is done no hub runs on
// the database.
func Restore(ctx context.Context, db *pgxpool.Pool, d Restorer, b *BackupFile, progress func(what string, n int64)) (v Verification, err error) {
	const query = `
		SELECT (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema')
			+ (SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema')
			+ (SELECT count(*) FROM pg_namespace WHERE nspname NOT LIKE 'pg\_%' AND nspname NOT IN ('information_schema', 'public'))`
	var things int
	if err := db.QueryRow(ctx, query).Scan(&things); err != nil {
		return v, fmt.Errorf("look at the database: %w", err)
	}
	if things > 0 {
		return v, ErrHoldsSomething
	}
	read := &counted{w: io.Discard, hash: sha256.New(), progress: func(n int64) { progress("restoring", n) }}
	if err := d.Restore(ctx, io.TeeReader(b.dump, read)); err != nil {
		return v, fmt.Errorf("restore: %w", err)
	}
	if err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for version, sum := range b.Migrations {
			if _, err := tx.Exec(ctx, `INSERT INTO migration_checksum (version, sha256) VALUES ($1, $2)`, version, sum); err != nil {
				return err
			}
		}
		digest, err := digestNow(ctx, tx, b.Seq)
		if err != nil {
			return err
		}
		if !slices.Equal(digest.Entries, b.Digest.Entries) {
			return errors.New("what was restored is not what the manifest says")
		}
		return takeOver(ctx, tx, AdoptRestore)
	}); err != nil {
		return v, fmt.Errorf("begin a new epoch: %w", err)
	}
	if err := ensurePartitions(ctx, db, defaultPartitionRows, 0); err != nil {
		return v, err
	}
	if v, err = Verify(ctx, db, progress); err == nil && (v.Head != b.Seq || v.Chain != b.Chain) {
		err = fmt.Errorf("the log ends at %d with the chain %s, in the manifest at %d with %s", v.Head, v.Chain, b.Seq, b.Chain)
	}
	return v, err
}

// OpenBackup reads a backup's manifest and checks that the dump is whole.
func OpenBackup(r io.ReadSeeker, progress func(what string, n int64)) (*BackupFile, error) {
	m, err := checkBackup(r, progress)
	if err != nil {
		return nil, err
	}
	if _, err := r.Seek(tarBlock, io.SeekStart); err != nil {
		return nil, err
	}
	return &BackupFile{Manifest: m, dump: io.LimitReader(r, m.Bytes)}, nil
}

func checkBackup(r io.Reader, progress func(string, int64)) (m Manifest, err error) {
	t := tar.NewReader(r)
	h, err := t.Next()
	if err != nil || h.Name != dumpName {
		return m, errors.New("the file is no backup of scidex hub backup")
	}
	c := &counted{w: io.Discard, hash: sha256.New(), progress: func(n int64) { progress("checking the file", n) }}
	if _, err := io.Copy(c, t); err != nil { //nolint:gosec // it is hashed and thrown away
		return m, fmt.Errorf("the backup is cut short: %w", err)
	}
	if h, err = t.Next(); err != nil || h.Name != manifestName {
		return m, errors.New("the backup is cut short: it has no manifest")
	}
	var raw bytes.Buffer
	if _, err := io.Copy(&raw, io.LimitReader(t, 64<<20)); err != nil {
		return m, err
	}
	if err := json.Unmarshal(raw.Bytes(), &m); err != nil {
		return m, fmt.Errorf("the backup's manifest: %w", err)
	}
	switch {
	case m.Format != backupFormat:
		return m, fmt.Errorf("the backup has the format %d: use the scidex that made it, %s, or a later one", m.Format, m.Version)
	case c.n != m.Bytes || artifact.Hash(c.hash.Sum(nil)) != m.SHA256:
		return m, errors.New("the backup was changed since it was made: its hash is another one")
	}
	return m, nil
}
