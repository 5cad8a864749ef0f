package verb

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// A Directory is an [Access] in memory: memberships, who may delegate, and
// revocations, as a server has read them from its store. It is safe for
// concurrent use. The zero value knows nobody.
type Directory struct {
	mu      sync.RWMutex // guards what follows
	members map[string]Roles
	agents  map[string]bool             // may it delegate?
	revoked map[artifact.Hash]time.Time // token → when it ends by itself
	before  map[artifact.Hash]time.Time // agent → its tokens from before then count no more
	changed chan struct{}               // closed at the next change; nil while nobody waits
}

// A Revocation ends a token, or all tokens that an agent was given before a time.
type Revocation struct {
	Token  artifact.Hash // see [TokenID.Hash]; zero for one of an agent
	Agent  artifact.Hash // see [AgentHash]
	Before time.Time     // of an agent's: tokens issued before it; of a token: when it ends by itself
}

// Hash returns what a revocation keeps of a token: nobody can tell the token's id
// from it.
func (t TokenID) Hash() artifact.Hash {
	return artifact.HashBytes([]byte(t.Issuer + "\n" + t.ID))
}

// SessionHash returns what a revocation keeps of all tokens of a session; zero for
// none.
func (t TokenID) SessionHash() artifact.Hash {
	if t.Session == "" {
		return artifact.Hash{}
	}
	return artifact.HashBytes([]byte("session\n" + t.Issuer + "\n" + t.Session))
}

// AgentHash returns what a revocation keeps of an agent.
func AgentHash(id string) artifact.Hash { return artifact.HashBytes([]byte("agent\n" + id)) }

// Roles implements [Access].
func (d *Directory) Roles(agent string) Roles {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.members[agent]
}

// Revoked implements [Access].
func (d *Directory) Revoked(t TokenID) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if len(d.before) > 0 {
		if before, ok := d.before[AgentHash(t.Subject)]; ok && t.Issued.Before(before) {
			return true
		}
	}
	if len(d.revoked) == 0 {
		return false
	}
	_, gone := d.revoked[t.Hash()]
	_, over := d.revoked[t.SessionHash()]
	return gone || over
}

// MayDelegate implements [Access].
func (d *Directory) MayDelegate(agent string) (may, known bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	may, known = d.agents[agent]
	return may, known
}

// Changed returns a channel that is closed when anything changes.
func (d *Directory) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return d.changed
}

// change locks d, makes a change and tells, if f says that anything changed.
func (d *Directory) change(f func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f() && d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// Tell closes the channel of [Directory.Changed], for a change of what is kept
// beside d.
func (d *Directory) Tell() { d.change(func() bool { return true }) }

// SetRoles notes what an agent may do in a scope; without roles it is no member.
func (d *Directory) SetRoles(scope, agent string, roles []Permission) {
	d.change(func() bool {
		before := d.members[agent]
		if slices.Equal(before[scope], roles) {
			return false
		}
		next := maps.Clone(before) // others hold the old one
		if next == nil {
			next = make(Roles)
		}
		if len(roles) == 0 {
			delete(next, scope)
		} else {
			next[scope] = slices.Clone(roles)
		}
		if d.members == nil {
			d.members = make(map[string]Roles)
		}
		if d.members[agent] = next; len(next) == 0 {
			delete(d.members, agent)
		}
		return true
	})
}

// SetAgent notes an agent and whether it may delegate.
func (d *Directory) SetAgent(agent string, mayDelegate bool) {
	d.change(func() bool {
		if d.agents == nil {
			d.agents = make(map[string]bool)
		}
		before, known := d.agents[agent]
		d.agents[agent] = mayDelegate
		return known && before != mayDelegate
	})
}

// Revoke notes a revocation. Those of tokens that have ended by themselves are
// forgotten now and then.
func (d *Directory) Revoke(r Revocation) {
	d.change(func() bool {
		if r.Token.IsZero() {
			if d.before == nil {
				d.before = make(map[artifact.Hash]time.Time)
			}
			if r.Before.After(d.before[r.Agent]) {
				d.before[r.Agent] = r.Before
			}
			return true
		}
		if d.revoked == nil {
			d.revoked = make(map[artifact.Hash]time.Time)
		}
		d.revoked[r.Token] = r.Before
		if len(d.revoked)%1024 == 0 {
			ended := time.Now().Add(-2 * Leeway)
			maps.DeleteFunc(d.revoked, func(_ artifact.Hash, until time.Time) bool { return until.Before(ended) })
		}
		return true
	})
}

// DropScope forgets all memberships of a scope.
func (d *Directory) DropScope(scope string) {
	d.change(func() bool {
		for agent, roles := range d.members {
			if _, member := roles[scope]; member {
				next := maps.Clone(roles)
				delete(next, scope)
				d.members[agent] = next
			}
		}
		return true
	})
}

// Reset replaces all that d knows by what other knows, which is not used any more.
func (d *Directory) Reset(other *Directory) {
	d.change(func() bool {
		d.members, d.agents, d.revoked, d.before = other.members, other.agents, other.revoked, other.before
		return true
	})
}
