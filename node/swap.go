package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// A holder has the store that a node serves. Another one may take its place while
// it is read.
type holder struct {
	now     atomic.Pointer[held]
	closing sync.WaitGroup // of stores whose place was taken
}

type held struct {
	store *Store        // nil: there is none yet
	next  chan struct{} // closed when another has taken its place
}

func newHolder(s *Store) *holder {
	h := new(holder)
	h.now.Store(&held{s, make(chan struct{})})
	return h
}

// load returns the current store, which may be closed by the time it is read: for
// what needs no file.
func (h *holder) load() *Store { return h.now.Load().store }

// use returns the current store, which stays open until its use is done; nil for
// none.
func (h *holder) use() *Store {
	for {
		now := h.now.Load()
		if now.store == nil || now.store.uses.begin() {
			return now.store
		}
		if now == h.now.Load() {
			return nil // closed for good
		}
	}
}

// wait returns the current store, once there is one.
func (h *holder) wait(ctx context.Context) (*Store, error) {
	for {
		now := h.now.Load()
		if now.store != nil {
			return now.store, nil
		}
		select {
		case <-now.next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (h *holder) set(s *Store) {
	old := h.now.Swap(&held{s, make(chan struct{})})
	close(old.next)
}

// close closes all stores.
func (h *holder) close() error {
	var err error
	if s := h.load(); s != nil {
		err = s.Close()
	}
	h.closing.Wait()
	return err
}

// Recover brings to its end what a node was doing with its files when it was cut
// off. Nobody else may have the directory open.
func Recover(dir string) error {
	replica, whole, old := filepath.Join(dir, ReplicaFile), filepath.Join(dir, wholeFile), filepath.Join(dir, oldFile)
	if _, err := os.Stat(whole); errors.Is(err, os.ErrNotExist) {
		return removeFile(old)
	} else if err != nil {
		return err
	}
	// The WAL goes before the file that it belongs to: it is none of the new one's.
	if err := removeFile(replica); err != nil {
		return err
	}
	if err := errors.Join(os.Rename(whole, replica), syncPath(dir)); err != nil {
		return err
	}
	return removeFile(old)
}

// Remove removes the replica and whatever was being made to take its place, and
// tells whether there was any. Nobody may have the directory open.
func Remove(dir string) (found bool, err error) {
	for _, name := range []string{wholeFile, sideFile, ReplicaFile, oldFile} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			found = true
		}
		if err := removeFile(path); err != nil {
			return found, err
		}
	}
	return found, syncPath(dir)
}

// swap makes a whole side file the replica. Who reads the one before finishes
// there; subscriptions go on at their cursors in the new one. Once the file is whole
// it tries again after what fails, until ctx ends: then the next start goes on.
func (n *Node) swap(ctx context.Context, s *side) error {
	restored, rows := s.plan.Restored, s.rows
	if err := s.finish(ctx, filepath.Join(n.config.Dir, wholeFile)); err != nil {
		return errors.Join(fmt.Errorf("finish the new replica: %w", err), s.Close())
	}
	for wait := leastBuildWait; ; wait = min(2*wait, mostBuildWait) {
		store, err := n.place(ctx)
		if err == nil {
			n.serve(ctx, store, restored)
			n.log.InfoContext(ctx, "the replica that was built is served", "seq", store.Applied(), "rows", rows)
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		n.disconnected(err, nil)
		n.progress.failed(err)
		n.log.ErrorContext(ctx, "the new replica is not in its place yet; reads go on from the one before", "err", err, "retry_in", wait,
			"next", "mend the cause: the node's disk or directory")
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// place moves a whole file to where the replica is, and opens it. Called again after
// it failed, it goes on where it was.
func (n *Node) place(ctx context.Context) (*Store, error) {
	dir, old := n.config.Dir, n.held.load()
	path, whole := filepath.Join(dir, ReplicaFile), filepath.Join(dir, wholeFile)
	if old != nil {
		if err := old.closeWriter(); err != nil {
			n.log.WarnContext(ctx, "the old replica is closed", "err", err)
		}
		if err := old.file.move(filepath.Join(dir, oldFile)); err != nil {
			return nil, fmt.Errorf("move the old replica aside: %w", err)
		}
	}
	if _, err := os.Stat(whole); err == nil {
		if old == nil {
			if err := removeFile(path); err != nil {
				return nil, err
			}
		}
		if err := os.Rename(whole, path); err != nil {
			return nil, fmt.Errorf("put the new replica in its place: %w", err)
		}
	} else if !errors.Is(err, os.ErrNotExist) { // else it is there
		return nil, fmt.Errorf("put the new replica in its place: %w", err)
	}
	if err := syncPath(dir); err != nil {
		return nil, err
	}
	return OpenStore(ctx, path)
}

// serve makes a store the one that is read, and removes the one before.
func (n *Node) serve(ctx context.Context, store *Store, restored bool) {
	old := n.held.load()
	store.restored = restored
	n.adopt(store)
	n.spoke() // it was compared with the hub just now
	n.held.set(store)
	if old == nil {
		return
	}
	old.retire()
	n.held.closing.Go(func() {
		if err := errors.Join(old.Close(), removeFile(filepath.Join(n.config.Dir, oldFile))); err != nil {
			n.log.WarnContext(ctx, "the old replica is removed", "err", err)
		}
	})
}

// adopt makes the node's directory say what a store does, from now on too.
func (n *Node) adopt(s *Store) {
	n.access.Reset(s.access)
	s.access, s.models = n.access, &n.models
}

// bootstrapping refuses reads while there is no replica yet.
func (n *Node) bootstrapping() error {
	b := n.progress.now()
	return &artifact.Error{
		Code: artifact.CodeUnavailable, Reason: artifact.ReasonBootstrapping, Retryable: true, RetryAfterMS: max(1000, min(b.ETAMs, 60_000)),
		Message: fmt.Sprintf("the node is making its first copy of the hub: %d %% of it is here", b.Percent),
		Details: map[string]any{"phase": b.Phase, "percent": b.Percent, "rows": b.Rows, "total_rows": b.Total, "eta_ms": b.ETAMs},
	}
}

// lease returns the current store in use.
func (n *Node) lease() (*Store, error) {
	if s := n.held.use(); s != nil {
		return s, nil
	}
	return nil, n.bootstrapping()
}
