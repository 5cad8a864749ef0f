-- +goose Up

DROP FUNCTION feed.append(
    text[], text[], text[], text[], text[], integer[], bytea[], bytea[], text[], text[], text[], text[],
    timestamptz, text, text, uuid, text, text, text, text, text, uuid, bytea, text);

-- A transaction may hold the writes of several requests, its members. Each has
-- the rows after those of the members before it, up to p_last; its rows are a
-- commit of their own. The answer is the seq before the first row.
-- +goose StatementBegin
CREATE FUNCTION feed.append(
    p_member integer[], p_class text[], p_scope text[], p_kind text[], p_op text[], p_ref text[], p_revision integer[],
    p_hash bytea[], p_prev_hash bytea[], p_data text[],
    p_event_type text[], p_event_ref text[], p_event_payload text[],
    p_last integer[], p_at timestamptz[], p_actor_id text[], p_actor_kind text[],
    p_request_id uuid[], p_verb text[], p_session_id text[], p_parent_session_id text[], p_delegation_chain text[], p_task_id text[],
    p_key uuid[], p_request_hash bytea[], p_response text[]
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    base bigint;
BEGIN
    PERFORM 1 FROM feed.lock FOR NO KEY UPDATE;
    -- A statement of its own: its snapshot is taken under the lock, so it sees
    -- every commit before this one.
    SELECT greatest(coalesce((SELECT c.seq FROM feed.change c ORDER BY c.seq DESC LIMIT 1), 0), e.first_seq - 1)
        INTO base FROM epoch e ORDER BY e.epoch DESC LIMIT 1;
    INSERT INTO feed.change (seq, commit_seq, class, scope, kind, op, ref, revision, hash, prev_hash, event_type, data, at)
        SELECT base + r.n, base + p_last[r.member], r.class, r.scope, r.kind, r.op, r.ref, r.revision, r.hash, r.prev_hash, r.event_type, r.data, p_at[r.member]
        FROM unnest(p_member, p_class, p_scope, p_kind, p_op, p_ref, p_revision, p_hash, p_prev_hash, p_event_type, p_data)
            WITH ORDINALITY AS r (member, class, scope, kind, op, ref, revision, hash, prev_hash, event_type, data, n);
    INSERT INTO event (seq, type, ref, scope, class, actor_id, actor_kind, at, payload)
        SELECT base + r.n, r.type, r.ref, r.scope, r.class, p_actor_id[r.member], p_actor_kind[r.member], p_at[r.member], r.payload
        FROM unnest(p_member, p_event_type, p_event_ref, p_scope, p_class, p_event_payload)
            WITH ORDINALITY AS r (member, type, ref, scope, class, payload, n)
        WHERE r.type IS NOT NULL;
    INSERT INTO write_journal (last_seq, first_seq, request_id, verb, actor_id, actor_kind, session_id, parent_session_id, delegation_chain, task_id, at)
        SELECT base + m.last, base + coalesce(p_last[m.n - 1], 0) + 1, m.request_id, m.verb, m.actor_id, m.actor_kind,
            m.session_id, m.parent_session_id, m.delegation_chain, m.task_id, m.at
        FROM unnest(p_last, p_request_id, p_verb, p_actor_id, p_actor_kind, p_session_id, p_parent_session_id, p_delegation_chain, p_task_id, p_at)
            WITH ORDINALITY AS m (last, request_id, verb, actor_id, actor_kind, session_id, parent_session_id, delegation_chain, task_id, at, n)
        WHERE m.last > coalesce(p_last[m.n - 1], 0);
    IF p_key IS NOT NULL THEN
        -- One that wrote nothing is kept for its answer, with seq 0.
        INSERT INTO idempotency (actor, key, request_hash, response, seq, created_at)
            SELECT m.actor_id, m.key, m.request_hash, m.response,
                CASE WHEN m.last > coalesce(p_last[m.n - 1], 0) THEN base + m.last ELSE 0 END, m.at
            FROM unnest(p_last, p_actor_id, p_at, p_key, p_request_hash, p_response)
                WITH ORDINALITY AS m (last, actor_id, at, key, request_hash, response, n)
            WHERE m.key IS NOT NULL;
    END IF;
    RETURN base;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION feed.append;
