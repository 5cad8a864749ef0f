// Command bench measures the product, each figure beside its floor in the same
// run: what plain code reaches on the same machine for the same work.
//
// write.go measures commits, batch.go bulk writes, events.go what those cost who subscribe to a node's events, feed.go the way from a commit to a subscriber's
// frame, tail.go that to a reader of the feed, followers.go what many of them cost, apply.go the replica, bootstrap.go its first copy, read.go a point read over GraphQL, token.go the
// check of a caller's token, merge.go three-way merges.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/memory"
	"github.com/scidex-ai/substrate/internal/postgres"
	"github.com/scidex-ai/substrate/verb"
)

func main() {
	memory.Tune() // as servers do
	if len(os.Args) > 1 && os.Args[1] == readersArg {
		if err := readStreams(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench: readers:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	only := flag.String("only", "", "comma-separated benchmarks: write, batch, feed (or feed-tail, feed-followers), events, apply, bootstrap, read, token, merge; empty for all")
	slice := flag.Duration("slice", 2*time.Second, "length of one measured slice")
	rounds := flag.Int("rounds", 3, "slices of each, interleaved with the floor's")
	followers := flag.Int("followers", 1000, "followers of the feed in its benchmark of many")
	subscribers := flag.Int("subscribers", 8000, "subscribers to a node's events in their benchmark")
	artifacts := flag.Int("artifacts", 0, "artifacts to make for bootstrap; 0: the real records that SCIDEX_TEST_DATA names, or a few")
	profile := flag.String("cpuprofile", "", "file to write a CPU profile of the whole run to, for go tool pprof")
	flag.Parse()
	if spec := os.Getenv(childEnv); spec != "" {
		if err := runChild(ctx, spec, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench: node:", err)
			os.Exit(1)
		}
		return
	}
	stopProfile, err := startProfile(*profile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	err = run(ctx, os.Stdout, *only, *slice, *rounds, *followers, *subscribers, *artifacts)
	stop()
	stopProfile()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// startProfile profiles the program's own CPU into a file, if one is named.
func startProfile(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	f, err := os.Create(name) //nolint:gosec // the caller's own choice
	if err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, pprof.StartCPUProfile(f)
}

// A bench is what the measures share.
type bench struct {
	out         io.Writer
	slice       time.Duration
	rounds      int
	followers   int
	subscribers int
	dir         string
	url         string // of a database of its own
	artifacts   int    // that bootstrap makes
}

func run(ctx context.Context, out io.Writer, only string, slice time.Duration, rounds, followers, subscribers, artifacts int) (err error) {
	dir, err := os.MkdirTemp("", "scidex-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)                      //nolint:errcheck // what is left is in the temporary directory
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the database's user must pass through; nothing here is secret
		return err
	}
	server, err := postgres.Start(ctx, postgres.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop(context.WithoutCancel(ctx)) }() // the directory goes with it
	b := &bench{out: out, slice: slice, rounds: rounds, followers: followers, subscribers: subscribers, dir: dir, url: server.URL(), artifacts: artifacts}
	pool, err := hub.OpenPool(ctx, b.url)
	if err != nil {
		return err
	}
	_, err = hub.Init(ctx, pool)
	pool.Close()
	if err != nil {
		return err
	}
	for _, m := range []struct {
		name string
		run  func(context.Context) error
	}{{"write", b.write}, {"batch", b.batch}, {"feed", b.feed}, {"feed-tail", b.tail}, {"feed-followers", b.manyFollowers}, {"events", b.events}, {"apply", b.apply}, {"bootstrap", b.bootstrap}, {"read", b.read}, {"token", b.token}, {"merge", b.merge}} {
		named := func(part string) bool { return part == m.name || strings.HasPrefix(m.name, part+"-") }
		if only != "" && !slices.ContainsFunc(strings.Split(only, ","), named) {
			continue
		}
		if err := m.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// noLimits lets one client do all the work.
var noLimits = verb.Limits{Read: verb.Rate{PerSecond: -1}, Write: verb.Rate{PerSecond: -1}, Unauthenticated: verb.Rate{PerSecond: -1}}

// A row is one line of a table: a figure, its floor and their ratio.
type row struct {
	name         string
	value, floor []float64 // by round
	unit         string
}

func (b *bench) table(title string, rows []row) error {
	if _, err := fmt.Fprintf(b.out, "\n%s\n", title); err != nil {
		return err
	}
	t := tabwriter.NewWriter(b.out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\tscidex\tfloor\tratio\trounds\t\n")
	for _, r := range rows {
		v, f := median(r.value), median(r.floor)
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2f\t%s\t\n", r.name, figure(v, r.unit), figure(f, r.unit), v/f, ratios(r))
	}
	return t.Flush()
}

// ratios shows the ratio of each round, so that noise is seen.
func ratios(r row) string {
	var s []string
	for i := range min(len(r.value), len(r.floor)) {
		s = append(s, fmt.Sprintf("%.2f", r.value[i]/r.floor[i]))
	}
	return strings.Join(s, " ")
}

func figure(v float64, unit string) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f %s", v, unit)
	}
	return fmt.Sprintf("%.2f %s", v, unit)
}

func median(v []float64) float64 { return quantile(v, 0.5) }

// quantile returns the value below which a share q of v lies.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	sorted := slices.Clone(v)
	slices.Sort(sorted)
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
