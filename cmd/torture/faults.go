package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	_ "github.com/mattn/go-sqlite3" // the replica's driver
	"golang.org/x/sys/unix"
)

// A fault is something that goes wrong. Strike makes it, and returns what undoes
// what does not undo itself when all processes run again; it may be nil.
type fault struct {
	name   string
	strike func(ctx context.Context, c *cluster, dice *rand.Rand) (heal func(context.Context) error, err error)
}

var faults = []fault{
	{"kill-hub", killing(func(c *cluster, dice *rand.Rand) []*process { return []*process{c.hubs[dice.IntN(2)]} })},
	{"kill-hubs", killing(func(c *cluster, _ *rand.Rand) []*process { return c.hubs[:] })},
	{"kill-node", killing(func(c *cluster, _ *rand.Rand) []*process { return []*process{c.node} })},
	{"kill-all", killing(func(c *cluster, _ *rand.Rand) []*process { return append([]*process{c.node}, c.hubs[:]...) })},
	{"stop-postgres", stopPostgres},
	{"cut", func(ctx context.Context, c *cluster, _ *rand.Rand) (func(context.Context) error, error) {
		return nil, c.proxy.cut(ctx)
	}},
	{"slow", slow},
	{"half-open", func(ctx context.Context, c *cluster, _ *rand.Rand) (func(context.Context) error, error) {
		return nil, c.proxy.poison(ctx, "timeout", map[string]any{"timeout": 0})
	}},
	{"disk-full", fullDisk},
	{"torn-wal", tornWAL},
	{"tampered", tamper},
	{"out-of-band", outOfBand},
}

func killing(which func(*cluster, *rand.Rand) []*process) func(context.Context, *cluster, *rand.Rand) (func(context.Context) error, error) {
	return func(_ context.Context, c *cluster, dice *rand.Rand) (func(context.Context) error, error) {
		for _, p := range which(c, dice) {
			p.kill()
		}
		return nil, nil //nolint:nilnil // nothing is to be undone
	}
}

// stopPostgres ends the server as a crash would: an immediate shutdown.
func stopPostgres(_ context.Context, c *cluster, _ *rand.Rand) (func(context.Context) error, error) {
	pid, err := c.postmaster()
	if err != nil {
		return nil, err
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		return nil, err
	}
	<-c.pg.Done()
	return nil, nil //nolint:nilnil // nothing is to be undone
}

func slow(ctx context.Context, c *cluster, dice *rand.Rand) (func(context.Context) error, error) {
	return nil, errors.Join(
		c.proxy.poison(ctx, "latency", map[string]any{"latency": 50 + dice.IntN(300), "jitter": 50}),
		c.proxy.poison(ctx, "bandwidth", map[string]any{"rate": 8 + dice.IntN(64)}), // KB/s
	)
}

// fullDisk runs the node where files may not grow: writes fail as on a full disk.
// What frees the disk leaves the process alone: it must go on by itself.
func fullDisk(_ context.Context, c *cluster, dice *rand.Rand) (func(context.Context) error, error) {
	blocks := 128 + dice.IntN(1024) // of 512 bytes; the WAL begins anew with the node, and gets there soon
	free := c.node.argv
	c.node.kill()
	c.node.argv = append([]string{"/bin/sh", "-c", `trap "" XFSZ; ulimit -S -f ` + strconv.Itoa(blocks) + `; exec "$@"`, "sh"}, free...)
	defer func() { c.node.argv = free }()
	if err := c.node.start(); err != nil {
		return nil, err
	}
	return func(context.Context) error {
		var old unix.Rlimit
		pid := c.node.cmd.Process.Pid
		if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &old); err != nil {
			return err
		}
		return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: old.Max, Max: old.Max}, nil)
	}, nil
}

// tornWAL cuts or garbles the end of the replica's WAL, as a machine that loses
// power does.
func tornWAL(_ context.Context, c *cluster, dice *rand.Rand) (func(context.Context) error, error) {
	c.node.kill()
	name := filepath.Join(c.data, "replica.db-wal")
	info, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() < 1<<10 {
		return nil, nil //nolint:nilnil // it was written back
	} else if err != nil {
		return nil, err
	}
	at := info.Size() - 1 - dice.Int64N(info.Size()/4)
	if dice.IntN(2) == 0 {
		return nil, os.Truncate(name, at)
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0) //nolint:gosec // our own directory
	if err != nil {
		return nil, err
	}
	garbage := make([]byte, min(info.Size()-at, 4096))
	for i := range garbage {
		garbage[i] = byte(dice.IntN(256)) //nolint:gosec // it fits
	}
	_, err = f.WriteAt(garbage, at)
	return nil, errors.Join(err, f.Close())
}

// tampering is what somebody does to a replica behind the node's back.
var tampering = []string{
	`UPDATE artifact SET title = 'tampered' WHERE rowid = (SELECT max(rowid) FROM artifact)`,
	`UPDATE artifact_revision SET content = '{"statement":"tampered"}' WHERE rowid = (SELECT max(rowid) FROM artifact_revision)`,
	`DELETE FROM link WHERE rowid = (SELECT max(rowid) FROM link)`,
	`DELETE FROM event WHERE seq = (SELECT max(seq) - 3 FROM event)`,
	`DELETE FROM artifact_revision WHERE rowid = (SELECT max(rowid) FROM artifact_revision)`,
}

// tamper changes the replica while the node is down. Verifying must find it and
// repair it.
func tamper(ctx context.Context, c *cluster, dice *rand.Rand) (func(context.Context) error, error) {
	c.node.kill()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(c.data, "replica.db"))
	if err != nil {
		return nil, err
	}
	statement := tampering[dice.IntN(len(tampering))]
	result, err := db.ExecContext(ctx, statement)
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", statement, err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return nil, err // nothing was there yet
	}
	return func(ctx context.Context) error {
		if err := errors.Join(c.whole(ctx), c.settled(ctx)); err != nil {
			return err
		}
		if out, err := c.output(ctx, "node", "verify", "--data", c.data); err == nil {
			return fmt.Errorf("a tampered replica passes for equal after %s: %s", statement, out)
		}
		out, err := c.output(ctx, "node", "verify", "--repair", "--data", c.data)
		if err != nil {
			return fmt.Errorf("repair after %s: %w: %s", statement, err, out)
		}
		return nil
	}, nil
}

// outOfBand changes a row of the hub's tables past the hub. Verifying must find
// it; what undoes it is the operator's to know.
func outOfBand(ctx context.Context, c *cluster, _ *rand.Rand) (func(context.Context) error, error) {
	const change = `
		UPDATE artifact SET row_hash = sha256(row_hash)
		WHERE (type, id) = (SELECT type, id FROM artifact WHERE type = 'hypothesis' ORDER BY created_at LIMIT 1)
		RETURNING type, id`
	var typ, id string
	var hash []byte
	if err := c.db.QueryRow(ctx, `SELECT type, id, row_hash FROM artifact WHERE type = 'hypothesis' ORDER BY created_at LIMIT 1`).Scan(&typ, &id, &hash); err != nil {
		return nil, err
	}
	if err := c.db.QueryRow(ctx, change).Scan(&typ, &id); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := c.settled(ctx); err != nil {
			return err
		}
		out, err := c.output(ctx, "node", "verify", "--data", c.data)
		if err == nil || !strings.Contains(out, "hypothesis") {
			return fmt.Errorf("a change past the hub is not found: %w: %s", err, out)
		}
		_, err = c.db.Exec(ctx, `UPDATE artifact SET row_hash = $3 WHERE type = $1 AND id = $2`, typ, id, hash)
		return err
	}, nil
}
