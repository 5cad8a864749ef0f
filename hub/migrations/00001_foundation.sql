-- +goose Up

-- Which hub this is, and which PostgreSQL cluster it lives on. A database that
-- turns up on another cluster was restored or copied, and is refused until told.
CREATE TABLE hub (
    one               boolean PRIMARY KEY DEFAULT true CHECK (one),
    hub_id            text NOT NULL,
    system_identifier text NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now()
);

-- An epoch begins when the hub is made or restored. Seqs are dense within one.
CREATE TABLE epoch (
    epoch     integer PRIMARY KEY,
    first_seq bigint NOT NULL,   -- the first seq that this epoch may use
    last_seq  bigint NOT NULL,   -- the last seq of the epoch before; 0 for none
    reason    text NOT NULL,
    at        timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE signing_key (
    kid        text PRIMARY KEY,
    algorithm  text NOT NULL CHECK (algorithm = 'EdDSA'),
    seed       bytea NOT NULL CHECK (octet_length(seed) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    retired_at timestamptz
);

CREATE TABLE scope (
    id         text COLLATE "C" PRIMARY KEY,
    title      text NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL
);

-- Agents as they were first seen in a verified token.
CREATE TABLE agent (
    id         text COLLATE "C" PRIMARY KEY,
    kind       text NOT NULL CHECK (kind IN ('human', 'ai_local', 'ai_external', 'ai_swarm')),
    created_at timestamptz NOT NULL
);

CREATE TABLE schema_registry (
    id             text COLLATE "C" PRIMARY KEY,  -- "hypothesis@v3"
    artifact_type  text COLLATE "C" NOT NULL,
    schema_version integer NOT NULL CHECK (schema_version > 0),
    is_current     boolean NOT NULL,
    document       text NOT NULL,                 -- canonical JSON
    proposed_by    text NOT NULL,
    created_at     timestamptz NOT NULL,
    UNIQUE (artifact_type, schema_version)
);
CREATE UNIQUE INDEX schema_registry_current ON schema_registry (artifact_type) WHERE is_current;

-- Heads. The optimistic lock is the row lock with a compare of the revision.
CREATE TABLE artifact (
    type           text COLLATE "C" NOT NULL,
    id             text COLLATE "C" NOT NULL,
    scope          text COLLATE "C" NOT NULL,      -- no foreign key: its check would lock one row of scope in every commit
    revision       integer NOT NULL CHECK (revision > 0),
    content_hash   bytea NOT NULL CHECK (octet_length(content_hash) = 32),
    schema_version integer NOT NULL,
    title          text NOT NULL,
    state          text NOT NULL,                 -- '' for a type without lifecycle
    is_latest      boolean NOT NULL,
    superseded_by  text NOT NULL DEFAULT '',
    quality_score  double precision,
    created_at     timestamptz NOT NULL,
    created_by     text NOT NULL,
    updated_at     timestamptz NOT NULL,
    updated_by     text NOT NULL,
    row_hash       bytea NOT NULL CHECK (octet_length(row_hash) = 32),
    PRIMARY KEY (type, id)
);
CREATE INDEX artifact_by_type_age ON artifact (type, created_at DESC, id);
CREATE INDEX artifact_by_age ON artifact (created_at DESC, type, id);

-- Versions. Content is canonical bytes and is stored here alone.
CREATE TABLE artifact_revision (
    type           text COLLATE "C" NOT NULL,
    id             text COLLATE "C" NOT NULL,
    revision       integer NOT NULL CHECK (revision > 0),
    scope          text COLLATE "C" NOT NULL,
    content_hash   bytea NOT NULL CHECK (octet_length(content_hash) = 32),
    schema_version integer NOT NULL,
    title          text NOT NULL,
    state          text NOT NULL,
    content        text NOT NULL,
    note           text NOT NULL,
    provenance     text NOT NULL,                 -- JSON, as replicate.Provenance
    created_at     timestamptz NOT NULL,
    created_by     text NOT NULL,
    row_hash       bytea NOT NULL CHECK (octet_length(row_hash) = 32),
    PRIMARY KEY (type, id, revision)
);
CREATE INDEX artifact_revision_by_hash ON artifact_revision (type, id, content_hash);

CREATE TABLE link (
    id            text COLLATE "C" PRIMARY KEY,
    from_type     text COLLATE "C" NOT NULL,
    from_id       text COLLATE "C" NOT NULL,
    predicate     text COLLATE "C" NOT NULL,
    to_type       text COLLATE "C" NOT NULL,
    to_id         text COLLATE "C" NOT NULL,
    to_ref        text NOT NULL,                  -- as given; may be pinned
    scope         text COLLATE "C" NOT NULL,
    evidence_refs text NOT NULL,                  -- JSON array
    evidence      text NOT NULL,                  -- JSON object, or null
    created_at    timestamptz NOT NULL,
    created_by    text COLLATE "C" NOT NULL,
    row_hash      bytea NOT NULL CHECK (octet_length(row_hash) = 32)
);
CREATE UNIQUE INDEX link_triple ON link (from_type, from_id, predicate, to_type, to_id, created_by);
CREATE INDEX link_to ON link (to_type, to_id, predicate);

CREATE TABLE signal (
    id         text COLLATE "C" PRIMARY KEY,      -- a UUIDv7: later signals sort later
    type       text COLLATE "C" NOT NULL,
    artifact   text COLLATE "C" NOT NULL,         -- id of the artifact
    scope      text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    dimension  text COLLATE "C" NOT NULL,         -- '' for none
    voter      text COLLATE "C" NOT NULL,
    voter_kind text NOT NULL,
    value      numeric NOT NULL,
    weight     numeric NOT NULL,
    reason     text NOT NULL,
    metadata   text NOT NULL,                     -- JSON object, or null
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    row_hash   bytea NOT NULL CHECK (octet_length(row_hash) = 32)
);
CREATE INDEX signal_latest ON signal (type, artifact, kind, dimension, voter, id DESC);

CREATE TABLE signal_aggregate (
    type      text COLLATE "C" NOT NULL,
    artifact  text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    dimension text COLLATE "C" NOT NULL,
    n         bigint NOT NULL,                    -- signals that count
    voters    bigint NOT NULL,
    sum       numeric NOT NULL,
    sum_sq    numeric NOT NULL,
    PRIMARY KEY (type, artifact, kind, dimension)
);

CREATE TABLE idempotency (
    actor        text COLLATE "C" NOT NULL,
    key          uuid NOT NULL,
    request_hash bytea NOT NULL,
    response     text NOT NULL,                   -- JSON, as answered
    seq          bigint NOT NULL,                 -- last seq of the commit
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (actor, key)
);
CREATE INDEX idempotency_age ON idempotency (created_at);

-- Who wrote what, for every commit (SPEC-001 §4.3).
CREATE TABLE write_journal (
    last_seq          bigint PRIMARY KEY,
    first_seq         bigint NOT NULL,
    request_id        uuid NOT NULL,
    verb              text NOT NULL,
    actor_id          text NOT NULL,
    actor_kind        text NOT NULL,
    session_id        text NOT NULL,
    parent_session_id text NOT NULL,
    delegation_chain  text NOT NULL,              -- JSON array
    task_id           text NOT NULL,
    at                timestamptz NOT NULL
);

-- Events outlive the feed's rows; both are partitioned by seq and trimmed by
-- dropping partitions. There is no default partition.
CREATE TABLE event (
    seq        bigint NOT NULL,
    type       text NOT NULL,
    ref        text NOT NULL,                     -- pinned where the thing has versions
    scope      text COLLATE "C" NOT NULL,
    class      text NOT NULL,
    actor_id   text NOT NULL,
    actor_kind text NOT NULL,
    at         timestamptz NOT NULL,
    payload    text NOT NULL,                     -- JSON object
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);

CREATE SCHEMA feed;

-- One row, locked by each commit as its last lock and never updated: holding it
-- orders commits without leaving dead rows.
CREATE TABLE feed.lock (
    one boolean PRIMARY KEY DEFAULT true CHECK (one)
);
INSERT INTO feed.lock DEFAULT VALUES;

CREATE TABLE feed.change (
    seq        bigint NOT NULL,
    commit_seq bigint NOT NULL,                   -- last seq of the same commit
    class      text NOT NULL CHECK (class IN ('public', 'internal')),
    scope      text COLLATE "C" NOT NULL,
    kind       text NOT NULL,
    op         text NOT NULL CHECK (op IN ('P', 'D', 'E')),
    ref        text COLLATE "C" NOT NULL,
    revision   integer NOT NULL,
    hash       bytea,                             -- of data; null for D and E
    prev_hash  bytea,                             -- of the data it replaces
    event_type text,
    data       text,
    at         timestamptz NOT NULL,
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);

-- The log's chain at some commits, so that a resume is checked in short time.
CREATE TABLE feed.checkpoint (
    seq   bigint PRIMARY KEY,
    chain bytea NOT NULL CHECK (octet_length(chain) = 32)
);

-- +goose StatementBegin
CREATE FUNCTION feed.append(
    p_class text[], p_scope text[], p_kind text[], p_op text[], p_ref text[], p_revision integer[],
    p_hash bytea[], p_prev_hash bytea[], p_data text[],
    p_event_type text[], p_event_ref text[], p_event_payload text[],
    p_at timestamptz, p_actor_id text, p_actor_kind text,
    p_request_id uuid, p_verb text, p_session_id text, p_parent_session_id text, p_delegation_chain text, p_task_id text,
    p_key uuid, p_request_hash bytea, p_response text
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    base bigint;
    last bigint;
BEGIN
    PERFORM 1 FROM feed.lock FOR NO KEY UPDATE;
    -- A statement of its own: its snapshot is taken under the lock, so it sees
    -- every commit before this one.
    SELECT c.seq INTO base FROM feed.change c ORDER BY c.seq DESC LIMIT 1;
    SELECT greatest(coalesce(base, 0), e.first_seq - 1) INTO base FROM epoch e ORDER BY e.epoch DESC LIMIT 1;
    last := base + cardinality(p_kind);
    INSERT INTO feed.change (seq, commit_seq, class, scope, kind, op, ref, revision, hash, prev_hash, event_type, data, at)
        SELECT base + r.n, last, r.class, r.scope, r.kind, r.op, r.ref, r.revision, r.hash, r.prev_hash, r.event_type, r.data, p_at
        FROM unnest(p_class, p_scope, p_kind, p_op, p_ref, p_revision, p_hash, p_prev_hash, p_event_type, p_data)
            WITH ORDINALITY AS r (class, scope, kind, op, ref, revision, hash, prev_hash, event_type, data, n);
    INSERT INTO event (seq, type, ref, scope, class, actor_id, actor_kind, at, payload)
        SELECT base + r.n, r.type, r.ref, r.scope, r.class, p_actor_id, p_actor_kind, p_at, r.payload
        FROM unnest(p_event_type, p_event_ref, p_scope, p_class, p_event_payload)
            WITH ORDINALITY AS r (type, ref, scope, class, payload, n)
        WHERE r.type IS NOT NULL;
    INSERT INTO write_journal (last_seq, first_seq, request_id, verb, actor_id, actor_kind, session_id, parent_session_id, delegation_chain, task_id, at)
        VALUES (last, base + 1, p_request_id, p_verb, p_actor_id, p_actor_kind, p_session_id, p_parent_session_id, p_delegation_chain, p_task_id, p_at);
    IF p_key IS NOT NULL THEN
        INSERT INTO idempotency (actor, key, request_hash, response, seq, created_at)
            VALUES (p_actor_id, p_key, p_request_hash, p_response, last, p_at);
    END IF;
    RETURN last;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
-- +goose StatementEnd

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON artifact_revision FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON signal FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON write_journal FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP SCHEMA feed CASCADE;
DROP TABLE event, write_journal, idempotency, signal_aggregate, signal, link, artifact_revision, artifact, schema_registry, agent, scope, signing_key, epoch, hub;
DROP FUNCTION refuse_change();
