package hub

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

const (
	keysEvery  = 10 * time.Second // how soon a hub signs with a key that another process made
	keysAtMost = time.Second      // between two readings for keys that are not known
)

// A keyring is the hub's signing keys, read from the database again and again. It
// implements [verb.KeySource].
type keyring struct {
	db  *pgxpool.Pool
	log *slog.Logger
	set atomic.Pointer[keySet] // never nil

	turn  chan struct{} // holds one token; whoever has it reads the keys and uses what follows
	tried time.Time
	err   error // of the last try
}

type keySet struct {
	keys   []signingKey // those that sign first, the newest of them before all
	public verb.StaticKeys
}

type signingKey struct {
	*verb.Key
	ends time.Time // of a retired key; zero for one that signs
}

func (k *signingKey) ended() bool { return !k.ends.IsZero() && !time.Now().Before(k.ends) }

func openKeyring(ctx context.Context, db *pgxpool.Pool, log *slog.Logger) (*keyring, error) {
	r := &keyring{db: db, log: log, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r, r.reload(ctx, 0)
}

// run reads the keys now and then until ctx ends.
func (r *keyring) run(ctx context.Context) error {
	tick := time.NewTicker(keysEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := r.reload(ctx, 0); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "signing keys not read", "err", err)
		}
	}
}

// reload reads the keys unless that was tried within the interval.
func (r *keyring) reload(ctx context.Context, interval time.Duration) error {
	select {
	case <-r.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { r.turn <- struct{}{} }()
	if time.Since(r.tried) < interval {
		return r.err
	}
	set, err := readKeys(ctx, r.db)
	if err == nil {
		r.set.Store(set)
	}
	if ctx.Err() == nil { // else it says nothing of the database
		r.tried, r.err = time.Now(), err
	}
	return err
}

// PublicKey implements [verb.KeySource].
func (r *keyring) PublicKey(ctx context.Context, kid string) (*verb.PublicKey, error) {
	if k := r.set.Load().find(kid); k != nil {
		return k, nil
	}
	if err := r.reload(ctx, keysAtMost); err != nil {
		return nil, &artifact.Error{
			Code: artifact.CodeUnavailable, Reason: artifact.ReasonUnknownKey, Retryable: true, RetryAfterMS: 1000,
			Message: "the token's key is not known here and the database does not answer; retry once it does",
		}
	}
	if k := r.set.Load().find(kid); k != nil {
		return k, nil
	}
	return nil, verb.UnknownKey()
}

// Holds implements [verb.KeySource].
func (r *keyring) Holds(k *verb.PublicKey) bool {
	s := r.set.Load()
	return s.find(k.ID) != nil && s.public.Holds(k)
}

func (s *keySet) find(kid string) *verb.PublicKey {
	if slices.ContainsFunc(s.keys, func(k signingKey) bool { return k.ID == kid && k.ended() }) {
		return nil
	}
	return s.public[kid]
}

func (s *keySet) jwks() verb.JWKS {
	set := verb.JWKS{Keys: make([]verb.JWK, 0, len(s.keys))}
	for _, k := range s.keys {
		if !k.ended() {
			set.Keys = append(set.Keys, k.PublicJWK())
		}
	}
	return set
}

func readKeys(ctx context.Context, db *pgxpool.Pool) (*keySet, error) {
	// How long a key is left is told by the database's clock, which ended it.
	const query = `
		SELECT seed, retired_at IS NULL, coalesce(extract(epoch FROM ends_at - now()), 0)::float8
		FROM signing_key
		WHERE retired_at IS NULL OR ends_at > now()
		ORDER BY retired_at IS NOT NULL, created_at DESC, kid`
	rows, err := db.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("read signing keys: %w", err)
	}
	s := &keySet{public: verb.StaticKeys{}}
	var seed []byte
	var signs bool
	var left float64
	_, err = pgx.ForEachRow(rows, []any{&seed, &signs, &left}, func() error {
		k := signingKey{Key: keyFromSeed(seed)}
		if !signs {
			k.ends = time.Now().Add(time.Duration(left * float64(time.Second)))
		}
		s.keys = append(s.keys, k)
		s.public[k.ID] = k.Public()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read signing keys: %w", err)
	}
	if len(s.keys) == 0 || !s.keys[0].ends.IsZero() {
		return nil, errors.New("the hub has no signing key; scidex keys rotate makes one")
	}
	return s, nil
}

// SigningKey returns the key that signs tokens.
func (h *Hub) SigningKey() *verb.Key { return h.keys.set.Load().keys[0].Key }

// JWKS returns the public halves of the hub's keys: of those that sign and of
// those retired whose tokens still count.
func (h *Hub) JWKS() verb.JWKS { return h.keys.set.Load().jwks() }

// serveKeys answers with the key set as the database has it, so that no reader
// misses a key that another process signs with.
func (h *Hub) serveKeys(w http.ResponseWriter, req *http.Request) {
	_ = h.keys.reload(req.Context(), keysAtMost) // when it fails, the keys known are served
	w.Header().Set("Cache-Control", "public, max-age=60")
	verb.WriteJSON(w, http.StatusOK, h.JWKS())
}

// SigningKey returns the key that signs a hub's tokens, from its database.
func SigningKey(ctx context.Context, db *pgxpool.Pool) (*verb.Key, error) {
	if err := checkIdentity(ctx, db); err != nil {
		return nil, err
	}
	s, err := readKeys(ctx, db)
	if err != nil {
		return nil, err
	}
	return s.keys[0].Key, nil
}

func checkIdentity(ctx context.Context, db *pgxpool.Pool) error {
	if err := CheckMigrated(ctx, db); err != nil {
		return err
	}
	_, err := readIdentity(ctx, db)
	return err
}

// A KeyInfo tells of a signing key without its secret.
type KeyInfo struct {
	ID        string     `json:"kid"`
	State     KeyState   `json:"state"`
	CreatedAt time.Time  `json:"created_at"`
	RetiredAt *time.Time `json:"retired_at"`
	EndsAt    *time.Time `json:"ends_at"` // when its tokens count no more
}

// A KeyState says what a key does.
type KeyState string

// The states of a key, in the order of its life.
const (
	KeySigning   KeyState = "signing"
	KeyVerifying KeyState = "verifying" // it signs no more; its tokens still count
	KeyEnded     KeyState = "ended"
)

// Keys returns all signing keys that a hub ever had, the newest first.
func Keys(ctx context.Context, db *pgxpool.Pool) ([]KeyInfo, error) {
	if err := checkIdentity(ctx, db); err != nil {
		return nil, err
	}
	const query = `
		SELECT kid, CASE WHEN retired_at IS NULL THEN 'signing' WHEN ends_at > now() THEN 'verifying' ELSE 'ended' END,
			created_at, retired_at, ends_at
		FROM signing_key
		ORDER BY created_at DESC, kid`
	rows, err := db.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("list signing keys: %w", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[KeyInfo])
	if err != nil {
		return nil, fmt.Errorf("list signing keys: %w", err)
	}
	return keys, nil
}

// RotateKey makes a new signing key and returns its id. The keys before it sign
// no more, once running hubs have learnt of it, within ten seconds; their tokens
// count until they end or the overlap is over, whichever is first.
func RotateKey(ctx context.Context, db *pgxpool.Pool, overlap time.Duration) (kid string, err error) {
	if overlap < 0 {
		return "", errors.New("the overlap is not negative")
	}
	if err := checkIdentity(ctx, db); err != nil {
		return "", err
	}
	err = changeKeys(ctx, db, func(tx pgx.Tx) error {
		const retire = `
			UPDATE signing_key SET retired_at = now(), ends_at = now() + make_interval(secs => $1)
			WHERE retired_at IS NULL`
		if _, err := tx.Exec(ctx, retire, overlap.Seconds()); err != nil {
			return err
		}
		kid, err = insertKey(ctx, tx)
		return err
	})
	return kid, err
}

// RetireKey ends a key whose secret may be known to others: within ten seconds no
// hub takes a token of it, and each node follows when it next reads the key set.
// When no other key signs, a new one is made.
func RetireKey(ctx context.Context, db *pgxpool.Pool, kid string) error {
	if err := checkIdentity(ctx, db); err != nil {
		return err
	}
	return changeKeys(ctx, db, func(tx pgx.Tx) error {
		const end = `
			UPDATE signing_key SET retired_at = coalesce(retired_at, now()), ends_at = least(ends_at, now())
			WHERE kid = $1`
		tag, err := tx.Exec(ctx, end, kid)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("no key %q; scidex keys list shows them", kid)
		}
		var signs bool
		const query = `SELECT EXISTS (SELECT 1 FROM signing_key WHERE retired_at IS NULL)`
		if err := tx.QueryRow(ctx, query).Scan(&signs); err != nil || signs {
			return err
		}
		_, err = insertKey(ctx, tx)
		return err
	})
}

// changeKeys changes keys while nobody else does.
func changeKeys(ctx context.Context, db *pgxpool.Pool, change func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `LOCK TABLE signing_key IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return fmt.Errorf("lock the signing keys: %w", err)
		}
		return change(tx)
	})
}

func insertKey(ctx context.Context, tx pgx.Tx) (kid string, err error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := rand.Read(seed); err != nil {
		return "", err
	}
	kid = keyFromSeed(seed).ID
	const insert = `INSERT INTO signing_key (kid, algorithm, seed) VALUES ($1, 'EdDSA', $2)`
	if _, err := tx.Exec(ctx, insert, kid, seed); err != nil {
		return "", fmt.Errorf("make a signing key: %w", err)
	}
	return kid, nil
}

// MayDelegate returns an error that names those of some agents for whom no other
// may act: unknown ones, and those that may not delegate.
func MayDelegate(ctx context.Context, db *pgxpool.Pool, agents []string) error {
	if err := checkIdentity(ctx, db); err != nil {
		return err
	}
	const query = `SELECT id, may_delegate FROM agent WHERE id = ANY($1)`
	rows, err := db.Query(ctx, query, agents)
	if err != nil {
		return fmt.Errorf("read who may delegate: %w", err)
	}
	known := map[string]bool{}
	var id string
	var may bool
	if _, err := pgx.ForEachRow(rows, []any{&id, &may}, func() error {
		known[id] = may
		return nil
	}); err != nil {
		return fmt.Errorf("read who may delegate: %w", err)
	}
	var unknown, refused []string
	for _, a := range agents {
		switch may, ok := known[a]; {
		case !ok:
			unknown = append(unknown, a)
		case !may:
			refused = append(refused, a)
		}
	}
	switch {
	case unknown != nil:
		return fmt.Errorf("the hub does not know %s: an agent is known once it has written something or is a member of a scope", strings.Join(unknown, ", "))
	case refused != nil:
		return fmt.Errorf("%s may not delegate; an admin can allow it", strings.Join(refused, ", "))
	}
	return nil
}
