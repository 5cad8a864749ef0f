// Command torture breaks a running product on purpose and proves that nothing is
// lost: in rounds, agents write and subscribers listen while processes are killed,
// networks cut and files damaged; after each round every acknowledged write must be
// there once, replica and hub must be equal, and every subscriber must have heard of
// every event. It runs processes of bin/scidex, a PostgreSQL of its own and a
// toxiproxy on loopback.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

type options struct {
	bin    string
	rounds int
	limit  time.Duration
	seed   uint64
	only   string
	keep   bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/scidex", "the program to torture")
	flag.IntVar(&o.rounds, "rounds", 100, "how many rounds to run at most")
	flag.DurationVar(&o.limit, "for", time.Hour, "begin no round after this long")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "what the rounds' choices follow from")
	flag.StringVar(&o.only, "only", "", "comma-separated faults: "+strings.Join(names(), ", ")+"; empty for all")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory of a run that succeeded too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

func names() (all []string) {
	for _, f := range faults {
		all = append(all, f.name)
	}
	return all
}

func chosen(only string) ([]fault, error) {
	if only == "" {
		return faults, nil
	}
	var some []fault
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no fault is named %q: there are %s", name, strings.Join(names(), ", "))
		}
		some = append(some, faults[i])
	}
	return some, nil
}

func run(ctx context.Context, out io.Writer, o options) (err error) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) } // the outcome is an error too
	some, err := chosen(o.only)
	if err != nil {
		return err
	}
	c, err := newCluster(ctx, o.bin)
	if err != nil {
		return err
	}
	say("seed %d, in %s\n", o.seed, c.dir)
	defer func() {
		c.stop(context.WithoutCancel(ctx))
		if err == nil && !o.keep {
			err = os.RemoveAll(c.dir)
		} else {
			say("logs and files are in %s\n", c.dir)
		}
	}()
	dice := rand.New(rand.NewPCG(o.seed, 0)) //nolint:gosec // chance that can be had again
	begun := time.Now()
	var total tally
	say("%5s  %-14s %12s %5s %8s %7s %7s\n", "round", "fault", "acknowledged", "lost", "doubled", "gaps", "time")
	for round := range o.rounds {
		if ctx.Err() != nil || time.Since(begun) > o.limit {
			break
		}
		// Each fault comes once before any comes again.
		if round%len(some) == 0 {
			dice.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		}
		f := some[round%len(some)]
		start := time.Now()
		t, err := c.round(ctx, f, dice)
		total.add(t)
		say("%5d  %-14s %12d %5d %8d %7d %6.1fs\n", round+1, f.name, t.acknowledged, t.lost, t.doubled, t.gaps, time.Since(start).Seconds())
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("round %d, %s, seed %d: %w", round+1, f.name, o.seed, err)
		}
		if t.lost+t.doubled+t.gaps > 0 {
			return fmt.Errorf("round %d, %s, seed %d: writes or events went amiss", round+1, f.name, o.seed)
		}
	}
	say("%d rounds: %d acknowledged, %d lost, %d doubled, %d gaps\n", total.rounds, total.acknowledged, total.lost, total.doubled, total.gaps)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return nil
}

// A tally is what rounds came to.
type tally struct{ rounds, acknowledged, lost, doubled, gaps int }

func (t *tally) add(u tally) {
	t.rounds += u.rounds
	t.acknowledged += u.acknowledged
	t.lost += u.lost
	t.doubled += u.doubled
	t.gaps += u.gaps
}

// How long agents write before, during and after a fault.
const (
	before = 700 * time.Millisecond
	during = 1500 * time.Millisecond
	after  = 500 * time.Millisecond
	// settle is how long all may take to be whole again.
	settle = 3 * time.Minute
)

// round runs one fault under load and then looks what became of everything.
func (c *cluster) round(ctx context.Context, f fault, dice *rand.Rand) (t tally, err error) {
	t.rounds = 1
	writers := c.write(ctx, dice)
	pause(ctx, before)
	heal, err := f.strike(ctx, c, dice)
	if err == nil {
		pause(ctx, time.Duration(dice.Int64N(int64(2*during))))
	}
	if heal != nil {
		err = errors.Join(err, heal(ctx))
	}
	if err == nil {
		err = c.whole(ctx)
	}
	pause(ctx, after)
	acks, stopErr := writers.stop(ctx)
	if err = errors.Join(err, stopErr); err != nil {
		return t, err
	}
	t.acknowledged = len(acks)
	if err := c.settled(ctx); err != nil {
		return t, err
	}
	if t.lost, t.doubled, err = c.checkWrites(ctx, acks); err != nil {
		return t, err
	}
	if t.gaps, err = c.checkEvents(ctx); err != nil {
		return t, err
	}
	return t, c.checkEqual(ctx)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// until waits until f holds.
func until(ctx context.Context, what string, f func() bool) error {
	deadline := time.Now().Add(settle)
	for !f() {
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %s", settle, what)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		pause(ctx, 50*time.Millisecond)
	}
	return nil
}
