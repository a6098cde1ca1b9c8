-- Reports for psql. What is asked by name or id is read live; figures by the hour come from roll-ups that the
-- job rollup writes, and what stands still from a sample that the job sample takes; these say as_of.
-- +goose Up
CREATE SCHEMA report;

-- When things ended, for the roll-up: an end goes to the partition of its transaction's day. A block range index is
-- smaller, but costs an insert no less time, and of the present hour, which it has not summarized, it finds nothing.
CREATE INDEX outcome_by_end ON postern.outcome (done_at);

-- Which hours are rolled up, also those in which nothing happened, when that was last begun, and the time it worked.
CREATE TABLE postern.rolled (
    hour  timestamptz CONSTRAINT one_rolling_per_hour PRIMARY KEY,
    as_of timestamptz NOT NULL,
    took  interval NOT NULL
);

-- A run over an hour: how far it is, and when it last moved. What its slices amount to are parts, numbered; the
-- next process goes on with them after one that died.
CREATE TABLE postern.rolling (
    hour     timestamptz CONSTRAINT one_run_per_hour PRIMARY KEY,
    begun    timestamptz NOT NULL,
    upto     timestamptz NOT NULL,
    moved_at timestamptz NOT NULL,
    took     interval NOT NULL,
    parts    int NOT NULL
);
CREATE TABLE postern.rolling_part (
    hour  timestamptz NOT NULL,
    part  int NOT NULL,
    total jsonb NOT NULL,
    CONSTRAINT one_part_of_a_number PRIMARY KEY (hour, part)
);

-- What came and what ended in an hour, by type.
CREATE TABLE postern.rollup (
    context_id int NOT NULL,
    hour       timestamptz NOT NULL,
    type       text NOT NULL,
    accepted   bigint NOT NULL,
    done       bigint NOT NULL,
    failed     bigint NOT NULL,
    unresolved bigint NOT NULL,
    cancelled  bigint NOT NULL,
    retries    bigint NOT NULL,
    as_of      timestamptz NOT NULL,
    CONSTRAINT one_rollup_per_hour PRIMARY KEY (hour, context_id, type)
);

-- How long transactions that ended in an hour were in a state; type '' is all of them, state '' the whole life.
-- buckets[b + 1] counts what took more than 2 ^ ((b - 1) / 4) and up to 2 ^ (b / 4) milliseconds, so that hours
-- can be added up; p50 and p95 are upper ends of buckets, at most 19 % too long.
CREATE TABLE postern.rollup_time (
    context_id int NOT NULL,
    hour       timestamptz NOT NULL,
    type       text NOT NULL,
    state      text NOT NULL,
    n          bigint NOT NULL,
    p50        interval NOT NULL,
    p95        interval NOT NULL,
    most       interval NOT NULL,
    buckets    bigint[] NOT NULL,
    as_of      timestamptz NOT NULL,
    CONSTRAINT one_rollup_of_times PRIMARY KEY (hour, context_id, type, state)
);

-- Why what did not end DONE ended so.
CREATE TABLE postern.rollup_failure (
    context_id  int NOT NULL,
    hour        timestamptz NOT NULL,
    type        text NOT NULL,
    error_class text NOT NULL,
    error_code  text NOT NULL,
    n           bigint NOT NULL,
    first_at    timestamptz NOT NULL,
    last_at     timestamptz NOT NULL,
    sample_id   uuid NOT NULL,
    as_of       timestamptz NOT NULL,
    CONSTRAINT one_rollup_of_failures PRIMARY KEY (hour, context_id, type, error_class, error_code)
);

-- What went out through a sender, by the hour of its end. busy is from the start of the last attempt to the end.
CREATE TABLE postern.rollup_sender (
    context_id int NOT NULL,
    hour       timestamptz NOT NULL,
    sender_id  int NOT NULL,
    n          bigint NOT NULL,
    failed     bigint NOT NULL,
    busy       interval NOT NULL,
    as_of      timestamptz NOT NULL,
    CONSTRAINT one_rollup_per_sender PRIMARY KEY (hour, context_id, sender_id)
);

-- What the endpoint of a subscription took in an hour, counted in the statement that records it.
CREATE TABLE postern.rollup_delivery (
    context_id      int NOT NULL,
    hour            timestamptz NOT NULL,
    subscription_id int NOT NULL,
    delivered       bigint NOT NULL,
    CONSTRAINT one_rollup_per_subscription PRIMARY KEY (subscription_id, hour)
) WITH (fillfactor = 50);

-- How many queues each node held when the job sample looked last.
CREATE TABLE postern.node_load (
    node_id bigint CONSTRAINT one_load_per_node PRIMARY KEY,
    queues  bigint NOT NULL,
    as_of   timestamptz NOT NULL
);

-- Heads that have not moved for ten minutes, or for twice the wait that their dispatcher configures for what they
-- are doing, and at once those whose cause time alone does not end: a worker that is away, a call that came to nothing
-- or of which its worker does not say what came of it, a state that lasts for too long, an outcome that an operator has
-- to tell. Written anew by each run of the job sample:
-- the oldest 200, and of those that wait for a worker 100.
CREATE TABLE postern.stuck (
    queue_id       bigint CONSTRAINT one_row_per_stuck_queue PRIMARY KEY,
    context_id     int NOT NULL,
    as_of          timestamptz NOT NULL,
    queue          text,
    id             uuid NOT NULL,
    uid            text NOT NULL,
    type           text NOT NULL,
    state          text NOT NULL,
    since          timestamptz NOT NULL,
    blocker        text NOT NULL,
    object         text NOT NULL, -- of the blocker, where others may have the same; '' where it is a transaction
    blocker_detail text NOT NULL,
    blocked_by_id  uuid,
    next_at        timestamptz,
    next_action    text,
    lever          text,
    alike          text NOT NULL DEFAULT '' -- the same for heads of one type that stand for one cause
);

-- Queues that are in a state for longer than it may last, although a process works that should have moved them: due is
-- when it should have ended, and what says what did not happen. Three minutes are left for what a healthy process does
-- besides, which is two commits of up to 30 s each, two questions to the worker, and their repetition. Who waits for
-- room, for a sender or for a worker that cannot be reached is not overdue: its timer is set anew. Nor is anything
-- while no process works, or all drain, and no timer while everything is in quarantine.
CREATE VIEW postern.overdue WITH (security_invoker) AS
WITH live AS MATERIALIZED (
    SELECT n.node_id, n.epoch, n.name, n.draining FROM postern.node n
    WHERE n.dead_at IS NULL AND n.heartbeat_at + n.ttl > clock_timestamp())
SELECT q.queue_id, q.context_id, q.phase, n.name AS node, s.since, s.since + d.timeout AS due,
    format('node %s has it in hand by its row', n.name) AS what
FROM live n
JOIN postern.queue q ON (q.node_id, q.node_epoch) = (n.node_id, n.epoch)
CROSS JOIN LATERAL (SELECT greatest(q.entered_at, q.not_before, (SELECT max(o.done_at) FROM postern.outcome o
    WHERE q.marks = 0 AND o.queue_id = q.queue_id AND o.seq >= q.cur_seq AND o.day >= q.head_day)) AS since) s -- a run tells its row late
CROSS JOIN LATERAL (SELECT coalesce(max(CASE WHEN x.v ~ '^([0-9.]+(h|m|s|ms))+$' THEN x.v::interval END), interval '10 min') AS timeout
    FROM postern.task t
    JOIN postern.dispatcher d ON (d.context_id, d.type) = (t.context_id, t.type)
    CROSS JOIN LATERAL (SELECT d.settings #>> '{timeouts,dispatch}' AS v) x
    WHERE t.queue_id = q.queue_id AND t.seq = q.cur_seq AND t.day BETWEEN q.head_day AND q.tail_day) d
WHERE greatest(q.entered_at, q.not_before) < clock_timestamp() - interval '3 min' AND s.since + d.timeout < clock_timestamp() - interval '3 min'
UNION ALL
SELECT q.queue_id, q.context_id, q.phase, NULL, q.entered_at, t.due_at, 'its timer is due, and no process has looked at it'
FROM postern.timer t
JOIN postern.queue q ON q.queue_id = t.queue_id
WHERE q.node_id IS NULL AND t.due_at < clock_timestamp() - interval '3 min' AND EXISTS (SELECT FROM live WHERE NOT draining)
    AND NOT EXISTS (SELECT FROM postern.quarantine x WHERE x.context_id IS NULL AND x.type IS NULL);

-- An hour is read slice by slice, since one long statement would keep dead versions of hot rows from being pruned: what
-- an hour amounts to is the sum of its slices. Run twice, or late, it says the same.

-- What came and what ended from a moment on, up to the end of its hour or until that is so many ends or so many
-- arrivals; says up to when. Rows of one microsecond stay together. Both are found by their indexes, whatever the
-- planner knows: the pins are those of our connections.
-- +goose StatementBegin
CREATE FUNCTION postern.roll_slice(since timestamptz, most int, OUT total jsonb, OUT upto timestamptz) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off
SET max_parallel_workers_per_gather = 0 SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    hour CONSTANT timestamptz := date_trunc('hour', since, 'UTC');
BEGIN
    upto := hour + interval '1 hour';
    upto := coalesce((SELECT o.done_at FROM postern.outcome o WHERE o.done_at >= since AND o.done_at < upto ORDER BY o.done_at OFFSET most LIMIT 1), upto);
    upto := coalesce((SELECT t.at FROM postern.context c CROSS JOIN LATERAL (SELECT t.created_at AS at FROM postern.task t
            WHERE t.context_id = c.context_id AND t.created_at > '-infinity' AND t.created_at >= since AND t.created_at < upto ORDER BY t.created_at LIMIT most + 1) t
        ORDER BY t.at OFFSET most LIMIT 1), upto);
    upto := greatest(upto, since + interval '1 us');
    WITH ends AS MATERIALIZED (
        SELECT o.context_id, t.type, o.state, o.retries, coalesce(o.error_class, '') AS error_class, coalesce(o.error_code, '') AS error_code, o.sender_id,
            o.done_at, o.started_at, o.submitted_at, t.created_at, o.queue_id, o.seq, o.day, t.moved_from
        FROM postern.outcome o JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (o.queue_id, o.seq, o.day)
        WHERE o.done_at >= since AND o.done_at < upto AND o.error_code IS DISTINCT FROM 'moved'
    ), counts AS (
        SELECT x.context_id, x.type, sum(x.accepted) AS accepted, sum(x.done) AS done, sum(x.failed) AS failed, sum(x.unresolved) AS unresolved,
            sum(x.cancelled) AS cancelled, sum(x.retries) AS retries
        FROM (SELECT t.context_id, t.type, count(*) AS accepted, 0 AS done, 0 AS failed, 0 AS unresolved, 0 AS cancelled, 0 AS retries
                FROM postern.context c CROSS JOIN LATERAL (SELECT * FROM postern.task t WHERE t.context_id = c.context_id -- else the index is read whole
                    AND t.created_at > '-infinity' AND t.created_at >= since AND t.created_at < upto AND t.moved_from IS NULL OFFSET 0) t GROUP BY 1, 2
            UNION ALL
            SELECT e.context_id, e.type, 0, count(*) FILTER (WHERE e.state = 'DONE'), count(*) FILTER (WHERE e.state = 'FAILED'),
                count(*) FILTER (WHERE e.state = 'UNRESOLVED'), count(*) FILTER (WHERE e.state = 'CANCELLED'), sum(e.retries)
            FROM ends e GROUP BY 1, 2) x
        GROUP BY 1, 2
    ), times AS (
        SELECT s.context_id, s.type, s.state, least(127, ceil(4 * ln(greatest(s.ms, 1)) / ln(2::float8))::int) AS bucket, count(*) AS n, max(s.ms) AS most
        FROM (SELECT e.context_id, e.type, s.state, greatest(extract(epoch FROM s.till - s.since)::float8 * 1000, 0) AS ms
            FROM ends e CROSS JOIN LATERAL (VALUES ('WAITING', e.created_at, e.started_at), ('DISPATCHING', e.started_at, coalesce(e.submitted_at, e.done_at)),
                ('REVISION', e.submitted_at, e.done_at), ('', e.created_at, e.done_at)) s(state, since, till)
            WHERE s.since IS NOT NULL AND s.till IS NOT NULL) s
        GROUP BY 1, 2, 3, 4
    ), failures AS (
        SELECT e.context_id, e.type, e.error_class, e.error_code, count(*) AS n, min(e.done_at) AS first_at, max(e.done_at) AS last_at,
            (array_agg(postern.public_id(e.queue_id, e.seq, e.day, postern.salt(e.created_at, e.moved_from)) ORDER BY e.done_at DESC, e.queue_id, e.seq))[1] AS sample_id
        FROM ends e WHERE e.state <> 'DONE' GROUP BY 1, 2, 3, 4
    ), senders AS (
        SELECT e.context_id, e.sender_id, count(*) AS n, count(*) FILTER (WHERE e.state <> 'DONE') AS failed,
            coalesce(sum(e.done_at - greatest(e.started_at, hour)), '0') AS busy
        FROM ends e WHERE e.sender_id IS NOT NULL GROUP BY 1, 2
    )
    SELECT jsonb_build_object('counts', coalesce((SELECT jsonb_agg(x) FROM counts x), '[]'), 'times', coalesce((SELECT jsonb_agg(x) FROM times x), '[]'),
        'failures', coalesce((SELECT jsonb_agg(x) FROM failures x), '[]'), 'senders', coalesce((SELECT jsonb_agg(x) FROM senders x), '[]')) INTO total;
END $$;
-- +goose StatementEnd

-- Does one step of the run over an hour that began then, or of the one that is there, or begins one (null): reads a
-- slice, or adds up parts when all are there, or writes the figures. Says whether that was the end; null where the run
-- is over already. Steps of a run come one after the other behind its row, in any process, so that no slice counts
-- twice.
-- +goose StatementBegin
CREATE FUNCTION postern.roll_on(of_hour timestamptz, most int, INOUT run timestamptz, OUT ended boolean) LANGUAGE plpgsql AS $$
DECLARE
    began CONSTANT timestamptz := clock_timestamp();
    r postern.rolling;
    total jsonb;
BEGIN
    IF run IS NULL THEN
        INSERT INTO postern.rolling (hour, begun, upto, moved_at, took, parts) VALUES (of_hour, began, of_hour, began, '0', 0) ON CONFLICT DO NOTHING;
    END IF;
    SELECT x.* INTO r FROM postern.rolling x WHERE x.hour = of_hour AND (run IS NULL OR x.begun = run) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    run := r.begun;
    IF r.upto < of_hour + interval '1 hour' THEN
        SELECT s.total, s.upto INTO total, r.upto FROM postern.roll_slice(r.upto, most) s;
        ended := r.parts = 0 AND r.upto = of_hour + interval '1 hour';
    ELSE
        WITH part AS (
            DELETE FROM postern.rolling_part p WHERE p.hour = of_hour
                AND p.part = ANY (ARRAY(SELECT f.part FROM postern.rolling_part f WHERE f.hour = of_hour ORDER BY f.part LIMIT 16)) RETURNING p.total
        ), counts AS (
            SELECT x.context_id, x.type, sum(x.accepted) AS accepted, sum(x.done) AS done, sum(x.failed) AS failed, sum(x.unresolved) AS unresolved,
                sum(x.cancelled) AS cancelled, sum(x.retries) AS retries
            FROM part p CROSS JOIN LATERAL jsonb_to_recordset(p.total->'counts') x(context_id int, type text, accepted bigint, done bigint, failed bigint,
                unresolved bigint, cancelled bigint, retries bigint) GROUP BY 1, 2
        ), times AS (
            SELECT x.context_id, x.type, x.state, x.bucket, sum(x.n) AS n, max(x.most) AS most
            FROM part p CROSS JOIN LATERAL jsonb_to_recordset(p.total->'times') x(context_id int, type text, state text, bucket int, n bigint, most float8)
            GROUP BY 1, 2, 3, 4
        ), failures AS (
            SELECT x.context_id, x.type, x.error_class, x.error_code, sum(x.n) AS n, min(x.first_at) AS first_at, max(x.last_at) AS last_at,
                (array_agg(x.sample_id ORDER BY x.last_at DESC))[1] AS sample_id
            FROM part p CROSS JOIN LATERAL jsonb_to_recordset(p.total->'failures') x(context_id int, type text, error_class text, error_code text, n bigint,
                first_at timestamptz, last_at timestamptz, sample_id uuid) GROUP BY 1, 2, 3, 4
        ), senders AS (
            SELECT x.context_id, x.sender_id, sum(x.n) AS n, sum(x.failed) AS failed, sum(x.busy) AS busy
            FROM part p CROSS JOIN LATERAL jsonb_to_recordset(p.total->'senders') x(context_id int, sender_id int, n bigint, failed bigint, busy interval)
            GROUP BY 1, 2
        )
        SELECT jsonb_build_object('counts', coalesce((SELECT jsonb_agg(x) FROM counts x), '[]'), 'times', coalesce((SELECT jsonb_agg(x) FROM times x), '[]'),
            'failures', coalesce((SELECT jsonb_agg(x) FROM failures x), '[]'), 'senders', coalesce((SELECT jsonb_agg(x) FROM senders x), '[]')) INTO total;
        ended := NOT EXISTS (SELECT FROM postern.rolling_part p WHERE p.hour = of_hour);
    END IF;
    IF ended THEN
        PERFORM postern.roll_up(of_hour, run, r.took + (clock_timestamp() - began), total);
        DELETE FROM postern.rolling x WHERE x.hour = of_hour;
    ELSE
        INSERT INTO postern.rolling_part (hour, part, total) VALUES (of_hour, r.parts + 1, total);
        UPDATE postern.rolling x SET upto = r.upto, moved_at = clock_timestamp(), took = r.took + (clock_timestamp() - began), parts = r.parts + 1 WHERE x.hour = of_hour;
    END IF;
END $$;
-- +goose StatementEnd

-- Writes an hour's sum, which holds everything that had been committed at as_of, and what reading it took. Whole hours
-- only, of which the last is asked for again a while after its end, since what is committed late carries the time of
-- its decision.
-- +goose StatementBegin
CREATE FUNCTION postern.roll_up(of_hour timestamptz, as_of timestamptz, took interval, total jsonb) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO postern.rolled (hour, as_of, took) VALUES (of_hour, roll_up.as_of, roll_up.took)
        ON CONFLICT ON CONSTRAINT one_rolling_per_hour DO UPDATE SET as_of = excluded.as_of, took = excluded.took;
    INSERT INTO postern.rollup AS r (context_id, hour, type, accepted, done, failed, unresolved, cancelled, retries, as_of)
        SELECT x.context_id, of_hour, x.type, x.accepted, x.done, x.failed, x.unresolved, x.cancelled, x.retries, roll_up.as_of
        FROM jsonb_to_recordset(total->'counts') x(context_id int, type text, accepted bigint, done bigint, failed bigint, unresolved bigint,
            cancelled bigint, retries bigint)
        ON CONFLICT ON CONSTRAINT one_rollup_per_hour DO UPDATE SET accepted = excluded.accepted, done = excluded.done, failed = excluded.failed,
            unresolved = excluded.unresolved, cancelled = excluded.cancelled, retries = excluded.retries, as_of = excluded.as_of;
    WITH bucketed AS (
        SELECT context_id, coalesce(type, '') AS type, state, bucket, sum(n) AS n, max(most) AS most
        FROM jsonb_to_recordset(total->'times') x(context_id int, type text, state text, bucket int, n bigint, most float8)
        GROUP BY GROUPING SETS ((1, x.type, 3, 4), (1, 3, 4))
    ), summed AS (
        SELECT context_id, type, state, bucket, n, sum(n) OVER (PARTITION BY context_id, type, state ORDER BY bucket) AS upto,
            sum(n) OVER (PARTITION BY context_id, type, state) AS total, max(most) OVER (PARTITION BY context_id, type, state) AS most
        FROM (SELECT context_id, type, state, bucket, sum(n) AS n, max(most) AS most FROM bucketed GROUP BY 1, 2, 3, 4) b
    )
    INSERT INTO postern.rollup_time AS r (context_id, hour, type, state, n, p50, p95, most, buckets, as_of)
        SELECT context_id, of_hour, type, state, max(total),
            make_interval(secs => least(power(2, min(bucket) FILTER (WHERE upto >= total * 0.50) / 4.0::float8), max(most)) / 1000),
            make_interval(secs => least(power(2, min(bucket) FILTER (WHERE upto >= total * 0.95) / 4.0::float8), max(most)) / 1000),
            make_interval(secs => max(most) / 1000),
            (SELECT array_agg(coalesce(z.n, 0) ORDER BY g) FROM generate_series(0, 127) g
                LEFT JOIN unnest(array_agg(bucket), array_agg(n)) z(bucket, n) ON z.bucket = g),
            roll_up.as_of
        FROM summed GROUP BY context_id, type, state
        ON CONFLICT ON CONSTRAINT one_rollup_of_times DO UPDATE SET n = excluded.n, p50 = excluded.p50, p95 = excluded.p95, most = excluded.most,
            buckets = excluded.buckets, as_of = excluded.as_of;
    INSERT INTO postern.rollup_failure AS r (context_id, hour, type, error_class, error_code, n, first_at, last_at, sample_id, as_of)
        SELECT x.context_id, of_hour, x.type, x.error_class, x.error_code, x.n, x.first_at, x.last_at, x.sample_id, roll_up.as_of
        FROM jsonb_to_recordset(total->'failures') x(context_id int, type text, error_class text, error_code text, n bigint,
            first_at timestamptz, last_at timestamptz, sample_id uuid)
        ON CONFLICT ON CONSTRAINT one_rollup_of_failures DO UPDATE SET n = excluded.n, first_at = excluded.first_at, last_at = excluded.last_at,
            sample_id = excluded.sample_id, as_of = excluded.as_of;
    INSERT INTO postern.rollup_sender AS r (context_id, hour, sender_id, n, failed, busy, as_of)
        SELECT x.context_id, of_hour, x.sender_id, x.n, x.failed, x.busy, roll_up.as_of
        FROM jsonb_to_recordset(total->'senders') x(context_id int, sender_id int, n bigint, failed bigint, busy interval)
        ON CONFLICT ON CONSTRAINT one_rollup_per_sender DO UPDATE SET n = excluded.n, failed = excluded.failed, busy = excluded.busy, as_of = excluded.as_of;
END $$;
-- +goose StatementEnd

-- Every attempt that has ended, the last one of what ended included.
CREATE VIEW report.attempts WITH (security_barrier) AS
SELECT c.name AS context, n.name AS queue, t.seq AS position, i.id AS transaction_id, x.attempt,
    s.account AS sender, w.name AS node, x.fence, i.id || '.' || to_hex(postern.micros(t.created_at)) || '.' || x.attempt AS token,
    x.fee, x.nonce, x.hash, x.started_at, x.answered_at, x.class, x.error, x.queue_id, x.day
FROM (SELECT a.queue_id, a.seq, a.day, a.attempt, a.sender_id, a.node_id, a.fence, a.fee, a.nonce, a.hash, a.started_at, a.answered_at, a.class, a.error
        FROM postern.attempt a
    UNION ALL
    SELECT o.queue_id, o.seq, o.day, o.attempt, o.sender_id, o.node_id, o.fence, o.fee, o.nonce, o.hash, o.started_at, o.done_at,
        coalesce(o.error_class, lower(o.state)), o.error FROM postern.outcome o WHERE o.attempt > 0) x
JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (x.queue_id, x.seq, x.day)
CROSS JOIN LATERAL (SELECT postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from)) AS id) i
JOIN postern.context c ON c.context_id = t.context_id
LEFT JOIN postern.queue_name n ON n.queue_id = t.queue_id
LEFT JOIN postern.sender s ON s.sender_id = x.sender_id
LEFT JOIN postern.node w ON w.node_id = x.node_id
WHERE t.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

-- Where a transaction lies: by its uid, by the time of its receipt, by itself.
CREATE VIEW postern.places WITH (security_barrier) AS
SELECT c.name AS context, i.context_id, i.key AS uid, i.queue_id, i.seq, i.day
FROM postern.idempotency i JOIN postern.context c ON c.context_id = i.context_id
WHERE i.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

-- (+ 0: not by the index, which gives no order of time for a list of contexts. The order stands here, since a view
-- that is a barrier is planned by itself: an order asked for outside would sort all that it has.)
CREATE VIEW postern.arrivals WITH (security_barrier) AS
SELECT t.context_id, t.created_at AS received_at, t.queue_id, t.seq, t.day
FROM postern.task t
WHERE t.context_id + 0 = ANY ((SELECT postern.contexts_of(current_user))::int[]) AND t.created_at > '-infinity'
ORDER BY t.created_at DESC;

CREATE VIEW postern.contexts WITH (security_barrier) AS
SELECT c.name AS context, c.context_id
FROM postern.context c
WHERE c.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

CREATE VIEW postern.located WITH (security_barrier) AS
SELECT context, queue, seq AS position, placed_before, id, uid, actor, type, state, queue_state, retries, attempt, sender, received_at,
    not_before, submitted_at, retried_at, done_at, next_at, hash, error_class, error_code, error, suspended, redrive_of, tags, queue_id, day
FROM postern.tx
WHERE context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

-- One transaction by its id or uid, everything that was tried of it, and what came in last: functions, since
-- PostgreSQL finds no index for an id or a uid that a view puts together, nor an order over all contexts. Each
-- looks up constants first, so that the plan is one read by key, the same for every key: it is made once in a session,
-- and making it takes longer than running it. They see what the views show their caller.
-- +goose StatementBegin
CREATE FUNCTION postern.place_seen(ref text, context text) RETURNS TABLE (queue_id bigint, seq bigint, day date) LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY SELECT p.queue_id, p.seq, p.day FROM postern.places p WHERE p.context = place_seen.context AND p.uid = ref;
    IF NOT FOUND THEN
        RETURN QUERY SELECT p.queue_id, p.seq, p.day FROM postern.id_place(ref) p;
    END IF;
END $$;

CREATE FUNCTION postern.transaction(ref text, context text DEFAULT 'default') RETURNS SETOF postern.transactions LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    p record;
BEGIN
    FOR p IN SELECT x.* FROM postern.place_seen(ref, context) x LOOP
        RETURN QUERY SELECT v.context, v.queue, v.position, v.placed_before, v.id, v.uid, v.actor, v.type, v.state, v.queue_state, v.retries, v.attempt, v.sender,
            v.received_at, v.not_before, v.submitted_at, v.retried_at, v.done_at, v.next_at, v.hash, v.error_class, v.error_code, v.error,
            v.suspended, v.redrive_of, v.tags
        FROM postern.located v WHERE v.queue_id = p.queue_id AND v.position = p.seq AND v.day = p.day AND v.context = transaction.context;
    END LOOP;
END $$;

CREATE FUNCTION postern.attempts(ref text, context text DEFAULT 'default') RETURNS SETOF report.attempts LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    p record;
BEGIN
    FOR p IN SELECT x.* FROM postern.place_seen(ref, context) x LOOP
        RETURN QUERY SELECT a.* FROM report.attempts a WHERE a.queue_id = p.queue_id AND a.position = p.seq AND a.day = p.day AND a.context = attempts.context
        ORDER BY a.attempt, a.answered_at;
    END LOOP;
END $$;

CREATE FUNCTION postern.recent(most int DEFAULT 50, until timestamptz DEFAULT NULL, context text DEFAULT 'default')
RETURNS SETOF postern.transactions LANGUAGE plpgsql STABLE SET jit = off SET enable_seqscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    upto CONSTANT timestamptz := coalesce(until, clock_timestamp());
    of_context CONSTANT int := (SELECT c.context_id FROM postern.contexts c WHERE c.context = recent.context);
BEGIN
    RETURN QUERY SELECT v.context, v.queue, v.position, v.placed_before, v.id, v.uid, v.actor, v.type, v.state, v.queue_state, v.retries, v.attempt, v.sender,
        v.received_at, v.not_before, v.submitted_at, v.retried_at, v.done_at, v.next_at, v.hash, v.error_class, v.error_code, v.error,
        v.suspended, v.redrive_of, v.tags
    FROM (SELECT a.queue_id, a.seq, a.day, a.received_at FROM postern.arrivals a
        WHERE a.context_id = of_context AND a.received_at <= upto ORDER BY a.received_at DESC LIMIT most) x
    CROSS JOIN LATERAL (SELECT l.* FROM postern.located l WHERE (l.queue_id, l.position, l.day) = (x.queue_id, x.seq, x.day) LIMIT 1) v
    ORDER BY x.received_at DESC;
END $$;
-- +goose StatementEnd

CREATE VIEW report.stuck WITH (security_barrier) AS
SELECT c.name AS context, s.as_of, s.queue, s.id, s.uid, s.type, s.state, s.since, s.as_of - s.since AS age, s.blocker, s.blocker_detail,
    s.blocked_by_id, s.next_at, s.next_action, s.lever, 'docs/errors.md#why-' || s.blocker AS help
FROM postern.stuck s JOIN postern.context c ON c.context_id = s.context_id
WHERE s.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

-- The causes that an operator might look into, one line for each: heads that stand still, with the lever of the
-- oldest; ends of today that are UNRESOLVED or were rejected by a worker, by type; and things that are paused. Heads
-- are those of the sample: n of them is the least that stand for the cause. Where no object is in their way that others
-- may have, they stand for one cause if they are of one type and were answered alike, or wait for one transaction.
CREATE VIEW report.causes WITH (security_barrier) AS
SELECT c.name AS context, x.cause, x.type, x.n, x.since, clock_timestamp() - x.since AS age, x.detail, x.id, x.lever,
    'docs/errors.md#why-' || x.paragraph AS help
FROM postern.context c
CROSS JOIN LATERAL (
    SELECT s.blocker AS cause, CASE WHEN min(s.type) = max(s.type) THEN min(s.type) END AS type,
        count(*) AS n, min(s.since) AS since,
        (array_agg(s.blocker_detail ORDER BY s.since))[1] AS detail, (array_agg(s.id ORDER BY s.since))[1] AS id,
        (array_agg(s.lever ORDER BY s.since))[1] AS lever,
        s.blocker AS paragraph
    FROM postern.stuck s
    WHERE s.context_id = c.context_id AND s.blocker NOT IN ('queue_paused', 'dispatcher_paused', 'context_paused')
    GROUP BY s.blocker, s.object, s.alike, CASE WHEN s.object = '' AND s.blocked_by_id IS NULL THEN s.type END
    UNION ALL
    SELECT CASE o.state WHEN 'FAILED' THEN 'rejected_today' ELSE 'unresolved_today' END, t.type,
        count(*), min(o.done_at),
        (array_agg(coalesce(o.error, '') ORDER BY o.done_at DESC))[1],
        (array_agg(postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from))
            ORDER BY o.done_at DESC))[1],
        CASE o.state WHEN 'FAILED' THEN 'GET /transactions?state=FAILED&error_class=rejected&type=' || t.type
            ELSE 'GET /transactions?state=UNRESOLVED&type=' || t.type END,
        CASE o.state WHEN 'FAILED' THEN 'rejected_today' ELSE 'unresolved_today' END
    FROM postern.outcome o
    JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (o.queue_id, o.seq, o.day)
    WHERE o.context_id = c.context_id AND o.state <> 'DONE' AND o.done_at >= date_trunc('day', clock_timestamp(), 'UTC')
        AND (o.state = 'UNRESOLVED' OR o.state = 'FAILED' AND o.error_class = 'rejected')
    GROUP BY o.state, t.type
    UNION ALL
    SELECT 'paused', p.type, 1, coalesce(a.at, p.since),
        ltrim(p.object, '/') || coalesce(' is paused by ' || coalesce(k.name, a.actor) ||
            CASE WHEN a.reason <> '' THEN ': ' || a.reason ELSE '' END, ' is paused, since a transaction failed'),
        NULL, coalesce(p.lever, 'POST ' || p.object || '/resume'),
        CASE split_part(p.object, '/', 2)
            WHEN 'queues' THEN 'queue_paused'
            WHEN 'dispatchers' THEN 'dispatcher_paused'
            WHEN 'contexts' THEN 'context_paused'
            ELSE 'no_free_sender' END -- a pool or a sender
    FROM (SELECT s.object, NULL AS type, min(s.since) AS since, min(s.lever) AS lever
        -- a paused queue without a head holds nothing up
        FROM postern.stuck s
        WHERE s.context_id = c.context_id AND s.blocker = 'queue_paused'
        GROUP BY s.object
        UNION ALL SELECT '/dispatchers/' || d.type, d.type, d.created_at, NULL FROM postern.dispatcher d
        WHERE d.paused AND d.removed_at IS NULL AND d.context_id = c.context_id
        UNION ALL SELECT '/pools/' || l.name, NULL, l.created_at, NULL FROM postern.pool l
        WHERE l.paused AND l.context_id = c.context_id
        UNION ALL SELECT '/senders/' || s.account, NULL, s.created_at, NULL FROM postern.sender s
        WHERE s.paused AND s.removed_at IS NULL AND s.context_id = c.context_id
        UNION ALL SELECT '/contexts/' || c.name, NULL, c.created_at, NULL WHERE c.paused) p
    LEFT JOIN LATERAL (SELECT u.at, u.actor, u.reason FROM postern.audit u
        WHERE u.context_id = c.context_id AND u.object = p.object AND u.action = 'pause'
            AND u.at >= coalesce((SELECT max(r.at) FROM postern.audit r
                WHERE r.context_id = c.context_id AND r.object = p.object AND r.action = 'resume'), '-infinity')
        ORDER BY u.at DESC LIMIT 1) a ON true
    LEFT JOIN postern.api_key k ON k.prefix = substr(a.actor, 5) AND a.actor LIKE 'key:%') x
WHERE c.removed_at IS NULL AND c.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

CREATE VIEW report.throughput_hourly WITH (security_barrier) AS
SELECT c.name AS context, r.hour, r.type, r.accepted, r.done, r.failed, r.unresolved, r.cancelled, r.retries, r.as_of
FROM postern.rollup r JOIN postern.context c ON c.context_id = r.context_id
WHERE r.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

CREATE VIEW report.latency_hourly WITH (security_barrier) AS
SELECT c.name AS context, l.hour, l.type, l.n, w.p50 AS wait_p50, w.p95 AS wait_p95, d.p50 AS dispatch_p50, d.p95 AS dispatch_p95,
    i.p50 AS inclusion_p50, i.p95 AS inclusion_p95, l.p50 AS total_p50, l.p95 AS total_p95, l.most AS total_max, l.as_of
FROM postern.rollup_time l
JOIN postern.context c ON c.context_id = l.context_id
LEFT JOIN postern.rollup_time w ON (w.context_id, w.hour, w.type, w.state) = (l.context_id, l.hour, l.type, 'WAITING')
LEFT JOIN postern.rollup_time d ON (d.context_id, d.hour, d.type, d.state) = (l.context_id, l.hour, l.type, 'DISPATCHING')
LEFT JOIN postern.rollup_time i ON (i.context_id, i.hour, i.type, i.state) = (l.context_id, l.hour, l.type, 'REVISION')
WHERE l.state = '' AND l.type <> '' AND l.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

CREATE VIEW report.time_in_state WITH (security_barrier) AS
SELECT c.name AS context, 'transaction' AS machine, t.state, t.hour, t.n, t.p50, t.p95, t.most AS max, t.as_of
FROM postern.rollup_time t JOIN postern.context c ON c.context_id = t.context_id
WHERE t.type = '' AND t.state <> '' AND t.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

CREATE VIEW report.failures WITH (security_barrier) AS
SELECT c.name AS context, f.hour, f.type, f.error_class, f.error_code, f.n, f.first_at, f.last_at, f.sample_id, f.as_of
FROM postern.rollup_failure f JOIN postern.context c ON c.context_id = f.context_id
WHERE f.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

CREATE VIEW report.sender_use WITH (security_barrier) AS
SELECT v.context, v.pool, v.sender, v.state, v.queue,
    least(1, round((extract(epoch FROM h.busy) / 3600)::numeric, 3)) AS busy_share_1h,
    coalesce(u.n, 0) AS transactions_24h, coalesce(u.failed, 0) AS failures_24h, v.blocked_until, u.as_of
FROM postern.senders v
JOIN postern.context c ON c.name = v.context
JOIN postern.sender s ON (s.context_id, s.account) = (c.context_id, v.sender)
LEFT JOIN (SELECT r.context_id, r.sender_id, sum(r.n) AS n, sum(r.failed) AS failed, max(r.as_of) AS as_of FROM postern.rollup_sender r
    WHERE r.hour > statement_timestamp() - interval '24 hours' GROUP BY 1, 2) u ON (u.context_id, u.sender_id) = (s.context_id, s.sender_id)
LEFT JOIN postern.rollup_sender h ON (h.context_id, h.sender_id) = (s.context_id, s.sender_id)
    AND h.hour = date_trunc('hour', statement_timestamp(), 'UTC') - interval '1 hour'
WHERE s.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

CREATE VIEW report.deliveries WITH (security_barrier) AS
SELECT c.name AS context, s.name AS subscription, s.url AS endpoint, p.pending, f.failed, h.delivered_24h, p.oldest_pending,
    s.failing_since, l.error AS last_error
FROM postern.subscription s
JOIN postern.context c ON c.context_id = s.context_id
CROSS JOIN LATERAL (SELECT count(*) AS pending, min(d.at) AS oldest_pending FROM (SELECT d.at FROM postern.delivery d
    WHERE d.subscription_id = s.subscription_id AND d.state = 'pending' AND d.subscription_id > 0 LIMIT 10000) d) p
CROSS JOIN LATERAL (SELECT count(*) AS failed FROM (SELECT FROM postern.delivery d
    WHERE d.subscription_id = s.subscription_id AND d.state = 'failed' AND d.subscription_id > 0 LIMIT 10000) d) f
CROSS JOIN LATERAL (SELECT coalesce(sum(r.delivered), 0)::bigint AS delivered_24h FROM postern.rollup_delivery r
    WHERE r.subscription_id = s.subscription_id AND r.hour > statement_timestamp() - interval '24 hours') h
LEFT JOIN LATERAL (SELECT d.error FROM postern.delivery d WHERE d.subscription_id = s.subscription_id AND d.state = 'pending' AND d.error IS NOT NULL
    ORDER BY d.next_at LIMIT 1) l ON true
WHERE s.removed_at IS NULL AND s.kind = 'webhook' AND s.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

CREATE VIEW report.audit WITH (security_barrier) AS
SELECT c.name AS context, a.at, a.actor, a.via, a.action, a.object, a.reason
FROM postern.audit a JOIN postern.context c ON c.context_id = a.context_id
WHERE a.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

CREATE VIEW report.nodes WITH (security_barrier) AS
SELECT n.name AS node, n.version, n.epoch, n.dead_at IS NULL AND n.heartbeat_at > clock_timestamp() - n.ttl AS live,
    clock_timestamp() - n.heartbeat_at AS heartbeat_age, coalesce(l.queues, 0) AS queues, n.draining, l.as_of,
    n.types, n.concurrency, n.calls
FROM postern.node n
LEFT JOIN postern.node_load l ON l.node_id = n.node_id
WHERE cardinality((SELECT postern.contexts_of(current_user))::int[]) > 0;

-- How far retention has come, and what held it when it was looked at last (internal/pg/retention.go).
CREATE TABLE postern.retained (
    since     date NOT NULL,                 -- days before it have been dropped
    held_by   text NOT NULL,
    looked_at timestamptz NOT NULL,
    before    date,                          -- days before it were old enough then; null if everything is kept
    one       boolean NOT NULL DEFAULT true CONSTRAINT one_retention PRIMARY KEY CONSTRAINT one_retention_only CHECK (one)
);
INSERT INTO postern.retained (since, held_by, looked_at) VALUES ('1970-01-01', 'no retention is set: everything is kept', clock_timestamp());

-- What keeps a day from being dropped, whose ends must all lie before a moment, apart from what has not ended; null if
-- nothing does. Each look is by an index.
-- +goose StatementBegin
CREATE FUNCTION postern.day_held_by(of_day date, before timestamptz) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF EXISTS (SELECT FROM postern.outcome o WHERE o.day = of_day AND o.done_at >= before) THEN
        RETURN 'a transaction of this day ended later than retention allows to forget';
    ELSIF EXISTS (SELECT FROM postern.delivery d WHERE d.day = of_day AND d.state = 'pending') OR EXISTS (SELECT FROM postern.delivery d WHERE d.day = of_day AND d.state = 'queued') THEN
        RETURN 'deliveries of this day are still to be made';
    END IF;
    RETURN NULL;
END $$;

-- Drops a day, the oldest one: null, or what held it. What has not ended, or is awaited, which the caller has looked
-- for since the day was over, moves to the partitions _old, which reach up to the last day that had any: its ids stay,
-- and so do the days in them. Everything that takes time comes before the parents are locked. Behind the lock only an
-- end of a survivor or a delivery asked for again can have come since, for which it looks again: a past day gets no new
-- rows, and what has ended ends once. Who waits behind our wait for the four locks waits for a tenth of a second at
-- most: each is given up after 25 ms, and all are tried again. Where everybody takes longer than that, we wait longer
-- too. The partitions of other days stay unlocked, since everybody comes by the parents (an autovacuum of them would be
-- waited for).
CREATE FUNCTION postern.drop_day(of_day date, before timestamptz, queues bigint[], seqs bigint[]) RETURNS text LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan AS $$ -- plans of this day alone, made behind the locks
DECLARE
    parent text;
    part text;
    held text := postern.day_held_by(of_day, before);
BEGIN
    IF held IS NOT NULL THEN
        RETURN held;
    END IF;
    -- Who reads a subscription is told how far its events are dropped. Its row is locked before the tables, in the
    -- order of those who number and deliver.
    CREATE TEMP TABLE told ON COMMIT DROP AS SELECT s.subscription_id, d.cursor FROM postern.subscription s
        CROSS JOIN LATERAL (SELECT d.cursor FROM postern.delivery d WHERE d.day = of_day AND d.subscription_id = s.subscription_id AND d.subscription_id > 0
            ORDER BY d.cursor DESC LIMIT 1) d WHERE s.removed_at IS NULL AND d.cursor > s.dropped;
    PERFORM FROM postern.subscription s WHERE s.subscription_id IN (SELECT t.subscription_id FROM told t) ORDER BY s.subscription_id FOR NO KEY UPDATE;
    CREATE TEMP TABLE survivor ON COMMIT DROP AS SELECT s.queue_id, s.seq FROM ROWS FROM (unnest(queues), unnest(seqs)) s(queue_id, seq);
    FOR try IN REVERSE 19..0 LOOP
        BEGIN
            PERFORM set_config('lock_timeout', CASE WHEN try >= 10 THEN '25ms' WHEN try >= 5 THEN '50ms' ELSE '100ms' END, true);
            LOCK TABLE ONLY postern.task, ONLY postern.outcome, ONLY postern.attempt, ONLY postern.delivery IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF try = 0 THEN
                RETURN 'the tables are in use: it is tried again in an hour';
            END IF;
        END;
        PERFORM pg_sleep(0.1);
    END LOOP;
    PERFORM set_config('enable_seqscan', 'off', true); -- each look is for few rows of a large table
    IF to_regclass(format('postern.%I', 'task_' || to_char(of_day, 'YYYYMMDD'))) IS NULL THEN
        RETURN NULL; -- another process was here first
    END IF;
    held := postern.day_held_by(of_day, before);
    IF held IS NOT NULL THEN
        RETURN held;
    END IF;
    FOREACH parent IN ARRAY ARRAY['task', 'outcome', 'attempt', 'delivery'] LOOP
        part := parent || '_' || to_char(of_day, 'YYYYMMDD');
        IF cardinality(queues) = 0 THEN -- mostly, and then it is two milliseconds behind the lock instead of thirteen
            EXECUTE format('DROP TABLE postern.%I', part);
            CONTINUE;
        END IF;
        EXECUTE format('ALTER TABLE postern.%I DETACH PARTITION postern.%I', parent, part);
        IF to_regclass(format('postern.%I', parent || '_old')) IS NULL THEN
            EXECUTE format('CREATE TABLE postern.%I (LIKE postern.%I INCLUDING ALL)', parent || '_old', parent);
        ELSE
            EXECUTE format('ALTER TABLE postern.%I DETACH PARTITION postern.%I', parent, parent || '_old');
        END IF;
        EXECUTE format('INSERT INTO postern.%I SELECT p.* FROM survivor s CROSS JOIN LATERAL (SELECT * FROM postern.%I p WHERE (p.queue_id, p.seq) = (s.queue_id, s.seq) OFFSET 0) p',
            parent || '_old', part);
        EXECUTE format('ALTER TABLE postern.%I ATTACH PARTITION postern.%I FOR VALUES FROM (MINVALUE) TO (%L)', parent, parent || '_old', of_day + 1);
        EXECUTE format('DROP TABLE postern.%I', part);
    END LOOP;
    UPDATE postern.subscription s SET dropped = greatest(s.dropped, t.cursor) FROM told t WHERE t.subscription_id = s.subscription_id;
    UPDATE postern.retained SET since = of_day + 1, looked_at = clock_timestamp();
    RETURN NULL;
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION postern.drop_day FROM PUBLIC; -- it is the service's, which may make no tables itself

-- The days that are stored. A day is dropped as a whole, the oldest first.
CREATE VIEW report.retention WITH (security_barrier) AS
SELECT p.relname AS relation, to_date(right(k.relname, 8), 'YYYYMMDD') AS day, greatest(k.reltuples, 0)::bigint AS rows_estimate,
    pg_total_relation_size(k.oid) AS bytes,
    coalesce(to_date(right(k.relname, 8), 'YYYYMMDD') < r.before, false) AS droppable, r.held_by, r.looked_at
FROM postern.retained r CROSS JOIN pg_inherits i JOIN pg_class k ON k.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent JOIN pg_namespace s ON s.oid = p.relnamespace
WHERE s.nspname = 'postern' AND p.relname IN ('task', 'outcome', 'attempt', 'delivery') AND k.relname ~ '_[0-9]{8}$'
    AND cardinality((SELECT postern.contexts_of(current_user))::int[]) > 0;

-- +goose Down
DROP FUNCTION postern.recent;
DROP FUNCTION postern.attempts;
DROP FUNCTION postern.transaction;
DROP FUNCTION postern.place_seen;
DROP SCHEMA report CASCADE;
DROP VIEW postern.located;
DROP VIEW postern.contexts;
DROP VIEW postern.arrivals;
DROP VIEW postern.places;
DROP FUNCTION postern.drop_day;
DROP FUNCTION postern.day_held_by;
DROP TABLE postern.retained;
DROP FUNCTION postern.roll_up;
DROP FUNCTION postern.roll_on;
DROP FUNCTION postern.roll_slice;
DROP VIEW postern.overdue;
DROP TABLE postern.stuck;
DROP TABLE postern.node_load;
DROP TABLE postern.rollup_delivery;
DROP TABLE postern.rollup_sender;
DROP TABLE postern.rollup_failure;
DROP TABLE postern.rollup_time;
DROP TABLE postern.rollup;
DROP TABLE postern.rolling_part;
DROP TABLE postern.rolling;
DROP TABLE postern.rolled;
DROP INDEX postern.outcome_by_end;
