-- +goose Up

-- Who may do what in a scope. In commons a token's own permissions count.
CREATE TABLE membership (
    scope      text COLLATE "C" NOT NULL REFERENCES scope (id),
    agent      text COLLATE "C" NOT NULL REFERENCES agent (id),
    roles      text[] NOT NULL CHECK (cardinality(roles) > 0 AND roles <@ ARRAY['viewer', 'contributor', 'reviewer', 'admin']),
    granted_at timestamptz NOT NULL,
    granted_by text NOT NULL,
    PRIMARY KEY (scope, agent)
);
CREATE INDEX membership_by_agent ON membership (agent);

ALTER TABLE agent
    ADD COLUMN title        text NOT NULL DEFAULT '',
    ADD COLUMN handle       text COLLATE "C",               -- the current one
    ADD COLUMN roles        text[] NOT NULL DEFAULT '{}',   -- what the agent is addressed as, such as citation-reviewer; no permission
    ADD COLUMN may_delegate boolean,                        -- may others act for it?
    ADD COLUMN updated_at   timestamptz;
UPDATE agent SET may_delegate = (kind = 'human'), updated_at = created_at;
ALTER TABLE agent ALTER COLUMN may_delegate SET NOT NULL, ALTER COLUMN updated_at SET NOT NULL;

-- A handle belongs to its first agent for good: after a rename the old one leads
-- to the new one.
CREATE TABLE handle (
    handle text COLLATE "C" PRIMARY KEY,
    agent  text COLLATE "C" NOT NULL REFERENCES agent (id),
    since  timestamptz NOT NULL
);
CREATE INDEX handle_by_agent ON handle (agent);

-- In which scopes an agent was seen, as a writer or a member. Only there is it
-- known, and only there does the feed tell of it. announced is false for those
-- that the feed has not told of yet.
CREATE TABLE agent_seen (
    scope     text COLLATE "C" NOT NULL,
    agent     text COLLATE "C" NOT NULL REFERENCES agent (id),
    announced boolean NOT NULL DEFAULT true,
    PRIMARY KEY (scope, agent)
);
INSERT INTO agent_seen (scope, agent, announced) SELECT 'commons', id, false FROM agent;

-- Tokens that count no more, by the hash of issuer and id; or all tokens of an
-- agent from before a time.
CREATE TABLE revocation (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    agent      text NOT NULL,          -- '' for a single token
    before     timestamptz NOT NULL,   -- an agent's: tokens issued before it; a token's: when it ends by itself
    created_at timestamptz NOT NULL,
    created_by text NOT NULL
);

-- A retired key signs no more; its tokens verify until ends_at.
ALTER TABLE signing_key ADD COLUMN ends_at timestamptz;

-- Whom an artifact of a type with visibility "participants" is for, beside the
-- scope: its author and those it is addressed to; '*' is everyone in the scope.
ALTER TABLE artifact ADD COLUMN audience text NOT NULL DEFAULT 'scope' CHECK (audience IN ('scope', 'participants'));
CREATE TABLE participant (
    type  text COLLATE "C" NOT NULL,
    id    text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    PRIMARY KEY (type, id, agent),
    FOREIGN KEY (type, id) REFERENCES artifact (type, id)
);
CREATE INDEX participant_by_agent ON participant (agent);

ALTER TABLE artifact_revision
    ADD COLUMN additional_signatures text,   -- JSON array, as given; null for none
    ADD COLUMN redaction             text;   -- JSON, as replicate.Redaction; null for a version that is whole

-- What may be written again, and only by the verbs that say so: a move changes
-- scopes, a redaction takes bodies out.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND TG_TABLE_NAME <> 'write_journal' AND current_setting('scidex.rewrite', true) = 'on' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
-- +goose StatementEnd

-- By which a move or redaction finds what the log said of a thing.
CREATE INDEX change_by_ref ON feed.change (ref) WHERE op = 'P' AND data IS NOT NULL;

-- Links that were taken back, as they were.
CREATE TABLE link_retraction (
    id           text COLLATE "C" PRIMARY KEY,
    link         text NOT NULL,               -- JSON of the row
    retracted_at timestamptz NOT NULL,
    retracted_by text NOT NULL,
    reason       text NOT NULL
);

-- Nodes and the invitations by which they enrol.
CREATE TABLE edge_node (
    id           text COLLATE "C" PRIMARY KEY,
    lab          text NOT NULL,
    public_key   bytea NOT NULL CHECK (octet_length(public_key) = 32),
    scopes       text[] NOT NULL,
    created_at   timestamptz NOT NULL,
    created_by   text NOT NULL,
    revoked_at   timestamptz,
    last_seen_at timestamptz
);
CREATE TABLE node_invite (
    code_hash  bytea PRIMARY KEY CHECK (octet_length(code_hash) = 32),
    lab        text NOT NULL,
    scopes     text[] NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    expires_at timestamptz NOT NULL,
    node_id    text REFERENCES edge_node (id)   -- who used it; null while nobody has
);

-- +goose Down
DROP INDEX feed.change_by_ref;
DROP TABLE link_retraction, node_invite, edge_node, participant, revocation, agent_seen, handle, membership;
ALTER TABLE artifact_revision DROP COLUMN additional_signatures, DROP COLUMN redaction;
ALTER TABLE artifact DROP COLUMN audience;
ALTER TABLE signing_key DROP COLUMN ends_at;
ALTER TABLE agent DROP COLUMN title, DROP COLUMN handle, DROP COLUMN roles, DROP COLUMN may_delegate, DROP COLUMN updated_at;
