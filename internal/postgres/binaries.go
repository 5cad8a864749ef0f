package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MinVersion is the oldest major version of PostgreSQL that Start runs.
const MinVersion = 14

// NoBinariesError reports that the programs of a PostgreSQL server were not found.
// Its message names the commands that install them.
type NoBinariesError struct {
	Major  int      // major version that an existing cluster needs; 0 for any from MinVersion
	Unfit  []string // "PostgreSQL 13 in /usr/lib/postgresql/13/bin": found, but of another version
	BinDir string   // the only place that was looked at; empty for the usual ones
}

func (e *NoBinariesError) Error() string {
	var b strings.Builder
	apt, dnf, brew := "postgresql", "postgresql-server", "postgresql"
	if e.Major > 0 {
		apt, brew = fmt.Sprintf("postgresql-%d", e.Major), fmt.Sprintf("postgresql@%d", e.Major)
		dnf = fmt.Sprintf("postgresql%d-server", e.Major)
		fmt.Fprintf(&b, "the cluster needs the programs of PostgreSQL %d (initdb, postgres), which were not found", e.Major)
	} else {
		fmt.Fprintf(&b, "the programs of PostgreSQL %d or later (initdb, postgres) were not found", MinVersion)
	}
	if e.BinDir != "" {
		fmt.Fprintf(&b, " in %s", e.BinDir)
	}
	if len(e.Unfit) > 0 {
		fmt.Fprintf(&b, "; there is %s", strings.Join(e.Unfit, ", "))
	}
	fmt.Fprintf(&b, "; install them with one of: apt-get install %s, dnf install %s, brew install %s", apt, dnf, brew)
	return b.String()
}

// FindBinaries returns the directory of initdb and postgres, of MinVersion or
// later: binDir when it is not empty; else the first of PATH, the newest of
// /usr/lib/postgresql, and the places of Homebrew and of PostgreSQL's own RPMs.
// Without one its error is a *NoBinariesError.
func FindBinaries(ctx context.Context, binDir string) (string, error) {
	return findBinaries(ctx, binDir, 0)
}

// binariesFor finds the programs that can run cluster: those of its major version
// when it exists, since no other reads its files.
func binariesFor(ctx context.Context, binDir, cluster string) (string, error) {
	b, err := os.ReadFile(filepath.Join(cluster, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return findBinaries(ctx, binDir, 0)
	}
	if err != nil {
		return "", err
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return "", fmt.Errorf("read PG_VERSION of %s: %w", cluster, err)
	}
	return findBinaries(ctx, binDir, major)
}

func findBinaries(ctx context.Context, binDir string, major int) (string, error) {
	dirs := []string{binDir}
	if binDir == "" {
		dirs = usualDirs()
	}
	missing := &NoBinariesError{Major: major, BinDir: binDir}
	for _, dir := range dirs {
		if !isProgram(filepath.Join(dir, "postgres")) || !isProgram(filepath.Join(dir, "initdb")) {
			continue
		}
		found, err := majorOf(ctx, filepath.Join(dir, "postgres"))
		if err != nil {
			return "", err
		}
		if found >= MinVersion && (major == 0 || found == major) {
			return filepath.Abs(dir)
		}
		missing.Unfit = append(missing.Unfit, fmt.Sprintf("PostgreSQL %d in %s", found, dir))
	}
	return "", missing
}

// usualDirs lists candidates, best first.
func usualDirs() []string {
	var dirs []string
	if p, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(p))
		if target, err := filepath.EvalSymlinks(p); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/usr/pgsql-*/bin",
	} {
		found, _ := filepath.Glob(pattern) // the only error is a bad pattern
		slices.SortStableFunc(found, func(a, b string) int { return numberIn(b) - numberIn(a) })
		dirs = append(dirs, found...)
	}
	return dirs
}

var number = regexp.MustCompile(`[0-9]+`)

// numberIn is the first number in text, 0 without one.
func numberIn(text string) int {
	n, err := strconv.Atoi(number.FindString(text))
	if err != nil {
		return 0
	}
	return n
}

// majorOf asks a postgres program for its major version: its answer is like
// "postgres (PostgreSQL) 16.4 (Debian 16.4-1)".
func majorOf(ctx context.Context, postgres string) (int, error) {
	out, err := exec.CommandContext(ctx, postgres, "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("run %s --version: %w", postgres, err)
	}
	major := numberIn(string(out))
	if major == 0 {
		return 0, fmt.Errorf("run %s --version: no version in %q", postgres, out)
	}
	return major, nil
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
