package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// A history is how much was acknowledged in all rounds, by kind.
type history struct {
	ids    map[string]map[string]bool
	writes map[string]int
}

func newHistory() *history {
	h := &history{ids: make(map[string]map[string]bool), writes: make(map[string]int)}
	for _, kind := range []string{"artifact", "revision", "link", "signal"} {
		h.ids[kind] = make(map[string]bool)
	}
	return h
}

// countQueries count what the writing agents made. A link is one however often it
// is made, and so is an artifact's vote of one agent, of which each is a row.
var countQueries = map[string]string{
	"artifact": `SELECT count(*) FROM artifact WHERE created_by = 'writer' AND type = 'hypothesis'`,
	"revision": `SELECT count(*) FROM artifact_revision WHERE created_by = 'writer' AND type = 'hypothesis'`,
	"link":     `SELECT count(*) FROM link WHERE created_by = 'writer'`,
	"signal":   `SELECT count(*) FROM signal WHERE voter = 'writer'`,
}

// checkWrites looks for each acknowledged write of a round, and counts all that
// there is against all that was ever acknowledged.
func (c *cluster) checkWrites(ctx context.Context, acks []ack) (lost, doubled int, err error) {
	byKind := make(map[string][]ack)
	for _, a := range acks {
		byKind[a.kind] = append(byKind[a.kind], a)
		c.wrote.ids[a.kind][fmt.Sprint(a.id, " ", a.revision)] = true
	}
	b := new(pgx.Batch)
	for kind, all := range byKind {
		ids, revisions, hashes := make([]string, len(all)), make([]int, len(all)), make([][]byte, len(all))
		for i, a := range all {
			ids[i], revisions[i], hashes[i] = a.id, a.revision, a.hash[:]
		}
		found := func(row pgx.Row) error {
			var n int
			err := row.Scan(&n)
			lost += n
			return err
		}
		switch kind {
		case "link":
			b.Queue(`SELECT count(*) FROM unnest($1::text[]) AS k (id) WHERE NOT EXISTS (SELECT FROM link l WHERE l.id = k.id)`, ids).QueryRow(found)
		case "signal":
			b.Queue(`SELECT count(*) FROM unnest($1::text[]) AS k (id) WHERE NOT EXISTS (SELECT FROM signal s WHERE s.id = k.id)`, ids).QueryRow(found)
		default:
			b.Queue(`
				SELECT count(*) FROM unnest($1::text[], $2::int[], $3::bytea[]) AS k (id, revision, hash)
				WHERE NOT EXISTS (
					SELECT FROM artifact_revision r WHERE r.type = 'hypothesis' AND r.id = k.id AND r.revision = k.revision AND r.content_hash = k.hash)`,
				ids, revisions, hashes).QueryRow(found)
		}
	}
	want := map[string]int{
		"artifact": len(c.wrote.ids["artifact"]), "revision": len(c.wrote.ids["artifact"]) + len(c.wrote.ids["revision"]),
		"link": len(c.wrote.ids["link"]), "signal": len(c.wrote.ids["signal"]),
	}
	for kind, query := range countQueries {
		b.Queue(query).QueryRow(func(row pgx.Row) error {
			var n int
			err := row.Scan(&n)
			doubled += max(0, n-want[kind])
			lost += max(0, want[kind]-n)
			return err
		})
	}
	return lost, doubled, c.db.SendBatch(ctx, b).Close()
}

// checkEvents holds what each listener heard to the hub's events: each in order,
// and none left out.
func (c *cluster) checkEvents(ctx context.Context) (gaps int, err error) {
	rows, err := c.db.Query(ctx, `SELECT seq FROM event WHERE class = 'public' AND scope = 'commons' AND seq > $1 ORDER BY seq`, c.first)
	if err != nil {
		return 0, err
	}
	want, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(want) == 0 {
		return 0, err
	}
	for i, s := range c.ears {
		if err := until(ctx, fmt.Sprintf("listener %d has heard of event %d", i, want[len(want)-1]), func() bool { return s.last() >= want[len(want)-1] }); err != nil {
			return 0, err
		}
		got := s.heard()
		if slices.Equal(got, want) {
			continue
		}
		if !slices.IsSorted(got) {
			return 0, fmt.Errorf("listener %d heard events out of order", i)
		}
		have := slices.Compact(got)
		for _, seq := range want {
			if _, ok := slices.BinarySearch(have, seq); !ok {
				gaps++
			}
		}
	}
	return gaps, nil
}

// checkEqual lets the hub prove that it is whole, and the node that it equals it.
func (c *cluster) checkEqual(ctx context.Context) error {
	if out, err := c.output(ctx, "hub", "verify", "--database-url", c.pg.URL()); err != nil {
		return fmt.Errorf("%w: %.2000s", err, out)
	}
	out, err := c.output(ctx, "node", "verify", "--json", "--data", c.data)
	var report struct{ Differences []any }
	if err == nil {
		err = json.Unmarshal([]byte(out), &report)
	}
	if err != nil {
		return fmt.Errorf("verify: %w: %.2000s", err, out)
	}
	if len(report.Differences) > 0 {
		return fmt.Errorf("replica and hub differ: %v", report.Differences)
	}
	return nil
}
