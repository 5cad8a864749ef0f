-- +goose Up

-- A redaction takes out why a candidate was rejected too, which quotes it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION keep_candidate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND old.decision_reason IS NOT NULL AND current_setting('scidex.rewrite', true) = 'on' THEN
        old.decision_reason := new.decision_reason;
        IF old IS NOT DISTINCT FROM new AND new.decision_reason IS NOT NULL THEN
            RETURN new;
        END IF;
    END IF;
    IF TG_OP = 'DELETE' OR old.status <> 'pending' OR new.version < old.version
        OR (new.scope, new.id, new.kind, new.family, new.origin, new.created_by, new.created_by_kind, new.created_at)
            IS DISTINCT FROM (old.scope, old.id, old.kind, old.family, old.origin, old.created_by, old.created_by_kind, old.created_at)
        OR (new.target_type, new.target_id, new.target_revision) IS DISTINCT FROM (old.target_type, old.target_id, old.target_revision) THEN
        RAISE EXCEPTION 'a candidate is not changed so' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN new;
END $$;
-- +goose StatementEnd

-- +goose Down
-- The function stays: it refuses what the one before refused.
