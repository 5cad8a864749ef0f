package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/hub"
)

func newHubVerifyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove that the database is what the hub has written, row for row",
		Long: `Makes each row anew and hashes it, walks the log and its chain, compares the tables
with what the log says last, and looks for rows that name what is not there. A change
that was made past the hub, by hand or by a fault of the disk, shows. It changes
nothing and reads all there is; the hub may run meanwhile. The exit code is 1 when
something is at fault.`,
		Example: `  scidex hub verify --managed --data ./data/hub
  scidex hub verify --json --database-url "$DATABASE_URL"`,
	}
	return newDatabaseCmd(cmd, func(ctx context.Context, db *database, _ []string, asJSON bool) error {
		v, err := hub.Verify(ctx, db.Pool)
		if err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		if asJSON {
			err = writeJSON(w, v)
		} else {
			err = tellVerification(cmd, &v)
		}
		if err == nil && v.Total > 0 {
			err = &exitError{1, errors.New("the database is not what the hub has written: restore it from a backup, or write anew what is at fault")}
		}
		return err
	})
}

func tellVerification(cmd *cobra.Command, v *hub.Verification) error {
	w := cmd.OutOrStdout()
	for _, f := range v.Faults {
		ref := f.Ref
		if f.Revision > 0 {
			ref = fmt.Sprintf("%s, revision %d", ref, f.Revision)
		}
		if err := say(w, fmt.Sprintf("%s %s: %s", f.Kind, ref, f.What)); err != nil {
			return err
		}
	}
	if more := v.Total - int64(len(v.Faults)); more > 0 {
		return say(w, fmt.Sprintf("… and %d more", more))
	}
	if v.Total > 0 {
		return nil
	}
	return say(w, fmt.Sprintf("The database is what the hub has written, up to seq %d: %d artifacts, %d versions, %d links, %d signals, %d changes in the log.",
		v.Head, v.Rows["artifact"], v.Rows["revision"], v.Rows["link"], v.Rows["signal"], v.Rows["log"]))
}
