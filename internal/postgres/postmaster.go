package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// postmaster is what a cluster's postmaster.pid says. Its lines are pid, data
// directory, start time, port, socket directory, listen address, shared memory key
// and status (PostgreSQL's miscadmin.h); they are written one after another while
// the server starts.
type postmaster struct {
	pid       int    // 0 when the file holds none
	socketDir string // empty until the server listens
}

// readPostmaster reads postmaster.pid. Without it the error is os.ErrNotExist.
func readPostmaster(cluster string) (postmaster, error) {
	b, err := os.ReadFile(pidPath(cluster))
	if err != nil {
		return postmaster{}, err
	}
	lines := strings.Split(string(b), "\n")
	var pm postmaster
	if pid, err := strconv.Atoi(strings.TrimSpace(lines[0])); err == nil {
		pm.pid = max(pid, -pid) // below zero for a postgres in single-user mode
	}
	// Without the line's end it may be the beginning of the name.
	if len(lines) > 5 {
		pm.socketDir = lines[4]
	}
	return pm, nil
}

func pidPath(cluster string) string { return filepath.Join(cluster, "postmaster.pid") }

// findPostmaster finds the server that runs on cluster, whoever started it.
func findPostmaster(ctx context.Context, cluster string) (pm postmaster, running bool, err error) {
	pm, err = readPostmaster(cluster)
	if errors.Is(err, os.ErrNotExist) {
		return postmaster{}, false, nil
	}
	if err != nil {
		return postmaster{}, false, err
	}
	return pm, pm.pid > 0 && isPostmaster(ctx, pm.pid, cluster), nil
}

// removeStale removes what stops a server from starting on a cluster where none
// runs, and tells whether the last one crashed.
//
// A pid file whose process is dead stays: PostgreSQL overwrites it, once it has seen
// by its shared memory key that no backend of that process lives on. One that names a
// live process of another program, which got the same pid, PostgreSQL would obey.
func removeStale(ctx context.Context, log *slog.Logger, cluster, socketDir string) (crashed bool, err error) {
	pm, err := readPostmaster(cluster)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	crashed = err == nil
	var stale []string
	if crashed && (pm.pid == 0 || isAlive(pm.pid)) {
		log.WarnContext(ctx, "removing a postmaster.pid that names another program", "pid", pm.pid, "cluster", cluster)
		stale = append(stale, pidPath(cluster))
	}
	// The socket directory serves this cluster alone.
	socket := filepath.Join(socketDir, ".s.PGSQL."+port)
	for _, path := range append(stale, socket, socket+".lock") {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, fmt.Errorf("remove a stale file: %w", err)
		}
	}
	return crashed, nil
}

func isAlive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// isPostmaster tells whether the process is a postmaster of this very cluster. A
// pid alone proves nothing: it may have been given to another process since.
func isPostmaster(ctx context.Context, pid int, cluster string) bool {
	if !isAlive(pid) {
		return false
	}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	b, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		if _, err := os.Stat("/proc/self/cmdline"); err == nil {
			return false // there is a /proc, which hides or has lost the process
		}
		out, err := exec.CommandContext(context.WithoutCancel(ctx), "ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output() //nolint:gosec // only a number varies
		return err == nil && isServerName(strings.Fields(string(out) + " -")[0]) && bytes.Contains(out, []byte(cluster))
	}
	// A process that has ended but was not waited for has no arguments; those of
	// a backend are replaced by a title like "postgres: checkpointer".
	args := strings.Split(string(b), "\x00")
	if !isServerName(args[0]) {
		return false
	}
	if slices.Contains(args, cluster) {
		return true
	}
	// Started by hand with another name for the directory.
	cwd, err := os.Readlink(filepath.Join(proc, "cwd"))
	return err == nil && cwd == cluster
}

func isServerName(program string) bool {
	base := filepath.Base(program)
	return base == "postgres" || base == "postmaster"
}
