package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/hub"
)

func newKeysCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "List, rotate and retire the keys that sign the hub's tokens",
		Example: `  scidex keys list --managed
  scidex keys rotate --database-url "$DATABASE_URL"`,
	}
	cmd.AddCommand(newKeysListCmd(), newKeysRotateCmd(), newKeysRetireCmd())
	return cmd
}

// newDatabaseCmd completes a command that works on the hub's database.
func newDatabaseCmd(cmd *cobra.Command, run func(ctx context.Context, db *database, args []string, asJSON bool) error) *cobra.Command {
	var d databaseFlags
	var l logFlags
	var asJSON bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return d.with(cmd.Context(), &l, func(ctx context.Context, db *database) error { return run(ctx, db, args, asJSON) })
	}
	d.add(cmd)
	l.add(cmd)
	cmd.Flags().BoolVar(&d.managed, "managed", false, "use the private PostgreSQL in the data directory")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newKeysListCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the signing keys, the newest first",
		Long: `Lists the keys. The newest one with the state signing signs; the tokens of one
that is verifying still count; those of one that has ended do not.`,
		Example: `  scidex keys list --managed --data ./data/hub
  scidex keys list --json --database-url "$DATABASE_URL"`,
	}
	return newDatabaseCmd(cmd, func(ctx context.Context, db *database, _ []string, asJSON bool) error {
		keys, err := hub.Keys(ctx, db.Pool)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"keys": keys})
		}
		t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
		fmt.Fprintln(t, "KEY\tSTATE\tMADE\tENDS")
		for _, k := range keys {
			ends := ""
			if k.EndsAt != nil {
				ends = utc(*k.EndsAt)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", k.ID, k.State, utc(k.CreatedAt), ends)
		}
		return t.Flush()
	})
}

func newKeysRotateCmd() *cobra.Command {
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Make a new signing key and retire the one before it",
		Long: `Makes a new key, with which running hubs sign within ten seconds. Tokens of the
keys before it count until they end or the overlap is over: give an overlap as
long as the longest life of a token that must outlast the rotation.`,
		Example: `  scidex keys rotate --managed
  scidex keys rotate --overlap 720h --database-url "$DATABASE_URL"`,
	}
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "how long tokens of the retired keys still count")
	cmd = newDatabaseCmd(cmd, func(ctx context.Context, db *database, _ []string, asJSON bool) error {
		kid, err := hub.RotateKey(ctx, db.Pool, overlap)
		if err != nil {
			return err
		}
		ends := time.Now().Add(overlap)
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"kid": kid, "retired_end_at": ends.UTC().Format(time.RFC3339)})
		}
		return say(cmd.OutOrStdout(), fmt.Sprintf("%s signs now; tokens of the keys before it count until %s.", kid, utc(ends)))
	})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if overlap < 0 {
			return &exitError{2, errors.New("--overlap is not negative; 0 ends all earlier tokens at once")}
		}
		return nil
	}
	return cmd
}

func newKeysRetireCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retire KID",
		Short: "End a key at once, because others may know its secret",
		Long: `Ends a key: within ten seconds the hub takes no token that it signed, and nodes
follow within five minutes. When no other key signs, a new one is made. To replace
a key that is still secret, use scidex keys rotate.`,
		Example: `  scidex keys retire 3f1c9a0b7d2e4c58 --managed
  scidex keys retire 3f1c9a0b7d2e4c58 --database-url "$DATABASE_URL"`,
		Args: cobra.ExactArgs(1),
	}
	return newDatabaseCmd(cmd, func(ctx context.Context, db *database, args []string, asJSON bool) error {
		if err := hub.RetireKey(ctx, db.Pool, args[0]); err != nil {
			return err
		}
		signs, err := hub.SigningKey(ctx, db.Pool)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"retired": args[0], "kid": signs.ID})
		}
		return say(cmd.OutOrStdout(), fmt.Sprintf("Tokens of %s count no more; %s signs.", args[0], signs.ID))
	})
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }
