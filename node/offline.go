package node

import (
	"os"
	"path/filepath"
	"time"

	"github.com/scidex-ai/substrate/verb"
)

// heardFile marks, by its time, when the node last heard of its hub, so that a
// restart does not make it forget.
const heardFile = "hub-heard"

// heardEvery is how often that is noted.
const heardEvery = time.Minute

// An offlineAccess closes private scopes once the hub has been silent for too
// long: memberships may have ended meanwhile.
type offlineAccess struct {
	*verb.Directory
	closed func() bool
}

// Roles implements [verb.Access].
func (a offlineAccess) Roles(agent string) verb.Roles {
	if a.closed() {
		return nil
	}
	return a.Directory.Roles(agent)
}

// tooLongOffline reports whether the hub has been silent for longer than cached
// rights may count.
func (n *Node) tooLongOffline() bool {
	heard := n.status.Load().Heard
	if heard.IsZero() {
		heard = n.heardBefore
	}
	return time.Since(heard) > n.config.OfflineAuthMax
}

// noteHeard keeps when the hub was heard of, about every minute.
func (n *Node) noteHeard(at time.Time) {
	if at.Sub(n.heardNoted) < heardEvery {
		return
	}
	n.heardNoted = at
	path := filepath.Join(n.config.Dir, heardFile)
	if os.Chtimes(path, at, at) != nil {
		_ = os.WriteFile(path, nil, 0o600) // without it a restart offline closes private scopes early, no more
	}
}

// spoke notes that the hub has answered, while it is not followed.
func (n *Node) spoke() {
	last := *n.status.Load()
	last.Heard = time.Now()
	n.status.Store(&last)
	n.noteHeard(last.Heard)
}

// readHeard returns when the hub was last heard of; the start of time for never.
func readHeard(dir string) time.Time {
	info, err := os.Stat(filepath.Join(dir, heardFile))
	if err != nil || info.ModTime().After(time.Now().Add(verb.Leeway)) { // of another clock
		return time.Time{}
	}
	return info.ModTime()
}
