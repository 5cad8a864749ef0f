package hub_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// snapshot returns what must not change when nothing is to be done: the rows of
// all tables but those of jobs, which hubs do by themselves.
func snapshot(t *testing.T, db *pgxpool.Pool) string {
	t.Helper()
	const tables = `
		SELECT n.nspname || '.' || c.relname
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind = 'r' AND c.relname NOT LIKE '%\_build' AND n.nspname NOT LIKE 'pg\_%' AND n.nspname NOT IN ('information_schema', 'job') ORDER BY 1`
	rows, err := db.Query(t.Context(), tables)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range names {
		var text string
		if err := db.QueryRow(t.Context(), "SELECT coalesce(string_agg(r::text, E'\\n' ORDER BY r::text), '') FROM "+name+" AS r").Scan(&text); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&all, name, text)
	}
	return all.String()
}

func execute(t *testing.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func open(t *testing.T, db *pgxpool.Pool) error {
	t.Helper()
	_, err := hub.Open(t.Context(), hub.Config{DB: db})
	return err
}

func TestInit(t *testing.T) {
	t.Run("makes a hub once", func(t *testing.T) {
		db := pgtest.New(t, nil)
		if err := open(t, db); !errors.Is(err, hub.ErrNotInitialised) || !strings.Contains(err.Error(), "scidex hub init") {
			t.Errorf("Open of an empty database: %v", err)
		}
		made, err := hub.Init(t.Context(), db)
		if err != nil || !made {
			t.Fatalf("Init = %v, %v", made, err)
		}
		before := snapshot(t, db)
		if made, err := hub.Init(t.Context(), db); err != nil || made {
			t.Errorf("second Init = %v, %v", made, err)
		}
		if _, err := hub.Migrate(t.Context(), db); err != nil {
			t.Errorf("Migrate = %v", err)
		}
		if after := snapshot(t, db); after != before {
			t.Errorf("a second Init changed the database from\n%s\nto\n%s", before, after)
		}
		if err := open(t, db); err != nil {
			t.Error(err)
		}
	})
	t.Run("by several at once makes one hub", func(t *testing.T) {
		db := pgtest.New(t, nil)
		errs := make(chan error, 4)
		for range cap(errs) {
			go func() {
				_, err := hub.Init(t.Context(), db)
				errs <- err
			}()
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		f := newHubOn(t, db)
		if n := f.count(t, "SELECT (SELECT count(*) FROM hub) + (SELECT count(*) FROM epoch) + (SELECT count(*) FROM signing_key)"); n != 3 {
			t.Errorf("%d hubs, epochs and keys, want one each", n)
		}
		f.checkDense(t)
	})
	for name, cut := range map[string]string{
		"before goose ran":             `CREATE TABLE migration_checksum (version bigint PRIMARY KEY, sha256 text NOT NULL)`,
		"before checksums were noted":  `DELETE FROM migration_checksum; DELETE FROM hub; DELETE FROM epoch; DELETE FROM signing_key; DELETE FROM scope; DELETE FROM schema_registry; DELETE FROM artifact; DELETE FROM artifact_revision; TRUNCATE feed.change, event, write_journal`,
		"before the hub had a row":     `DELETE FROM hub; DELETE FROM epoch; DELETE FROM signing_key; DELETE FROM scope; DELETE FROM schema_registry; DELETE FROM artifact; DELETE FROM artifact_revision; TRUNCATE feed.change, event, write_journal`,
		"before there were partitions": `DELETE FROM hub; DELETE FROM epoch; DELETE FROM signing_key; DELETE FROM scope; DELETE FROM schema_registry; DELETE FROM artifact; DELETE FROM artifact_revision; TRUNCATE write_journal; DROP TABLE feed.change_0, feed.change_1048576, event_0, event_1048576`,
	} {
		t.Run("goes on after an interruption "+name, func(t *testing.T) {
			setup := initHub
			if strings.HasPrefix(cut, "CREATE") {
				setup = nil
			}
			db := pgtest.New(t, setup)
			execute(t, db, `ALTER TABLE IF EXISTS write_journal DISABLE TRIGGER append_only; ALTER TABLE IF EXISTS artifact_revision DISABLE TRIGGER append_only`)
			execute(t, db, cut)
			execute(t, db, `ALTER TABLE IF EXISTS write_journal ENABLE TRIGGER append_only; ALTER TABLE IF EXISTS artifact_revision ENABLE TRIGGER append_only`)
			if err := open(t, db); err == nil || !strings.Contains(err.Error(), "run scidex hub") {
				t.Errorf("Open = %v, want an error that names a command", err)
			}
			made, err := hub.Init(t.Context(), db)
			if err != nil || !made {
				t.Fatalf("Init = %v, %v", made, err)
			}
			f := newHubOn(t, db)
			f.mustCreate(t, hypothesis("h", "x"))
			f.checkDigest(t)
		})
	}
	for name, foreign := range map[string]string{
		"tables":                  `CREATE TABLE customer (id int)`,
		"tables of another goose": `CREATE TABLE goose_db_version (id serial, version_id bigint, is_applied boolean, tstamp timestamp DEFAULT now()); INSERT INTO goose_db_version (version_id, is_applied) VALUES (0, true), (1, true); CREATE TABLE customer (id int)`,
		"a table in a schema":     `CREATE SCHEMA shop; CREATE TABLE shop.customer (id int)`,
	} {
		t.Run("refuses a database with "+name, func(t *testing.T) {
			db := pgtest.New(t, nil)
			execute(t, db, foreign)
			before := snapshot(t, db)
			if _, err := hub.Init(t.Context(), db); !errors.Is(err, hub.ErrNotEmpty) {
				t.Errorf("Init = %v, want ErrNotEmpty", err)
			}
			if after := snapshot(t, db); after != before {
				t.Errorf("a refused Init left %s", after)
			}
		})
	}
}

func TestMigrations(t *testing.T) {
	for _, c := range []struct {
		name, sql string
		want      error
		command   string
	}{
		{"pending", `DELETE FROM goose_db_version WHERE version_id = 1; INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true); INSERT INTO migration_checksum VALUES (99, 'x')`, hub.ErrPending, "scidex hub migrate apply"},
		{"newer", `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true); INSERT INTO migration_checksum VALUES (99, 'x')`, hub.ErrNewer, "install that version"},
		{"changed", `UPDATE migration_checksum SET sha256 = 'other'`, hub.ErrChanged, "scidex hub migrate verify"},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := pgtest.New(t, initHub)
			execute(t, db, c.sql)
			before := snapshot(t, db)
			if err := open(t, db); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.command) {
				t.Errorf("Open = %v, want %v", err, c.want)
			}
			if _, err := hub.Init(t.Context(), db); !errors.Is(err, c.want) {
				t.Errorf("Init = %v, want %v", err, c.want)
			}
			if after := snapshot(t, db); after != before {
				t.Error("a refused Init changed the database")
			}
			if faults, err := hub.VerifyMigrations(t.Context(), db); err != nil || len(faults) == 0 {
				t.Errorf("VerifyMigrations = %v, %v", faults, err)
			}
		})
	}
	t.Run("current", func(t *testing.T) {
		db := pgtest.New(t, initHub)
		all, err := hub.Migrations(t.Context(), db)
		if err != nil || len(all) == 0 || !all[0].Applied {
			t.Errorf("Migrations = %+v, %v", all, err)
		}
		if faults, err := hub.VerifyMigrations(t.Context(), db); err != nil || faults != nil {
			t.Errorf("VerifyMigrations = %v, %v", faults, err)
		}
	})
}

// TestAdopt moves a hub's database to another cluster, by what the database
// knows, and follows the log across the jump.
func TestAdopt(t *testing.T) {
	db := pgtest.New(t, initHub)
	ran, stop := context.WithCancel(t.Context())
	first, err := hub.Open(t.Context(), hub.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- first.Run(ran) }()
	f := &fixture{Hub: first, db: db, verbs: first.Verbs()}
	f.mustCreate(t, hypothesis("old", "x"))
	appendRows(t, db, 1500, "public", artifact.Commons, "test:old")
	eventually(t, "a checkpoint is noted", func() bool { return f.count(t, "SELECT count(*) FROM feed.checkpoint") == 1 })
	old := f.head(t)
	_, oldChain := readTo(t, f, 0, old)
	oldDigest := f.checkDigest(t)
	stop()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}

	t.Run("a database on another cluster is refused", func(t *testing.T) {
		execute(t, db, "UPDATE hub SET system_identifier = '42'")
		for name, err := range map[string]error{"Open": open(t, db), "Init": initHub(t.Context(), db)} {
			if err == nil || !strings.Contains(err.Error(), "scidex hub adopt") {
				t.Errorf("%s = %v, want an error that names scidex hub adopt", name, err)
			}
		}
	})
	t.Run("only for a reason", func(t *testing.T) {
		for _, reason := range []string{"", "because", "Restore"} {
			if err := hub.Adopt(t.Context(), db, reason); err == nil {
				t.Errorf("Adopt for %q = nil", reason)
			}
		}
		if open(t, db) == nil || f.count(t, "SELECT count(*) FROM epoch") != 1 {
			t.Error("a refused Adopt did something")
		}
		if err := hub.Adopt(t.Context(), pgtest.New(t, nil), hub.AdoptRestore); !errors.Is(err, hub.ErrNotInitialised) {
			t.Errorf("Adopt of an empty database = %v", err)
		}
	})
	t.Run("an upgrade goes on in its epoch", func(t *testing.T) {
		if err := hub.Adopt(t.Context(), db, hub.AdoptUpgrade); err != nil {
			t.Fatal(err)
		}
		f := newHubOn(t, db)
		if f.Epoch() != 1 || f.head(t) != old {
			t.Errorf("epoch %d, head %d, want 1 and %d", f.Epoch(), f.head(t), old)
		}
	})
	execute(t, db, "UPDATE hub SET system_identifier = '42'")
	if err := hub.Adopt(t.Context(), db, hub.AdoptRestore); err != nil {
		t.Fatal(err)
	}
	const jump = 1 << 32
	first2 := old + jump
	f = newHubOn(t, db)
	epoch := f.Epoch()
	if epoch < 2 || f.head(t) != old {
		t.Errorf("epoch %d, head %d after a restore, want a later one and %d", epoch, f.head(t), old)
	}
	url, token := f.serve(t), f.token(t, "vic", verb.Viewer)
	if status := getStatus(t, url+"/readyz"); status != http.StatusOK {
		t.Errorf("/readyz = %d", status)
	}
	// Followers that stand before the jump when the first commit comes.
	live, hello := follow(t, url, token, "cursor=0", plain)
	if hello.Epoch != epoch {
		t.Errorf("hello = %+v", hello)
	}
	live.until(old)
	out := f.mustCreate(t, hypothesis("new", "x"))
	if out.Seq != first2+1 || out.ConsistencyToken != fmt.Sprintf("%d:%d", epoch, out.Seq) {
		t.Errorf("first write after a restore = %+v, want seq %d", out, first2+1)
	}
	live.until(out.Seq)
	appendRows(t, db, 1800, "public", artifact.Commons, "test:new")
	head := f.head(t)
	if head != first2+1801 {
		t.Errorf("head = %d, want %d", head, first2+1801)
	}
	live.until(head)
	all := live.rows
	if n := f.count(t, "SELECT count(*) FROM feed.change"); len(all) != n {
		t.Errorf("%d rows, want %d", len(all), n)
	}

	t.Run("followers of all kinds agree", func(t *testing.T) {
		for name, c := range map[string]hub.Config{"ring": {DB: db}, "SQL": {DB: db, RingBytes: 1}, "some of both": {DB: db, RingBytes: 600_000}} {
			other := newHubWith(t, c)
			eventually(t, "the pump has read the log", func() bool {
				rows, chain := readTo(t, other, 0, head)
				return len(rows) == len(all) && chain.String() == live.chain
			})
			rows, chain := readTo(t, other, 0, head)
			sameRows(t, name, rows, all)
			if chain.String() != live.chain {
				t.Errorf("%s: chain = %s, want %s", name, chain, live.chain)
			}
		}
		for i, p := range live.ends {
			if i%5 > 0 && p.seq != old && i != len(live.ends)-1 {
				continue
			}
			s, _ := follow(t, url, token, p.query(), compressed)
			s.until(head)
			sameRows(t, fmt.Sprint("resumed at ", p.seq), s.rows, all[p.rows:])
		}
		s, _ := follow(t, url, token, fmt.Sprintf("cursor=%d:%d&chain=%s", epoch, old, oldChain), plain)
		s.until(head)
		if s.chain != live.chain {
			t.Errorf("chain across the jump = %s, want %s", s.chain, live.chain)
		}
	})
	t.Run("positions", func(t *testing.T) {
		for _, c := range []struct {
			name, cursor string
			status       int
			reason       string
		}{
			{"of the old epoch", fmt.Sprintf("1:%d", old), 409, artifact.ReasonCursorDiverged},
			{"of lost changes", fmt.Sprintf("1:%d", old+10), 409, artifact.ReasonCursorDiverged},
			{"just in the jump", fmt.Sprint(old + 1), 410, artifact.ReasonCursorExpired},
			{"amid the jump", fmt.Sprint(old + jump/2), 410, artifact.ReasonCursorExpired},
			{"late in the jump", fmt.Sprintf("%d:%d", epoch, first2-2), 410, artifact.ReasonCursorExpired},
			{"ahead", fmt.Sprintf("%d:%d", epoch, head+1), 409, artifact.ReasonCursorAhead},
		} {
			status, e := getError(t, url+"/feed?cursor="+c.cursor, token)
			if status != c.status || e.Reason != c.reason || e.Details["epoch"] != float64(epoch) {
				t.Errorf("%s: %d %+v, want %d %s", c.name, status, e, c.status, c.reason)
			}
		}
	})
	t.Run("digests", func(t *testing.T) {
		f.checkDigest(t)
		got, err := f.Digest(t.Context(), commons, old)
		if err != nil || got.Diff(oldDigest) != nil {
			t.Errorf("digest at %d differs from the one before the restore: %v, %v", old, got.Diff(oldDigest), err)
		}
		// A follower that is rolled back to amid the new epoch.
		n := len(all) - 900
		got, err = f.Digest(t.Context(), commons, seqOf(t, all[n-1]))
		if want := foldLog(t, all[:n], 0); err != nil || got.Diff(want) != nil {
			t.Errorf("digest in the new epoch: %v, %v", got.Diff(want), err)
		}
	})
	t.Run("not beside a running hub", func(t *testing.T) {
		deadline := time.Now().Add(20 * time.Second)
		for {
			err := hub.Adopt(t.Context(), db, hub.AdoptUpgrade)
			if errors.Is(err, hub.ErrRunning) {
				return
			}
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("adopt beside a hub: %v, want ErrRunning", err)
			}
		}
	})
	f.stop()
	t.Run("again, before anything was written", func(t *testing.T) {
		for range 2 {
			if err := hub.Adopt(t.Context(), db, hub.AdoptRestore); err != nil {
				t.Fatal(err)
			}
		}
		again := newHubOn(t, db)
		if again.Epoch() <= epoch+1 {
			t.Errorf("epoch = %d after two more than %d", again.Epoch(), epoch)
		}
		out := again.mustCreate(t, hypothesis("newer", "x"))
		if out.Seq != head+jump+1 {
			t.Errorf("seq = %d, want %d", out.Seq, head+jump+1)
		}
		rows, _ := readTo(t, again, 0, out.Seq)
		sameRows(t, "across two jumps", rows[:len(all)], all)
		again.checkDigest(t)
	})
}
