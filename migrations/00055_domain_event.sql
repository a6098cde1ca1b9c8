-- The events of domains: an intent has ended or is parked, and another node coordinates a domain.
-- +goose Up
ALTER TABLE postern.delivery
    DROP CONSTRAINT event_is_known,
    ADD CONSTRAINT event_is_known CHECK (event IN
        ('accepted', 'done', 'failed', 'unresolved', 'cancelled', 'result', 'timeout', 'test', 'on-success',
         'on-failure', 'job-finished', 'job-error', 'flow-finished', 'flow-error', 'message-received',
         'intent-confirmed', 'intent-reverted', 'intent-parked', 'coordinator-changed'));

-- The domain, and the intent, that an event tells of. See OfIntent and OfDomain in internal/outbox.
CREATE FUNCTION postern.told_domain(of_line bigint) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ($1 & ((1::bigint << 31) - 1))::int
$$;
CREATE FUNCTION postern.told_intent(of_line bigint, of_seq bigint) RETURNS uuid LANGUAGE sql STABLE AS $$
    SELECT i.intent_id
    FROM postern.coord_intent i
    WHERE (i.domain_id, i.seq) = (postern.told_domain($1), $2 >> 27)
$$;
CREATE FUNCTION postern.told_domain_line(of_domain int, of_intent bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (1::bigint << 43) + (1::bigint << 41) + (($2 & 1023) << 31) + $1
$$;

-- Who asks for a delivery is shown the id of the intent, or the name of the domain.
CREATE FUNCTION postern.told_in_domain(event text, of_line bigint, of_seq bigint) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $1 LIKE 'intent-%' THEN postern.told_intent($2, $3)::text
        ELSE (SELECT d.name FROM postern.domain d WHERE d.domain_id = postern.told_domain($2)) END
$$;

-- What subscriptions filter by: of an event of a job its queue and script type, of one of a domain its name. There is
-- no row of a flow and a message.
CREATE OR REPLACE FUNCTION postern.told_by(event text, of_line bigint, of_seq bigint)
RETURNS TABLE (queue text, script_type text) LANGUAGE sql STABLE AS $$
    SELECT j.queue, j.script_type
    FROM postern.job j
    WHERE $1 LIKE 'job-%' AND j.job_id = postern.told_of($2, $3)
    UNION ALL
    SELECT 'domain:' || d.name, NULL
    FROM postern.domain d
    WHERE ($1 LIKE 'intent-%' OR $1 = 'coordinator-changed') AND d.domain_id = postern.told_domain($2)
$$;

-- Whether subscriptions are still to be told of an intent.
CREATE FUNCTION postern.intent_to_be_told(of_domain int, of_intent bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM postern.fanout f
            WHERE f.queue_id = postern.told_domain_line($1, $2)
                AND f.seq BETWEEN $2 << 27 AND ($2 << 27) + (1 << 27) - 1)
        OR EXISTS (SELECT FROM postern.delivery d
            WHERE d.queue_id = postern.told_domain_line($1, $2)
                AND d.seq BETWEEN $2 << 27 AND ($2 << 27) + (1 << 27) - 1 AND d.state IN ('pending', 'queued'))
$$;

-- What is told of an intent; NULL once retention has forgotten it. What was posted is told to who asks for the data.
-- transaction is the public one, if this node sent it.
CREATE FUNCTION postern.intent_event(of_line bigint, of_seq bigint, event text, at timestamptz, include text[])
RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('id', i.intent_id, 'context', c.name, 'domain', d.name, 'uid', i.uid,
            'caller_id', i.actor, 'party', i.party, 'state', initcap(substr($3, 8)),
            'receipt', CASE WHEN e.ended THEN i.receipt END, 'text', CASE WHEN e.ended THEN i.text END,
            'parked', CASE WHEN NOT e.ended THEN (SELECT y.reason FROM postern.coord_step y
                WHERE (y.domain_id, y.object, y.event, y.at) = (i.domain_id, i.intent_id::text, 'AssemblePark', $4)
                ORDER BY y.n DESC LIMIT 1) END, 'transaction', p.id, 'created_at', postern.rfc3339(i.created_at),
            'ended_at', CASE WHEN e.ended THEN postern.rfc3339(i.ended_at) END,
            'event', replace($3, '-', '.'), 'at', postern.rfc3339($4))
        || CASE WHEN 'data' = ANY ($5) THEN jsonb_build_object('data', (SELECT y.data->'data'
            FROM postern.coord_payload y
            WHERE (y.domain_id, y.intent_id, y.generation, y.part) = (i.domain_id, i.intent_id, 0, 'intent')))
            ELSE '{}' END
    FROM postern.coord_intent i
    JOIN postern.domain d ON d.domain_id = i.domain_id
    JOIN postern.context c ON c.context_id = d.context_id
    CROSS JOIN (SELECT $3 <> 'intent-parked') e(ended)
    LEFT JOIN LATERAL (
        SELECT postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from)) AS id
        FROM postern.coord_activity a
        JOIN postern.idempotency x ON (x.context_id, x.key) = (d.context_id, a.uid)
        JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (x.queue_id, x.seq, x.day)
        WHERE (a.domain_id, a.intent_id) = (i.domain_id, i.intent_id)
        ORDER BY a.generation DESC
        LIMIT 1) p ON true
    WHERE i.domain_id = postern.told_domain($1) AND i.intent_id = postern.told_intent($1, $2)
$$;

-- What is told of a domain that another node coordinates; NULL once retention has forgotten it. The row is looked
-- for from the newest on, since most is told at once.
CREATE FUNCTION postern.coordinator_event(of_line bigint, event text, at timestamptz) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('context', c.name, 'domain', d.name, 'coordinator', s.node, 'before', s.reason,
        'self', d.settings->>'self', 'event', replace($2, '-', '.'), 'at', postern.rfc3339($3))
    FROM postern.coord_step s
    JOIN postern.domain d ON d.domain_id = s.domain_id
    JOIN postern.context c ON c.context_id = d.context_id
    WHERE s.domain_id = postern.told_domain($1) AND s.object = '' AND s.event = 'CoordinatorChanged' AND s.at = $3
    ORDER BY s.n DESC
    LIMIT 1
$$;
CREATE OR REPLACE FUNCTION postern.event_data(of_queue bigint, of_seq bigint, of_day date, event text, at timestamptz,
    include text[]) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $4 IN ('result', 'timeout') THEN postern.batch_event($2, $4, $5, $6)
        WHEN $4 LIKE 'job-%' OR $4 LIKE 'flow-%' THEN postern.job_event($1, $2, $4, $5, $6)
        WHEN $4 = 'message-received' THEN postern.message_event($1, $2, $4, $5, $6)
        WHEN $4 LIKE 'intent-%' THEN postern.intent_event($1, $2, $4, $5, $6)
        WHEN $4 = 'coordinator-changed' THEN postern.coordinator_event($1, $4, $5)
        ELSE postern.transaction_event($1, $2, $3, $4, $5, $6) END
$$;
SELECT postern.renew_roles();

-- +goose Down
CREATE OR REPLACE FUNCTION postern.event_data(of_queue bigint, of_seq bigint, of_day date, event text, at timestamptz,
    include text[]) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $4 IN ('result', 'timeout') THEN postern.batch_event($2, $4, $5, $6)
        WHEN $4 LIKE 'job-%' OR $4 LIKE 'flow-%' THEN postern.job_event($1, $2, $4, $5, $6)
        WHEN $4 = 'message-received' THEN postern.message_event($1, $2, $4, $5, $6)
        ELSE postern.transaction_event($1, $2, $3, $4, $5, $6) END
$$;
DROP FUNCTION postern.coordinator_event;
DROP FUNCTION postern.intent_event;
DROP FUNCTION postern.intent_to_be_told;
CREATE OR REPLACE FUNCTION postern.told_by(event text, of_line bigint, of_seq bigint)
RETURNS TABLE (queue text, script_type text) LANGUAGE sql STABLE AS $$
    SELECT j.queue, j.script_type
    FROM postern.job j
    WHERE $1 LIKE 'job-%' AND j.job_id = postern.told_of($2, $3)
$$;
DROP FUNCTION postern.told_domain_line;
DROP FUNCTION postern.told_in_domain;
DROP FUNCTION postern.told_intent;
DROP FUNCTION postern.told_domain;
DELETE FROM postern.delivery WHERE event LIKE 'intent-%' OR event = 'coordinator-changed';
DELETE FROM postern.fanout WHERE event LIKE 'intent-%' OR event = 'coordinator-changed';
ALTER TABLE postern.delivery
    DROP CONSTRAINT event_is_known,
    ADD CONSTRAINT event_is_known CHECK (event IN
        ('accepted', 'done', 'failed', 'unresolved', 'cancelled', 'result', 'timeout', 'test', 'on-success',
         'on-failure', 'job-finished', 'job-error', 'flow-finished', 'flow-error', 'message-received'));
