package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/internal/postgres"
	"github.com/scidex-ai/substrate/node"
)

func newNodeVerifyCmd() *cobra.Command {
	var n nodeFlags
	var asJSON, repair bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove that the replica equals the hub, row for row",
		Long: `Makes each row of the replica anew and hashes it, compares the sums, by scope, kind
and type, with the hub's at the same position of the log, and finds the rows that
differ. With --repair these are fetched from the hub again. The node may be running;
then it does this itself. The exit code is 1 when they differ, after a repair too,
and 3 when they cannot be compared now.`,
		Example: `  scidex node verify --data ./data/lab-a
  scidex node verify --data ./data/lab-a --repair
  scidex node verify --hub http://127.0.0.1:7171 --token "$TOKEN" --data ./data/lab-1 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := n.config(cmd)
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(n.data, node.ReplicaFile)); err != nil {
				return fmt.Errorf("no replica in %s: start one with scidex node run", n.data)
			}
			report, err := verifyIn(cmd.Context(), c, repair)
			if errors.Is(err, node.ErrNoControl) {
				return &exitError{3, err}
			}
			if node.NotNow(err) {
				return &exitError{3, fmt.Errorf("%w; try again once the hub answers and the node has caught up", err)}
			}
			if err != nil {
				return err
			}
			return printReport(cmd.OutOrStdout(), report, asJSON)
		},
	}
	n.addAll(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&repair, "repair", false, "fetch the rows that differ from the hub again")
	return cmd
}

// verifyIn has the node that runs on the directory verify it, or does so itself.
func verifyIn(ctx context.Context, c node.Config, repair bool) (report node.VerifyReport, err error) {
	unlock, err := postgres.Lock(c.Dir)
	if _, running := errors.AsType[*postgres.InUseError](err); running {
		if report, err = node.AskToVerify(ctx, c.Dir, repair); errors.Is(err, node.ErrNoControl) {
			return report, fmt.Errorf("a node runs on %s and does not answer: stop it, or try again once it serves: %w", c.Dir, err)
		}
		return report, err
	}
	if err != nil {
		return report, err
	}
	defer unlock()
	nd, err := node.Open(ctx, c)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, nd.Close()) }()
	if !repair {
		return nd.Verify(ctx)
	}
	// What is fetched is as of the hub's head, so the replica must come there.
	running, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- nd.Run(running) }()
	report, err = nd.Repair(ctx)
	stop()
	return report, errors.Join(err, <-stopped)
}

// shownRows is how many rows are told one by one unless JSON is asked for.
const shownRows = 20

func printReport(w io.Writer, r node.VerifyReport, asJSON bool) error {
	if asJSON {
		if r.Differences == nil {
			r.Differences = []string{}
		}
		if r.Rows == nil {
			r.Rows = []node.Difference{}
		}
		if err := writeJSON(w, r); err != nil {
			return err
		}
	} else if err := tellReport(w, &r); err != nil {
		return err
	}
	if !r.Equal() {
		next := "run scidex node verify --repair, or scidex node rebuild to copy the hub anew"
		if r.HubAtFault() {
			next = "the hub's own rows are at fault: its operator must run scidex hub verify"
		}
		return &exitError{1, errors.New("the replica differs from the hub: " + next)}
	}
	if asJSON {
		return nil
	}
	return say(w, "The replica equals the hub.")
}

func tellReport(w io.Writer, r *node.VerifyReport) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(t, "SCOPE\tKIND\tTYPE\tROWS\tDIGEST at seq %d\n", r.Counted.Seq)
	for _, e := range r.Counted.Entries {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.12s\n", e.Scope, e.Kind, e.Type, e.Count, strings.TrimPrefix(e.XOR.String(), "sha256:"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, d := range r.Differences {
		if err := say(w, d); err != nil {
			return err
		}
	}
	for i, d := range r.Rows {
		if i == shownRows {
			if err := say(w, fmt.Sprintf("… and %d rows more: --json tells all", len(r.Rows)-i)); err != nil {
				return err
			}
			break
		}
		key := d.Key
		if d.Revision > 0 {
			key = fmt.Sprintf("%s, revision %d", key, d.Revision)
		}
		if err := say(w, fmt.Sprintf("%s %s %s %s: %s: %s", d.Scope, d.Kind, d.Type, key, d.What, cmp.Or(d.Outcome, "found"))); err != nil {
			return err
		}
	}
	return nil
}
