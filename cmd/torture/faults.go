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
	"time"

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
	{"freeze-hub", freezing(func(c *cluster, dice *rand.Rand) *process { return c.hubs[dice.IntN(2)] })},
	{"freeze-node", freezing(func(c *cluster, _ *rand.Rand) *process { return c.node })},
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

// freezing holds a process where it is for a while, as a machine that swaps or a
// virtual one that is moved does.
func freezing(which func(*cluster, *rand.Rand) *process) func(context.Context, *cluster, *rand.Rand) (func(context.Context) error, error) {
	return func(_ context.Context, c *cluster, dice *rand.Rand) (func(context.Context) error, error) {
		p := which(c, dice)
		p.signal(syscall.SIGSTOP)
		return func(ctx context.Context) error {
			pause(ctx, time.Duration(dice.Int64N(int64(4*time.Second))))
			p.signal(syscall.SIGCONT)
			return nil
		}, nil
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

// tampering is what somebody does to a replica behind the node's back, to what no
// agent writes meanwhile: a later write would mend it.
var tampering = []string{
	`UPDATE artifact SET title = 'tampered' WHERE rowid = (SELECT max(rowid) FROM artifact WHERE type = 'schema')`,
	`UPDATE artifact_revision SET content = '{"statement":"tampered"}' WHERE rowid = (SELECT max(rowid) FROM artifact_revision WHERE type = 'schema')`,
	`DELETE FROM link WHERE id = (SELECT max(id) FROM link)`,
	`DELETE FROM event WHERE seq = (SELECT seq FROM event ORDER BY seq DESC LIMIT 1 OFFSET 3)`,
	`DELETE FROM artifact_revision WHERE rowid = (SELECT max(rowid) FROM artifact_revision WHERE type = 'schema')`,
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

// outOfBand changes a row of the hub's tables past the hub: of a type's, which no
// agent writes meanwhile. Verifying must find it; what undoes it is the operator's
// to know.
func outOfBand(ctx context.Context, c *cluster, dice *rand.Rand) (func(context.Context) error, error) {
	var id string
	var hash []byte
	const pick = `SELECT id, row_hash FROM artifact WHERE type = 'schema' ORDER BY id OFFSET $1 LIMIT 1`
	if err := c.db.QueryRow(ctx, pick, dice.IntN(20)).Scan(&id, &hash); err != nil {
		return nil, err
	}
	const change = `UPDATE artifact SET row_hash = $2 WHERE type = 'schema' AND id = $1`
	if _, err := c.db.Exec(ctx, change, id, make([]byte, len(hash))); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := c.settled(ctx); err != nil {
			return err
		}
		for _, verify := range [][]string{{"hub", "verify", "--database-url", c.pg.URL()}, {"node", "verify", "--data", c.data}} {
			// The hub answers nodes for half a minute from the digest that it has.
			if err := until(ctx, fmt.Sprint("a change past the hub is found by ", verify[:2]), func() bool {
				out, err := c.output(ctx, verify...)
				return err != nil && strings.Contains(out, "schema")
			}); err != nil {
				return err
			}
		}
		if _, err := c.db.Exec(ctx, change, id, hash); err != nil {
			return err
		}
		return until(ctx, "the replica equals the hub again", func() bool {
			_, err := c.output(ctx, "node", "verify", "--data", c.data)
			return err == nil
		})
	}, nil
}
