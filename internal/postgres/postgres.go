// Package postgres runs a private PostgreSQL cluster in a data directory. Start
// with this file; init.go makes the cluster, postmaster.go tells whether it runs,
// place.go decides where its files are and as whom it runs.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// Config says where a cluster lives. Only Dir is required.
type Config struct {
	// Dir is the data directory of the product. It is created when absent and
	// must belong to the user who runs the process. The cluster is Dir/postgres,
	// or the directory that Dir/postgres.location names: see Start.
	Dir string
	// BinDir is where initdb and postgres are. Empty means to look where
	// FindBinaries looks.
	BinDir string
	// Settings are server settings that override those of the cluster's
	// postgresql.conf while this server runs, such as "fsync": "off".
	Settings map[string]string
	// Log is optional.
	Log *slog.Logger
}

const (
	// stopGrace is how long a fast shutdown may take before an immediate one.
	stopGrace = 30 * time.Second
	// quitGrace exceeds the 5 s after which a postmaster in immediate shutdown
	// kills its children.
	quitGrace = 15 * time.Second
	// orphanGrace is how long Start retries while the backends of a postmaster
	// that was killed still hold its shared memory.
	orphanGrace = 30 * time.Second
	orphanPoll  = 500 * time.Millisecond
	poll        = 50 * time.Millisecond
)

// errEnded reports a postmaster that ended before it accepted connections.
var errEnded = errors.New("postgres ended before it accepted connections")

// A Server is a running cluster.
type Server struct {
	access  access
	pid     int
	child   *os.Process // nil when the postmaster was adopted
	cluster string
	logs    logFile
	log     *slog.Logger

	stopping atomic.Bool
	done     chan struct{} // closed once the postmaster has ended
}

// Start makes the cluster when it is absent, starts it, waits until it accepts
// connections, and sees to it that role and database "scidex" exist. A postmaster
// that outlived an earlier process is adopted. Recovery after a crash may take
// minutes: ctx alone limits the wait. The end of ctx after Start has returned
// changes nothing.
//
// PostgreSQL refuses to run as root, so for root it runs as the operating system's
// user "postgres". Where that user cannot reach Dir, the cluster is in
// /var/lib/scidex instead and Dir/postgres.location names it.
//
// Only one process may run Start on a directory: the caller holds Lock.
func Start(ctx context.Context, c Config) (*Server, error) {
	s, err := start(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("start postgres in %s: %w", c.Dir, err)
	}
	return s, nil
}

func start(ctx context.Context, c Config) (*Server, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := makeDir(c.Dir)
	if err != nil {
		return nil, err
	}
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	cluster, err := place(ctx, c.Log, dir, as)
	if err != nil {
		return nil, err
	}
	password, err := ensurePassword(dir, cluster)
	if err != nil {
		return nil, err
	}
	s, err := adopt(ctx, c.Log, dir, cluster, password)
	if err != nil {
		return nil, err
	}
	if s == nil {
		if s, err = launch(ctx, c, dir, cluster, password, as); err != nil {
			return nil, err
		}
	}
	if err := createDatabase(ctx, s.access); err != nil {
		return nil, errors.Join(err, s.abandon(ctx))
	}
	return s, nil
}

// adopt returns a server for the postmaster that already runs on cluster, or nil
// when none does. One that is shutting down is waited for.
func adopt(ctx context.Context, log *slog.Logger, dir, cluster, password string) (*Server, error) {
	for {
		pm, running, err := findPostmaster(ctx, cluster)
		if err != nil || !running {
			return nil, err
		}
		s := &Server{
			access:  access{socketDir: pm.socketDir, password: password},
			pid:     pm.pid,
			cluster: cluster,
			logs:    logFile{path: logPath(dir)},
			log:     log,
			done:    make(chan struct{}),
		}
		ended := func() bool { return !isPostmaster(ctx, pm.pid, cluster) }
		// The socket directory is not in the file until the server listens.
		if pm.socketDir != "" {
			err = s.ready(ctx, ended)
			if err == nil {
				log.InfoContext(ctx, "adopted the running postgres", "pid", pm.pid, "cluster", cluster)
				go s.watch(context.WithoutCancel(ctx))
				return s, nil
			}
			if !errors.Is(err, errEnded) {
				return nil, fmt.Errorf("adopt postgres (pid %d): %w", pm.pid, err)
			}
		}
		if err := pause(ctx); err != nil {
			return nil, fmt.Errorf("wait for postgres (pid %d): %w", pm.pid, err)
		}
	}
}

// launch starts a postmaster on cluster, which it makes when it is absent.
func launch(ctx context.Context, c Config, dir, cluster, password string, as account) (*Server, error) {
	bin, err := binariesFor(ctx, c.BinDir, cluster)
	if err != nil {
		return nil, err
	}
	if err := ensureCluster(ctx, c, bin, cluster, password, as); err != nil {
		return nil, err
	}
	socketDir, err := makeSocketDir(ctx, dir, cluster, as)
	if err != nil {
		return nil, err
	}
	crashed, err := removeStale(ctx, c.Log, cluster, socketDir)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(orphanGrace)
	for {
		s, err := spawn(ctx, c, bin, dir, cluster, access{socketDir: socketDir, password: password}, as)
		if err != nil {
			return nil, err
		}
		err = s.ready(ctx, s.ended)
		if err == nil {
			c.Log.InfoContext(ctx, "started postgres", "pid", s.pid, "cluster", cluster, "recovered", crashed)
			return s, nil
		}
		if !errors.Is(err, errEnded) {
			return nil, errors.Join(err, s.abandon(ctx))
		}
		if !crashed || time.Now().After(until) {
			return nil, err
		}
		if wait(ctx, orphanPoll) != nil {
			return nil, fmt.Errorf("%w; last start: %w", ctx.Err(), err)
		}
	}
}

// spawn runs the postmaster in a process group of its own, so that an interrupt
// from the terminal reaches this process alone, which then stops it in order.
func spawn(ctx context.Context, c Config, bin, dir, cluster string, a access, as account) (*Server, error) {
	logs, err := openLog(dir)
	if err != nil {
		return nil, err
	}
	defer logs.file.Close() //nolint:errcheck // the postmaster has its own descriptor
	args := []string{"-D", cluster, "-k", a.socketDir, "-p", port}
	settings := map[string]string{"listen_addresses": "", "unix_socket_permissions": "0700"}
	maps.Copy(settings, c.Settings)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	cmd := as.command(context.WithoutCancel(ctx), cluster, filepath.Join(bin, "postgres"), args...)
	cmd.Stdout, cmd.Stderr = logs.file, logs.file
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &Server{
		access:  a,
		pid:     cmd.Process.Pid,
		child:   cmd.Process,
		cluster: cluster,
		logs:    logs,
		log:     c.Log,
		done:    make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		_ = cmd.Wait() // how it ended is in its log
	}()
	return s, nil
}

// ready waits until the server accepts connections or has ended.
func (s *Server) ready(ctx context.Context, ended func() bool) error {
	began, told := time.Now(), time.Now()
	for {
		err := s.access.ping(ctx, s.access.adminURL())
		if err == nil || isRefused(err) {
			return err
		}
		if ended() {
			return fmt.Errorf("%w%s", errEnded, s.logs.tail())
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			s.log.InfoContext(ctx, "waiting for postgres to accept connections", "waited", time.Since(began), "last_error", err)
		}
		if pause(ctx) != nil {
			return fmt.Errorf("wait until postgres accepts connections: %w (last answer: %w)", ctx.Err(), err)
		}
	}
}

func (s *Server) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// watch closes done once an adopted postmaster has ended. It is no child of this
// process, so nothing but asking tells.
func (s *Server) watch(ctx context.Context) {
	defer close(s.done)
	for isPostmaster(ctx, s.pid, s.cluster) {
		if pause(ctx) != nil {
			return
		}
	}
}

// abandon stops a server that Start started but cannot hand out. An adopted one
// stays as it was found.
func (s *Server) abandon(ctx context.Context) error {
	if s.child == nil {
		return nil
	}
	return s.Stop(context.WithoutCancel(ctx))
}

// URL is the connection string of database "scidex" for role "scidex", which owns
// it and is no superuser. It holds the password; pgx and libpq take it.
func (s *Server) URL() string { return s.access.url() }

// AdminURL is the connection string of database "postgres" for the superuser.
func (s *Server) AdminURL() string { return s.access.adminURL() }

// Done is closed once the postmaster has ended, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// Wait blocks until the postmaster has ended. Its error is nil after Stop.
func (s *Server) Wait() error {
	<-s.done
	if s.stopping.Load() {
		return nil
	}
	return fmt.Errorf("postgres (pid %d) ended unexpectedly%s", s.pid, s.logs.tail())
}

// Stop ends the server: a fast shutdown, and after 30 seconds or the end of ctx an
// immediate one, from which the next Start recovers. It returns once the postmaster
// has ended; an error means that it has not.
func (s *Server) Stop(ctx context.Context) error {
	s.stopping.Store(true)
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	if err := s.signal(ctx, syscall.SIGINT); err != nil {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	s.log.WarnContext(ctx, "postgres did not stop in time, shutting it down immediately", "pid", s.pid)
	if err := s.signal(ctx, syscall.SIGQUIT); err != nil {
		return err
	}
	quit := time.NewTimer(quitGrace)
	defer quit.Stop()
	select {
	case <-s.done:
		return nil
	case <-quit.C:
		return fmt.Errorf("stop postgres (pid %d): still running %s after an immediate shutdown", s.pid, quitGrace)
	}
}

func (s *Server) signal(ctx context.Context, sig syscall.Signal) error {
	var err error
	switch {
	case s.child != nil:
		err = s.child.Signal(sig)
	case isPostmaster(ctx, s.pid, s.cluster):
		err = syscall.Kill(s.pid, sig)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal postgres (pid %d): %w", s.pid, err)
	}
	return nil
}

// pause waits between two looks at what no event announces.
func pause(ctx context.Context) error { return wait(ctx, poll) }

// wait waits for d or until ctx ends, whose error it returns.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
