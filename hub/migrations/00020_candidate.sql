-- +goose Up

-- Proposed changes, which count once they are approved. They are in no feed and no
-- replica, and nothing that reads artifacts reads them.
CREATE TABLE candidate (
    scope                text COLLATE "C" NOT NULL REFERENCES scope (id),
    id                   text COLLATE "C" NOT NULL,
    kind                 text NOT NULL CHECK (kind IN ('artifact', 'tag')),
    family               text COLLATE "C" NOT NULL CHECK (family <> 'tag'),   -- type of the artifact
    origin               text NOT NULL CHECK (origin IN ('manual', 'source_window', 'dream', 'import', 'fork')),
    version              integer NOT NULL CHECK (version >= 1),                -- of the proposal that stands
    status               text NOT NULL CHECK (status IN ('pending', 'approved', 'rejected')),
    -- what it would change, which no version of it does otherwise; null: it makes one
    target_type          text COLLATE "C",
    target_id            text COLLATE "C",
    target_revision      integer,
    created_by           text COLLATE "C" NOT NULL,
    created_by_kind      text NOT NULL,
    created_at           timestamptz NOT NULL,
    decided_by           text COLLATE "C",
    decided_at           timestamptz,
    decision_reason      text CHECK (decision_reason <> ''),
    result_type          text COLLATE "C",
    result_id            text COLLATE "C",
    result_revision      integer,
    result_content_hash  bytea CHECK (length(result_content_hash) = 32),
    result_payload       jsonb,                                               -- of a tag candidate
    PRIMARY KEY (scope, id),
    FOREIGN KEY (target_type, target_id, target_revision) REFERENCES artifact_revision (type, id, revision),
    FOREIGN KEY (result_type, result_id, result_revision) REFERENCES artifact_revision (type, id, revision),
    CHECK (num_nulls(target_type, target_id, target_revision) IN (0, 3)),
    CHECK (target_type IS NULL OR target_type = family),
    CHECK ((status = 'pending') = (decided_by IS NULL) AND (status = 'pending') = (decided_at IS NULL)),
    CHECK ((status = 'rejected') = (decision_reason IS NOT NULL)),
    CONSTRAINT candidate_result CHECK (CASE
        WHEN status <> 'approved' THEN num_nonnulls(result_type, result_id, result_revision, result_content_hash, result_payload) = 0
        WHEN kind = 'artifact' THEN num_nonnulls(result_type, result_id, result_revision, result_content_hash) = 4 AND result_payload IS NULL
        ELSE num_nonnulls(result_type, result_id, result_revision, result_content_hash) = 0
            AND result_payload IS NOT NULL AND result_payload ?& ARRAY['target', 'tags', 'tag_digest', 'etag'] END)
);
CREATE INDEX candidate_by_target ON candidate (target_type, target_id) WHERE target_id IS NOT NULL;
CREATE INDEX candidate_by_result ON candidate (result_type, result_id) WHERE result_id IS NOT NULL;
CREATE INDEX candidate_by_age ON candidate (scope, status, created_at, id);

CREATE TABLE candidate_version (
    scope           text COLLATE "C" NOT NULL,
    id              text COLLATE "C" NOT NULL,
    version         integer NOT NULL CHECK (version >= 1),
    proposal        text NOT NULL,                  -- canonical JSON; of an artifact {id, title, state, content, links}
    proposal_digest bytea NOT NULL CHECK (length(proposal_digest) = 32),
    evidence        text NOT NULL,                  -- JSON: exact refs
    reason          text NOT NULL CHECK (char_length(reason) <= 2000),
    written_by      text COLLATE "C" NOT NULL,
    written_at      timestamptz NOT NULL,
    PRIMARY KEY (scope, id, version),
    FOREIGN KEY (scope, id) REFERENCES candidate (scope, id)
);
ALTER TABLE candidate ADD FOREIGN KEY (scope, id, version) REFERENCES candidate_version (scope, id, version) DEFERRABLE INITIALLY DEFERRED;

-- What was decided stays decided, and what a candidate is about stays that.
-- +goose StatementBegin
CREATE FUNCTION keep_candidate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR old.status <> 'pending' OR new.version < old.version
        OR (new.scope, new.id, new.kind, new.family, new.origin, new.created_by, new.created_by_kind, new.created_at)
            IS DISTINCT FROM (old.scope, old.id, old.kind, old.family, old.origin, old.created_by, old.created_by_kind, old.created_at)
        OR (new.target_type, new.target_id, new.target_revision) IS DISTINCT FROM (old.target_type, old.target_id, old.target_revision) THEN
        RAISE EXCEPTION 'a candidate is not changed so' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN new;
END $$;
-- +goose StatementEnd
CREATE TRIGGER keep BEFORE UPDATE OR DELETE ON candidate FOR EACH ROW EXECUTE FUNCTION keep_candidate();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON candidate_version FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP TABLE candidate_version, candidate CASCADE;
DROP FUNCTION keep_candidate;
