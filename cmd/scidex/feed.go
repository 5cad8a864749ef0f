package main

import (
	"context"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/hub"
)

// addRetention adds the flags that say how much of the log is kept.
func addRetention(cmd *cobra.Command, r *hub.Retention) {
	cmd.Flags().DurationVar(&r.Age, "feed-keep", 7*24*time.Hour, "how long the log keeps changes for nodes that were away")
	cmd.Flags().Int64Var(&r.Bytes, "feed-max-bytes", 0, "size above which the log drops younger changes too; 0 is no bound")
	cmd.Flags().DurationVar(&r.Lease, "feed-lease", 48*time.Hour, "how long the log is kept for an enrolled node that does not move")
	cmd.Flags().DurationVar(&r.Events, "events-keep", 400*24*time.Hour, "how long events are kept, for readers and for reads as of a moment")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if r.Age <= 0 || r.Lease <= 0 || r.Events <= 0 || r.Bytes < 0 {
			return &exitError{2, fmt.Errorf("--feed-keep, --feed-lease and --events-keep are more than 0, and --feed-max-bytes is not negative")}
		}
		return nil
	}
}

func newHubFeedCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "feed",
		Short: "Look at the log that nodes follow, and trim it",
		Example: `  scidex hub feed status --managed --data ./data/hub
  scidex hub feed trim --dry-run --database-url "$DATABASE_URL"`,
	}
	cmd.AddCommand(newFeedStatusCmd(), newFeedTrimCmd())
	return cmd
}

func newFeedStatusCmd() *cobra.Command {
	var r hub.Retention
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Tell how much of the log is kept, and how far each node has come",
		Long: `Prints the log's partitions and the enrolled nodes that have followed it. A node that
was dropped past is lost: it copies the hub anew by itself. FALLS OFF is from when on
that may happen to a node that does not move.`,
		Example: `  scidex hub feed status --managed --data ./data/hub
  scidex hub feed status --json --database-url "$DATABASE_URL"`,
	}
	cmd = newDatabaseCmd(cmd, func(ctx context.Context, db *database, _ []string, asJSON bool) error {
		s, err := hub.ReadLogStatus(ctx, db.Pool, r)
		if err != nil {
			return err
		}
		if asJSON {
			s.Parts, s.Followers = append([]hub.LogPart{}, s.Parts...), append([]hub.LogFollower{}, s.Followers...)
			return writeJSON(cmd.OutOrStdout(), s)
		}
		t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
		fmt.Fprintf(t, "The log keeps %d to %d, %s; it can be followed from %d on.\n\n", s.First, s.Head, size(s.Bytes), s.Floor)
		fmt.Fprintln(t, "PARTITION\tFROM\tLAST\tSIZE\tNEWEST")
		for _, p := range s.Parts {
			last := "-"
			if p.Last > 0 {
				last = strconv.FormatInt(int64(p.Last), 10)
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\n", p.Name, p.First, last, size(p.Bytes), whenOrDash(p.Newest))
		}
		fmt.Fprintln(t, "\nNODE\tLAB\tAT\tBEHIND\tSEEN\tLOG KEPT\tFALLS OFF")
		for i := range s.Followers {
			f := &s.Followers[i]
			kept := "lapsed"
			switch {
			case f.Lost:
				kept = "lost"
			case f.Leased:
				kept = "until " + utc(f.LeasedTo)
			}
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", f.Node, f.Lab, f.Seq, f.Behind, utc(f.SeenAt), kept, whenOrDash(f.FallsOff))
		}
		e := &s.Events
		fmt.Fprintf(t, "\nEvents are kept after %d, %s, the oldest of %s", e.Floor, size(e.Bytes), whenOrDash(e.Oldest))
		if e.Due > 0 {
			fmt.Fprintf(t, "; up to %d they are due to go", e.Due)
		}
		fmt.Fprintln(t, ".")
		return t.Flush()
	})
	addRetention(cmd, &r)
	return cmd
}

func newFeedTrimCmd() *cobra.Command {
	var r hub.Retention
	var dry bool
	cmd := &cobra.Command{
		Use:   "trim",
		Short: "Drop what need not be kept of the log now",
		Long: `Drops the oldest partitions of the log whose changes are all older than --feed-keep,
or that exceed --feed-max-bytes; none that a node with a live lease has not got, and
never the one in use: who has not followed for long must copy the hub anew. Then takes
out events older than --events-keep, of those that the log no longer leads to, and tells
all nodes to do so; a consumer that is used keeps what it has not read for 30 days more.
A running hub does the same each minute. Artifacts and versions stay.`,
		Example: `  scidex hub feed trim --dry-run --database-url "$DATABASE_URL"
  scidex hub feed trim --feed-keep 24h --managed --data ./data/hub`,
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only tell what would be dropped")
	cmd = newDatabaseCmd(cmd, func(ctx context.Context, db *database, _ []string, asJSON bool) error {
		dropped, err := hub.Trim(ctx, db.Pool, r, dry)
		if err != nil {
			return err
		}
		gone, err := hub.TrimEvents(ctx, db.Pool, r, dry)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"dropped": append([]hub.LogPart{}, dropped...), "events": gone, "dry_run": dry})
		}
		if len(dropped) == 0 && gone.Events == 0 {
			return say(cmd.OutOrStdout(), "Nothing is to be dropped.")
		}
		verb := "dropped"
		if dry {
			verb = "would drop"
		}
		for _, p := range dropped {
			if err := say(cmd.OutOrStdout(), fmt.Sprintf("%s %s, up to %d of %s: %s", verb, p.Name, p.Last, utc(p.Newest), size(p.Bytes))); err != nil {
				return err
			}
		}
		if gone.Events == 0 {
			return nil
		}
		return say(cmd.OutOrStdout(), fmt.Sprintf("%s %d events, up to %d", verb, gone.Events, gone.UpTo))
	})
	addRetention(cmd, &r)
	return cmd
}

func whenOrDash(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return utc(t)
}

// size tells bytes for people.
func size(bytes int64) string {
	const unit = 1 << 10
	value, name := float64(bytes), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < unit {
			break
		}
		value, name = value/unit, next
	}
	return fmt.Sprintf("%.4g %s", value, name)
}
