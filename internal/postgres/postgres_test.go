package postgres_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/internal/postgres"
)

func TestStart(t *testing.T) {
	dir := dataDir(t)
	s := start(t, dir)
	exec1(t, s.URL(), "CREATE TABLE kept (n int)")
	exec1(t, s.URL(), "INSERT INTO kept VALUES (7)")

	t.Run("role owns its database and is no superuser", func(t *testing.T) {
		const q = `SELECT pg_get_userbyid(datdba) || ' ' || rolsuper FROM pg_database, pg_roles
WHERE datname = current_database() AND rolname = current_user`
		if got := query(t, s.URL(), q); got != "scidex false" {
			t.Errorf("owner and superuser = %q, want %q", got, "scidex false")
		}
	})
	t.Run("settings and encoding", func(t *testing.T) {
		for name, want := range map[string]string{
			"max_connections": "100", "shared_buffers": "128MB", "max_locks_per_transaction": "256",
			"data_checksums": "on", "server_encoding": "UTF8", "lc_collate": "C", "listen_addresses": "",
			"unix_socket_permissions": "0700", "password_encryption": "scram-sha-256", "fsync": "off",
		} {
			if name == "lc_collate" { // no setting since PostgreSQL 16
				if got := query(t, s.URL(), "SELECT datcollate FROM pg_database WHERE datname = 'scidex'"); got != want {
					t.Errorf("collation = %q, want %q", got, want)
				}
				continue
			}
			if got := query(t, s.URL(), "SELECT current_setting('"+name+"')"); got != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
	})
	t.Run("secrets are private", func(t *testing.T) {
		info, err := os.Stat(filepath.Join(dir, "postgres.password"))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode(); got != 0o600 {
			t.Errorf("mode of the password file = %v, want 0600", got)
		}
		for _, d := range []string{filepath.Join(dir, "postgres"), socketDir(t, s.URL())} {
			info, err := os.Stat(d)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != 0o700 {
				t.Errorf("mode of %s = %v, want 0700", d, got)
			}
		}
	})
	t.Run("a wrong password is refused", func(t *testing.T) {
		u, err := url.Parse(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("scidex", "wrong")
		if conn, err := pgx.Connect(t.Context(), u.String()); err == nil {
			conn.Close(t.Context())
			t.Error("connect with a wrong password: no error")
		}
	})
	t.Run("no TCP port is open", func(t *testing.T) {
		if n := tcpListeners(t, postmasterPID(t, filepath.Join(dir, "postgres"))); n != 0 {
			t.Errorf("postmaster listens on %d TCP sockets, want 0", n)
		}
	})
	t.Run("attach while it runs", func(t *testing.T) {
		got, running, err := postgres.Attach(t.Context(), dir)
		if err != nil || !running || got != s.URL() {
			t.Errorf("Attach = %q, %v, %v, want the server's URL, true", got, running, err)
		}
	})
	t.Run("stop and start again", func(t *testing.T) {
		stop(t, s)
		if err := s.Wait(); err != nil {
			t.Errorf("Wait after Stop = %v, want nil", err)
		}
		if got, running, err := postgres.Attach(t.Context(), dir); got != "" || running || err != nil {
			t.Errorf("Attach after Stop = %q, %v, %v, want none", got, running, err)
		}
		again := start(t, dir)
		if got := query(t, again.URL(), "SELECT n::text FROM kept"); got != "7" {
			t.Errorf("row after a restart = %q, want 7", got)
		}
		if again.URL() != s.URL() {
			t.Error("URL changed in a restart")
		}
	})
}

func TestStartAdoptsTheServerOfAKilledProcess(t *testing.T) {
	dir := dataDir(t)
	cluster := filepath.Join(dir, "postgres")
	parent := startChild(t, dir)
	u, running, err := postgres.Attach(t.Context(), dir)
	if err != nil || !running {
		t.Fatalf("Attach = %v, %v, want a running server", running, err)
	}
	exec1(t, u, "CREATE TABLE kept AS SELECT 7 AS n")
	if _, err := postgres.Lock(dir); !isInUse(err, parent.Process.Pid) {
		t.Errorf("Lock while another process holds it: error = %v, want an InUseError with pid %d", err, parent.Process.Pid)
	}
	pid := postmasterPID(t, cluster)
	kill(t, parent)

	release, err := postgres.Lock(dir)
	if err != nil {
		t.Fatalf("Lock after its holder was killed: %v", err)
	}
	defer release()
	s := start(t, dir)
	if got := postmasterPID(t, cluster); got != pid {
		t.Errorf("pid of the postmaster = %d, want the adopted %d", got, pid)
	}
	if got := query(t, s.URL(), "SELECT n::text FROM kept"); got != "7" {
		t.Errorf("row = %q, want 7", got)
	}
	stop(t, s)
	if got, running, err := postgres.Attach(t.Context(), dir); running || err != nil {
		t.Errorf("Attach after Stop = %q, %v, %v, want none", got, running, err)
	}
}

func TestStartWaitsForAServerThatIsStopping(t *testing.T) {
	dir := dataDir(t)
	parent := startChild(t, dir)
	cluster := filepath.Join(dir, "postgres")
	pid := postmasterPID(t, cluster)
	u, _, err := postgres.Attach(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	kill(t, parent)
	// A smart shutdown: it refuses new connections and waits for this one to end.
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "refuses new connections", func() bool {
		c, err := pgx.Connect(t.Context(), u)
		if err == nil {
			c.Close(t.Context())
		}
		return err != nil
	})
	started := make(chan error, 1)
	var s *postgres.Server
	go func() {
		var err error
		s, err = postgres.Start(t.Context(), postgres.Config{Dir: dir, Settings: fast})
		started <- err
	}()
	select {
	case err := <-started:
		t.Fatalf("Start while the last server is stopping returned early: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	conn.Close(t.Context())
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	if got := postmasterPID(t, cluster); got == pid {
		t.Error("the server that was stopping is still there")
	}
}

func TestStartRecoversFromAKilledPostmaster(t *testing.T) {
	dir := dataDir(t)
	s := start(t, dir)
	exec1(t, s.URL(), "CREATE TABLE kept AS SELECT 7 AS n")
	if err := syscall.Kill(postmasterPID(t, filepath.Join(dir, "postgres")), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("Done is not closed 10 s after the postmaster was killed")
	}
	if err := s.Wait(); err == nil {
		t.Error("Wait after the postmaster was killed = nil, want an error")
	}
	again := start(t, dir)
	if got := query(t, again.URL(), "SELECT n::text FROM kept"); got != "7" {
		t.Errorf("row = %q, want 7", got)
	}
}

func TestStartWaitsForTheBackendsOfAKilledPostmaster(t *testing.T) {
	dir := dataDir(t)
	s := start(t, dir)
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	// A backend that is halted cannot see that its postmaster has gone, and keeps
	// the shared memory.
	backend := int(conn.PgConn().PID())
	if err := syscall.Kill(backend, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(backend, syscall.SIGCONT) }()
	if err := syscall.Kill(postmasterPID(t, filepath.Join(dir, "postgres")), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	started := make(chan error, 1)
	var again *postgres.Server
	go func() {
		var err error
		again, err = postgres.Start(t.Context(), postgres.Config{Dir: dir, Settings: fast})
		started <- err
	}()
	eventually(t, "the server refuses to start beside the old backend", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "postgres.log"))
		return err == nil && strings.Contains(string(b), "pre-existing shared memory block")
	})
	if err := syscall.Kill(backend, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	stop(t, again)
}

func TestStartIgnoresAStalePID(t *testing.T) {
	dir := dataDir(t)
	s := start(t, dir)
	socket := socketDir(t, s.URL())
	exec1(t, s.URL(), "CREATE TABLE kept AS SELECT 7 AS n")
	pidFile := filepath.Join(dir, "postgres", "postmaster.pid")
	content, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer kill(t, other)
	_, rest, _ := strings.Cut(string(content), "\n")
	stale := strconv.Itoa(other.Process.Pid) + "\n" + rest
	for name, text := range map[string]string{"of a live program": stale, "cut short": ""} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{pidFile, filepath.Join(socket, ".s.PGSQL.5432.lock")} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				own(t, path, filepath.Dir(pidFile))
			}
			if got, running, err := postgres.Attach(t.Context(), dir); running || err != nil {
				t.Errorf("Attach = %q, %v, %v, want none", got, running, err)
			}
			s := start(t, dir)
			if got := query(t, s.URL(), "SELECT n::text FROM kept"); got != "7" {
				t.Errorf("row = %q, want 7", got)
			}
			stop(t, s)
		})
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the other program is gone: %v", err)
	}
}

func TestStartAfterAnInterruptedInit(t *testing.T) {
	dir := dataDir(t)
	parent := startProcess(t, dir)
	eventually(t, "initdb began", func() bool {
		found, err := filepath.Glob(filepath.Join(dir, "postgres.init-*", "data", "PG_VERSION"))
		return err == nil && len(found) > 0
	})
	kill(t, parent)
	if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil {
		t.Skip("initdb was quicker than this test")
	}
	s := start(t, dir)
	if got := query(t, s.URL(), "SELECT 1::text"); got != "1" {
		t.Errorf("SELECT 1 = %q", got)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "postgres.init-*")); err != nil || len(left) > 0 {
		t.Errorf("left from the interrupted init: %v, %v", left, err)
	}
}

func TestStartInALongPath(t *testing.T) {
	dir := filepath.Join(dataDir(t), strings.Repeat("long/", 20)+"dir with spaces")
	s := start(t, dir)
	socket := socketDir(t, s.URL())
	t.Cleanup(func() { os.RemoveAll(socket) })
	if strings.HasPrefix(socket, dir) {
		t.Errorf("socket directory = %s, want one of a short path", socket)
	}
	if got := query(t, s.URL(), "SELECT 1::text"); got != "1" {
		t.Errorf("SELECT 1 = %q", got)
	}
	stop(t, s)

	t.Run("refuses a symbolic link as socket directory", func(t *testing.T) {
		if err := os.RemoveAll(socket); err != nil {
			t.Fatal(err)
		}
		// All but the link is as it should be.
		target := filepath.Join(dataDir(t), "target")
		if err := os.Mkdir(target, 0o700); err != nil {
			t.Fatal(err)
		}
		own(t, target, filepath.Join(dir, "postgres"))
		if err := os.Symlink(target, socket); err != nil {
			t.Fatal(err)
		}
		s, err := postgres.Start(t.Context(), postgres.Config{Dir: dir})
		if err == nil {
			stop(t, s)
			t.Fatal("Start with a symbolic link as socket directory: no error")
		}
		if err := os.Remove(socket); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("refuses another user's socket directory", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can make one")
		}
		if err := os.Mkdir(socket, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(socket, 65533, 65533); err != nil {
			t.Fatal(err)
		}
		if s, err := postgres.Start(t.Context(), postgres.Config{Dir: dir}); err == nil {
			stop(t, s)
			t.Fatal("Start with another user's socket directory: no error")
		}
	})
}

func TestStartElsewhereWhenTheServersUserCannotReachDir(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the server runs as another user for root alone")
	}
	parent := dataDir(t)
	if err := os.Chmod(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "data")
	t.Cleanup(func() { removeElsewhere(t, dir) })
	s := start(t, dir)
	exec1(t, s.URL(), "CREATE TABLE kept AS SELECT 7 AS n")
	stop(t, s)
	b, err := os.ReadFile(filepath.Join(dir, "postgres.location"))
	if err != nil {
		t.Fatal(err)
	}
	if cluster := strings.TrimSpace(string(b)); !strings.HasPrefix(cluster, "/var/lib/scidex/") {
		t.Errorf("location = %q, want one in /var/lib/scidex", cluster)
	}
	info, err := os.Stat(parent)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o700 {
		t.Errorf("mode of the parent = %v, want it unchanged at 0700", got)
	}
	again := start(t, dir)
	if got := query(t, again.URL(), "SELECT n::text FROM kept"); got != "7" {
		t.Errorf("row = %q, want 7", got)
	}
	if got, running, err := postgres.Attach(t.Context(), dir); err != nil || !running || got != again.URL() {
		t.Errorf("Attach = %q, %v, %v, want the server's URL", got, running, err)
	}
}

func TestStartTurnsALargeLog(t *testing.T) {
	dir := dataDir(t)
	path := filepath.Join(dir, "postgres.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 17<<20); err != nil {
		t.Fatal(err)
	}
	start(t, dir)
	if info, err := os.Stat(path); err != nil || info.Size() > 1<<20 {
		t.Errorf("log = %v, %v, want a new one", info, err)
	}
	if _, err := os.Stat(path + ".1"); err != nil {
		t.Error(err)
	}
}
