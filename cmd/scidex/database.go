package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/postgres"
)

// databaseFlags say which PostgreSQL a command works on: a server that you run,
// or the private one in a data directory.
type databaseFlags struct {
	url     string
	data    string
	binDir  string
	managed bool
	mayMake bool // a managed PostgreSQL where there is none
}

func (d *databaseFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.url, "database-url", "", "URL of your own PostgreSQL (14 or later)")
	cmd.Flags().StringVar(&d.data, "data", defaultDataDir("hub"), "data directory of a managed PostgreSQL")
	cmd.Flags().StringVar(&d.binDir, "postgres-bin", "", "where initdb and postgres are; found by itself when empty")
}

// defaultDataDir is where a command keeps its data unless told.
func defaultDataDir(name string) string {
	if os.Geteuid() == 0 {
		return filepath.Join("/var/lib/scidex", name)
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "scidex", name)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(".", "scidex-"+name)
	}
	return filepath.Join(home, ".local", "share", "scidex", name)
}

// A database is an open pool with what must be undone after it.
type database struct {
	*pgxpool.Pool
	url    string
	server *postgres.Server // nil for a server that is not ours
	unlock func()
}

// makeDataDir makes a data directory that is not there.
func makeDataDir(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("data directory: %w; choose another with --data", err)
	}
	return nil
}

// hasCluster reports whether a managed PostgreSQL was made in a data directory.
func hasCluster(dir string) bool {
	return slices.ContainsFunc([]string{"postgres", "postgres.location"}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// open connects. With a managed PostgreSQL it starts the one in the data
// directory, or uses the one that another process runs there when mayShare.
func (d *databaseFlags) open(ctx context.Context, log *slog.Logger, mayShare bool) (db *database, err error) {
	db = new(database)
	defer func() {
		if err != nil {
			err = errors.Join(err, db.close(ctx))
		}
	}()
	db.url = d.url
	if d.url == "" {
		if err := d.startManaged(ctx, db, log, mayShare); err != nil {
			return db, err
		}
	}
	db.Pool, err = hub.OpenPool(ctx, db.url)
	return db, err
}

func (d *databaseFlags) startManaged(ctx context.Context, db *database, log *slog.Logger, mayShare bool) error {
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711 // the database's user must pass through
	}
	if err := makeDataDir(d.data, mode); err != nil {
		return err
	}
	unlock, err := postgres.Lock(d.data)
	var taken *postgres.InUseError
	if errors.As(err, &taken) && mayShare {
		url, running, err := postgres.Attach(ctx, d.data)
		if err == nil && running {
			db.url = url
			return nil
		}
		return errors.Join(fmt.Errorf("another scidex holds %s and its PostgreSQL does not answer", d.data), err)
	} else if err != nil {
		return err
	}
	db.unlock = unlock
	if db.server, err = postgres.Start(ctx, postgres.Config{Dir: d.data, BinDir: d.binDir, Log: log}); err != nil {
		return err
	}
	db.url = db.server.URL()
	return nil
}

// close undoes open. It goes on after ctx ended.
func (db *database) close(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if db.Pool != nil {
		db.Close()
	}
	if db.server != nil {
		err = db.server.Stop(ctx)
	}
	if db.unlock != nil {
		db.unlock()
	}
	return err
}

// watch returns an error when a managed PostgreSQL ends by itself.
func (db *database) watch(ctx context.Context) error {
	if db.server == nil {
		<-ctx.Done()
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-db.server.Done():
		return fmt.Errorf("the managed PostgreSQL ended: %w", db.server.Wait())
	}
}
