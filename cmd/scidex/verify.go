package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/node"
)

func newNodeVerifyCmd() *cobra.Command {
	var n nodeFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove that the replica equals the hub, row for row",
		Long: `Counts and hashes all rows of the replica anew and compares them, by scope, kind
and type, with the hub's at the same position of the log. The exit code is 1
when they differ. The node may be running meanwhile.`,
		Example: `  scidex node verify --hub http://127.0.0.1:7171 --token "$TOKEN" --data ./data/lab-1`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			c, err := n.config(cmd)
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(n.data, node.ReplicaFile)); err != nil {
				return fmt.Errorf("no replica in %s: start one with scidex node run", n.data)
			}
			nd, err := node.Open(cmd.Context(), c)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, nd.Close()) }()
			report, err := nd.Verify(cmd.Context())
			if err != nil {
				return err
			}
			return printReport(cmd.OutOrStdout(), report, asJSON)
		},
	}
	n.addAll(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printReport(w io.Writer, r node.VerifyReport, asJSON bool) error {
	if asJSON {
		if r.Differences == nil {
			r.Differences = []string{}
		}
		if err := writeJSON(w, r); err != nil {
			return err
		}
	} else {
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
	}
	if len(r.Differences) > 0 {
		return &exitError{1, errors.New("the replica differs from the hub: rebuild it with scidex node rebuild")}
	}
	if asJSON {
		return nil
	}
	return say(w, "The replica equals the hub.")
}
