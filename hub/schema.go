package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

type timeOf = time.Time

// A schemaCache holds the current schema of every type, compiled. A write reads
// the versions in its transaction; when the cache is behind, it loads again. The
// log brings what other hubs change.
type schemaCache struct {
	mu       sync.RWMutex
	byType   map[string]*artifact.Schema // guarded by mu
	breaking map[string]json.RawMessage  // guarded by mu: documents of breaking versions, by type@version
	upgrades *artifact.Upgrades          // guarded by mu; replaced, never changed
	changed  chan struct{}               // has room for one; nil where nobody waits
}

func (c *schemaCache) load(ctx context.Context, db *pgxpool.Pool) error {
	const query = `
		SELECT document, is_current FROM schema_registry
		WHERE is_current OR document LIKE '%"compatibility":"breaking"%'
		ORDER BY artifact_type, schema_version`
	rows, err := db.Query(ctx, query)
	if err != nil {
		return fmt.Errorf("read schemas: %w", err)
	}
	var document string
	var current bool
	_, err = pgx.ForEachRow(rows, []any{&document, &current}, func() error { return c.put([]byte(document), current) })
	if err != nil {
		return fmt.Errorf("read schemas: %w", err)
	}
	return c.settle()
}

// put takes in a document. One that is older than what is known changes nothing.
// [schemaCache.settle] follows.
func (c *schemaCache) put(document []byte, current bool) error {
	var named struct {
		Type          string `json:"type"`
		Version       int    `json:"schema_version"`
		Compatibility string `json:"compatibility"`
	}
	if err := json.Unmarshal(document, &named); err != nil {
		return fmt.Errorf("stored schema: %w", err)
	}
	if named.Compatibility == artifact.CompatibilityBreaking {
		c.mu.Lock()
		if c.breaking == nil {
			c.breaking = make(map[string]json.RawMessage)
		}
		c.breaking[schemaID(named.Type, named.Version)] = document
		c.mu.Unlock()
	}
	if known := c.get(named.Type); !current || known != nil && known.SchemaVersion >= named.Version {
		return nil
	}
	s, err := artifact.ParseSchema(document)
	if err != nil {
		return fmt.Errorf("stored schema: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.byType[s.Type]; known == nil || known.SchemaVersion < s.SchemaVersion {
		if c.byType == nil {
			c.byType = make(map[string]*artifact.Schema)
		}
		c.byType[s.Type] = s
	}
	return nil
}

// settle makes the upgrades of what was put in.
func (c *schemaCache) settle() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := new(artifact.Upgrades)
	for _, document := range c.breaking {
		if err := fresh.Add(document); err != nil {
			return err
		}
	}
	c.upgrades = fresh
	c.wakeFacets()
	return nil
}

// learn takes in the types that a commit changed.
func (c *schemaCache) learn(r *changeRows) error {
	changed := false
	for i, kind := range r.kind {
		if kind != replicate.KindSchema || r.data[i] == nil {
			continue
		}
		changed = true
		if err := c.putRow([]byte(*r.data[i])); err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	return c.settle()
}

// follow takes in rows of the log.
func (c *schemaCache) follow(rows []logRow) error {
	changed := false
	for i := range rows {
		if r := &rows[i]; r.Kind == replicate.KindSchema && len(r.Data) > 0 {
			changed = true
			if err := c.putRow(r.Data); err != nil {
				return fmt.Errorf("change %d, %s: %w", r.Seq, r.Ref, err)
			}
		}
	}
	if !changed {
		return nil
	}
	return c.settle()
}

func (c *schemaCache) putRow(data []byte) error {
	var row replicate.Schema
	if err := json.Unmarshal(data, &row); err != nil {
		return err
	}
	return c.put(row.Document, true)
}

// ensure looks for types that are not known here yet: another hub may have just
// made them.
func (c *schemaCache) ensure(ctx context.Context, db *pgxpool.Pool, types ...string) error {
	unknown := slices.DeleteFunc(slices.Clone(types), func(typ string) bool { return !artifact.ValidType(typ) || c.get(typ) != nil })
	if len(unknown) == 0 {
		return nil
	}
	const query = `SELECT EXISTS (SELECT FROM schema_registry WHERE is_current AND artifact_type = ANY ($1))`
	var made bool
	if err := db.QueryRow(ctx, query, unknown).Scan(&made); err != nil {
		return callerError(fmt.Errorf("look for types: %w", err))
	}
	if !made {
		return nil
	}
	return callerError(c.load(ctx, db))
}

// get returns the schema of a type, or nil.
func (c *schemaCache) get(typ string) *artifact.Schema {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byType[typ]
}

// upgrade puts the upgraded content beside the stored one.
func (c *schemaCache) upgrade(a *artifact.Artifact) {
	c.mu.RLock()
	upgrades := c.upgrades
	c.mu.RUnlock()
	upgrades.Beside(a)
}

// inForm returns a version that was stored under a schema version in the form of its
// type's current schema, and whether that is another. One that cannot be upgraded
// stays as it is, and is then refused by that schema.
func (s *state) inForm(typ string, version int, v artifact.Version) (artifact.Version, bool) {
	c := &s.hub.schemas
	c.mu.RLock()
	upgrades := c.upgrades
	c.mu.RUnlock()
	next, changed, err := upgrades.Upgrade(typ, version, v)
	if err != nil {
		return v, true
	}
	return next, changed
}

// upgradesWith returns the upgrades of a type once schema is its current one.
func (c *schemaCache) upgradesWith(schema *artifact.Schema) (*artifact.Upgrades, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	u := new(artifact.Upgrades)
	for id, document := range c.breaking {
		if !strings.HasPrefix(id, schema.Type+"@v") {
			continue
		}
		if err := u.Add(document); err != nil {
			return nil, err
		}
	}
	return u, u.Add(schema.Document())
}

// types returns the names of all types, in order.
func (c *schemaCache) types() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Sorted(maps.Keys(c.byType))
}

// replacing returns the types of whose signals of a kind each voter's last counts.
func (c *schemaCache) replacing(kind string) (types []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for typ, s := range c.byType {
		if s.Signals[kind].Aggregation == artifact.AggregateReplace {
			types = append(types, typ)
		}
	}
	return types
}

// addressed returns the types of all that has a ref to read it by.
func (c *schemaCache) addressed() []string {
	return append(c.types(), replicate.LinkType, replicate.SignalType)
}

// schemaOf returns the schema of a type as the transaction has read it.
func (s *state) schemaOf(typ string) (*artifact.Schema, error) {
	schema := s.hub.schemas.get(typ)
	if schema == nil {
		return nil, errStaleSchemas
	}
	if version, read := s.versions[typ]; read && version != schema.SchemaVersion {
		return nil, errStaleSchemas
	}
	return schema, nil
}

func schemaID(typ string, version int) string { return fmt.Sprintf("%s@v%d", typ, version) }

// schema answers the verb of that name.
func (h *Hub) schema(ctx context.Context, in verb.SchemaRequest) (out verb.SchemaResponse, err error) {
	if _, err := verb.CallerFrom(ctx); err != nil {
		return out, err
	}
	if err := in.Check(); err != nil {
		return out, err
	}
	const query = `
		SELECT artifact_type, schema_version, is_current, document, created_at
		FROM schema_registry
		WHERE ($1 = '' OR artifact_type = $1) AND CASE WHEN $3 THEN true WHEN $2 = 0 THEN is_current ELSE schema_version = $2 END
		ORDER BY artifact_type, schema_version DESC LIMIT CASE WHEN $3 THEN $4::integer END`
	rows, err := h.db.Query(ctx, query, in.Type, in.Version, in.AllVersions, verb.MaxSchemaVersions)
	if err != nil {
		return out, callerError(fmt.Errorf("read schemas: %w", err))
	}
	out.Schemas, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d verb.SchemaDocument, err error) {
		var document string
		err = row.Scan(&d.Type, &d.Version, &d.IsCurrent, &document, &d.CreatedAt)
		d.Document = json.RawMessage(document)
		return d, err
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return out, callerError(fmt.Errorf("read schemas: %w", err))
	}
	return out, out.Place(&in)
}
