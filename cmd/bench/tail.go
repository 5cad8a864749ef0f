package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// A tailed hub is one whose feed somebody reads over HTTP.
type tailed struct {
	hub  *hub.Hub
	seen *arrivals
	stop func()
}

// tailed opens a hub of its own on the database and follows it from its head.
func (b *bench) tailed(ctx context.Context) (*tailed, error) {
	pool, err := hub.OpenPool(ctx, b.url)
	if err != nil {
		return nil, err
	}
	h, err := hub.Open(ctx, hub.Config{DB: pool, Limits: noLimits})
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	server := httptest.NewServer(h.Handler(nil, done))
	claims := verb.Claims{ActorKind: "ai_local", Permissions: []string{verb.Contributor}}
	claims.Subject = "bench"
	token, err := h.SigningKey().Sign(claims, time.Hour)
	if err != nil {
		return nil, err
	}
	head, err := h.Head(ctx)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	t := &tailed{hub: h, seen: &arrivals{at: make(map[int64]time.Time)}}
	ready := make(chan struct{})
	g := new(errgroup.Group)
	g.Go(func() error { return h.Run(running) })
	g.Go(func() error {
		client := &replicate.Client{URL: server.URL, Token: token}
		_ = client.Follow(running, replicate.Position{Seq: head}, func(f replicate.Frame) error { // it ends with running
			if f.Type == replicate.FrameHello {
				close(ready)
			}
			for i := range f.Rows {
				t.seen.note(int64(f.Rows[i].Seq))
			}
			return nil
		})
		return nil
	})
	t.stop = func() {
		cancel()
		close(done)
		_ = g.Wait() // what matters was measured
		server.Close()
		pool.Close()
	}
	select {
	case <-ready:
		return t, nil
	case <-time.After(10 * time.Second):
		return nil, fmt.Errorf("the feed of a hub did not begin")
	}
}

// tail measures the time from a commit's acknowledgement to its rows at a reader
// of the feed over HTTP: of the hub that wrote, of another hub on the same
// database, and while a transaction that has written stays open. The floor is a
// request to an HTTP server that answers with what it was sent.
func (b *bench) tail(ctx context.Context) error {
	same, err := b.tailed(ctx)
	if err != nil {
		return err
	}
	defer same.stop()
	other, err := b.tailed(ctx)
	if err != nil {
		return err
	}
	defer other.stop()
	rows := []row{
		{name: "p50", unit: "ms"},
		{name: "p99", unit: "ms"},
		{name: "another hub, p50", unit: "ms"},
		{name: "another hub, p99", unit: "ms"},
		{name: "beside an open write, p50", unit: "ms"},
		{name: "beside an open write, p99", unit: "ms"},
		{name: "another hub beside it, p99", unit: "ms"},
	}
	note := func(i int, ms, floor []float64, q float64) {
		rows[i].value, rows[i].floor = append(rows[i].value, quantile(ms, q)), append(rows[i].floor, quantile(floor, q))
	}
	for range b.rounds {
		floor, err := b.echoes(ctx)
		if err != nil {
			return err
		}
		here, there, err := b.tails(ctx, same, other)
		if err != nil {
			return err
		}
		note(0, here, floor, 0.5)
		note(1, here, floor, 0.99)
		note(2, there, floor, 0.5)
		note(3, there, floor, 0.99)
		if here, there, err = b.besideOpenWrite(ctx, same, other); err != nil {
			return err
		}
		note(4, here, floor, 0.5)
		note(5, here, floor, 0.99)
		note(6, there, floor, 0.99)
	}
	return b.table(fmt.Sprintf("Commit acknowledged to rows at a reader of the feed over HTTP, %d writers, %d commits/s (floor: an HTTP echo on loopback)",
		pacedWriters, pacedRate), rows)
}

// tails writes through one hub and returns how long the rows took to the readers of
// both.
func (b *bench) tails(ctx context.Context, same, other *tailed) (here, there []float64, err error) {
	verbs := same.hub.Verbs()
	acked, err := b.paced(ctx, func(ctx context.Context) (int64, error) {
		out, err := verb.Create.Call(as(ctx), verbs, verb.CreateRequest{Type: "hypothesis", Title: "t", Content: body})
		return int64(out.Seq), err
	})
	if err != nil {
		return nil, nil, err
	}
	if here, err = settled(same.seen, acked); err != nil {
		return nil, nil, err
	}
	there, err = settled(other.seen, acked)
	return here, there, err
}

// besideOpenWrite is tails beside a transaction that has written and stays open.
func (b *bench) besideOpenWrite(ctx context.Context, same, other *tailed) (here, there []float64, err error) {
	conn, err := pgx.Connect(ctx, b.url) // not the hub's, which would end it after a while
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, `INSERT INTO scope (id, title, created_at, created_by) VALUES ('open', '', now(), '')`); err != nil {
		return nil, nil, err
	}
	return b.tails(ctx, same, other)
}

// echoes returns how long requests take to a server that sends them back.
func (b *bench) echoes(ctx context.Context) ([]float64, error) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(w, req.Body) // a broken answer shows at the client
	}))
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: pacedWriters}}
	defer client.CloseIdleConnections()
	times := make(chan float64, pacedRate*int(1+b.slice/time.Second)*2)
	_, err := b.paced(ctx, func(ctx context.Context) (int64, error) {
		begun := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, bytes.NewReader(body))
		if err != nil {
			return 0, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return 0, err
		}
		times <- time.Since(begun).Seconds() * 1000
		return 0, nil
	})
	close(times)
	var ms []float64
	for t := range times {
		ms = append(ms, t)
	}
	return ms, err
}
