package pgtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/scidex-ai/substrate/internal/postgres"
)

// The server of this test binary, started by the first test that needs one.
var (
	startOnce  sync.Once
	ownURL     string
	errStart   error
	ownWatcher *watcher
)

// Main runs the tests of a package, removes what they left on the server, and
// returns the exit code: os.Exit(pgtest.Main(m)) in TestMain. Without it a server of
// the binary's own ends just after the binary; on the server of Env, templates stay.
func Main(m *testing.M) int {
	code := m.Run()
	if ownWatcher != nil {
		ownWatcher.end()
		return code
	}
	if server := os.Getenv(Env); server != "" {
		templatesMu.Lock()
		defer templatesMu.Unlock()
		for _, t := range templates {
			//nolint:forbidigo // no test is running whose context could serve
			if err := drop(context.Background(), server, t.name); err != nil {
				fmt.Fprintln(os.Stderr, "pgtest:", err)
			}
		}
	}
	return code
}

func drop(ctx context.Context, server, name string) error {
	return execute(ctx, server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

// serverURL is the connection string of the server that holds the databases.
func serverURL(ctx context.Context) (string, error) {
	if u := os.Getenv(Env); u != "" {
		return u, nil
	}
	startOnce.Do(func() { ownURL, errStart = startServer(ctx) })
	return ownURL, errStart
}

// startServer starts a server whose data need not outlive a crash. It is run as the
// product runs it, by a role that is no superuser but may create databases.
func startServer(ctx context.Context) (string, error) {
	bin, err := postgres.FindBinaries(ctx, "")
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "scidex-pgtest-*")
	if err != nil {
		return "", err
	}
	if os.Geteuid() == 0 {
		if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the server's user must pass through
			return "", err
		}
	}
	// First the watcher, then what it watches: nothing is left behind even when
	// this binary is killed in between.
	if ownWatcher, err = watch(ctx, dir); err != nil {
		return "", err
	}
	s, err := postgres.Start(ctx, postgres.Config{
		Dir:    dir,
		BinDir: bin,
		Settings: map[string]string{
			"fsync":              "off",
			"synchronous_commit": "off",
			"full_page_writes":   "off",
			"max_connections":    "300",
		},
	})
	if err != nil {
		return "", err
	}
	return s.URL(), execute(ctx, s.AdminURL(), "ALTER ROLE scidex CREATEDB")
}

// A watcher is a process that ends the server and removes its directory once the
// writing end of its standard input is closed: by end, or by the system when this
// process ends in whatever way, kill -9 and a timeout of "go test" included.
type watcher struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

// watchScript's $1 is the data directory. An immediate shutdown is right for data
// that is thrown away.
const watchScript = `
cat >/dev/null
cluster=$1/postgres
if [ -f "$1/postgres.location" ]; then
	cluster=$(cat "$1/postgres.location")
fi
if [ -f "$cluster/postmaster.pid" ]; then
	pid=$(sed -n 1p "$cluster/postmaster.pid")
	socket=$(sed -n 5p "$cluster/postmaster.pid")
	kill -QUIT "$pid"
	tries=0
	while kill -0 "$pid" && [ "$tries" -lt 100 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
	rmdir "$socket"
fi
if [ "$cluster" != "$1/postgres" ]; then
	rm -rf "$(dirname "$cluster")"
fi
rm -rf "$1" || { sleep 1; rm -rf "$1"; }
`

func watch(ctx context.Context, dir string) (*watcher, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", watchScript, "pgtest", dir) //nolint:gosec // the script is a constant, dir its argument
	// In a group of its own, an interrupt from the terminal does not reach it. With
	// this binary's output, "go test" would wait for it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watcher of the test server: %w", err)
	}
	return &watcher{cmd: cmd, stdin: stdin}, nil
}

func (w *watcher) end() {
	w.stdin.Close()
	_ = w.cmd.Wait() // its last command's result says nothing
}
