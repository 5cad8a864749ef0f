package hub_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/replicate"
)

// statements counts what is asked of a database.
type statements struct{ n atomic.Int64 }

// TraceQueryStart implements pgx.QueryTracer.
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	s.n.Add(int64(data.Batch.Len()))
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (*statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TestFollowersCostNoStatements checks that the database is asked nothing for those
// who wait, and for a change as much whether many or few are sent it.
func TestFollowersCostNoStatements(t *testing.T) {
	config, err := pgxpool.ParseConfig(pgtest.URL(t, initHub))
	if err != nil {
		t.Fatal(err)
	}
	asked := new(statements)
	config.ConnConfig.Tracer = asked
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	f := newHubWith(t, hub.Config{DB: db, PollInterval: time.Hour})
	f.mustCreate(t, hypothesis("first", "x")) // tells of its author too
	url := serveFeed(t, &replicate.Handler{Log: f, Beat: 50 * time.Millisecond})
	at := f.head(t)
	var streams []*stream
	grow := func(to int) {
		for len(streams) < to {
			s, _ := follow(t, url, "", fmt.Sprint("cursor=", at), plain)
			streams = append(streams, s)
		}
	}
	// cost is what is asked of the database while each follower is sent a change.
	cost := func(id string) int64 {
		before := asked.n.Load()
		made := f.mustCreate(t, hypothesis(id, "x"))
		for _, s := range streams {
			s.until(made.Seq)
		}
		at = made.Seq
		return asked.n.Load() - before
	}
	grow(2)
	cost("warm") // statements are prepared
	few := cost("few")
	grow(150)
	// What the hub builds after its start asks too: it comes to an end.
	eventually(t, "nothing is asked while 150 followers are sent three beats each", func() bool {
		before := asked.n.Load()
		for _, s := range streams {
			for range 3 {
				if b := s.next(); b.Type != replicate.FrameBeat {
					t.Fatalf("frame = %s, want a beat", b.Type)
				}
			}
		}
		return asked.n.Load()-before <= 10
	})
	if many := cost("many"); many > few+10 || few == 0 {
		t.Errorf("a change costs %d statements with 2 followers, %d with %d", few, many, len(streams))
	}
}
