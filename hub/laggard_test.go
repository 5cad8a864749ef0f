package hub_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/replicate"
)

// TestLaggardsTakeTurns checks that followers who read the database, however many,
// leave connections to those who write, and that followers at the head need none.
func TestLaggardsTakeTurns(t *testing.T) {
	db := pgtest.New(t, initHub)
	pool, err := hub.OpenPool(t.Context(), db.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for range 20 {
		appendRows(t, db, 500, "public", artifact.Commons, "test:old")
	}
	f := newHubWith(t, hub.Config{DB: pool, RingBytes: 1})
	head := f.head(t)
	reading, stop := context.WithCancel(t.Context())
	g := new(errgroup.Group)
	for range 100 {
		g.Go(func() error {
			for {
				reader, _, err := f.Open(reading, replicate.Position{}, commons)
				for at := artifact.Seq(0); err == nil && at < head; {
					var p *replicate.Page
					if p, err = reader.Next(reading, nil); err == nil {
						at = p.To
					}
				}
				if errors.Is(err, context.Canceled) {
					return nil
				} else if err != nil {
					return err
				}
			}
		})
	}
	const busy = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE '%feed.change%' AND pid <> pg_backend_pid()`
	most := 0
	for i := range 60 {
		var n int
		if err := db.QueryRow(t.Context(), busy).Scan(&n); err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
		if i%20 == 0 {
			f.mustCreate(t, hypothesis(fmt.Sprint("h", i), "x"))
		}
	}
	stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if limit := int(pool.Config().MaxConns)/4 + 1; most > limit || most == 0 { // and the pump's
		t.Errorf("%d connections read the log at once, want at most %d", most, limit)
	}
}
