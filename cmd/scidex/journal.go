package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
)

func newHubJournalCmd() *cobra.Command {
	var f hub.JournalFilter
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "journal",
		Short: "Tell who changed what, and on whose behalf",
		Long: `Prints the commits of the last day, or since longer, the latest first: when, by which
verb, who, for whom, in which session and task, and what changed. The chain reads
from who began it to who wrote. What changed is told as long as the log keeps it; of
an artifact's versions the journal is found after that too. Of what one commit changed,
the first few are printed; --json prints all.`,
		Example: `  scidex hub journal --ref hypothesis:h-1 --since 0 --managed
  scidex hub journal --actor orcid:0000-0002-1825-0097 --json --database-url "$DATABASE_URL"`,
	}
	cmd.Flags().StringVar(&f.Ref, "ref", "", "type:id of what changed")
	cmd.Flags().StringVar(&f.Actor, "actor", "", "who wrote, or on whose behalf")
	cmd.Flags().DurationVar(&since, "since", 24*time.Hour, "how far back; 0 is from the start")
	cmd.Flags().IntVar(&f.Limit, "limit", 100, "how many commits at most")
	cmd = newDatabaseCmd(cmd, func(ctx context.Context, db *database, _ []string, asJSON bool) error {
		if since > 0 {
			f.Since = time.Now().Add(-since)
		}
		entries, err := hub.Journal(ctx, db.Pool, f)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"commits": append([]hub.JournalEntry{}, entries...)})
		}
		t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
		fmt.Fprintln(t, "TIME\tVERB\tCHAIN\tKIND\tSESSION\tTASK\tREQUEST\tCHANGED")
		for i := range entries {
			e := &entries[i]
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", utc(e.At), e.Verb, chainOf(e), e.ActorKind, e.SessionID, e.TaskID, e.RequestID, changedIn(e))
		}
		return t.Flush()
	})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if since < 0 || f.Limit < 1 {
			return &exitError{2, errors.New("--since is not negative, and --limit is at least 1")}
		}
		if f.Ref != "" {
			if _, err := artifact.ParseRef(f.Ref); err != nil {
				return &exitError{2, fmt.Errorf("--ref %q: give type:id, such as hypothesis:h-1", f.Ref)}
			}
		}
		return nil
	}
	return cmd
}

// maxChanged is how many refs a line tells; --json tells all.
const maxChanged = 8

func changedIn(e *hub.JournalEntry) string {
	if len(e.Refs) <= maxChanged {
		return strings.Join(e.Refs, " ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(e.Refs[:maxChanged], " "), len(e.Refs)-maxChanged)
}

// chainOf tells who began it, who handed it on and who wrote.
func chainOf(e *hub.JournalEntry) string {
	var who []string
	for _, step := range e.Delegation {
		who = append(who, step.ActorID)
	}
	return strings.Join(append(who, e.ActorID), " → ")
}
