package pgtest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/internal/pgtest"
)

// orphanEnv makes TestOrphan wait to be killed, in a copy of this test binary.
const orphanEnv = "SCIDEX_PGTEST_ORPHAN"

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		os.Exit(m.Run()) // as in a package without a TestMain
	}
	os.Exit(pgtest.Main(m))
}

var runs int

func notes(ctx context.Context, db *pgxpool.Pool) error {
	runs++
	_, err := db.Exec(ctx, "CREATE TABLE note (text text)")
	return err
}

func papers(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, "CREATE TABLE paper (title text)")
	return err
}

func TestNew(t *testing.T) {
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			db := pgtest.New(t, notes)
			if _, err := db.Exec(t.Context(), "INSERT INTO note VALUES ($1)", name); err != nil {
				t.Fatal(err)
			}
			if got := scan(t, db, "SELECT string_agg(text, ' ') FROM note"); got != name {
				t.Errorf("notes = %q, want %q alone", got, name)
			}
		})
	}
	if runs != 1 {
		t.Errorf("setup ran %d times, want once", runs)
	}
	t.Run("another setup has another template", func(t *testing.T) {
		const q = "SELECT string_agg(tablename, ' ') FROM pg_tables WHERE schemaname = 'public'"
		if got := scan(t, pgtest.New(t, papers), q); got != "paper" {
			t.Errorf("tables = %q, want paper", got)
		}
	})
	t.Run("databases are dropped", func(t *testing.T) {
		db := pgtest.New(t, nil)
		var name string
		t.Run("one test", func(t *testing.T) {
			inner, err := pgxpool.New(t.Context(), pgtest.URL(t, nil))
			if err != nil {
				t.Fatal(err)
			}
			// Not closed before the test ends: the drop must not wait for it.
			name = scan(t, inner, "SELECT current_database()::text")
		})
		if got := scan(t, db, "SELECT count(*)::text FROM pg_database WHERE datname = '"+name+"'"); name == "" || got != "0" {
			t.Errorf("databases named %q after their test = %s, want 0", name, got)
		}
	})
}

func TestNewInParallel(t *testing.T) { //nolint:tparallel // the subtests are what runs together
	for i := range 4 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			if got := scan(t, pgtest.New(t, papers), "SELECT count(*)::text FROM paper"); got != "0" {
				t.Errorf("papers = %s, want 0", got)
			}
		})
	}
}

// TestOrphan checks that neither server nor directory outlives a test binary that
// is killed.
func TestOrphan(t *testing.T) {
	if os.Getenv(orphanEnv) != "" {
		db := pgtest.New(t, notes)
		dir := filepath.Dir(db.Config().ConnConfig.Host) // the socket's directory is in it
		if err := os.WriteFile(os.Getenv(orphanEnv), []byte(dir), 0o600); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	if os.Getenv(pgtest.Env) != "" {
		t.Skip("the server is not the test binary's own")
	}
	pgtest.New(t, nil) // skips without PostgreSQL
	told := filepath.Join(t.TempDir(), "directory")
	cmd := exec.Command(os.Args[0], "-test.run=^TestOrphan$")
	cmd.Env = append(os.Environ(), orphanEnv+"="+told)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	var dir string
	eventually(t, "the other binary has a server", func() bool {
		b, err := os.ReadFile(told)
		dir = string(b)
		return err == nil && dir != ""
	})
	t.Logf("server and database took %s", time.Since(began))
	b, err := os.ReadFile(filepath.Join(dir, "postgres", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.SplitN(string(b), "\n", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Returns only once nothing holds the output, as "go test" does.
	_ = cmd.Wait()
	eventually(t, "its directory is gone", func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	})
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) && !isZombie(pid) {
		t.Errorf("the server (pid %d) outlives its directory", pid)
	}
}

func isZombie(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && len(b) == 0
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

func scan(t *testing.T, db *pgxpool.Pool, sql string) (text string) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}
