package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
)

// stopTimeout bounds how long requests may go on once a stop was asked for.
const stopTimeout = 10 * time.Second

// logFlags are the flags of commands that log.
type logFlags struct {
	level  string
	format string
}

func (l *logFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.level, "log-level", "info", "least level logged: debug, info, warn or error")
	cmd.Flags().StringVar(&l.format, "log-format", "text", "text, or json for machines")
}

// logger logs to standard error, so that standard output is the program's own.
func (l *logFlags) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		return nil, &exitError{2, fmt.Errorf("--log-level %q: give debug, info, warn or error", l.level)}
	}
	options := &slog.HandlerOptions{Level: level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return nil, &exitError{2, fmt.Errorf("--log-format %q: give text or json", l.format)}
}

// newMetrics returns a registry with the process's own metrics, and what serves
// it.
func newMetrics() (*prometheus.Registry, http.Handler) {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r, promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// listen opens an address. Its error says what to do when it is taken.
func listen(ctx context.Context, addr, flag string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		env := "SCIDEX_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
		return nil, fmt.Errorf("%w: stop what runs there, or choose another with --%s or %s; port 0 is a free one", err, flag, env)
	}
	return l, nil
}

// urlOf returns the URL of what listens on l.
func urlOf(l net.Listener) string { return "http://" + l.Addr().String() }

// serve answers requests on l until ctx ends, then lets open ones end. The
// hook, when not nil, ends what the server does not know of, such as streams.
func serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger, hook func(context.Context) error) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	var hooked error
	if hook != nil {
		hooked = hook(stop)
	}
	err := srv.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close() // requests that will not end are cut
	}
	<-failed //nolint:errcheck // http.ErrServerClosed: it was shut down
	return errors.Join(hooked, err)
}

// serveOptions are what a hub and a node are served with.
type serveOptions struct {
	metrics http.Handler
	log     *slog.Logger
}
