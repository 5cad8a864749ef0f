package postgres_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/internal/postgres"
)

func TestStartRefuses(t *testing.T) {
	t.Run("an absent program directory", func(t *testing.T) {
		_, err := postgres.Start(t.Context(), postgres.Config{Dir: dataDir(t), BinDir: t.TempDir()})
		var missing *postgres.NoBinariesError
		if !errors.As(err, &missing) {
			t.Fatalf("error = %v, want a NoBinariesError", err)
		}
		for _, want := range []string{"apt-get install postgresql", "dnf install", "brew install"} {
			if got := missing.Error(); !strings.Contains(got, want) {
				t.Errorf("message %q lacks %q", got, want)
			}
		}
	})
	t.Run("an old version", func(t *testing.T) {
		bin := t.TempDir()
		for _, name := range []string{"postgres", "initdb"} {
			script := "#!/bin/sh\necho 'postgres (PostgreSQL) 13.9'\n"
			if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		_, err := postgres.FindBinaries(t.Context(), bin)
		var missing *postgres.NoBinariesError
		if !errors.As(err, &missing) || len(missing.Unfit) != 1 || !strings.Contains(missing.Error(), "PostgreSQL 13 in "+bin) {
			t.Errorf("FindBinaries of version 13: error = %v, want a NoBinariesError that names it", err)
		}
	})
	t.Run("a cluster without its password", func(t *testing.T) {
		dir := dataDir(t)
		stop(t, start(t, dir))
		if err := os.Remove(filepath.Join(dir, "postgres.password")); err != nil {
			t.Fatal(err)
		}
		if s, err := postgres.Start(t.Context(), postgres.Config{Dir: dir}); err == nil {
			stop(t, s)
			t.Error("Start without the password file: no error")
		}
	})
	t.Run("a setting that the server does not know, with its reason", func(t *testing.T) {
		dir := dataDir(t)
		s, err := postgres.Start(t.Context(), postgres.Config{Dir: dir, Settings: map[string]string{"no_such_setting": "1", "fsync": "off"}})
		if err == nil {
			stop(t, s)
			t.Fatal("no error")
		}
		if !strings.Contains(err.Error(), "no_such_setting") {
			t.Errorf("error = %v, want the server's message in it", err)
		}
	})
}
