package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	port      = "5432" // only names the socket: no TCP port is opened
	role      = "scidex"
	database  = "scidex"
	superuser = "postgres"
)

// access is what a client needs to connect. Role and superuser have one password:
// who can read the one could read the other.
type access struct {
	socketDir string
	password  string
}

func (a access) url() string      { return a.urlOf(role, database) }
func (a access) adminURL() string { return a.urlOf(superuser, "postgres") }

func (a access) urlOf(user, db string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(user, a.password),
		Path:     "/" + db,
		RawQuery: url.Values{"host": {a.socketDir}, "port": {port}}.Encode(),
	}
	return u.String()
}

func (a access) connect(ctx context.Context, connString string) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig(connString)
	if err != nil {
		return nil, err
	}
	c.ConnectTimeout = 5 * time.Second
	return pgx.ConnectConfig(ctx, c)
}

func (a access) ping(ctx context.Context, connString string) error {
	conn, err := a.connect(ctx, connString)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.Ping(ctx)
}

// isRefused tells the answers that waiting does not change: SQLSTATE class 28,
// invalid authorization.
func isRefused(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && strings.HasPrefix(e.Code, "28")
}

// createDatabase makes role and database where they are absent. An interruption
// between the two is made good by the next call.
func createDatabase(ctx context.Context, a access) error {
	conn, err := a.connect(ctx, a.adminURL())
	if err != nil {
		return fmt.Errorf("create database %s: %w", database, err)
	}
	defer conn.Close(ctx)
	const state = `SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1),
	EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = $2)`
	var hasRole, hasDatabase bool
	if err := conn.QueryRow(ctx, state, role, database).Scan(&hasRole, &hasDatabase); err != nil {
		return fmt.Errorf("look for database %s: %w", database, err)
	}
	if !hasRole {
		// CREATE ROLE takes no parameters.
		secret := strings.ReplaceAll(a.password, "'", "''")
		if _, err := conn.Exec(ctx, "CREATE ROLE "+role+" LOGIN PASSWORD '"+secret+"'"); err != nil {
			return fmt.Errorf("create role %s: %w", role, err)
		}
	}
	if !hasDatabase {
		if _, err := conn.Exec(ctx, "CREATE DATABASE "+database+" OWNER "+role); err != nil {
			return fmt.Errorf("create database %s: %w", database, err)
		}
	}
	return nil
}

func passwordPath(dir string) string { return filepath.Join(dir, "postgres.password") }

func readPassword(dir string) (string, error) {
	b, err := os.ReadFile(passwordPath(dir))
	if err != nil {
		return "", err
	}
	password := strings.TrimSpace(string(b))
	if password == "" {
		return "", fmt.Errorf("%s is empty", passwordPath(dir))
	}
	return password, nil
}

// ensurePassword reads the password of the data directory. It makes one when there
// is none and no cluster either, whose password could not be known.
func ensurePassword(dir, cluster string) (string, error) {
	password, err := readPassword(dir)
	if !errors.Is(err, os.ErrNotExist) {
		return password, err
	}
	if hasCluster(cluster) {
		return "", fmt.Errorf("%s is missing, and only it opens the cluster in %s: restore it", passwordPath(dir), cluster)
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return "", err
	}
	password = hex.EncodeToString(secret)
	return password, writeFile(passwordPath(dir), password+"\n")
}

// writeFile makes a file of mode 0600 that is either absent or complete.
func writeFile(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // fails once it is renamed
	defer f.Close()           //nolint:errcheck // Sync has told of what it could not write
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // nothing was written through it
	return d.Sync()
}
