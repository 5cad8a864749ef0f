package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/replicate"
)

// A commit is the open SQLite transaction of a batch, or of the parts of one.
type commit struct {
	from   replicate.Position // what was applied before it
	to     artifact.Seq       // the last row in it, or where its last part led
	trail  replicate.Trail    // of the scopes that it has rows of
	sums   replicate.Sums     // what it changes in the digest
	recent event.Recent       // the latest events, its own with them
	access []*replicate.Row   // what it changes of who may do what
	types  bool               // it changes schemas
	models bool               // it changes by which model searches are
	erases bool               // rows that are gone or rewritten leave no bytes in the file
}

// Hello implements [replicate.Sink]. The first hello ties the replica to its hub
// and epoch; any other is refused with an error that wraps [ErrForeignHub].
func (s *Store) Hello(ctx context.Context, h replicate.Hello) error {
	p := s.now.Load().position
	switch {
	case h.MinReader > replicate.WireVersion:
		return tooOld(h.MinReader)
	case h.HubID == "" || h.Epoch < 1:
		return errors.New("the hub's hello names no hub or epoch")
	case p.HubID != "" && h.HubID != p.HubID:
		return fmt.Errorf("%w: this is hub %s and the replica is of %s; follow that hub, or join this one with an empty data directory", ErrForeignHub, h.HubID, p.HubID)
	case len(h.Scopes) == 0:
		return errors.New("the hub's hello names no scope: the node's token may follow none")
	case p.HubID != "" && h.Epoch != p.Epoch:
		return fmt.Errorf("%w: %w, and is in epoch %d, the replica in %d", ErrForeignHub, errRestored, h.Epoch, p.Epoch)
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.abort(ctx) // a stream begins: no part of a commit is left
	ctx = context.WithoutCancel(ctx)
	if err := s.follow(ctx, p, h.Scopes); err != nil {
		return err
	}
	maps.DeleteFunc(h.Prev, func(scope string, _ artifact.Seq) bool { return !s.followed[scope] })
	if err := s.trail.Meet(&h); err != nil {
		return err
	}
	const update = `UPDATE replica_state SET hub_id = ?1, epoch = ?2, hub_schema = ?3`
	if _, err := s.conn.ExecContext(ctx, update, h.HubID, h.Epoch, h.Schema); err != nil {
		return fmt.Errorf("store the hub's hello: %w", err)
	}
	if p.HubID == "" {
		p.HubID, p.Epoch = h.HubID, h.Epoch
		s.publish(p, s.now.Load().recent)
	}
	return nil
}

// Apply implements [replicate.Sink]. A feed that goes back, or whose rows are
// not what their hashes say, is refused, and then nothing of the commit is kept.
func (s *Store) Apply(ctx context.Context, b replicate.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // a commit is made or not; it is short
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.apply(ctx, b); err != nil {
		s.abort(ctx)
		return transient(err)
	}
	return nil
}

func (s *Store) apply(ctx context.Context, b replicate.Batch) error {
	p := s.now.Load().position
	switch {
	case p.HubID == "":
		return errors.New("apply: the hub did not say hello")
	case b.To < p.Seq:
		return fmt.Errorf("apply: the feed goes back from %d to %d", p.Seq, b.To)
	case len(b.Rows) == 0 && s.commit != nil && b.To <= s.commit.to:
		return nil // a beat amid the parts of a commit does not end it
	case s.commit == nil && b.To == p.Seq:
		s.emptyWAL(ctx)
		return nil // all of it is here
	}
	if s.commit == nil {
		if _, err := s.write.begin.ExecContext(ctx); err != nil {
			return fmt.Errorf("begin to apply: %w", err)
		}
		s.commit = &commit{from: p, to: p.Seq, trail: make(replicate.Trail, 1), sums: make(replicate.Sums), recent: s.now.Load().recent}
	}
	defer s.write.index.makeAhead(b.Rows)()
	for i := range b.Rows {
		r := &b.Rows[i]
		if r.Seq <= s.commit.to {
			continue
		}
		if err := s.applyRow(ctx, r, b.To); err != nil {
			return refused(r, err)
		}
		s.commit.to = r.Seq
	}
	s.commit.to = b.To
	if b.Partial {
		return nil
	}
	if n := len(b.Rows); n > 0 && b.Rows[n-1].Commit > b.To {
		return fmt.Errorf("apply: a page ends at %d, within a commit up to %d", b.To, b.Rows[n-1].Commit)
	}
	return s.end(ctx, b.Chain)
}

func (s *Store) applyRow(ctx context.Context, r *replicate.Row, upTo artifact.Seq) error {
	if r.Seq > upTo {
		return fmt.Errorf("it is beyond its batch, which leads to %d", upTo)
	}
	if !s.followed[r.Scope] {
		if slices.Contains(s.Gained(), r.Scope) {
			return nil // a replica that has it is made
		}
		return fmt.Errorf("it is in the scope %s, which is not followed", r.Scope)
	}
	if err := s.commit.follows(r, s.trail); err != nil {
		return err
	}
	if err := s.write.row(ctx, r); err != nil {
		return err
	}
	s.commit.sums.Apply(r, false)
	s.touch(r)
	if r.Kind == replicate.KindSchema {
		s.commit.types = true
	}
	if r.Kind == replicate.KindVectorModel {
		s.commit.models = true
	}
	if f, err := r.EventFloor(); f != nil && err == nil { // the row was taken, so it is right
		s.commit.recent.Forget(f.Scope, f.UpTo)
	}
	if isAccess(r.Kind) {
		s.commit.access = append(s.commit.access, r)
	}
	if r.Op == replicate.Delete || r.Kind == replicate.KindRevision && !r.PrevHash.IsZero() {
		s.commit.erases = true
	}
	if r.Event == nil {
		return nil
	}
	e := eventOf(r)
	s.commit.recent.Add(e)
	return s.write.event(ctx, &e)
}

// follows refuses a row that is not the next of its scope.
func (c *commit) follows(r *replicate.Row, applied replicate.Trail) error {
	have, known := c.trail[r.Scope]
	if !known {
		have, known = applied[r.Scope]
	}
	if known && have != r.Prev {
		return &replicate.GapError{Scope: r.Scope, Seq: r.Seq, Prev: r.Prev, Have: have}
	}
	c.trail[r.Scope] = r.Seq
	return nil
}

// end commits, with the position that the commit leads to, and then tells.
func (s *Store) end(ctx context.Context, chain artifact.Hash) error {
	c := s.commit
	if err := s.write.digest(ctx, c.sums); err != nil {
		return fmt.Errorf("apply the digest at %d: %w", c.to, err)
	}
	for scope, seq := range c.trail {
		if _, err := s.write.putScopeLast.ExecContext(ctx, scope, int64(seq)); err != nil {
			return fmt.Errorf("apply the last row of %s at %d: %w", scope, c.to, err)
		}
	}
	if err := s.write.forget(ctx); err != nil {
		return fmt.Errorf("apply what is to be found no more at %d: %w", c.to, err)
	}
	p := c.from
	p.Seq, p.Chain = c.to, chain
	moved, err := s.write.position(ctx, c.from.Seq, p)
	if err != nil {
		return fmt.Errorf("apply the position %d: %w", c.to, err)
	}
	if !moved {
		return fmt.Errorf("apply up to %d: the file is no more at %d; another process writes it", c.to, c.from.Seq)
	}
	if _, err := s.write.commit.ExecContext(ctx); err != nil {
		return fmt.Errorf("commit up to %d: %w", c.to, err)
	}
	s.commit = nil
	maps.Copy(s.trail, c.trail)
	for _, r := range c.access {
		if err := s.takeAccess(r); err != nil {
			return fmt.Errorf("take in %s at %d: %w", r.Ref, r.Seq, err)
		}
	}
	if c.types {
		if err := errors.Join(s.loadElsewhere(ctx), s.loadUpgrades(ctx), s.loadRules(ctx), s.loadTypes(ctx)); err != nil {
			return fmt.Errorf("read types at %d: %w", c.to, err)
		}
	}
	if c.models {
		if err := s.loadVectors(ctx); err != nil {
			return fmt.Errorf("read the model at %d: %w", c.to, err)
		}
	}
	s.publish(p, c.recent)
	s.erasing = s.erasing || c.erases
	s.emptyWAL(ctx)
	return nil
}

// emptyWAL writes the WAL back and cuts it off when rows were erased: it holds the
// pages as they were. A reader in the middle of something keeps it from that for
// a moment; the next commit or beat tries again.
func (s *Store) emptyWAL(ctx context.Context) {
	if !s.erasing {
		return
	}
	ctx = context.WithoutCancel(ctx)
	// Waiting for the reader would hold up the feed.
	if _, err := s.conn.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return
	}
	var busy, pages, moved int
	err := s.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved)
	_, again := s.conn.ExecContext(ctx, "PRAGMA busy_timeout = 5000")
	s.erasing = errors.Join(err, again) != nil || busy != 0
}

// Abort implements [replicate.Sink].
func (s *Store) Abort(ctx context.Context) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.abort(ctx)
}

func (s *Store) abort(ctx context.Context) {
	if s.commit == nil {
		return
	}
	s.commit = nil
	// An error means that SQLite has undone the transaction already.
	_, _ = s.write.rollback.ExecContext(context.WithoutCancel(ctx))
	s.write.undone()
}
