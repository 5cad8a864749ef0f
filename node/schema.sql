-- The replica file. It mirrors the hub's public shape. There are no migrations:
-- a file of another user_version is rebuilt from the hub.
--
-- Times are milliseconds since 1970, booleans 0 or 1, hashes 32 bytes. Text
-- compares bytewise (BINARY), as "C" does at the hub. Tables with bodies have
-- rowids; narrow ones do without.

-- Which hub the file copies, and how far. seq moves in the transaction that
-- applies the rows.
CREATE TABLE replica_state (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    hub_id      TEXT NOT NULL,      -- '' before the first hello
    epoch       INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    chain       BLOB NOT NULL,      -- the log's chain at seq; empty when not known
    scopes      TEXT NOT NULL,      -- JSON array: those that are followed, in order
    hub_schema  INTEGER NOT NULL,   -- as the last hello told
    event_floor INTEGER NOT NULL DEFAULT 0, -- up to it events are no longer kept
    file_schema INTEGER NOT NULL    -- as user_version
) STRICT;

CREATE TABLE scope (
    id         TEXT PRIMARY KEY,
    title      TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who may do what in a scope.
CREATE TABLE membership (
    scope      TEXT NOT NULL,
    agent      TEXT NOT NULL,
    roles      TEXT NOT NULL,       -- JSON array
    granted_at INTEGER NOT NULL,
    granted_by TEXT NOT NULL,
    PRIMARY KEY (scope, agent)
) STRICT, WITHOUT ROWID;

-- Agents in each scope where they were seen: only there are they known.
CREATE TABLE agent (
    scope        TEXT NOT NULL,
    id           TEXT NOT NULL,
    kind         TEXT NOT NULL,
    handle       TEXT NOT NULL,     -- '' for none
    title        TEXT NOT NULL,
    roles        TEXT NOT NULL,     -- JSON array
    may_delegate INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    PRIMARY KEY (scope, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX agent_by_id ON agent (id);

-- Handles, former ones too, of those agents.
CREATE TABLE handle (
    scope  TEXT NOT NULL,
    handle TEXT NOT NULL,
    agent  TEXT NOT NULL,
    PRIMARY KEY (scope, handle)
) STRICT, WITHOUT ROWID;
CREATE INDEX handle_by_agent ON handle (scope, agent);

-- Tokens that count no more.
CREATE TABLE revocation (
    hash   BLOB PRIMARY KEY,
    of     TEXT NOT NULL,           -- token or agent
    before INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE schema_registry (
    type       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    is_current INTEGER NOT NULL,
    document   TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (type, version)
) STRICT;

-- Heads.
CREATE TABLE artifact (
    type           TEXT NOT NULL,
    id             TEXT NOT NULL,
    scope          TEXT NOT NULL,
    revision       INTEGER NOT NULL,
    content_hash   BLOB NOT NULL,
    schema_version INTEGER NOT NULL,
    title          TEXT NOT NULL,
    state          TEXT NOT NULL,   -- '' for a type without lifecycle
    is_latest      INTEGER NOT NULL,
    superseded_by  TEXT NOT NULL,
    quality_score  REAL,
    created_at     INTEGER NOT NULL,
    created_by     TEXT NOT NULL,
    updated_at     INTEGER NOT NULL,
    updated_by     TEXT NOT NULL,
    row_hash       BLOB NOT NULL,
    PRIMARY KEY (type, id)
) STRICT;
CREATE INDEX artifact_by_type_age ON artifact (type, created_at DESC, id);
CREATE INDEX artifact_by_age ON artifact (created_at DESC, type, id);
CREATE INDEX artifact_by_update ON artifact (updated_at DESC, type, id);
CREATE INDEX artifact_by_type_update ON artifact (type, updated_at DESC, id);
CREATE INDEX artifact_by_type_title ON artifact (type, title, id);
CREATE INDEX artifact_by_type_quality ON artifact (type, quality_score DESC, id) WHERE quality_score IS NOT NULL;

-- Versions. Content stands here alone, and last: what does not ask for it does
-- not read it.
CREATE TABLE artifact_revision (
    type           TEXT NOT NULL,
    id             TEXT NOT NULL,
    revision       INTEGER NOT NULL,
    scope          TEXT NOT NULL,
    content_hash   BLOB NOT NULL,
    schema_version INTEGER NOT NULL,
    title          TEXT NOT NULL,
    state          TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    created_by     TEXT NOT NULL,
    row_hash       BLOB NOT NULL,
    note           TEXT NOT NULL,
    provenance     TEXT NOT NULL,   -- JSON, as replicate.Provenance
    additional_signatures TEXT,     -- JSON array, as given; null for none
    redaction      TEXT,            -- JSON, as replicate.Redaction; null for a version that is whole
    content        TEXT NOT NULL,   -- canonical bytes, returned as they are
    PRIMARY KEY (type, id, revision)
) STRICT;
CREATE INDEX artifact_revision_by_hash ON artifact_revision (type, id, content_hash);

CREATE TABLE link (
    id            TEXT PRIMARY KEY,
    from_type     TEXT NOT NULL,
    from_id       TEXT NOT NULL,
    predicate     TEXT NOT NULL,
    to_type       TEXT NOT NULL,
    to_id         TEXT NOT NULL,
    to_ref        TEXT NOT NULL,    -- as given; may be pinned
    scope         TEXT NOT NULL,
    evidence_refs TEXT NOT NULL,    -- JSON array, or null
    evidence      TEXT NOT NULL,    -- JSON object, or null
    created_at    INTEGER NOT NULL,
    created_by    TEXT NOT NULL,
    row_hash      BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX link_from ON link (from_type, from_id, predicate, to_type, to_id);
CREATE INDEX link_to ON link (to_type, to_id, predicate, from_type, from_id);
CREATE INDEX link_by_age ON link (created_at DESC, id);

CREATE TABLE signal (
    id         TEXT PRIMARY KEY,    -- a UUIDv7: later signals sort later
    type       TEXT NOT NULL,
    artifact   TEXT NOT NULL,       -- id of the artifact
    scope      TEXT NOT NULL,
    kind       TEXT NOT NULL,
    dimension  TEXT NOT NULL,       -- '' for none
    voter      TEXT NOT NULL,
    voter_kind TEXT NOT NULL,
    value      TEXT NOT NULL,       -- decimal, exact
    weight     TEXT NOT NULL,
    reason     TEXT NOT NULL,
    metadata   TEXT NOT NULL,       -- JSON object, or null
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    row_hash   BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX signal_latest ON signal (type, artifact, kind, dimension, voter, id DESC);
CREATE INDEX signal_by_age ON signal (created_at DESC, id);
CREATE INDEX signal_duels ON signal (type, id) WHERE kind = 'duel';

CREATE TABLE signal_aggregate (
    type      TEXT NOT NULL,
    artifact  TEXT NOT NULL,
    kind      TEXT NOT NULL,
    dimension TEXT NOT NULL,
    n         INTEGER NOT NULL,     -- signals that count
    voters    INTEGER NOT NULL,
    sum       TEXT NOT NULL,        -- decimal, exact
    sum_sq    TEXT NOT NULL,
    PRIMARY KEY (type, artifact, kind, dimension)
) STRICT, WITHOUT ROWID;

-- What current artifacts hold at the pointers that their types declare as facets,
-- as artifact.FacetsOf makes it. Superseded ones have none.
CREATE TABLE facet (
    type  TEXT NOT NULL,
    id    TEXT NOT NULL,
    path  TEXT NOT NULL,
    n     INTEGER NOT NULL,         -- 0 for the one by which artifacts are sorted
    scope TEXT NOT NULL,            -- of the artifact
    kind  TEXT NOT NULL,            -- one character
    num   REAL,
    text  TEXT,
    PRIMARY KEY (type, id, path, n)
) STRICT, WITHOUT ROWID;
-- Each row is in one of them.
CREATE INDEX facet_num ON facet (type, path, num, id, kind) WHERE num IS NOT NULL;
CREATE INDEX facet_text ON facet (type, path, text, id, kind) WHERE text IS NOT NULL;
CREATE INDEX facet_other ON facet (type, path, kind, id) WHERE num IS NULL AND text IS NULL;

-- How far the facets of a type are made.
CREATE TABLE facet_build (
    type     TEXT PRIMARY KEY,
    declared TEXT NOT NULL,         -- by what they are made
    after    TEXT NOT NULL,         -- the last id that was looked at
    done     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    seq        INTEGER PRIMARY KEY,
    type       TEXT NOT NULL,
    ref        TEXT NOT NULL,       -- pinned where the thing has versions
    scope      TEXT NOT NULL,
    actor_id   TEXT NOT NULL,
    actor_kind TEXT NOT NULL,
    at         INTEGER NOT NULL,
    payload    TEXT NOT NULL        -- JSON object
) STRICT;
-- By which is found what became of one thing. What hangs on a thing and changes
-- nothing of it, most of the events, is left out; a query says so in the same words.
CREATE INDEX event_by_ref ON event (substr(ref, 1, instr(ref || '@', '@') - 1), seq)
    WHERE substr(type, -9) <> '.signaled' AND substr(type, -10) <> '.commented' AND substr(type, -7) <> '.linked';

-- The last row of each followed scope that was applied: the next one must follow
-- it. A scope of which no row came yet is not here.
CREATE TABLE scope_last (
    scope TEXT PRIMARY KEY,
    seq   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What is found by words: current artifacts, each with the version and the rule
-- (analysis.Rule.ID) by which its words were made. n is its row of the index.
CREATE TABLE search_document (
    n        INTEGER PRIMARY KEY,
    type     TEXT NOT NULL,
    id       TEXT NOT NULL,
    scope    TEXT NOT NULL,
    revision INTEGER NOT NULL,
    rule     TEXT NOT NULL,
    UNIQUE (type, id)
) STRICT;

-- The words, ready-made: the tokenizer takes them apart at spaces alone. No text is
-- kept. What is deleted leaves the file when the index is optimized.
CREATE VIRTUAL TABLE search_index USING fts5 (
    name, title, first, second, rest, title_joined, joined,
    content='', contentless_delete=1, tokenize="ascii tokenchars '._='"
);

-- Parts of the index are merged sixteen at a time in what applies the feed, and
-- before that when it is quiet (tidy.go): merging four at a time, as FTS5 does by
-- itself, is a third of what applying costs.
INSERT INTO search_index (search_index, rank) VALUES ('automerge', 16), ('crisismerge', 64);

-- The rule by which all artifacts of a type are indexed.
CREATE TABLE search_rule (
    type TEXT PRIMARY KEY,
    rule TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What artifacts mean, by each model that the hub asks: the direction of their texts,
-- a signed byte a dimension.
CREATE TABLE vector (
    type   TEXT NOT NULL,
    id     TEXT NOT NULL,
    model  TEXT NOT NULL,
    scope  TEXT NOT NULL,           -- of the artifact
    vector BLOB NOT NULL,
    PRIMARY KEY (type, id, model)
) STRICT;

-- The model by which searches are; no row while there is none.
CREATE TABLE vector_model (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    model TEXT NOT NULL,
    dims  INTEGER NOT NULL
) STRICT;

-- Count and XOR of row hashes, kept by the apply transaction.
CREATE TABLE digest (
    scope TEXT NOT NULL,
    kind  TEXT NOT NULL,
    type  TEXT NOT NULL,
    n     INTEGER NOT NULL,
    acc   BLOB NOT NULL,
    PRIMARY KEY (scope, kind, type)
) STRICT, WITHOUT ROWID;
