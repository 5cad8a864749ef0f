package node

import (
	"context"
	"time"
)

const (
	// mergeSQL merges some pages of the parts of the search index, where there are at
	// least four on a level.
	mergeSQL   = `INSERT INTO search_index (search_index, rank) VALUES ('merge', 64)`
	changesSQL = `SELECT total_changes()`

	tidyLook  = time.Second
	tidyPause = 5 * time.Millisecond // the feed goes first
)

// tidy merges some of the search index, and reports whether there was something to
// merge.
func (s *Store) tidy(ctx context.Context) (more bool, err error) {
	err = s.between(ctx, func(ctx context.Context) error {
		var before, after int64
		if err := s.conn.QueryRowContext(ctx, changesSQL).Scan(&before); err != nil {
			return err
		}
		if _, err := s.conn.ExecContext(ctx, mergeSQL); err != nil {
			return err
		}
		err := s.conn.QueryRowContext(ctx, changesSQL).Scan(&after)
		more = after-before >= 2 // as SQLite says how to tell
		return err
	})
	return more, err
}

// keepTidy merges the parts that commits left in the search index while the feed is
// quiet: fewer of them are faster to search.
func (n *Node) keepTidy(ctx context.Context) {
	var seen, tidied int64
	for ctx.Err() == nil {
		wait := tidyLook
		if s := n.held.use(); s != nil {
			at := int64(s.Applied())
			if at == seen && at != tidied {
				more, err := s.tidy(ctx)
				switch {
				case err != nil && ctx.Err() == nil:
					n.log.WarnContext(ctx, "the search index could not be tidied; it is tried again", "err", err)
				case more:
					wait = tidyPause
				default:
					tidied = at
				}
			}
			seen = at
			s.uses.done()
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}
