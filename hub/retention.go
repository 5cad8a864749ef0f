package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
)

// A Retention says how much of the log is kept. The log is dropped by whole
// partitions, oldest first, and never the one that it ends in.
type Retention struct {
	// Age is how long changes are kept. The default is 7 days.
	Age time.Duration
	// Bytes is how large the log may become before changes younger than Age are
	// dropped too. The default is no bound.
	Bytes int64
	// Lease is how long a node that does not move keeps the log from being
	// dropped past it. Then it has to copy the hub anew. The default is 2 days.
	Lease time.Duration
	// Events is how long events are kept. The default is 400 days.
	Events time.Duration
}

func (r Retention) orDefaults() Retention {
	r.Age = cmp.Or(r.Age, 7*24*time.Hour)
	r.Lease = cmp.Or(r.Lease, 48*time.Hour)
	r.Events = cmp.Or(r.Events, 400*24*time.Hour)
	return r
}

// A LogPart is a partition of the log.
type LogPart struct {
	Name   string       `json:"name"`
	First  artifact.Seq `json:"first"` // the least seq that it may hold
	Last   artifact.Seq `json:"last"`  // the last that it holds; 0 for none
	Bytes  int64        `json:"bytes"` // with indexes
	Newest time.Time    `json:"newest,omitzero"`
	least  artifact.Seq // the first that it holds
	end    artifact.Seq
}

// A LogFollower is a node, and how far it has come.
type LogFollower struct {
	Node     string       `json:"node"`
	Lab      string       `json:"lab"`
	Seq      artifact.Seq `json:"seq"`
	Behind   artifact.Seq `json:"behind"` // changes that it has not got
	SeenAt   time.Time    `json:"seen_at"`
	LeasedTo time.Time    `json:"leased_to"`          // until when the log is kept for it, unless it moves
	Leased   bool         `json:"leased"`             // the log is kept for it now
	Lost     bool         `json:"lost"`               // the log was dropped past it: it must copy the hub anew
	FallsOff time.Time    `json:"falls_off,omitzero"` // when what it needs next may be dropped, unless it moves
}

// A LogStatus tells how much of the log is kept, and for whom.
type LogStatus struct {
	First     artifact.Seq  `json:"first"` // the first change that is kept
	Head      artifact.Seq  `json:"head"`
	Floor     artifact.Seq  `json:"floor"` // the least position that can be resumed
	Bytes     int64         `json:"bytes"`
	Parts     []LogPart     `json:"parts"`
	Followers []LogFollower `json:"followers"`
	Events    EventStatus   `json:"events"`
}

// partsQuery reads the log's partitions. Those that a dropped connection left
// half detached come too, until [Trim] has ended that.
const partsQuery = `
	SELECT c.relname, (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''(\d+)''\)'))[1]::bigint,
		(regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''(\d+)''\)'))[1]::bigint, pg_total_relation_size(c.oid)
	FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
	WHERE i.inhparent = 'feed.change'::regclass AND NOT i.inhdetachpending
	ORDER BY 2`

// ReadLogStatus tells how the log stands.
func ReadLogStatus(ctx context.Context, db *pgxpool.Pool, r Retention) (s LogStatus, err error) {
	r = r.orDefaults()
	if s.First, s.Head, err = bounds(ctx, db); err != nil {
		return s, err
	}
	if s.Floor, err = floorOf(ctx, db, s.First); err != nil {
		return s, err
	}
	if s.Parts, err = readParts(ctx, db); err != nil {
		return s, err
	}
	for _, p := range s.Parts {
		s.Bytes += p.Bytes
	}
	s.Followers, err = readFollowers(ctx, db, r, s.Floor)
	for i := range s.Followers {
		f := &s.Followers[i]
		f.Behind = max(0, s.Head-f.Seq-unusedSince(s.Parts, f.Seq))
	}
	if err == nil {
		s.Events, err = readEventStatus(ctx, db, r)
	}
	return s, err
}

// unusedSince counts the seqs after one that the log never gave out: a restored hub
// goes on far above those that it may have given out before.
func unusedSince(parts []LogPart, seq artifact.Seq) (n artifact.Seq) {
	var last artifact.Seq
	for _, p := range parts {
		if p.Last == 0 {
			continue
		}
		if last > 0 {
			n += max(0, p.least-1-max(last, seq))
		}
		last = p.Last
	}
	return n
}

func readParts(ctx context.Context, db querier) ([]LogPart, error) {
	rows, err := db.Query(ctx, partsQuery)
	if err != nil {
		return nil, fmt.Errorf("read the log's partitions: %w", err)
	}
	parts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p LogPart, err error) {
		return p, row.Scan(&p.Name, &p.First, &p.end, &p.Bytes)
	})
	if err != nil {
		return nil, fmt.Errorf("read the log's partitions: %w", err)
	}
	const last = `
		SELECT seq, at, (SELECT min(seq) FROM feed.change WHERE seq >= $1 AND seq < $2)
		FROM feed.change WHERE seq >= $1 AND seq < $2 ORDER BY seq DESC LIMIT 1`
	for i := range parts {
		p := &parts[i]
		if err := db.QueryRow(ctx, last, int64(p.First), int64(p.end)).Scan(&p.Last, &p.Newest, &p.least); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, fmt.Errorf("read partition %s: %w", p.Name, err)
		}
		p.Newest = p.Newest.UTC()
	}
	return parts, nil
}

func readFollowers(ctx context.Context, db querier, r Retention, floor artifact.Seq) ([]LogFollower, error) {
	const query = `
		SELECT f.node, n.lab, f.seq, f.seen_at, f.moved_at, next.at, now()
		FROM feed.follower f JOIN edge_node n ON n.id = f.node
		LEFT JOIN LATERAL (SELECT c.at FROM feed.change c WHERE c.seq > f.seq ORDER BY c.seq LIMIT 1) next ON true
		WHERE n.revoked_at IS NULL
		ORDER BY f.seq, f.node`
	rows, err := db.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("read the log's followers: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f LogFollower, err error) {
		var moved, now time.Time
		var next *time.Time
		if err = row.Scan(&f.Node, &f.Lab, &f.Seq, &f.SeenAt, &moved, &next, &now); err != nil {
			return f, err
		}
		f.SeenAt, f.LeasedTo = f.SeenAt.UTC(), moved.Add(r.Lease).UTC()
		f.Lost = f.Seq < floor
		f.Leased = !f.Lost && now.Before(f.LeasedTo)
		if next != nil && !f.Lost {
			f.FallsOff = f.LeasedTo
			if old := next.Add(r.Age).UTC(); r.Bytes == 0 && old.After(f.FallsOff) {
				f.FallsOff = old
			}
		}
		return f, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the log's followers: %w", err)
	}
	return out, nil
}

// due returns the partitions that may be dropped now, oldest first.
func (r Retention) due(s *LogStatus, now time.Time) []LogPart {
	r = r.orDefaults()
	needed := s.Head // the least position that the log is kept for
	for i := range s.Followers {
		if f := &s.Followers[i]; f.Leased {
			needed = min(needed, f.Seq)
		}
	}
	bytes := s.Bytes
	var due []LogPart
	for _, p := range s.Parts {
		old := now.Sub(p.Newest) > r.Age
		large := r.Bytes > 0 && bytes > r.Bytes
		// A partition that the log has not come to yet has no last row, and the
		// head lies in or after the one that is in use.
		if p.Last == 0 || p.Last >= s.Head || p.Last > needed || !old && !large {
			break
		}
		due = append(due, p)
		bytes -= p.Bytes
	}
	return due
}

// trimLock makes those who trim take turns.
const trimLock = 0x5c1de8f7

// ErrTrimming reports that another trims the log now.
var ErrTrimming = errors.New("another process trims the log now")

// Trim drops what need not be kept of the log and returns it. With dry set it
// drops nothing.
func Trim(ctx context.Context, db *pgxpool.Pool, r Retention, dry bool) (dropped []LogPart, err error) {
	due, err := dueParts(ctx, db, r)
	if err != nil || dry {
		return due, err
	}
	err = whileTrimming(ctx, db, func(conn *pgx.Conn) error {
		if due, err = dueParts(ctx, db, r); err != nil {
			return err
		}
		for _, p := range due {
			if err := drop(ctx, conn, p); err != nil {
				return fmt.Errorf("drop partition %s of the log: %w", p.Name, err)
			}
			dropped = append(dropped, p)
		}
		return nil
	})
	return dropped, err
}

func dueParts(ctx context.Context, db *pgxpool.Pool, r Retention) ([]LogPart, error) {
	s, err := ReadLogStatus(ctx, db, r)
	if err != nil {
		return nil, err
	}
	var now time.Time
	if err := db.QueryRow(ctx, `SELECT now()`).Scan(&now); err != nil {
		return nil, err
	}
	return r.due(&s, now), nil
}

// whileTrimming runs f while nobody else trims, once what an earlier trim began is
// ended. f gets a connection of its own: that holds a session lock, and DETACH may
// take long.
func whileTrimming(ctx context.Context, db *pgxpool.Pool, f func(*pgx.Conn) error) error {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire a connection: %w", err)
	}
	defer conn.Release()
	var got bool
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, trimLock).Scan(&got); err != nil {
		return err
	}
	if !got {
		return ErrTrimming
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if _, unlock := conn.Exec(ctx, `SELECT pg_advisory_unlock($1)`, trimLock); unlock != nil {
			_ = conn.Conn().Close(ctx) // which gives the lock back
		}
	}()
	if err := endTrims(ctx, conn.Conn()); err != nil {
		return err
	}
	return f(conn.Conn())
}

// drop takes a partition out of the log. What must be known of it afterwards is
// noted before: the chain at its end, and the last row of each scope.
func drop(ctx context.Context, conn *pgx.Conn, p LogPart) error {
	chain, err := chainAt(ctx, conn, p.Last)
	if err != nil {
		return fmt.Errorf("its chain: %w", err)
	}
	if err := noteCheckpoint(ctx, conn, chainCursor{p.Last, chain}); err != nil {
		return fmt.Errorf("its checkpoint: %w", err)
	}
	if err := noteScopesLast(ctx, conn, p.Last+1); err != nil {
		return err
	}
	if err := dropPartition(ctx, conn, "feed.change", pgx.Identifier{"feed", p.Name}); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `DELETE FROM feed.checkpoint WHERE seq < $1`, int64(p.Last))
	return err
}

// dropPartition drops a partition. CONCURRENTLY takes no lock that stops writers; it
// waits for reads of the whole that are under way. Names are our own.
func dropPartition(ctx context.Context, conn *pgx.Conn, parent string, name pgx.Identifier) error {
	table := name.Sanitize()
	if _, err := conn.Exec(ctx, `ALTER TABLE `+parent+` DETACH PARTITION `+table+` CONCURRENTLY`); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, `DROP TABLE `+table)
	return err
}

// endTrims ends what an earlier trim was kept from ending: partitions that are
// half detached, or detached but not dropped.
func endTrims(ctx context.Context, conn *pgx.Conn) error {
	const pending = `
		SELECT i.inhparent::regclass::text, c.oid::regclass::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent IN ('feed.change'::regclass, 'event'::regclass) AND i.inhdetachpending`
	const orphans = `
		SELECT '', c.oid::regclass::text FROM pg_class c
		WHERE (c.relnamespace = 'feed'::regnamespace AND c.relname ~ '^change_[0-9]+$'
				OR c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'event'::regclass) AND c.relname ~ '^event_[0-9]+$')
			AND c.relkind = 'r' AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid)`
	for _, step := range []struct {
		query string
		end   func(parent, name string) string
	}{
		{pending, func(parent, name string) string {
			return `ALTER TABLE ` + parent + ` DETACH PARTITION ` + name + ` FINALIZE`
		}},
		{orphans, func(_, name string) string { return `DROP TABLE ` + name }},
	} {
		rows, err := conn.Query(ctx, step.query)
		if err != nil {
			return err
		}
		var parent, name string
		var ends []string
		if _, err := pgx.ForEachRow(rows, []any{&parent, &name}, func() error {
			ends = append(ends, step.end(parent, name))
			return nil
		}); err != nil {
			return err
		}
		for _, end := range ends {
			if _, err := conn.Exec(ctx, end); err != nil {
				return fmt.Errorf("end a drop: %s: %w", end, err)
			}
		}
	}
	return nil
}

// retentionCheck is how often a hub looks whether the log is to be trimmed.
const retentionCheck = time.Minute

// keepRetention trims the log until ctx ends, and warns of nodes that are about
// to fall off it.
func (h *Hub) keepRetention(ctx context.Context) error {
	tick := time.NewTicker(retentionCheck)
	defer tick.Stop()
	warned := make(map[string]time.Time) // by node, of which end
	for h.lookAtLog(ctx, warned); ; h.lookAtLog(ctx, warned) {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		dropped, err := Trim(ctx, h.db, h.config.Retention, false)
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrTrimming) {
			h.log.ErrorContext(ctx, "the log could not be trimmed", "err", err)
		}
		for _, p := range dropped {
			h.metrics.trimmed.Inc()
			h.log.InfoContext(ctx, "the log was trimmed", "partition", p.Name, "last_seq", p.Last, "bytes", p.Bytes)
		}
		h.trimEvents(ctx)
	}
}

func (h *Hub) trimEvents(ctx context.Context) {
	gone, err := TrimEvents(ctx, h.db, h.config.Retention, false)
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrTrimming) {
		h.log.ErrorContext(ctx, "events could not be trimmed", "err", err)
	}
	if gone.Events > 0 {
		h.metrics.eventsTrimmed.Add(float64(gone.Events))
		h.log.InfoContext(ctx, "events were trimmed", "events", gone.Events, "upto", gone.UpTo)
	}
}

// lookAtLog counts how the log stands now.
func (h *Hub) lookAtLog(ctx context.Context, warned map[string]time.Time) {
	s, err := ReadLogStatus(ctx, h.db, h.config.Retention)
	switch {
	case err == nil:
		h.observe(ctx, &s, warned)
	case ctx.Err() == nil:
		h.log.ErrorContext(ctx, "the log's state cannot be read", "err", err)
	}
}

// observe counts how the log stands, and warns once of each node that has less
// than a quarter of its lease left.
func (h *Hub) observe(ctx context.Context, s *LogStatus, warned map[string]time.Time) {
	h.metrics.logFirst.Set(float64(s.First))
	h.metrics.logBytes.Set(float64(s.Bytes))
	h.metrics.eventsFloor.Set(float64(s.Events.Floor))
	states := map[string]int{"leased": 0, "lapsed": 0, "lost": 0}
	var behind artifact.Seq
	soon := time.Now().Add(h.config.Retention.orDefaults().Lease / 4)
	for i := range s.Followers {
		f := &s.Followers[i]
		states[f.state()]++
		if f.Leased {
			behind = max(behind, f.Behind)
		}
		if f.Lost || f.FallsOff.IsZero() || f.FallsOff.After(soon) || warned[f.Node].Equal(f.FallsOff) {
			continue
		}
		warned[f.Node] = f.FallsOff
		h.log.WarnContext(ctx, "a node is about to fall off the log", "node", f.Node, "lab", f.Lab, "behind", f.Behind,
			"seen_at", f.SeenAt, "from", f.FallsOff, "next", "see that it runs and reaches the hub, revoke it if it is gone, or keep more of the log")
	}
	h.metrics.behind.Set(float64(behind))
	for state, n := range states {
		h.metrics.nodes.WithLabelValues(state).Set(float64(n))
	}
}

func (f *LogFollower) state() string {
	switch {
	case f.Lost:
		return "lost"
	case f.Leased:
		return "leased"
	}
	return "lapsed"
}
