package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/postgres"
)

func newHubBackupCmd() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Write all of the hub's database to a file",
		Long: `Writes the hub's database, as it is at one moment, to a file that scidex hub restore
reads: a tar archive of hub.dump, which is PostgreSQL's own format, and manifest.json.
The hub may be running. The file is there once it is whole, and is never written over.
It holds the hub's signing keys, its enrolments and all private scopes: keep it secret.
It needs pg_dump of the server's version or a later one.`,
		Example: `  scidex hub backup --to hub-2026-11-30.backup --managed --data ./data/hub
  scidex hub backup --to hub.backup --database-url "$DATABASE_URL"`,
	}
	cmd = newDatabaseCmd(cmd, func(ctx context.Context, db *database, _ []string, asJSON bool) error {
		client, err := db.client(ctx, cmd)
		if err != nil {
			return err
		}
		screen := newStepScreen(cmd.ErrOrStderr())
		m, err := backupTo(ctx, db, client, to, screen)
		screen.end()
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), m)
		}
		return say(cmd.OutOrStdout(), fmt.Sprintf("%s holds the hub %s up to %d:%d, %s. It is a secret: it holds the signing keys.", to, m.HubID, m.Epoch, m.Seq, size(m.Bytes)))
	})
	cmd.Flags().StringVar(&to, "to", "", "file to write, which is not there yet")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if to == "" {
			return &exitError{2, errors.New("give --to, the file to write")}
		}
		return nil
	}
	return cmd
}

// backupTo writes a file that is either absent or whole.
func backupTo(ctx context.Context, db *database, client hub.Dumper, to string, screen *stepScreen) (m hub.Manifest, err error) {
	if _, err := os.Lstat(to); !errors.Is(err, os.ErrNotExist) {
		return m, errors.Join(fmt.Errorf("--to: %s is there already", to), err)
	}
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".new-*") // of mode 0600
	if err != nil {
		return m, fmt.Errorf("--to: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // another name of the file once it is whole
	defer f.Close()           //nolint:errcheck // Sync has told of what could not be written
	if m, err = hub.Backup(ctx, db.Pool, client, version(), f, func(n int64) { screen.bytes("backup", n) }); err != nil {
		return m, err
	}
	if err := f.Sync(); err != nil {
		return m, err
	}
	// A link is not made over a file that came meanwhile, as a rename would be.
	if err := os.Link(f.Name(), to); err != nil {
		return m, fmt.Errorf("--to: %w", err)
	}
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return m, err
	}
	return m, errors.Join(dir.Sync(), dir.Close())
}

func newHubRestoreCmd() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Make the hub of a backup in an empty database",
		Long: `Makes what scidex hub backup wrote in an empty database, which it never writes over,
begins a new epoch and proves the result as scidex hub verify does. Stop the hub that
the backup is of for good: two hubs of one identity part ways. What was written
after the backup is lost. Nodes that hold it notice by the new epoch, and copy the hub
anew.`,
		Example: `  scidex hub restore --from hub-2026-11-30.backup --managed --data ./data/hub-restored
  scidex hub restore --from hub.backup --database-url "$NEW_DATABASE_URL"`,
	}
	var d databaseFlags
	var l logFlags
	var asJSON bool
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := os.Open(from)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		defer f.Close() //nolint:errcheck // nothing was written
		screen := newStepScreen(cmd.ErrOrStderr())
		b, err := hub.OpenBackup(f, screen.bytes) // before anything is made for it
		screen.end()
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		d.mayMake = true
		return d.with(cmd.Context(), &l, func(ctx context.Context, db *database) error {
			client, err := db.client(ctx, cmd)
			if err != nil {
				return err
			}
			v, err := hub.Restore(ctx, db.Pool, client, b, func(what string, n int64) {
				if what == "restoring" {
					screen.bytes(what, n)
				} else {
					screen.rows(what, n)
				}
			})
			screen.end()
			if err != nil {
				return err
			}
			return tellRestored(ctx, cmd.OutOrStdout(), db, b, &v, asJSON)
		})
	}
	d.add(cmd)
	l.add(cmd)
	cmd.Flags().BoolVar(&d.managed, "managed", false, "use the private PostgreSQL in the data directory, which is made when there is none")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&from, "from", "", "file that scidex hub backup wrote")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if from == "" {
			return &exitError{2, errors.New("give --from, the file that scidex hub backup wrote")}
		}
		return nil
	}
	return cmd
}

// tellRestored says what was restored, and what its proof found.
func tellRestored(ctx context.Context, w io.Writer, db *database, b *hub.BackupFile, v *hub.Verification, asJSON bool) error {
	epoch, err := hub.Epoch(ctx, db.Pool)
	if err != nil {
		return err
	}
	if asJSON {
		if err := writeJSON(w, map[string]any{"backup": b.Manifest, "epoch": epoch, "verification": v}); err != nil {
			return err
		}
		return verdict(v)
	}
	if err := printVerification(w, v, false); err != nil {
		return err
	}
	return say(w, fmt.Sprintf("The hub %s is back as it was at %d:%d (%s), in the new epoch %d: scidex hub run. "+
		"Nodes notice, and copy it anew; what was written after that time is lost.", b.HubID, b.Epoch, b.Seq, utc(b.At), epoch))
}

// client finds PostgreSQL's own programs for the database.
func (db *database) client(ctx context.Context, cmd *cobra.Command) (*postgres.Client, error) {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	return postgres.NewClient(ctx, conn.Conn(), db.url, cmd.Flag("postgres-bin").Value.String())
}
