package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// applyArtifacts is how many artifacts the log holds that replicas apply.
const applyArtifacts = 20_000

// apply measures the rows of the hub's own log that a replica applies a second,
// against a prepared INSERT of the same bodies alone, as many to a transaction.
func (b *bench) apply(ctx context.Context) error {
	pool, err := hub.OpenPool(ctx, b.url)
	if err != nil {
		return err
	}
	defer pool.Close()
	h, err := hub.Open(ctx, hub.Config{DB: pool, Limits: noLimits})
	if err != nil {
		return err
	}
	for done := 0; done < applyArtifacts; done += verb.MaxBatchItems {
		items := make([]verb.BatchItem, verb.MaxBatchItems)
		for i := range items {
			items[i].Create = &verb.CreateRequest{Type: "hypothesis", Title: fmt.Sprint("Number ", done+i), Content: body}
		}
		if _, err := verb.Batch.Call(as(ctx), h.Verbs(), verb.BatchRequest{Items: items}); err != nil {
			return err
		}
	}
	pages, hello, err := readLog(ctx, h)
	if err != nil {
		return err
	}
	r := row{name: "rows applied", unit: "/s"}
	for i := range b.rounds {
		floor, err := rawInsert(ctx, filepath.Join(b.dir, fmt.Sprintf("raw-%d.db", i)), pages)
		if err != nil {
			return err
		}
		value, err := applyAll(ctx, filepath.Join(b.dir, fmt.Sprintf("apply-%d.db", i)), hello, pages)
		if err != nil {
			return err
		}
		r.floor, r.value = append(r.floor, floor), append(r.value, value)
	}
	return b.table("Replica (floor: a prepared INSERT of the bodies alone, as many to a transaction)", []row{r})
}

// readLog returns the log as a follower gets it.
func readLog(ctx context.Context, h *hub.Hub) (pages []replicate.Batch, hello replicate.Hello, err error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- h.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-stopped)
	}()
	reader, hello, err := h.Open(ctx, replicate.Position{}, []string{"commons"})
	if err != nil {
		return nil, hello, err
	}
	for {
		page, err := reader.Next(ctx, nil)
		if err != nil {
			return nil, hello, err
		}
		f, err := replicate.DecodeFrame(page.Line())
		if err != nil {
			return nil, hello, err
		}
		pages = append(pages, replicate.Batch{Rows: f.Rows, To: f.To, Chain: f.Chain, Partial: page.Partial})
		if page.To >= hello.Head {
			return pages, hello, nil
		}
	}
}

func applyAll(ctx context.Context, path string, hello replicate.Hello, pages []replicate.Batch) (float64, error) {
	s, err := node.OpenStore(ctx, path)
	if err != nil {
		return 0, err
	}
	defer s.Close() //nolint:errcheck // the copy is thrown away
	if err := s.Hello(ctx, hello); err != nil {
		return 0, err
	}
	start := time.Now()
	rows := 0
	for _, p := range pages {
		if err := s.Apply(ctx, p); err != nil {
			return 0, err
		}
		rows += len(p.Rows)
	}
	return float64(rows) / time.Since(start).Seconds(), nil
}

func rawInsert(ctx context.Context, path string, pages []replicate.Batch) (rate float64, err error) {
	db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL&_synchronous=NORMAL")
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE body (seq INTEGER PRIMARY KEY, body TEXT)`); err != nil {
		return 0, err
	}
	start := time.Now()
	rows := 0
	for _, p := range pages {
		if err := rawInsertPage(ctx, db, p); err != nil {
			return 0, err
		}
		rows += len(p.Rows)
	}
	return float64(rows) / time.Since(start).Seconds(), nil
}

func rawInsertPage(ctx context.Context, db *sql.DB, p replicate.Batch) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	stmt, err := tx.PrepareContext(ctx, `INSERT INTO body (seq, body) VALUES (?, ?)`)
	if err != nil {
		return err
	}
	defer stmt.Close()
	for i := range p.Rows {
		r := &p.Rows[i]
		text := string(r.Content)
		if text == "" {
			text = string(r.Data)
		}
		if _, err := stmt.ExecContext(ctx, int64(r.Seq), text); err != nil {
			return err
		}
	}
	return tx.Commit()
}
