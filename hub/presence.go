package hub

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// presenceLock is the advisory lock that running hubs share, and that what must
// not run beside one takes alone.
const presenceLock = 0x5c1de9

// ErrRunning reports a hub that runs on the database.
var ErrRunning = errors.New("a hub runs on this database: stop it first")

const presenceCheck = 5 * time.Second

// keepPresence holds the shared lock until ctx ends. It takes it again when its
// connection breaks.
func (h *Hub) keepPresence(ctx context.Context) error {
	for ctx.Err() == nil {
		if conn, err := h.db.Acquire(ctx); err == nil {
			h.bePresent(ctx, conn)
		}
		select {
		case <-ctx.Done():
		case <-time.After(presenceCheck):
		}
	}
	return nil
}

// bePresent holds the lock on one connection while that lives.
func (h *Hub) bePresent(ctx context.Context, conn *pgxpool.Conn) {
	// Closed rather than given back: the lock is the session's.
	raw := conn.Hijack()
	defer raw.Close(context.WithoutCancel(ctx))
	if _, err := raw.Exec(ctx, `SELECT pg_advisory_lock_shared($1)`, presenceLock); err != nil {
		return
	}
	tick := time.NewTicker(presenceCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if raw.Ping(ctx) != nil {
				return
			}
		}
	}
}
