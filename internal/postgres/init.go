package postgres

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// firstSettings end the postgresql.conf of a new cluster. Its operator may change
// them there or with ALTER SYSTEM.
const firstSettings = `
max_connections = 100
shared_buffers = 128MB
max_locks_per_transaction = 256
log_statement = 'none'
log_destination = 'stderr'
logging_collector = off
timezone = 'UTC'
log_timezone = 'UTC'
`

// hasCluster tells whether a cluster is complete: ensureCluster moves it into place
// as a whole.
func hasCluster(cluster string) bool {
	_, err := os.Stat(filepath.Join(cluster, "PG_VERSION"))
	return err == nil
}

// ensureCluster makes the cluster where it is absent. It is made beside its place
// and then renamed, so an interruption leaves only what the next call removes.
func ensureCluster(ctx context.Context, c Config, bin, cluster, password string, as account) error {
	if hasCluster(cluster) {
		return nil
	}
	parent := filepath.Dir(cluster)
	leftovers, _ := filepath.Glob(filepath.Join(parent, "postgres.init-*")) // the only error is a bad pattern
	for _, dir := range leftovers {
		if err := os.RemoveAll(dir); err != nil {
			c.Log.WarnContext(ctx, "cannot remove what an interrupted initdb left", "dir", dir, "error", err)
		}
	}
	began := time.Now()
	temp, err := os.MkdirTemp(parent, "postgres.init-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) //nolint:errcheck // what is left is never taken for a cluster
	secret := filepath.Join(temp, "password")
	if err := os.WriteFile(secret, []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	for _, path := range []string{secret, temp} {
		if err := as.own(path); err != nil {
			return err
		}
	}
	data := filepath.Join(temp, "data")
	if err := initdb(ctx, c, bin, data, secret, as); err != nil {
		return err
	}
	if err := os.Rename(data, cluster); err != nil {
		return fmt.Errorf("put the new cluster in place: %w", err)
	}
	if err := syncDir(parent); err != nil {
		return err
	}
	c.Log.InfoContext(ctx, "made a postgres cluster", "cluster", cluster, "binaries", bin, "took", time.Since(began))
	return nil
}

func initdb(ctx context.Context, c Config, bin, data, secret string, as account) error {
	args := []string{
		"-D", data, "-U", superuser, "--auth=scram-sha-256", "--pwfile=" + secret,
		"--encoding=UTF8", "--locale=C", "--data-checksums", "--no-instructions",
	}
	if name := utf8Locale(ctx, as); name != "" {
		// Letters beyond ASCII are letters; the order stays that of the bytes,
		// which no update of the system's library changes.
		args = append(args, "--lc-ctype="+name)
	}
	if c.Settings["fsync"] == "off" {
		args = append(args, "--no-sync")
	}
	cmd := as.command(ctx, filepath.Dir(data), filepath.Join(bin, "initdb"), args...)
	// initdb removes what it made when it is told to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if err := run(cmd); err != nil {
		return err
	}
	// The server's user writes: root must not follow paths in a directory of its.
	conf := as.command(ctx, data, "/bin/sh", "-c", "cat >>postgresql.conf")
	conf.Stdin = strings.NewReader(firstSettings)
	if err := run(conf); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(data, "postgresql.conf"))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written through it
	return f.Sync()
}

// utf8Locale is the system's name of the locale C.UTF-8, empty when it has none.
func utf8Locale(ctx context.Context, as account) string {
	out, err := as.command(ctx, "/", "locale", "-a").Output()
	if err != nil {
		return ""
	}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if strings.EqualFold(name, "C.UTF-8") || strings.EqualFold(name, "C.UTF8") {
			return name
		}
	}
	return ""
}

// run runs a program to its end. Its error holds what the program printed.
func run(cmd *exec.Cmd) error {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w: %s", filepath.Base(cmd.Path), err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}
