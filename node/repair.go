package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

const (
	deleteOrphanSumsSQL = `DELETE FROM signal_aggregate WHERE type = ?1 AND artifact = ?2
		AND NOT EXISTS (SELECT 1 FROM signal AS s WHERE s.type = ?1 AND s.artifact = ?2)`
	deleteEventSQL = `DELETE FROM event WHERE seq = ?1 AND scope = ?2 AND type = ?3`
	mendEventSQL   = `INSERT OR REPLACE INTO event (seq, type, ref, scope, actor_id, actor_kind, at, payload)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`
)

// A touchedRow names what a row of the feed has changed.
type touchedRow struct {
	kind, ref string
	revision  int
}

// signalsTouched stands for all signals.
var signalsTouched = touchedRow{kind: replicate.KindSignal}

// touch notes what is applied while a repair is under way. The caller holds
// s.writing.
func (s *Store) touch(r *replicate.Row) {
	if s.touched == nil {
		return
	}
	s.touched[touchedRow{r.Kind, r.Ref, r.Revision}] = r.Seq
	if r.Kind == replicate.KindArtifact || r.Kind == replicate.KindLink || r.Kind == replicate.KindSignal {
		s.touched[touchedRow{kind: r.Kind, ref: r.Ref}] = r.Seq
	}
	if r.Kind == replicate.KindSignal {
		s.touched[signalsTouched] = r.Seq
	}
}

// watch begins to note what is applied, until release.
func (s *Store) watch() (release func()) {
	set := func(m map[touchedRow]artifact.Seq) {
		s.writing.Lock()
		defer s.writing.Unlock()
		s.touched = m
	}
	set(make(map[touchedRow]artifact.Seq))
	return func() { set(nil) }
}

// amend runs f, which may erase, as between does.
func (s *Store) amend(ctx context.Context, f func(ctx context.Context) error) error {
	return s.between(ctx, func(ctx context.Context) error {
		s.erasing = true // what was wrong may be what nobody should read
		return f(ctx)
	})
}

// between runs f in a transaction of the writer, between two commits of the feed.
func (s *Store) between(ctx context.Context, f func(ctx context.Context) error) (err error) {
	for {
		s.writing.Lock()
		if s.commit == nil {
			break
		}
		next := s.now.Load().next
		s.writing.Unlock()
		select { // parts of a commit are in it
		case <-next:
		case <-time.After(100 * time.Millisecond): // or it was aborted
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer s.writing.Unlock()
	ctx = context.WithoutCancel(ctx) // it is made or not; it is short
	if _, err := s.write.begin.ExecContext(ctx); err != nil {
		return err
	}
	if err = f(ctx); err == nil {
		err = s.write.forget(ctx)
	}
	if err == nil {
		_, err = s.write.commit.ExecContext(ctx)
	}
	if err != nil {
		_, _ = s.write.rollback.ExecContext(ctx) // SQLite may have undone it already
		s.write.undone()
		return err
	}
	s.emptyWAL(ctx)
	return nil
}

const (
	// mendRows is how many rows are asked for at once.
	mendRows = 200
	// mendWait bounds how long the replica may take to come to where the hub's
	// rows are from.
	mendWait = 30 * time.Second
)

// Why a row was left as it is.
const (
	mended     = "mended"
	leftFault  = "left: the hub's own row is not what its hash says; the hub's operator must run scidex hub verify"
	leftLogged = "left: the hub's own row is not what its log says; the hub's operator must run scidex hub verify"
	leftLost   = "left: the hub does not hold it, and its log does not say why; the hub's operator must run scidex hub verify"
	leftNewer  = "left: the feed has brought it anew"
	leftAgain  = "left: it was mended and differs again"
	leftScope  = "left: the replica does not follow its scope"
)

// mend fetches rows of one scope, kind and type from the hub and puts them in place
// of the replica's. What is fetched is as of a later place of the log than the
// replica's, perhaps: it waits to come there, and leaves alone what the feed has
// touched since.
func (n *Node) mend(ctx context.Context, store *Store, at replicate.Position, k replicate.DigestKey, todo []*Difference) (asked int, err error) {
	todo = slices.Clone(todo)
	slices.SortFunc(todo, func(a, b *Difference) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Revision, b.Revision))
	})
	defer store.watch()()
	for len(todo) > 0 {
		r := replicate.RowsRequest{DigestKey: k}
		for _, d := range todo[:min(len(todo), mendRows)] {
			r.Things = append(r.Things, d.Thing)
		}
		asked++
		answer, err := n.feed.Stored(ctx, at, r)
		if err != nil {
			return asked, fmt.Errorf("fetch %s of %s: %w", k.Kind, k.Type, err)
		}
		if k.Kind != replicate.KindEvent { // which nothing changes
			wait, cancel := context.WithTimeout(ctx, mendWait)
			err = store.WaitApplied(wait, answer.Seq)
			cancel()
		}
		if err != nil {
			return asked, fmt.Errorf("the replica does not come to %d, where the hub's rows are from: it is at %d", answer.Seq, store.Applied())
		}
		got := make(map[replicate.Thing]*replicate.StoredRow, len(answer.Rows))
		for i := range answer.Rows {
			got[answer.Rows[i].Thing] = &answer.Rows[i]
		}
		if err := store.amend(ctx, func(ctx context.Context) error {
			// Those that go make room for those that come.
			for _, puts := range []bool{false, true} {
				for _, d := range todo {
					if row, ok := got[d.Thing]; ok && (row.Row != nil) == puts {
						if err := store.mendRow(ctx, d, row, answer.Seq); err != nil {
							return err
						}
					}
				}
			}
			return store.mendSums(ctx, answer.Rows, answer.Seq)
		}); err != nil {
			return asked, fmt.Errorf("mend %s of %s: %w", k.Kind, k.Type, err)
		}
		left := slices.DeleteFunc(todo, func(d *Difference) bool { return got[d.Thing] != nil })
		if len(left) == len(todo) {
			return asked, errors.New("the hub's answer is not what was asked for")
		}
		todo = left
	}
	return asked, nil
}

// mendRow puts or deletes one row.
func (s *Store) mendRow(ctx context.Context, d *Difference, from *replicate.StoredRow, at artifact.Seq) error {
	ref := d.Type + ":" + d.Key
	switch {
	case d.Kind != replicate.KindEvent && s.touched[touchedRow{d.Kind, ref, d.Revision}] > at:
		d.Outcome = leftNewer
		return nil
	case from.Fault == replicate.FaultHash:
		d.Outcome = leftFault
		return nil
	case from.Fault != "":
		d.Outcome = leftLogged
		return nil
	case from.Row == nil && !from.Gone && !d.agreed:
		d.Outcome = leftLost
		return nil
	}
	d.Outcome = mended
	if d.Kind == replicate.KindEvent && from.Row != nil && from.Row.Seq > s.now.Load().position.Seq {
		return s.mendDelete(ctx, d, ref) // the feed brings it
	}
	if from.Row == nil {
		return s.mendDelete(ctx, d, ref)
	}
	r := from.Row
	if d.Kind == replicate.KindEvent {
		if k, t, ok := r.EventThing(); !ok || k != d.DigestKey || t != d.Thing {
			return fmt.Errorf("the hub answers %s with another event", ref)
		}
		e := eventOf(r)
		_, err := s.conn.ExecContext(ctx, mendEventSQL, int64(e.ID), e.Type, e.Ref, e.Scope, e.Actor.ID, e.Actor.Kind, e.At.UnixMilli(), string(e.Payload))
		return err
	}
	if k, t, ok := r.Thing(); !ok || k != d.DigestKey || t != d.Thing || r.Op != replicate.Put || artifact.HashBytes(r.Data) != r.Hash {
		return fmt.Errorf("the hub answers %s with what it is not", ref)
	}
	r.Seq = 0 // its sums may be older than the latest
	return s.write.row(ctx, r)
}

func (s *Store) mendDelete(ctx context.Context, d *Difference, ref string) error {
	switch d.Kind {
	case replicate.KindEvent:
		seq, err := strconv.ParseInt(d.Key, 10, 64)
		if err != nil {
			return err
		}
		_, err = s.conn.ExecContext(ctx, deleteEventSQL, seq, d.Scope, d.Type)
		return err
	case replicate.KindArtifact:
		if err := s.write.deleteArtifact(ctx, d.Type, d.Key, d.Scope); err != nil {
			return err
		}
		if err := s.write.remake(ctx, d.Type, d.Key); err != nil {
			return err
		}
		_, err := s.conn.ExecContext(ctx, deleteOrphanSumsSQL, d.Type, d.Key)
		return err
	}
	return s.write.row(ctx, &replicate.Row{Op: replicate.Delete, Kind: d.Kind, Ref: ref, Revision: d.Revision, Scope: d.Scope})
}

// mendSums puts the sums that the last of some signals tell, unless the feed has
// brought later ones.
func (s *Store) mendSums(ctx context.Context, rows []replicate.StoredRow, at artifact.Seq) error {
	if s.touched[signalsTouched] > at {
		return nil
	}
	last := make(map[string]*replicate.StoredRow)
	for i := range rows {
		r := &rows[i]
		if r.Row == nil || r.Row.Kind != replicate.KindSignal || r.Fault != "" {
			continue
		}
		g, err := decodeSignal(r.Row.Data)
		if err != nil {
			return err
		}
		of := strings.Join([]string{g.Ref, g.Kind, g.Dimension}, " ")
		if was := last[of]; was == nil || was.Key < r.Key {
			last[of] = r
		}
	}
	for _, r := range last {
		g, err := decodeSignal(r.Row.Data)
		if err != nil {
			return err
		}
		ref, err := artifact.ParseRef(g.Ref)
		if err != nil {
			return err
		}
		if err := s.write.aggregate(ctx, ref, &g.Aggregate); err != nil {
			return err
		}
	}
	return nil
}

// mendDigest makes the sums that are kept those of the rows, where these are the
// hub's: change is by what they differ, which no commit alters.
func (s *Store) mendDigest(ctx context.Context, change replicate.Sums) error {
	return s.amend(ctx, func(ctx context.Context) error { return s.write.digest(ctx, change) })
}
