-- State is derived: terminal by the outcome; in flight if it is what the queue is working on; else
-- WAITING. This file says so once, for psql and for the API.
-- +goose Up

-- The microseconds of a moment since 1970, as tokens and ids have them.
CREATE FUNCTION postern.micros(at timestamptz) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT (extract(epoch FROM at) * 1000000)::bigint $$;

-- The salt of a public id, as internal/outbox/id.go has it. A test compares them.
-- +goose StatementBegin
CREATE FUNCTION postern.salt(arrival timestamptz, moved_from uuid) RETURNS int LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT ((postern.micros(arrival) # CASE WHEN moved_from IS NULL THEN 0
        ELSE ('x' || substr(moved_from::text, 6, 3) || substr(moved_from::text, 10, 3))::bit(24)::int # ('x' || right(moved_from::text, 6))::bit(24)::int END)
        & 4194303)::int
$$;
-- +goose StatementEnd

-- The public id, packed as internal/outbox/id.go packs it (a test compares them).
-- +goose StatementBegin
CREATE FUNCTION postern.public_id(queue_id bigint, seq bigint, day date, salt int) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (lpad(to_hex((queue_id << 20) | ((salt >> 18)::bigint << 16) | (8::bigint << 12)
                | ((salt >> 10 & 255)::bigint << 4) | (seq >> 36)), 16, '0')
         || lpad(to_hex((2::bigint << 62) | ((day - '1970-01-01'::date)::bigint << 46)
                | ((salt & 1023)::bigint << 36) | (seq & 68719476735)), 16, '0'))::uuid
$$;
-- +goose StatementEnd

-- Where the id of a transaction says that its row lies. A text that is no such id lies nowhere: no row.
-- +goose StatementBegin
CREATE FUNCTION postern.id_place(id text) RETURNS TABLE (queue_id bigint, seq bigint, day date) LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (b.hi >> 20)::bigint, (((b.hi & 15::bigint::bit(64)) << 36) | (b.lo & 68719476735::bit(64)))::bigint,
        '1970-01-01'::date + ((b.lo << 2) >> 48)::bigint::int
    FROM (SELECT ('x' || left(h.hex, 16))::bit(64) AS hi, ('x' || right(h.hex, 16))::bit(64) AS lo
        FROM (SELECT CASE WHEN $1 ~* '^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'
            THEN replace(lower($1), '-', '') END AS hex) h) b
    WHERE b.hi IS NOT NULL
$$;
-- +goose StatementEnd

-- The place of what a client calls ref, an id or a uid; no row if there is no such transaction in the context.
-- +goose StatementBegin
CREATE FUNCTION postern.place_of(context_id int, ref text) RETURNS TABLE (queue_id bigint, seq bigint, day date) LANGUAGE sql STABLE AS $$
    SELECT i.queue_id, i.seq, i.day FROM postern.idempotency i WHERE (i.context_id, i.key) = ($1, $2)
    UNION ALL
    SELECT t.queue_id, t.seq, t.day FROM postern.id_place($2) p
    JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (p.queue_id, p.seq, p.day)
    WHERE t.context_id = $1 AND postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from))::text = lower($2)
$$;
-- +goose StatementEnd

-- The queue row is written lazily while a node works through a queue: the position in flight is then the first one
-- without an outcome from cur_seq on. With marks > 0 every settle writes the row, so that cur_seq is exact; without
-- marks outcomes are gapless, so that the one before tells. (OFFSET 0: it is looked for by its key, whatever the
-- statistics say. Where they promise a small table, it would be read whole for a single row. That of f and h has them
-- computed once; pulled up, they are where their columns are. And by CASE, since NULL AND does not stop as false AND
-- does: the one before would be looked for, in every day that is kept, for all that has ended.)
CREATE VIEW postern.tx AS
SELECT t.queue_id, t.seq, t.day, t.context_id, c.name AS context, n.name AS queue,
       postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from)) AS id,
       coalesce(t.uid, postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from))::text) AS uid,
       t.actor, t.type, t.data, t.max_retries, t.tags, t.traceparent, t.redrive_of, r.new_id AS redriven_by, t.moved_from,
       CASE WHEN o.state IS NOT NULL THEN o.state
            WHEN f.flying THEN CASE q.phase WHEN 'DISPATCHING' THEN 'DISPATCHING'
                WHEN 'INCLUSION' THEN 'REVISION' WHEN 'WAITING_INCLUSION' THEN 'REVISION' ELSE 'RETRY' END
            ELSE 'WAITING' END AS state,
       CASE WHEN o.state IS NOT NULL THEN NULL
            WHEN f.flying THEN CASE q.phase WHEN 'DISPATCHING' THEN 'BLOCKED' ELSE q.phase END
            ELSE 'FREE' END AS queue_state,
       CASE WHEN o.state IS NOT NULL THEN o.retries WHEN h.head THEN q.retries ELSE 0 END AS retries,
       CASE WHEN o.state IS NOT NULL THEN coalesce(o.attempt, 0)
            WHEN f.flying OR (h.head AND q.attempt > 1) THEN q.attempt ELSE 0 END AS attempt,
       coalesce(so.account, sq.account, sp.account) AS sender,
       t.created_at AS received_at, t.not_before,
       coalesce(o.submitted_at, a.answered_at) AS submitted_at,
       CASE WHEN o.state IS NOT NULL THEN o.retried_at WHEN b.step <> 'unknown' AND b.class <> 'blocked' THEN b.answered_at END AS retried_at,
       o.done_at,
       CASE WHEN o.state IS NULL AND q.phase IN ('DELAY', 'HELD') AND h.head THEN q.not_before END AS next_at,
       coalesce(o.hash, a.hash) AS hash,
       CASE WHEN o.state IS NOT NULL THEN o.fee WHEN h.head THEN coalesce(q.fee, a.fee) END AS fee,
       CASE WHEN o.state IS NOT NULL THEN o.error_class ELSE b.class END AS error_class,
       CASE WHEN o.state IS NOT NULL THEN o.error_code ELSE b.code END AS error_code,
       CASE WHEN o.state IS NOT NULL THEN o.error ELSE b.error END AS error,
       o.result, o.block_height, t.callback,
       CASE WHEN q.marks > 0 THEN EXISTS (SELECT FROM postern.mark m WHERE (m.queue_id, m.seq, m.kind) = (t.queue_id, t.seq, 'suspended') OFFSET 0) ELSE false END AS suspended,
       CASE WHEN q.marks > 0 THEN (SELECT m.before_seq FROM postern.mark m WHERE (m.queue_id, m.seq, m.kind) = (t.queue_id, t.seq, 'placed')) END AS placed_before,
       CASE WHEN q.marks > 0 THEN EXISTS (SELECT FROM postern.mark m
                WHERE (m.queue_id, m.seq, m.kind) = (t.queue_id, t.seq, 'unknown') OFFSET 0)
            ELSE false END AS held
FROM postern.task t
JOIN postern.context c ON c.context_id = t.context_id
LEFT JOIN postern.queue_name n ON n.queue_id = t.queue_id AND n.context_id = t.context_id -- so that a name is found by its key
LEFT JOIN postern.outcome o ON (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day)
LEFT JOIN postern.queue q ON q.queue_id = t.queue_id AND o.queue_id IS NULL
LEFT JOIN LATERAL (SELECT CASE WHEN t.seq > q.cur_seq AND q.marks = 0 THEN EXISTS (
        SELECT FROM postern.outcome p WHERE p.queue_id = t.queue_id AND p.seq = t.seq - 1 AND p.day BETWEEN q.head_day AND t.day OFFSET 0)
    ELSE coalesce(t.seq = q.cur_seq, false) END AS flying OFFSET 0) f ON true
LEFT JOIN LATERAL (SELECT f.flying AND t.seq = q.cur_seq OR (q.cur_seq IS NULL AND t.seq = coalesce(q.next_seq, q.head_seq)) AS head OFFSET 0) h ON true
LEFT JOIN LATERAL (SELECT x.hash, x.fee, x.answered_at FROM postern.attempt x
        WHERE h.head AND (x.queue_id, x.seq, x.day, x.step) = (t.queue_id, t.seq, t.day, 'dispatch') AND x.hash IS NOT NULL
        ORDER BY x.attempt DESC LIMIT 1) a ON true
LEFT JOIN LATERAL (SELECT x.class, x.code, x.error, x.answered_at, x.step FROM postern.attempt x
        WHERE h.head AND (x.queue_id, x.seq, x.day) = (t.queue_id, t.seq, t.day) AND x.class IS NOT NULL
            AND x.step <> 'late' AND (x.step <> 'unknown' OR q.phase = 'DISPATCHING')
        ORDER BY x.attempt DESC, x.answered_at DESC LIMIT 1) b ON true
LEFT JOIN postern.sender so ON so.sender_id = o.sender_id
LEFT JOIN postern.sender sq ON sq.sender_id = q.sender_id AND f.flying
LEFT JOIN postern.sender sp ON sp.sender_id = t.sender_id
LEFT JOIN postern.redrive r ON (r.queue_id, r.seq) = (t.queue_id, t.seq)
WHERE o.error_code IS DISTINCT FROM 'moved'; -- what was moved to another queue is there

-- What people read shows the contexts that the asking role has (00039); a barrier, so that no function of a
-- WHERE of theirs sees other rows.
CREATE VIEW postern.transactions WITH (security_barrier) AS
SELECT context, queue, seq AS position, placed_before, id, uid, actor, type, state, queue_state, retries, attempt, sender, received_at,
       not_before, submitted_at, retried_at, done_at, next_at, hash, error_class, error_code, error, suspended, redrive_of, tags
FROM postern.tx
WHERE context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]) AND received_at > '-infinity';

-- The data of a transaction as it is shown and told: that of one which carries a job without the values of its
-- environment, which may be secrets.
CREATE FUNCTION postern.shown_data(of_type text, data jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN $1 LIKE 'job.%' AND jsonb_typeof($2->'env_vars') = 'object'
        THEN jsonb_set($2, '{env_vars}', (SELECT coalesce(jsonb_object_agg(k.name, '***'), '{}')
            FROM jsonb_object_keys($2->'env_vars') k(name)))
        ELSE $2 END
$$;

CREATE VIEW postern.bodies WITH (security_barrier) AS
SELECT context, id, uid, postern.shown_data(type, data) AS data, result
FROM postern.tx
WHERE context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

CREATE VIEW postern.queues WITH (security_barrier) AS
SELECT c.name AS context, n.name AS queue,
       CASE q.phase WHEN 'DISPATCHING' THEN 'BLOCKED' WHEN 'IDLE' THEN 'FREE' WHEN 'READY' THEN 'FREE'
            WHEN 'HELD' THEN 'FREE' ELSE q.phase END AS state,
       -- exact: what a node has settled since it last wrote the row, and what is cancelled, is not counted
       q.tail_seq - q.head_seq + 1 - (SELECT count(*) FROM postern.outcome o
            WHERE o.queue_id = q.queue_id AND o.seq >= q.head_seq AND o.day >= q.head_day) AS depth,
       -- seconds since what is out, or goes out next, was received
       extract(epoch FROM clock_timestamp() - h.created_at)::numeric(20, 3) AS lag,
       h.id AS head_id, CASE WHEN q.phase <> 'IDLE' THEN q.entered_at END AS head_since,
       s.account AS sender, w.name AS node, q.attempt,
       CASE WHEN q.phase IN ('DELAY', 'HELD') THEN q.not_before END AS next_at,
       q.paused, q.draining, CASE q.prio WHEN 0 THEN 'High' ELSE 'Med' END AS priority
FROM postern.queue q
JOIN postern.context c ON c.context_id = q.context_id
LEFT JOIN postern.queue_name n ON n.queue_id = q.queue_id AND n.context_id = q.context_id
LEFT JOIN postern.sender s ON s.sender_id = q.sender_id
LEFT JOIN postern.node w ON w.node_id = q.node_id
LEFT JOIN LATERAL (SELECT t.created_at, postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from)) AS id FROM postern.task t
    WHERE q.phase <> 'IDLE' AND t.queue_id = q.queue_id AND t.day >= q.head_day
        AND t.seq >= CASE WHEN q.marks > 0 THEN coalesce(q.cur_seq, q.next_seq, q.head_seq) ELSE q.head_seq END
        AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))
    ORDER BY t.seq LIMIT 1) h ON true
WHERE q.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

CREATE VIEW postern.senders WITH (security_barrier) AS
SELECT c.name AS context, p.name AS pool, s.account AS sender,
       CASE q.phase WHEN 'DISPATCHING' THEN 'BLOCKED' ELSE coalesce(q.phase, 'FREE') END AS state,
       n.name AS queue, s.bound_since, s.blocked_until, s.block_reason, s.last_used_at, s.last_nonce, s.paused, s.draining
FROM postern.sender s
JOIN postern.context c ON c.context_id = s.context_id
JOIN postern.pool p ON p.pool_id = s.pool_id
LEFT JOIN postern.queue q ON q.queue_id = s.queue_id
LEFT JOIN postern.queue_name n ON n.queue_id = s.queue_id
WHERE s.removed_at IS NULL AND s.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

-- +goose Down
DROP VIEW postern.senders;
DROP VIEW postern.queues;
DROP VIEW postern.bodies;
DROP FUNCTION postern.shown_data;
DROP VIEW postern.transactions;
DROP VIEW postern.tx;
DROP FUNCTION postern.place_of;
DROP FUNCTION postern.id_place;
DROP FUNCTION postern.public_id;
DROP FUNCTION postern.salt;
DROP FUNCTION postern.micros;
