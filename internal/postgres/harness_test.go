package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/internal/postgres"
)

// childEnv makes this test binary a program that starts a server in the directory
// it names and then waits to be killed.
const childEnv = "SCIDEX_POSTGRES_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
	}
	os.Exit(m.Run())
}

func child(dir string) {
	if _, err := postgres.Lock(dir); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s, err := postgres.Start(context.Background(), postgres.Config{Dir: dir, Settings: fast})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	fmt.Println(s.Wait())
	os.Exit(1)
}

var fast = map[string]string{"fsync": "off"}

// dataDir is a directory that the server's user can reach, as that of t.TempDir
// cannot be when root runs the tests.
func dataDir(t *testing.T) string {
	t.Helper()
	if _, err := postgres.FindBinaries(t.Context(), ""); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "scidex-postgres-test-*") //nolint:usetesting // t.TempDir is closed to the database's user
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		// A killed child's initdb may still be writing.
		eventually(t, "data directory is removed", func() bool { return os.RemoveAll(dir) == nil })
	})
	return dir
}

func start(t *testing.T, dir string) *postgres.Server {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	// Its end must not end the server.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := postgres.Start(ctx, postgres.Config{Dir: dir, Settings: fast, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

// stop may be called more than once.
func stop(t *testing.T, s *postgres.Server) {
	t.Helper()
	if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// startChild starts a server in another process and waits until it is ready.
func startChild(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := startProcess(t, dir)
	eventually(t, "the child's server runs", func() bool {
		_, running, err := postgres.Attach(t.Context(), dir)
		return running && err == nil
	})
	return cmd
}

func startProcess(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stdout = t.Output()
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kill(t, cmd)
		if b, err := os.ReadFile(filepath.Join(dir, "postgres", "postmaster.pid")); err == nil {
			if pid, err := strconv.Atoi(strings.SplitN(string(b), "\n", 2)[0]); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGQUIT)
			}
		}
	})
	return cmd
}

// kill may be called more than once.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	_ = cmd.Wait()
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

func isInUse(err error, pid int) bool {
	var e *postgres.InUseError
	return errors.As(err, &e) && e.PID == pid
}

func exec1(t *testing.T, u, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query(t *testing.T, u, sql string) (text string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func socketDir(t *testing.T, u string) string {
	t.Helper()
	c, err := pgx.ParseConfig(u)
	if err != nil {
		t.Fatal(err)
	}
	return c.Host
}

func postmasterPID(t *testing.T, cluster string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(cluster, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.SplitN(string(b), "\n", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// own gives path the owner that like has.
func own(t *testing.T, path, like string) {
	t.Helper()
	info, err := os.Stat(like)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	if err := os.Chown(path, int(st.Uid), int(st.Gid)); err != nil {
		t.Fatal(err)
	}
}

// tcpListeners counts the TCP sockets on which a process listens.
func tcpListeners(t *testing.T, pid int) (n int) {
	t.Helper()
	fds := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(fds)
	if err != nil {
		t.Skipf("this system does not tell the files of a process: %v", err)
	}
	var sockets []string
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(fds, e.Name()))
		if inode, ok := strings.CutPrefix(target, "socket:["); err == nil && ok {
			sockets = append(sockets, strings.TrimSuffix(inode, "]"))
		}
	}
	if len(sockets) == 0 {
		t.Fatal("found no socket of the postmaster, not even its own")
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			// The columns are slot, local, remote, state (0A: listen), …, inode.
			if c := strings.Fields(line); len(c) > 9 && c[3] == "0A" && slices.Contains(sockets, c[9]) {
				n++
			}
		}
	}
	return n
}

func removeElsewhere(t *testing.T, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "postgres.location"))
	if err != nil {
		t.Error(err)
		return
	}
	if err := os.RemoveAll(filepath.Dir(strings.TrimSpace(string(b)))); err != nil {
		t.Error(err)
	}
	_ = os.Remove("/var/lib/scidex") // fails when other data directories use it
}
