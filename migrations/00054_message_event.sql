-- The event message.received: a message stands in msg_in of a context, whose subscriptions hear of that.
-- +goose Up
ALTER TABLE postern.delivery
    DROP CONSTRAINT event_is_known,
    ADD CONSTRAINT event_is_known CHECK (event IN
        ('accepted', 'done', 'failed', 'unresolved', 'cancelled', 'result', 'timeout', 'test', 'on-success',
         'on-failure', 'job-finished', 'job-error', 'flow-finished', 'flow-error', 'message-received'));

-- What an event tells of: a job, a flow or a message. See OfJob in internal/outbox.
CREATE OR REPLACE FUNCTION postern.told_of(of_line bigint, of_seq bigint) RETURNS uuid LANGUAGE sql STABLE AS $$
    SELECT o.id
    FROM (SELECT lpad(to_hex($2 & ((1::bigint << 60) - 1)), 15, '0') AS h) n
    CROSS JOIN LATERAL (SELECT left(n.h, 8) || '-' || substr(n.h, 9, 4) || '-7' || right(n.h, 3) AS t) x
    CROSS JOIN LATERAL (
        SELECT f.flow_id AS id
        FROM postern.flow f
        WHERE $2 >> 60 = 1
            AND f.flow_id BETWEEN (x.t || '-8000-000000000000')::uuid AND (x.t || '-bfff-ffffffffffff')::uuid
            AND postern.told_line(f.flow_id) = $1
        UNION ALL
        SELECT j.job_id
        FROM postern.job j
        WHERE $2 >> 60 = 0
            AND j.job_id BETWEEN (x.t || '-8000-000000000000')::uuid AND (x.t || '-bfff-ffffffffffff')::uuid
            AND postern.told_line(coalesce(j.flow_id, j.job_id)) = $1
        UNION ALL
        SELECT m.message_id
        FROM postern.message m
        WHERE $2 >> 60 = 2
            AND m.message_id BETWEEN (x.t || '-8000-000000000000')::uuid AND (x.t || '-bfff-ffffffffffff')::uuid
            AND postern.told_line(m.message_id) = $1
        LIMIT 1) o
$$;

-- Whether subscriptions are still to be told that a message was received.
CREATE FUNCTION postern.message_to_be_told(of_message uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM postern.fanout f WHERE f.queue_id = postern.told_line($1)
            AND f.seq = postern.told_seq($1, false) | (2::bigint << 60))
        OR EXISTS (SELECT FROM postern.delivery d WHERE d.queue_id = postern.told_line($1)
            AND d.seq = postern.told_seq($1, false) | (2::bigint << 60) AND d.state IN ('pending', 'queued'))
$$;

-- What is told of a message that was received; NULL once retention has forgotten it. The text is told to who asks for
-- the data.
CREATE FUNCTION postern.message_event(of_line bigint, of_seq bigint, event text, at timestamptz, include text[])
RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('id', m.message_id, 'context', c.name, 'caller_id', m.actor, 'ref', m.ref,
            'from', f.name, 'peer', m.peer, 'topic', m.topic, 'to_actor', m.to_actor, 'message_type', m.type,
            'message_format_type', m.format, 'reply_to', m.reply_to, 'created_at', postern.rfc3339(m.created_at),
            'event', replace($3, '-', '.'), 'at', postern.rfc3339($4))
        || CASE WHEN 'data' = ANY ($5) THEN jsonb_build_object('message', m.body) ELSE '{}' END
        || CASE WHEN 'result' = ANY ($5) THEN jsonb_build_object('result', m.result) ELSE '{}' END
    FROM postern.message m
    JOIN postern.context c ON c.context_id = m.target_id
    LEFT JOIN postern.context f ON f.context_id = m.context_id
    WHERE m.message_id = postern.told_of($1, $2)
$$;
CREATE OR REPLACE FUNCTION postern.event_data(of_queue bigint, of_seq bigint, of_day date, event text, at timestamptz,
    include text[]) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $4 IN ('result', 'timeout') THEN postern.batch_event($2, $4, $5, $6)
        WHEN $4 LIKE 'job-%' OR $4 LIKE 'flow-%' THEN postern.job_event($1, $2, $4, $5, $6)
        WHEN $4 = 'message-received' THEN postern.message_event($1, $2, $4, $5, $6)
        ELSE postern.transaction_event($1, $2, $3, $4, $5, $6) END
$$;
SELECT postern.renew_roles();

-- +goose Down
CREATE OR REPLACE FUNCTION postern.event_data(of_queue bigint, of_seq bigint, of_day date, event text, at timestamptz,
    include text[]) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $4 IN ('result', 'timeout') THEN postern.batch_event($2, $4, $5, $6)
        WHEN $4 LIKE 'job-%' OR $4 LIKE 'flow-%' THEN postern.job_event($1, $2, $4, $5, $6)
        ELSE postern.transaction_event($1, $2, $3, $4, $5, $6) END
$$;
DROP FUNCTION postern.message_event;
DROP FUNCTION postern.message_to_be_told;
CREATE OR REPLACE FUNCTION postern.told_of(of_line bigint, of_seq bigint) RETURNS uuid LANGUAGE sql STABLE AS $$
    SELECT o.id
    FROM (SELECT lpad(to_hex($2 & ((1::bigint << 60) - 1)), 15, '0') AS h) n
    CROSS JOIN LATERAL (SELECT left(n.h, 8) || '-' || substr(n.h, 9, 4) || '-7' || right(n.h, 3) AS t) x
    CROSS JOIN LATERAL (
        SELECT f.flow_id AS id
        FROM postern.flow f
        WHERE $2 >= 1::bigint << 60
            AND f.flow_id BETWEEN (x.t || '-8000-000000000000')::uuid AND (x.t || '-bfff-ffffffffffff')::uuid
            AND postern.told_line(f.flow_id) = $1
        UNION ALL
        SELECT j.job_id
        FROM postern.job j
        WHERE $2 < 1::bigint << 60
            AND j.job_id BETWEEN (x.t || '-8000-000000000000')::uuid AND (x.t || '-bfff-ffffffffffff')::uuid
            AND postern.told_line(coalesce(j.flow_id, j.job_id)) = $1
        LIMIT 1) o
$$;
DELETE FROM postern.delivery WHERE event = 'message-received';
DELETE FROM postern.fanout WHERE event = 'message-received';
ALTER TABLE postern.delivery
    DROP CONSTRAINT event_is_known,
    ADD CONSTRAINT event_is_known CHECK (event IN
        ('accepted', 'done', 'failed', 'unresolved', 'cancelled', 'result', 'timeout', 'test', 'on-success',
         'on-failure', 'job-finished', 'job-error', 'flow-finished', 'flow-error'));
