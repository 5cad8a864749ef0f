package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/rank"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// Config is what a node needs. The zero value of every optional field is a
// working default.
type Config struct {
	Dir    string // required: where the replica and what goes with it lie
	HubURL string // required: without a trailing slash

	// Identity is what the node is enrolled as. Without one it follows the feed
	// with Token, an agent's, and holds what that agent may see.
	Identity *Identity
	Token    string

	// AnonymousRead lets those without a token read commons.
	AnonymousRead bool

	// Issuers are those outside the network whose tokens are taken too.
	Issuers []verb.Issuer

	// OfflineAuthMax is how long after the last word of the hub the rights that
	// it told of still count. Then private scopes close. The default is 24 hours.
	OfflineAuthMax time.Duration

	// HTTP reaches the hub. It must have no timeout: the feed is a long answer.
	// The default is a client of its own.
	HTTP *http.Client

	// Log is where the node logs. The default discards.
	Log *slog.Logger

	// Metrics is where the node registers what it counts. The default is a
	// registry that nobody reads.
	Metrics prometheus.Registerer

	// WriteWait bounds how long a mutation waits for the replica to have what it
	// wrote. The default is 2 seconds.
	WriteWait time.Duration

	// StaleAfter is how long after the last word of the hub the replica counts
	// as stale. The default is 15 seconds.
	StaleAfter time.Duration

	// RetryWait is the least pause before the node asks again for what it could not
	// take, such as a row that is not what its hash says. The default is 20 seconds.
	RetryWait time.Duration

	// Embeddings, when set, is asked what searches mean, by the model that the hub's
	// vectors are by. Their texts leave the node to its URL alone. Without it auto
	// finds by words.
	Embeddings *embed.Client

	// Rerank, when set, orders hits for searches that ask for it.
	Rerank *embed.Reranker

	// SelfCheck is how often, about, the node compares its replica with the hub and
	// mends what differs; 0 is never.
	SelfCheck time.Duration

	// RebuildWait bounds the pause before a replica that the hub can no longer keep
	// up is built anew: nodes that all meet the same do not come at one time. The
	// default is 30 seconds.
	RebuildWait time.Duration

	// Origins are the web origins, beside the node's own, whose pages may call it
	// with the cookie, open websockets and read answers.
	Origins []string

	// Limits bound what each agent and client address may do. The default is
	// [verb.StandardLimits].
	Limits verb.Limits

	// TrustedProxies are those whose X-Forwarded-For names the client.
	TrustedProxies []netip.Prefix

	// Introspection lets clients ask for the schema.
	Introspection bool

	// Version is told in the replica's status.
	Version string
}

// A Node is a lab's replica and what serves it. It is safe for concurrent use.
type Node struct {
	config   Config
	log      *slog.Logger
	held     *holder         // of the replica
	access   *verb.Directory // who may do what, as the replica that is served says
	models   rank.Models
	wanted   chan plan // what is to be built
	copyOf   string    // the hub of a file that this build cannot read; "" for none
	progress *progress
	hub      *verb.Client
	feed     *replicate.Client
	verifier *verb.Verifier
	status   atomic.Pointer[link]
	started  time.Time
	readers  atomic.Int64 // open subscriptions

	consumers *consumers
	groups    groups

	repairing sync.Mutex // held during a repair
	checks    checks
	builds    int       // within an hour; for the tender alone
	lastBuild time.Time // for the tender alone

	heardBefore time.Time // when the hub was last heard of before the start
	heardNoted  time.Time // for the follower alone
}

// A link is what the node knows of its hub.
type link struct {
	replicate.Status
	fatal error     // why following ended for good
	live  time.Time // when the replica was last known to be at the hub's head
}

// ReplicaFile is the name of the replica in a node's directory.
const ReplicaFile = "replica.db"

// Open opens a node's replica. Without one, [Node.Run] copies the hub before
// anything is served. Open starts nothing. The caller closes the node.
func Open(ctx context.Context, c Config) (*Node, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.WriteWait = cmp.Or(c.WriteWait, 2*time.Second)
	c.StaleAfter = cmp.Or(c.StaleAfter, 15*time.Second)
	c.RebuildWait = cmp.Or(c.RebuildWait, 30*time.Second)
	c.OfflineAuthMax = cmp.Or(c.OfflineAuthMax, 24*time.Hour)
	c.Version = cmp.Or(c.Version, "dev")
	var err error
	if c.Origins, err = verb.ParseOrigins(c.Origins); err != nil {
		return nil, err
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{Transport: newTransport()}
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the node's directory: %w", err)
	}
	n := &Node{
		config: c, log: c.Log, access: new(verb.Directory), wanted: make(chan plan, 1), checks: newChecks(), progress: &progress{log: c.Log},
		started: time.Now(), heardBefore: readHeard(c.Dir), models: rank.Models{Embed: c.Embeddings, Rerank: c.Rerank, Log: c.Log},
	}
	store, err := openReplica(ctx, c.Dir)
	if errors.Is(err, ErrOtherSchema) {
		// It is built anew, from the same hub; the file stays until then.
		if n.copyOf, err = hubOf(ctx, filepath.Join(c.Dir, ReplicaFile)); err == nil {
			n.log.WarnContext(ctx, "the replica is of another version of this program: a new one is built")
		}
	}
	if err != nil {
		return nil, err
	}
	n.held = newHolder(store)
	if store != nil {
		n.adopt(store)
	}
	n.hub = &verb.Client{URL: c.HubURL, HTTP: &http.Client{Transport: c.HTTP.Transport, Timeout: 30 * time.Second}}
	n.feed = &replicate.Client{URL: c.HubURL, Token: c.Token, HTTP: c.HTTP}
	keys := keyFile{path: filepath.Join(c.Dir, "jwks.json")}
	n.verifier = &verb.Verifier{Keys: &verb.RemoteKeys{
		URL: c.HubURL + "/.well-known/jwks.json", HTTP: n.hub.HTTP, Load: keys.load, Store: keys.store,
	}}
	n.status.Store(new(link))
	n.verifier.Access = offlineAccess{n.access, n.tooLongOffline}
	n.verifier.TrustIssuer, n.verifier.AnonymousRead = true, c.AnonymousRead
	for i, issuer := range c.Issuers {
		own := keyFile{path: filepath.Join(c.Dir, "jwks-"+artifact.HashBytes([]byte(issuer.Name)).String()[len("sha256:"):][:16]+".json")}
		issuer.Keys = &verb.RemoteKeys{URL: issuer.JWKSURL, Load: own.load, Store: own.store, Log: c.Log}
		c.Issuers[i] = issuer
	}
	n.verifier.Issuers = c.Issuers
	if err := n.verifier.Check(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	if c.Identity != nil {
		key := c.Identity.Key()
		credential := func() (string, error) { return key.Credential(c.Identity.HubID) }
		n.feed.Credential, n.hub.Credential = credential, credential
		n.verifier.Audiences = []string{verb.Audience, verb.NodeAudience(c.Identity.NodeID)}
	}
	registerMetrics(n, c.Metrics)
	kept, err := openLeases(ctx, c.Dir)
	if err != nil {
		return nil, errors.Join(err, n.held.close())
	}
	n.consumers = &consumers{node: n, leases: kept}
	return n, nil
}

func newTransport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = 64
	return t
}

// openReplica opens the replica of a directory; nil when there is none, or one
// that never heard of a hub.
func openReplica(ctx context.Context, dir string) (*Store, error) {
	path := filepath.Join(dir, ReplicaFile)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	store, err := OpenStore(ctx, path)
	if err == nil && store.now.Load().position.HubID == "" {
		return nil, store.Close()
	}
	return store, err
}

// hubOf returns the hub that a file of another schema is of. Its error wraps
// [ErrOtherSchema] when it is no replica at all.
func hubOf(ctx context.Context, path string) (hub string, err error) {
	f := sqliteFile{path: path}
	db := f.pool(url.Values{"mode": {"ro"}})
	if err = db.QueryRowContext(ctx, "SELECT hub_id FROM replica_state").Scan(&hub); err != nil || hub == "" {
		err = fmt.Errorf("%w: %s is no replica: move it away", ErrOtherSchema, path)
	}
	return hub, errors.Join(err, db.Close())
}

// Store returns the node's replica as it is now; nil while there is none. Another
// may take its place while the node runs.
func (n *Node) Store() *Store { return n.held.load() }

// Access returns who may do what, as far as the node knows.
func (n *Node) Access() *verb.Directory { return n.access }

// Close closes the replica. Call it after [Node.Run] has returned.
func (n *Node) Close() error {
	err := n.held.close()
	if n.consumers != nil {
		err = errors.Join(err, n.consumers.leases.db.Close())
	}
	return err
}

// Run copies the hub, if the node has no replica yet, and follows it until ctx
// ends. Then it returns nil. When the hub no longer knows the replica's history,
// another is built beside it, which is served meanwhile. When the two do not fit
// together for good, the node says so, goes on answering reads from what it has,
// and follows no more.
func (n *Node) Run(ctx context.Context) error {
	var keys sync.WaitGroup
	keys.Go(func() { _ = n.verifier.Run(ctx) }) // Open has checked it; all else it tells in the log
	keys.Go(func() { n.checkItself(ctx) })
	keys.Go(func() { n.keepIndex(ctx) })
	keys.Go(func() { n.keepFacets(ctx) })
	keys.Go(func() { n.keepTidy(ctx) })
	keys.Go(func() { n.consumers.keep(ctx) })
	defer keys.Wait()
	for ctx.Err() == nil {
		n.tend(ctx)
	}
	return nil
}

// heard takes in what the follower knows, after each frame was applied.
func (n *Node) heard(s replicate.Status) {
	next := &link{Status: s, live: n.status.Load().live}
	if s.Connected {
		n.noteHeard(s.Heard)
	}
	n.meetRefusal(s.Err)
	if s.Connected && n.applied() >= s.Head {
		next.live = s.Heard
	}
	n.status.Store(next)
}

// applied returns the position of the replica; 0 while there is none.
func (n *Node) applied() artifact.Seq {
	if s := n.held.load(); s != nil {
		return s.Applied()
	}
	return 0
}

// freshness tells how the replica stands now.
func (n *Node) freshness() (f freshness) {
	l := n.status.Load()
	f.applied = n.applied()
	f.head = max(l.Head, f.applied)
	f.connected = l.Connected
	f.heard, f.fatal = l.Heard, l.fatal
	f.stale = !l.Connected || time.Since(l.Heard) > n.config.StaleAfter
	if f.stale || f.applied < f.head {
		f.lag = time.Since(n.started)
		if !l.live.IsZero() {
			f.lag = time.Since(l.live)
		}
	}
	return f
}

// A keyFile keeps the hub's public keys, so that tokens verify while it is away.
type keyFile struct{ path string }

func (k keyFile) load(context.Context) (set verb.JWKS, err error) {
	raw, err := os.ReadFile(k.path)
	if err != nil {
		return set, err
	}
	return set, json.Unmarshal(raw, &set)
}

func (k keyFile) store(_ context.Context, set verb.JWKS) error {
	raw, err := json.Marshal(set)
	if err != nil {
		return err
	}
	side := k.path + ".new"
	return errors.Join(os.WriteFile(side, raw, 0o600), os.Rename(side, k.path))
}
