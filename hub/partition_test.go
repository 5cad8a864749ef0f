package hub_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

const smallPartition = 64 // rows

// initSmall makes a hub whose log has one partition, with less than smallPartition
// rows left in it.
func initSmall(ctx context.Context, db *pgxpool.Pool) error {
	if err := initHub(ctx, db); err != nil {
		return err
	}
	var head int
	if err := db.QueryRow(ctx, "SELECT max(seq) FROM feed.change").Scan(&head); err != nil {
		return err
	}
	end := (head/smallPartition + 1) * smallPartition
	for _, parent := range []string{"feed.change", "event"} {
		for _, sql := range []string{
			`CREATE TABLE kept AS SELECT * FROM %[1]s`,
			`DROP TABLE %[1]s_0, %[1]s_1048576`,
			`CREATE TABLE %[1]s_0 PARTITION OF %[1]s FOR VALUES FROM (0) TO (%[2]d)`,
			`INSERT INTO %[1]s SELECT * FROM kept`,
			`DROP TABLE kept`,
		} {
			if _, err := db.Exec(ctx, fmt.Sprintf(sql+" --%[2]d %[1]s", parent, end)); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestPartitions writes faster than partitions are made ahead, and then trims.
func TestPartitions(t *testing.T) {
	f := newHubWith(t, hub.Config{DB: pgtest.New(t, initSmall), PartitionRows: smallPartition})
	url, token := f.serve(t), f.token(t, "vic", verb.Viewer)
	f.mustCreate(t, hypothesis("first", "x")) // tells of its author too
	s, _ := follow(t, url, token, "cursor=0", plain)
	first := f.head(t)
	t.Run("take many commits", func(t *testing.T) {
		g := new(errgroup.Group)
		for w := range 4 {
			g.Go(func() error {
				for n := range 150 {
					if _, err := verb.Create.Call(contributor(t.Context()), f.verbs, hypothesis(fmt.Sprintf("h-%d-%d", w, n), "x")); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("take a commit that spans many", func(t *testing.T) {
		items := make([]verb.BatchItem, verb.MaxBatchItems)
		for i := range items {
			items[i] = gene(fmt.Sprint("G", i))
		}
		if out, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{Items: items, Atomic: true}); err != nil || !out.Committed {
			t.Fatal(out, err)
		}
	})
	head := f.head(t)
	if n := head - first; n != 2*(600+verb.MaxBatchItems) {
		t.Errorf("the log has %d rows, want %d", n, 2*(600+verb.MaxBatchItems))
	}
	f.checkDense(t)
	s.until(head)
	eventually(t, "the checkpoints are noted", func() bool { return f.count(t, "SELECT count(*) FROM feed.checkpoint") == int(head)/1000 })
	t.Run("can be trimmed", func(t *testing.T) {
		// 17 partitions, of which the first is as large as several, hold what is before 1088, 88 after the first checkpoint.
		for i := range artifact.Seq(17) {
			if _, err := f.db.Exec(t.Context(), fmt.Sprintf("DROP TABLE IF EXISTS feed.change_%d", i*smallPartition)); err != nil {
				t.Fatal(err)
			}
		}
		lagging := newHubWith(t, hub.Config{DB: f.db, RingBytes: 1})
		served := lagging.serve(t)
		_, hello := follow(t, served, token, fmt.Sprint("cursor=", head), plain)
		if hello.Floor != 2000 {
			t.Errorf("floor = %d, want the first checkpoint that is kept, 2000", hello.Floor)
		}
		for _, cursor := range []artifact.Seq{0, 1, 999, 1000, 1086, 1087, 1999} {
			status, e := getError(t, fmt.Sprintf("%s/feed?cursor=%d", served, cursor), token)
			if status != http.StatusGone || e.Reason != artifact.ReasonCursorExpired || e.Details["floor"] != 2000.0 {
				t.Errorf("cursor %d = %d %+v, want 410 cursor_expired", cursor, status, e)
			}
		}
		for _, p := range s.ends {
			if p.seq < 2000 || p.seq%7 > 0 && p.seq != 2000 {
				continue
			}
			resumed, _ := follow(t, served, token, p.query(), plain)
			resumed.until(head)
			sameRows(t, fmt.Sprint("resumed at ", p.seq), resumed.rows, s.rows[p.rows:])
		}
		// The chain that is told there is the one from before.
		resumed, _ := follow(t, served, token, "cursor=2000", plain)
		resumed.until(head)
		if resumed.chain != s.chain {
			t.Errorf("chain = %s, want %s", resumed.chain, s.chain)
		}
		if _, err := lagging.Digest(t.Context(), []string{artifact.Commons}, 1050); !artifact.IsCode(err, artifact.CodeValidationFailed) {
			t.Errorf("digest of a seq that is trimmed: %v", err)
		}
	})
}

// TestReady checks that a hub whose log runs out of partitions is not ready.
func TestReady(t *testing.T) {
	db := pgtest.New(t, initSmall)
	h, err := hub.Open(t.Context(), hub.Config{DB: db, PartitionRows: smallPartition}) // not run
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Hub: h, db: db}
	url := f.serve(t)
	if status := getStatus(t, url+"/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz with less than a partition left = %d", status)
	}
	if status := getStatus(t, url+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz = %d", status)
	}
	running := newHubWith(t, hub.Config{DB: db, PartitionRows: smallPartition})
	eventually(t, "the hub makes partitions", func() bool { return getStatus(t, url+"/readyz") == http.StatusOK })
	if n := running.count(t, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'feed.change'::regclass"); n < 2 {
		t.Errorf("%d partitions", n)
	}
}
