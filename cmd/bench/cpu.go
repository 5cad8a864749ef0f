package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// tick is the unit of /proc/<pid>/stat, the same on all Linux that Go runs on.
const tick = 10 * time.Millisecond

// databaseCPU returns the CPU time that all processes of the database have used,
// those that ended among them. It is known on Linux only.
func databaseCPU(ctx context.Context, pool *pgxpool.Pool) (used time.Duration, err error) {
	var backend int
	if err := pool.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&backend); err != nil {
		return 0, err
	}
	one, err := readStat(strconv.Itoa(backend))
	if err != nil {
		return 0, err
	}
	postmaster, err := readStat(strconv.Itoa(one.parent))
	if err != nil {
		return 0, err
	}
	used = postmaster.own + postmaster.ended
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range stats {
		p, err := readStat(filepath.Base(filepath.Dir(path)))
		if err == nil && p.parent == one.parent { // one that has ended since counts for its parent
			used += p.own
		}
	}
	return used, nil
}

type stat struct {
	parent     int
	own, ended time.Duration // ended: of children that were waited for
}

// readStat reads what a process has used, see proc(5).
func readStat(pid string) (s stat, err error) {
	raw, err := os.ReadFile(filepath.Join("/proc", pid, "stat")) //nolint:gosec // pid is a number
	if err != nil {
		return s, err
	}
	_, rest, _ := strings.Cut(string(raw), ") ") // after the name, which may hold anything
	f := strings.Fields(rest)
	if len(f) < 15 {
		return s, fmt.Errorf("/proc/%s/stat has %d fields", pid, len(f))
	}
	var n [5]int
	for i, at := range []int{1, 11, 12, 13, 14} {
		if n[i], err = strconv.Atoi(f[at]); err != nil {
			return s, err
		}
	}
	s.parent = n[0]
	s.own, s.ended = time.Duration(n[1]+n[2])*tick, time.Duration(n[3]+n[4])*tick
	return s, nil
}
