-- What psql is told of events and channels.
-- +goose Up

-- Those of the live states and the dead; n is counted to 100,000. What ended well is not counted: GET /events lists it.
CREATE VIEW report.events WITH (security_barrier) AS
SELECT c.name AS context, s.name AS source, x.status,
    (SELECT count(*) FROM (SELECT FROM postern.event e WHERE e.source_id = s.source_id AND e.status = x.status AND e.status IN ('Queued', 'Active', 'Dead') LIMIT 100000) n) AS n,
    (SELECT e.created_at FROM postern.event e WHERE e.source_id = s.source_id AND e.status = x.status AND e.status IN ('Queued', 'Active', 'Dead') ORDER BY e.created_at LIMIT 1) AS oldest,
    s.cursor, s.state, CASE WHEN s.kind <> 'push' AND (s.caught_up_at IS NULL OR s.polled_at > s.caught_up_at OR s.failures > 0 OR s.state <> 'running')
        THEN clock_timestamp() - coalesce(s.caught_up_at, s.created_at) ELSE interval '0' END AS lag, nullif(s.last_error, '') AS last_error
FROM postern.source s JOIN postern.context c ON c.context_id = s.context_id CROSS JOIN (VALUES ('Queued'), ('Active'), ('Dead')) x(status)
WHERE s.removed_at IS NULL AND s.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

CREATE VIEW report.channels WITH (security_barrier) AS
SELECT c.name AS context, s.account AS channel, 'cap' AS kind,
    CASE WHEN s.queue_id IS NOT NULL THEN 'busy' WHEN s.blocked_until > clock_timestamp() THEN 'blocked' WHEN s.paused THEN 'paused' ELSE 'open' END AS state,
    NULL::bigint AS queued, (s.queue_id IS NOT NULL)::int::bigint AS active, CASE WHEN s.blocked_until > clock_timestamp() THEN s.blocked_until END AS blocked_until,
    nullif(s.block_reason, '') AS reason
FROM postern.sender s JOIN postern.pool p ON p.pool_id = s.pool_id AND p.name = 'leader' JOIN postern.context c ON c.context_id = s.context_id
WHERE s.removed_at IS NULL AND s.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[])
UNION ALL
SELECT c.name, h.name, 'integrity', CASE WHEN o.n >= h.capacity THEN 'full' ELSE 'open' END,
    (SELECT count(*) FROM (SELECT FROM postern.channel_message m WHERE m.channel_id = h.channel_id AND m.state = 'Queued' LIMIT 100000) n) + o.n,
    (SELECT count(*) FROM (SELECT FROM postern.channel_message m WHERE m.channel_id = h.channel_id AND m.state = 'Active' LIMIT 100000) n), NULL, NULL
FROM postern.channel h JOIN postern.context c ON c.context_id = h.context_id
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM postern.channel_message m WHERE m.channel_id = h.channel_id AND m.state = 'Offered' LIMIT 100000) n) o
WHERE h.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

SELECT postern.renew_roles();

-- +goose Down
DROP VIEW report.channels;
DROP VIEW report.events;
