package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/scidex-ai/substrate/internal/pgtest"
)

// asScidex makes the test binary run as the program itself.
const asScidex = "SCIDEX_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asScidex) != "" {
		os.Exit(run())
	}
	testscript.Main(exitCode{m}, map[string]func(){"scidex": func() { os.Exit(run()) }})
}

// exitCode runs the tests with a database server at hand.
type exitCode struct{ *testing.M }

func (e exitCode) Run() int { return pgtest.Main(e.M) }

// TestScripts runs the command line as a user types it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"serve-hub": serveHubCmd(t), "setenv": setenvCmd},
		Setup: func(env *testscript.Env) error {
			env.Setenv("DATABASE_URL", pgtest.URL(t, nil))
			return nil
		},
	})
}

// A process is the program, running.
type process struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *output
	done   chan struct{} // closed when it ended; err is set then
	err    error
}

// output is what a program has written so far, while it goes on writing.
type output struct {
	mu sync.Mutex
	b  strings.Builder // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start starts the program. It is killed at the test's end if it still runs.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(context.WithoutCancel(t.Context()), self, args...), stderr: new(output), done: make(chan struct{})}
	p.Env = append(append(os.Environ(), asScidex+"=1", "SCIDEX_LOG_LEVEL=debug"), env...)
	p.Stderr = p.stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		state, err := p.Process.Wait()
		if err == nil && !state.Success() {
			err = &exec.ExitError{ProcessState: state}
		}
		p.err = err
		close(p.done)
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(20 * time.Second):
			p.signal(syscall.SIGKILL)
			<-p.done
		}
		checkLog(t, args, p.stderr.String())
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(args, " "), p.stderr)
		}
	})
	return p
}

func (p *process) signal(s os.Signal) { _ = p.Process.Signal(s) } // it may have ended

// wait returns how the program ended.
func (p *process) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(60 * time.Second):
		t.Fatal("the program did not end")
		return nil
	}
}

// line reads one line of the program's output.
func (p *process) line(t *testing.T) string {
	t.Helper()
	type read struct {
		text string
		err  error
	}
	c := make(chan read, 1)
	go func() {
		text, err := p.stdout.ReadString('\n')
		c <- read{text, err}
	}()
	select {
	case r := <-c:
		if r.err != nil {
			<-p.done
			t.Fatalf("no output: %v; %v\n%s", r.err, p.err, p.stderr)
		}
		return r.text
	case <-time.After(90 * time.Second):
		t.Fatalf("no output in time\n%s", p.stderr)
		return ""
	}
}

// startDemo starts scidex demo for scripts and returns what it says when ready.
func startDemo(t *testing.T, dir string, args ...string) (*process, ready) {
	t.Helper()
	p := start(t, nil, append([]string{"demo", "--json", "--data", dir, "--hub-addr", "127.0.0.1:0", "--node-addr", "127.0.0.1:0"}, args...)...)
	var r ready
	if err := json.Unmarshal([]byte(p.line(t)), &r); err != nil {
		t.Fatal(err)
	}
	return p, r
}

// dataDir returns a directory that a managed PostgreSQL can use even when the
// tests run as root: its parents let other users pass.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "scidex-test-") //nolint:usetesting // t.TempDir is closed to the database's user
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// sharedData returns the folder of real records, when it is there.
func sharedData(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SCIDEX_TEST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	if _, err := os.Stat(filepath.Join(dir, "hypothesis-01.jsonl")); err != nil {
		t.Skip("the folder of real records is not here; SCIDEX_TEST_DATA names it")
	}
	return dir
}

// eventually polls until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in time", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func exitCodeOf(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return 0
}
