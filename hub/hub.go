package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/rank"
	"github.com/scidex-ai/substrate/verb"
)

// Config is what a hub needs. The zero value of every optional field is a
// working default.
type Config struct {
	DB *pgxpool.Pool // required, from [OpenPool]; the caller closes it

	// Log is where the hub logs. The default discards.
	Log *slog.Logger

	// Metrics is where the hub registers what it counts. The default is a
	// registry that nobody reads.
	Metrics prometheus.Registerer

	// PollInterval is how long the feed waits for a wake-up before it reads the
	// log anyway. The default is 250 ms.
	PollInterval time.Duration

	// RingBytes bounds the encoded rows that the feed keeps in memory. The
	// default is 64 MiB.
	RingBytes int

	// PartitionRows is how many seqs a new partition of the log spans. The
	// default is 1,048,576.
	PartitionRows int64

	// Retention says how much of the log is kept.
	Retention Retention

	// Consumers bounds durable consumers.
	Consumers ConsumerConfig

	// Jobs says how the hub's own jobs run.
	Jobs JobConfig

	// Origins are the web origins, beside the hub's own, whose pages may call it
	// with the cookie and read answers.
	Origins []string

	// Limits bound what each agent and client address may do. The default is
	// [verb.StandardLimits].
	Limits verb.Limits

	// TrustedProxies are those whose X-Forwarded-For names the client.
	TrustedProxies []netip.Prefix

	// AnonymousRead lets those without a token read commons through the verbs.
	AnonymousRead bool

	// Issuers are those outside the network whose tokens are taken too.
	Issuers []verb.Issuer

	// Secret, of at least 32 bytes, makes the hub take HS256 tokens. It is for
	// development: whoever has it can sign any.
	Secret []byte

	// Embeddings, when set, is asked what artifacts and searches mean. Their texts
	// leave the hub to its URL alone.
	Embeddings *embed.Client

	// Rerank, when set, orders hits for searches that ask for it.
	Rerank *embed.Reranker

	// NodeURL, when set, is where GET / sends people to look around.
	NodeURL string

	// Version is told in the OpenAPI document and in metrics.
	Version string
}

// A Hub runs the verbs against PostgreSQL. It is safe for concurrent use.
type Hub struct {
	config   Config
	db       *pgxpool.Pool
	log      *slog.Logger
	id       identity
	keys     *keyring
	pump     *pump
	lane     *lane
	solo     chan struct{} // has room for writes that run alone
	events   recentEvents  // as far as the pump has read
	live     liveConsumers // streams of durable consumers
	reading  chan struct{} // has room for followers that read the database
	fills    chan struct{} // has room for pages of back-fills
	schemas  schemaCache
	indexed  indexed
	vectors  vectors
	models   rank.Models
	access   access
	verifier *verb.Verifier
	agents   sync.Map // agents that the feed has told of; seenIn → struct{}
	metrics  *metrics
	digests  digests
}

// identity is what the database says of itself.
type identity struct {
	hubID string
	epoch int
}

// OpenPool connects to a database and sets the limits that keep one stuck client
// from holding up the others.
func OpenPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("database URL: not a PostgreSQL URL or connection string") // the text may hold a password
	}
	for name, value := range map[string]string{
		"application_name":                    "scidex",
		"timezone":                            "UTC",
		"lock_timeout":                        "5s",
		"statement_timeout":                   "60s",
		"idle_in_transaction_session_timeout": "3s", // less than lock_timeout: who waits for a stuck holder outlasts it
		"default_transaction_isolation":       "read committed",
		// Every query here is written for one plan; planning it anew for each
		// call costs more than most of them run.
		"plan_cache_mode": "force_generic_plan",
	} {
		if _, set := c.ConnConfig.RuntimeParams[name]; !set {
			c.ConnConfig.RuntimeParams[name] = value
		}
	}
	if c.MaxConns < 16 {
		c.MaxConns = 16
	}
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return pool, nil
}

// Open returns a hub on a database that [Init] made and whose migrations are
// current; otherwise its error says what to run. It starts nothing: [Hub.Run]
// does.
func Open(ctx context.Context, c Config) (*Hub, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.PollInterval = cmp.Or(c.PollInterval, 250*time.Millisecond)
	c.RingBytes = cmp.Or(c.RingBytes, 64<<20)
	c.PartitionRows = cmp.Or(c.PartitionRows, defaultPartitionRows)
	c.Consumers = c.Consumers.orDefaults()
	c.Jobs = c.Jobs.orDefaults()
	c.Version = cmp.Or(c.Version, "dev")
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	var err error
	if c.Origins, err = verb.ParseOrigins(c.Origins); err != nil {
		return nil, err
	}
	if err := CheckMigrated(ctx, c.DB); err != nil {
		return nil, err
	}
	if c.Embeddings != nil && c.Embeddings.Model() == "" {
		return nil, errors.New("name the model that vectors are to be by")
	}
	id, err := readIdentity(ctx, c.DB)
	if err != nil {
		return nil, err
	}
	h := &Hub{config: c, db: c.DB, log: c.Log, id: id, digests: digests{turn: make(chan struct{}, 1)}}
	h.lane = &lane{hub: h}
	h.indexed.wanted = make(chan struct{}, 1)
	h.vectors.wanted = make(chan struct{}, 1)
	h.models = rank.Models{Embed: c.Embeddings, Rerank: c.Rerank, Log: c.Log}
	h.schemas.changed = make(chan struct{}, 1)
	h.solo = make(chan struct{}, max(1, h.db.Config().MaxConns/2)) // they may wait for locks; the rest have connections meanwhile
	h.fills = make(chan struct{}, fillsAtOnce)
	h.reading = make(chan struct{}, max(1, h.db.Config().MaxConns/4))
	if h.keys, err = openKeyring(ctx, h.db, h.log); err != nil {
		return nil, err
	}
	h.verifier = &verb.Verifier{
		Keys: h.keys, Access: &h.access, Nodes: &h.access, Hub: id.hubID,
		AnonymousRead: c.AnonymousRead, Issuers: c.Issuers, Secret: c.Secret,
	}
	if err := h.verifier.Check(); err != nil {
		return nil, err
	}
	h.metrics = newMetrics(h, c.Metrics)
	h.pump = newPump(h.db, c.Log, c.PollInterval, c.RingBytes, func(rows []logRow) error {
		h.events.follow(rows)
		h.followVectors(rows)
		return errors.Join(h.access.follow(rows), h.schemas.follow(rows))
	})
	h.pump.reload = func(ctx context.Context) error {
		return errors.Join(h.access.load(ctx, h.db), h.schemas.load(ctx, h.db), h.loadVectors(ctx))
	}
	if err := h.access.load(ctx, h.db); err != nil {
		return nil, err
	}
	if err := errors.Join(h.schemas.load(ctx, h.db), h.loadVectors(ctx)); err != nil {
		return nil, err
	}
	return h, nil
}

// Run feeds followers, keeps partitions ahead of the log and trims it until ctx
// ends, then waits for all to stop and returns nil. Any other return is a failure.
func (h *Hub) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.pump.run(ctx) })
	g.Go(func() error { return h.notify(ctx) })
	g.Go(func() error { return h.listen(ctx) })
	g.Go(func() error { return h.keepPartitions(ctx) })
	g.Go(func() error { return h.keepRetention(ctx) })
	g.Go(func() error { return h.keepPresence(ctx) })
	g.Go(func() error { return h.keepIndex(ctx) })
	g.Go(func() error { return h.keepFacets(ctx) })
	g.Go(func() error { return h.keepVectors(ctx) })
	g.Go(func() error { return h.keepConsumers(ctx) })
	g.Go(func() error { return h.keepJobs(ctx) })
	g.Go(func() error { return h.keys.run(ctx) })
	g.Go(func() error { return h.verifier.Run(ctx) })
	return g.Wait()
}

// HubID returns the id that replicas know the hub by.
func (h *Hub) HubID() string { return h.id.hubID }

// Epoch returns the epoch of the log.
func (h *Hub) Epoch() int { return h.id.epoch }

// Verifier returns what verifies the hub's own tokens.
func (h *Hub) Verifier() *verb.Verifier { return h.verifier }

func readIdentity(ctx context.Context, db *pgxpool.Pool) (id identity, err error) {
	const query = `
		SELECT h.hub_id, h.system_identifier, (SELECT system_identifier::text FROM pg_control_system()), max(e.epoch)
		FROM hub h CROSS JOIN epoch e
		GROUP BY h.hub_id, h.system_identifier`
	var known, actual string
	err = db.QueryRow(ctx, query).Scan(&id.hubID, &known, &actual, &id.epoch)
	if errors.Is(err, pgx.ErrNoRows) {
		return id, ErrNotInitialised
	} else if err != nil {
		return id, fmt.Errorf("read the hub's identity: %w", err)
	}
	if known != actual {
		return id, errors.New("the database moved to another PostgreSQL cluster since the hub last ran: " +
			"replicas may hold changes that it lost; run scidex hub adopt --reason restore, or --reason upgrade when nothing can be lost")
	}
	return id, nil
}

// head returns the last seq of the log as a read sees it.
const headQuery = `SELECT coalesce((SELECT c.seq FROM feed.change c ORDER BY c.seq DESC LIMIT 1), 0)`

// Head returns the last seq of the log.
func (h *Hub) Head(ctx context.Context) (artifact.Seq, error) {
	var seq artifact.Seq
	err := h.db.QueryRow(ctx, headQuery).Scan(&seq)
	return seq, err
}
