package hub_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/internal/postgres"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

func clientOf(t *testing.T, db *pgxpool.Pool) *postgres.Client {
	t.Helper()
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	c, err := postgres.NewClient(t.Context(), conn.Conn(), db.Config().ConnString(), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func restore(t *testing.T, db *pgxpool.Pool, path string) (m hub.Manifest, v hub.Verification, err error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := hub.OpenBackup(f, func(string, int64) {})
	if err != nil {
		return hub.Manifest{}, hub.Verification{}, err
	}
	v, err = hub.Restore(t.Context(), db, clientOf(t, db), b, func(string, int64) {})
	return b.Manifest, v, err
}

// TestBackup checks that a backup that is made beside writers is the hub as it was at
// one seq, that what is restored is that, in a new epoch, and that whoever holds more,
// or follows another hub that was restored from the same file, is told.
func TestBackup(t *testing.T) {
	f := lived(t)
	path := filepath.Join(t.TempDir(), "hub.backup")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var g errgroup.Group
	ada, root := f.member(t.Context(), "ada", verb.Contributor), f.admin(t.Context())
	g.Go(func() error {
		for i := 0; ctx.Err() == nil; i++ {
			if err := f.writeSome(ada, root, fmt.Sprint("w", i)); err != nil {
				return err
			}
		}
		return nil
	})
	m, err := hub.Backup(t.Context(), f.db, clientOf(t, f.db), "test", file, nil)
	stop()
	if err := errors.Join(err, g.Wait(), file.Close()); err != nil {
		t.Fatal(err)
	}
	f.mustCreate(t, hypothesis("later", "x"))
	head := f.head(t)
	if m.Seq == 0 || m.Seq >= head || m.HubID != f.HubID() || m.Epoch != 1 || m.Version != "test" {
		t.Fatalf("manifest = %+v, the hub is at %d", m, head)
	}
	scopes := []string{artifact.Commons, "lab-a", "lab-b"}
	at, err := f.Digest(t.Context(), scopes, m.Seq)
	if err != nil {
		t.Fatal(err)
	}
	position := func(f *fixture, epoch int, seq artifact.Seq, chain artifact.Hash) error {
		_, _, err := f.Open(t.Context(), replicate.Position{HubID: m.HubID, Epoch: epoch, Seq: seq, Chain: chain}, scopes)
		return err
	}
	refused := func(t *testing.T, err error, reason string) {
		t.Helper()
		if e, ok := errors.AsType[*artifact.Error](err); !ok || e.Reason != reason {
			t.Errorf("the position is answered with %v, want %s", err, reason)
		}
	}

	db := pgtest.New(t, nil)
	_, v, err := restore(t, db, path)
	if err != nil || v.Total > 0 {
		t.Fatalf("restore = %+v, %v", v, err)
	}
	back := newHubOn(t, db)
	if back.Epoch() <= m.Epoch || back.HubID() != m.HubID || back.head(t) != m.Seq {
		t.Errorf("restored: epoch %d, head %d", back.Epoch(), back.head(t))
	}
	if again, err := back.Digest(t.Context(), scopes, m.Seq); err != nil || !reflect.DeepEqual(again.Entries, at.Entries) {
		t.Errorf("digest = %+v, %v, want %+v", again, err, at)
	}
	refused(t, position(back, 1, head, artifact.Hash{}), artifact.ReasonCursorDiverged)
	refused(t, position(back, 0, head, artifact.Hash{}), artifact.ReasonCursorAhead)
	back.mustCreate(t, hypothesis("other", "x"))
	first := back.head(t)
	if first <= m.Seq+replicate.EpochJump {
		t.Errorf("the new epoch begins at %d, after %d", first, m.Seq)
	}
	refused(t, position(back, 0, head, artifact.Hash{}), artifact.ReasonCursorExpired)
	back.mustBeWhole(t)

	t.Run("another restore of the file", func(t *testing.T) {
		chain := back.verifyStore(t).Chain
		if err := position(back, back.Epoch(), first, chain); err != nil {
			t.Fatal(err)
		}
		db := pgtest.New(t, nil)
		if _, _, err := restore(t, db, path); err != nil {
			t.Fatal(err)
		}
		other := newHubOn(t, db)
		if other.Epoch() == back.Epoch() {
			t.Errorf("both are in epoch %d", other.Epoch())
		}
		// Also where both have the same: at the end of what was backed up.
		refused(t, position(other, back.Epoch(), m.Seq, m.Chain), artifact.ReasonCursorDiverged)
		refused(t, position(other, back.Epoch(), first, chain), artifact.ReasonCursorDiverged)
		other.mustCreate(t, hypothesis("other", "x"))
		refused(t, position(other, back.Epoch(), first, chain), artifact.ReasonCursorDiverged)
	})
	t.Run("refuses a database that holds something", func(t *testing.T) {
		for _, made := range []string{"TABLE x ()", "SCHEMA x", "VIEW x AS SELECT 1", "FUNCTION x() RETURNS int LANGUAGE sql AS 'SELECT 1'"} {
			db := pgtest.New(t, nil)
			if _, err := db.Exec(t.Context(), "CREATE "+made); err != nil {
				t.Fatal(err)
			}
			if _, _, err := restore(t, db, path); !errors.Is(err, hub.ErrHoldsSomething) {
				t.Errorf("restore beside a %s = %v", made, err)
			}
		}
	})
	t.Run("no hub runs on a dump alone", func(t *testing.T) {
		db := pgtest.New(t, nil)
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.Seek(512, 0); err != nil {
			t.Fatal(err)
		}
		if err := clientOf(t, db).Restore(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		if _, err := hub.Open(t.Context(), hub.Config{DB: db}); !errors.Is(err, hub.ErrPending) {
			t.Errorf("a hub without epoch opens: %v", err)
		}
	})
	t.Run("refuses a file that was changed", func(t *testing.T) {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		spoiled := append([]byte{}, raw...)
		spoiled[len(raw)/2] ^= 1
		for what, b := range map[string][]byte{"another one": spoiled, "cut short": raw[:len(raw)/2], "no backup": []byte("x")} {
			path := filepath.Join(t.TempDir(), "b")
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			db := pgtest.New(t, nil)
			if _, _, err := restore(t, db, path); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("restore = %v, want %q", err, what)
			}
		}
	})
}
