package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Client runs PostgreSQL's own programs against a database.
type Client struct {
	bin      string
	env      []string
	database string
}

// NewClient finds the programs that fit the server of a connection: pg_dump and
// pg_restore of its major version or a later one, in binDir when that is given. The
// connection string may be a URL or a list of keywords.
func NewClient(ctx context.Context, conn *pgx.Conn, connString, binDir string) (*Client, error) {
	var number int
	if err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&number); err != nil {
		return nil, err
	}
	major := number / 10000
	dirs := []string{binDir}
	if binDir == "" {
		dirs = usualDirs()
		if p, err := exec.LookPath("pg_dump"); err == nil {
			dirs = append(dirs, filepath.Dir(p))
		}
	}
	var best string
	for _, dir := range dirs {
		if !isProgram(filepath.Join(dir, "pg_dump")) || !isProgram(filepath.Join(dir, "pg_restore")) {
			continue
		}
		found, err := majorOf(ctx, filepath.Join(dir, "pg_dump"))
		if err != nil {
			return nil, err
		}
		if found == major || found > major && best == "" {
			best = dir
		}
		if found == major {
			break
		}
	}
	if best == "" {
		return nil, fmt.Errorf("pg_dump and pg_restore of PostgreSQL %d or later were not found: install them (postgresql-client-%d), or name their directory with --postgres-bin", major, major)
	}
	c := conn.Config()
	client := &Client{bin: best, database: c.Database, env: append(os.Environ(),
		"PGHOST="+c.Host, "PGPORT="+strconv.Itoa(int(c.Port)), "PGUSER="+c.User, "PGDATABASE="+c.Database, "PGPASSWORD="+c.Password, "PGAPPNAME=scidex backup")}
	for _, name := range []string{"sslmode", "sslrootcert", "sslcert", "sslkey"} {
		if value := settingOf(connString, name); value != "" {
			client.env = append(client.env, "PG"+strings.ToUpper(name)+"="+value)
		}
	}
	return client, nil
}

// settingOf finds a setting of a connection string, "" without one.
func settingOf(connString, name string) string {
	m := regexp.MustCompile(`(?:^|[\s?&])` + name + `\s*=\s*'?([^\s'&]+)`).FindStringSubmatch(connString)
	if m == nil {
		return ""
	}
	return m[1]
}

// Dump writes the database as a snapshot of another connection sees it, in pg_dump's
// custom format. Of some tables it takes no rows.
func (c *Client) Dump(ctx context.Context, w io.Writer, snapshot string, without ...string) error {
	args := []string{"--format=custom", "--no-owner", "--no-privileges", "--lock-wait-timeout=60s", "--snapshot=" + snapshot}
	for _, table := range without {
		args = append(args, "--exclude-table-data="+table)
	}
	return c.run(ctx, nil, w, "pg_dump", args...)
}

// Restore makes what Dump wrote in an empty database: all of it or nothing.
func (c *Client) Restore(ctx context.Context, r io.Reader) error {
	return c.run(ctx, r, nil, "pg_restore", "--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error", "--dbname="+c.database)
}

// run runs a program. Nothing of how to connect is among its arguments, which
// others can read.
func (c *Client) run(ctx context.Context, in io.Reader, out io.Writer, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, program), args...) //nolint:gosec // PostgreSQL's own programs
	var said bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = slices.Clone(c.env), in, out, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", program, errors.Join(err, errors.New(strings.TrimSpace(said.String()))))
	}
	return nil
}
