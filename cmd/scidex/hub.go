package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"text/tabwriter"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/hub"
)

const defaultHubAddr = "127.0.0.1:7171"

func newHubCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hub",
		Short: "Run a hub, or prepare its database",
		Example: `  scidex hub init --database-url "$DATABASE_URL"
  scidex hub run  --database-url "$DATABASE_URL"
  scidex hub run  --managed --data ./data/hub      # a private PostgreSQL in ./data/hub`,
	}
	cmd.AddCommand(newHubRunCmd(), newHubInitCmd(), newHubMigrateCmd(), newHubAdoptCmd(), newHubInviteCmd(), newHubNodesCmd(), newHubFeedCmd(), newHubVerifyCmd(), newHubJournalCmd(), newHubBackupCmd(), newHubRestoreCmd())
	return cmd
}

func newHubRunCmd() *cobra.Command {
	var d databaseFlags
	var l logFlags
	var doors doorFlags
	var models modelFlags
	var addr, secretFile string
	var c hub.Config
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Serve the verbs and the feed from a database that hub init prepared",
		Example: `  scidex hub run --database-url "$DATABASE_URL" --addr 127.0.0.1:7171
  scidex hub run --managed --data ./data/hub`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := d.check(); err != nil {
				return err
			}
			parsed, err := doors.parse()
			if err != nil {
				return err
			}
			c.Origins, c.TrustedProxies, c.Issuers = parsed.origins, parsed.proxies, parsed.issuers
			c.Limits, c.AnonymousRead, c.Version = doors.limits, doors.open, version()
			if c.Embeddings, c.Rerank, err = models.clients(); err != nil {
				return err
			}
			if secretFile != "" {
				if c.Secret, err = readSecret(secretFile); err != nil {
					return err
				}
			}
			log, err := l.logger()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			db, err := d.open(ctx, log, false)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, db.close(ctx)) }()
			if d.managed {
				if _, err := hub.Init(ctx, db.Pool); err != nil {
					return err
				}
			}
			listener, err := listen(ctx, addr, "addr")
			if err != nil {
				return err
			}
			g, ctx := errgroup.WithContext(ctx)
			g.Go(func() error { return db.watch(ctx) })
			c.DB, c.Log = db.Pool, log
			g.Go(func() error { return runHub(ctx, c, listener) })
			return g.Wait()
		},
	}
	d.add(cmd)
	l.add(cmd)
	cmd.Flags().BoolVar(&d.managed, "managed", false, "run a private PostgreSQL in the data directory, prepared by itself")
	cmd.Flags().StringVar(&addr, "addr", defaultHubAddr, "address to serve on")
	doors.add(cmd)
	models.addHub(cmd)
	addRetention(cmd, &c.Retention)
	cmd.Flags().StringVar(&secretFile, "dev-secret-file", "", "file with a secret of 32 bytes or more, by which tokens signed with HS256 are taken: for development, since whoever has it can sign")
	cmd.Flags().StringVar(&c.NodeURL, "node-url", "", "URL of a node, told to people who open the hub in a browser")
	return cmd
}

// readSecret reads a file that only its owner may read.
func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("--dev-secret-file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("--dev-secret-file: others may read %s: chmod 600 it", path)
	}
	raw, err := os.ReadFile(path)
	return bytes.TrimSpace(raw), err
}

// check refuses to guess which database is meant.
func (d *databaseFlags) check() error {
	if d.url == "" && !d.managed {
		return &exitError{2, errors.New("give --database-url, or --managed for a private PostgreSQL in --data")}
	}
	if d.url != "" && d.managed {
		return &exitError{2, errors.New("give --database-url or --managed, not both")}
	}
	return nil
}

// runHub serves a hub until ctx ends.
func runHub(ctx context.Context, c hub.Config, listener net.Listener) error {
	registry, metrics := newMetrics()
	c.Metrics = registry
	h, err := hub.Open(ctx, c)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	c.Log.InfoContext(ctx, "hub serves", "url", urlOf(listener), "hub_id", h.HubID(), "epoch", h.Epoch())
	return serveHub(ctx, h, listener, serveOptions{metrics: metrics, log: c.Log})
}

// serveHub runs h and serves it until ctx ends.
func serveHub(ctx context.Context, h *hub.Hub, l net.Listener, o serveOptions) error {
	done := make(chan struct{}) // ends the feed's streams
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.Run(ctx) })
	g.Go(func() error {
		return serve(ctx, l, h.Handler(o.metrics, done), o.log, func(context.Context) error {
			close(done)
			return nil
		})
	})
	return g.Wait()
}

func newHubInitCmd() *cobra.Command {
	var d databaseFlags
	var l logFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a hub in an empty database",
		Long: `Makes the tables, the hub's identity and signing key, the scope commons and the
shipped types in an empty database. On a database that holds a hub it does
nothing; on one that holds something else it refuses.`,
		Example: `  scidex hub init --database-url "$DATABASE_URL"
  scidex hub init --managed --data ./data/hub`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.mayMake = true
			return d.with(cmd.Context(), &l, func(ctx context.Context, db *database) error {
				made, err := hub.Init(ctx, db.Pool)
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), map[string]any{"made": made})
				}
				if made {
					return say(cmd.OutOrStdout(), "The hub is ready: scidex hub run")
				}
				return say(cmd.OutOrStdout(), "The database holds a hub already; nothing was changed.")
			})
		},
	}
	d.add(cmd)
	l.add(cmd)
	cmd.Flags().BoolVar(&d.managed, "managed", false, "use the private PostgreSQL in the data directory")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newHubMigrateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Look at and apply changes of the database's schema",
	}
	var d databaseFlags
	var l logFlags
	var asJSON bool
	sub := func(use, short string, run func(context.Context, io.Writer, *pgxpool.Pool) error) {
		c := &cobra.Command{
			Use: use, Short: short,
			Example: "  scidex hub migrate " + use + ` --database-url "$DATABASE_URL"`,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return d.with(cmd.Context(), &l, func(ctx context.Context, db *database) error {
					return run(ctx, cmd.OutOrStdout(), db.Pool)
				})
			},
		}
		d.add(c)
		l.add(c)
		c.Flags().BoolVar(&d.managed, "managed", false, "use the private PostgreSQL in the data directory")
		c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
		cmd.AddCommand(c)
	}
	list := func(pendingOnly bool) func(context.Context, io.Writer, *pgxpool.Pool) error {
		return func(ctx context.Context, w io.Writer, db *pgxpool.Pool) error {
			all, err := hub.Migrations(ctx, db)
			if err != nil {
				return err
			}
			return printMigrations(w, all, pendingOnly, asJSON)
		}
	}
	sub("status", "Show all steps and which of them the database has", list(false))
	sub("plan", "Show the steps that apply would run", list(true))
	sub("apply", "Run the pending steps", func(ctx context.Context, w io.Writer, db *pgxpool.Pool) error {
		applied, err := hub.Migrate(ctx, db)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(w, map[string]any{"applied": append([]string{}, applied...)})
		}
		if len(applied) == 0 {
			return say(w, "Nothing is pending.")
		}
		for _, name := range applied {
			if err := say(w, "applied "+name); err != nil {
				return err
			}
		}
		return nil
	})
	sub("verify", "Compare the applied steps with this program's", func(ctx context.Context, w io.Writer, db *pgxpool.Pool) error {
		faults, err := hub.VerifyMigrations(ctx, db)
		if err != nil {
			return err
		}
		if asJSON {
			if err := writeJSON(w, map[string]any{"faults": append([]string{}, faults...)}); err != nil {
				return err
			}
		} else {
			for _, f := range faults {
				if err := say(w, f); err != nil {
					return err
				}
			}
		}
		if len(faults) > 0 {
			return &exitError{1, errors.New("the database was not migrated by this program's steps")}
		}
		if asJSON {
			return nil
		}
		return say(w, "The applied steps are this program's.")
	})
	return cmd
}

func newHubAdoptCmd() *cobra.Command {
	var d databaseFlags
	var l logFlags
	var reason string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Accept a database that moved to another PostgreSQL cluster",
		Long: `A hub refuses to start on a database that was restored from a backup or copied,
because its replicas may hold changes that it lost. After a restore, adopt
begins a new epoch, so that such replicas notice and copy the hub anew by
themselves. After an upgrade in which nothing can be lost, it keeps the epoch.`,
		Example: `  scidex hub adopt --reason restore --database-url "$DATABASE_URL"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.with(cmd.Context(), &l, func(ctx context.Context, db *database) error {
				if err := hub.Adopt(ctx, db.Pool, reason); err != nil {
					return err
				}
				epoch, err := hub.Epoch(ctx, db.Pool)
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), map[string]any{"reason": reason, "epoch": epoch})
				}
				if reason == hub.AdoptRestore {
					return say(cmd.OutOrStdout(), fmt.Sprintf("The epoch %d has begun. Start the hub with scidex hub run; its nodes copy it anew by themselves.", epoch))
				}
				return say(cmd.OutOrStdout(), "The database is this hub's now: scidex hub run")
			})
		},
	}
	d.add(cmd)
	l.add(cmd)
	cmd.Flags().BoolVar(&d.managed, "managed", false, "use the private PostgreSQL in the data directory")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&reason, "reason", "", "restore, or upgrade when nothing can be lost")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if reason != hub.AdoptRestore && reason != hub.AdoptUpgrade {
			return &exitError{2, errors.New("give --reason: restore, or upgrade when nothing can be lost")}
		}
		return nil
	}
	return cmd
}

// with runs f on the database that the flags name.
func (d *databaseFlags) with(ctx context.Context, l *logFlags, f func(context.Context, *database) error) (err error) {
	if err := d.check(); err != nil {
		return err
	}
	log, err := l.logger()
	if err != nil {
		return err
	}
	if d.managed && !d.mayMake && !hasCluster(d.data) {
		return fmt.Errorf("no hub in %s: scidex hub run --managed --data %s makes one", d.data, d.data)
	}
	db, err := d.open(ctx, log, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close(ctx)) }()
	return f(ctx, db)
}

func printMigrations(w io.Writer, all []hub.Migration, pendingOnly, asJSON bool) error {
	shown := []hub.Migration{}
	for _, m := range all {
		if !pendingOnly || !m.Applied {
			shown = append(shown, m)
		}
	}
	if asJSON {
		return writeJSON(w, map[string]any{"migrations": shown})
	}
	if len(shown) == 0 {
		return say(w, "Nothing is pending.")
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, m := range shown {
		state := "pending"
		if m.Applied {
			state = "applied"
		}
		fmt.Fprintf(t, "%s\t%s\n", m.Name, state)
	}
	return t.Flush()
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func say(w io.Writer, line string) error {
	_, err := fmt.Fprintln(w, line)
	return err
}
