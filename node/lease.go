package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// leaseFile is where a node keeps the places of consumers that read through it.
const leaseFile = "consumers.db"

const leaseSchema = `CREATE TABLE IF NOT EXISTS lease (
	agent       TEXT NOT NULL,
	consumer_id TEXT NOT NULL,
	place       TEXT NOT NULL,    -- as the hub told it last, without the cursor
	epoch       INTEGER NOT NULL,
	generation  INTEGER NOT NULL,
	cursor      INTEGER NOT NULL,
	pending     INTEGER NOT NULL, -- the hub does not have the cursor yet
	PRIMARY KEY (agent, consumer_id)
) WITHOUT ROWID`

// leases are the consumers that read through the node, as the hub told of them last.
// While the hub is away, they go on from there; what they are done with is on disk
// before it is answered.
type leases struct{ db *sql.DB }

// A lease is the place of a consumer.
type lease struct {
	verb.ConsumerPlace
	pending bool
}

func openLeases(ctx context.Context, dir string) (*leases, error) {
	f := &sqliteFile{path: filepath.Join(dir, leaseFile)}
	l := &leases{f.pool(url.Values{"_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_txlock": {"immediate"}, "_busy_timeout": {"5000"}})}
	l.db.SetMaxOpenConns(1)
	if _, err := l.db.ExecContext(ctx, leaseSchema); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", f.path, err), l.db.Close())
	}
	return l, nil
}

// find returns the lease of a consumer; nil for none.
func (l *leases) find(ctx context.Context, agent, id string) (*lease, error) {
	var found lease
	var place []byte
	err := l.db.QueryRowContext(ctx, `SELECT place, epoch, generation, cursor, pending FROM lease WHERE agent = ?1 AND consumer_id = ?2`, agent, id).
		Scan(&place, &found.Epoch, &found.Generation, &found.Cursor, &found.pending)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a consumer's place: %w", err)
	}
	at := found.ConsumerPlace
	if err := json.Unmarshal(place, &found.ConsumerPlace); err != nil {
		return nil, fmt.Errorf("read a consumer's place: %w", err)
	}
	found.Epoch, found.Generation, found.Cursor = at.Epoch, at.Generation, at.Cursor
	return &found, nil
}

// hold notes what the hub tells of a consumer. Within a generation a cursor never
// goes back.
func (l *leases) hold(ctx context.Context, agent string, p verb.ConsumerPlace) error {
	epoch, generation, cursor := p.Epoch, p.Generation, p.Cursor
	p.Epoch, p.Generation, p.Cursor, p.Offline = 0, 0, 0, false
	place, err := json.Marshal(p)
	if err != nil {
		return err
	}
	const put = `INSERT INTO lease (agent, consumer_id, place, epoch, generation, cursor, pending) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)
		ON CONFLICT DO UPDATE SET place = excluded.place, epoch = excluded.epoch, generation = excluded.generation,
			cursor = CASE WHEN generation = excluded.generation THEN max(cursor, excluded.cursor) ELSE excluded.cursor END,
			pending = pending AND generation = excluded.generation AND cursor > excluded.cursor
		WHERE excluded.generation >= generation
			AND (excluded.generation > generation OR excluded.cursor > cursor OR excluded.place <> place OR pending)`
	if _, err := l.db.ExecContext(ctx, put, agent, p.ConsumerID, place, epoch, generation, int64(cursor)); err != nil {
		return fmt.Errorf("keep a consumer's place: %w", err)
	}
	return nil
}

// advance moves a cursor forward that the hub is not told of now.
func (l *leases) advance(ctx context.Context, agent, id string, generation int64, to artifact.Seq) error {
	const move = `UPDATE lease SET pending = pending OR cursor < ?4, cursor = max(cursor, ?4) WHERE agent = ?1 AND consumer_id = ?2 AND generation = ?3`
	if _, err := l.db.ExecContext(ctx, move, agent, id, generation, int64(to)); err != nil {
		return fmt.Errorf("keep a consumer's place: %w", err)
	}
	return nil
}

// drop forgets a consumer.
func (l *leases) drop(ctx context.Context, agent, id string) error {
	if _, err := l.db.ExecContext(ctx, `DELETE FROM lease WHERE agent = ?1 AND consumer_id = ?2`, agent, id); err != nil {
		return fmt.Errorf("forget a consumer's place: %w", err)
	}
	return nil
}
