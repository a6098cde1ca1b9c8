-- Jobs: scripts that runners execute. Each is carried by a transaction of type job.<script type>, whose worker is
-- built in.
-- +goose Up

-- A process that takes jobs. What is known of its process is written by its own calls alone; seen_at at most ten times
-- in a short ttl, and once a second in a long one.
CREATE TABLE postern.runner (
    runner_id    int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id   int NOT NULL,
    name         text NOT NULL,
    type         text NOT NULL DEFAULT ''
        CONSTRAINT runner_type_is_known CHECK (type IN ('', 'v', 'python', 'osis', 'rust')),
    script_types text[] NOT NULL,              -- empty: whatever its process can execute
    -- false: it takes what its topic names, and nothing from the lanes of script types
    local        boolean NOT NULL,
    topic        text NOT NULL,
    slots        int NOT NULL CONSTRAINT runner_has_slots CHECK (slots BETWEEN 1 AND 10000),
    made_itself  boolean NOT NULL DEFAULT false, -- by its registration: then its slots are what its process says
    ttl          interval NOT NULL CONSTRAINT runner_ttl_is_long_enough CHECK (ttl BETWEEN '3 s' AND '1 h'),
    public_key   text NOT NULL DEFAULT '',
    address      text NOT NULL DEFAULT '',
    instance     text NOT NULL DEFAULT '',     -- the process that registered last, and what that says of itself
    able         text[] NOT NULL DEFAULT '{}', -- the script types whose interpreter it has
    missing      jsonb NOT NULL DEFAULT '{}',  -- by script type: the interpreter that it lacks
    program      text NOT NULL DEFAULT '',     -- its version
    isolation    text NOT NULL DEFAULT '',
    epoch        bigint NOT NULL DEFAULT 0,    -- a hybrid clock, which each registration raises; 0: none has
    seen_at      timestamptz,
    claimed_at   timestamptz,                  -- when it last asked for jobs
    paused       boolean NOT NULL DEFAULT false,
    removed_at   timestamptz,
    version      bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL,
    CONSTRAINT one_runner_per_name UNIQUE (context_id, name)
) WITH (fillfactor = 50);

-- What must hold in every row of a job and of a try, the legal edges of their machines among it; functions for the
-- reason
-- that queue_keeps_its_rules gives.
-- +goose StatementBegin
CREATE FUNCTION postern.job_keeps_its_rules(was text, status text, result jsonb, ended_at timestamptz)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE
        WHEN (status IN ('finished', 'error')) <> (ended_at IS NOT NULL) THEN postern.broken('job', 'an_end_has_a_time')
        WHEN status = 'finished' AND result IS NULL THEN postern.broken('job', 'finished_has_a_result')
        WHEN NOT
CASE was WHEN '' THEN status IN ('dispatched') WHEN 'dispatched' THEN status IN ('waiting_for_prerequisites', 'dispatched', 'started', 'error') WHEN 'waiting_for_prerequisites' THEN status IN ('waiting_for_prerequisites', 'started', 'error') WHEN 'started' THEN status IN ('started', 'finished', 'error') ELSE false END
            THEN postern.broken('job', 'job_follows_the_machine')
        ELSE true END;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION postern.try_keeps_its_rules(was text, state text, runner_id int, ended_at timestamptz)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE
        WHEN (state IN ('Finished', 'Failed', 'Withdrawn')) <> (ended_at IS NOT NULL)
            THEN postern.broken('job_try', 'a_try_that_ended_has_a_time')
        WHEN state = 'Held' AND runner_id IS NULL THEN postern.broken('job_try', 'a_runner_holds_it')
        WHEN state = 'Offered' AND runner_id IS NOT NULL
            THEN postern.broken('job_try', 'no_runner_holds_what_is_offered')
        WHEN NOT
CASE was WHEN '' THEN state IN ('Offered') WHEN 'Offered' THEN state IN ('Held', 'Withdrawn') WHEN 'Held' THEN state IN ('Finished', 'Failed', 'Offered') ELSE false END
            THEN postern.broken('job_try', 'try_follows_the_machine')
        ELSE true END;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION postern.flow_keeps_its_rules(was text, status text, ended_at timestamptz)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE
        WHEN (status IN ('finished', 'error')) <> (ended_at IS NOT NULL)
            THEN postern.broken('flow', 'an_end_has_a_time')
        WHEN NOT
CASE was WHEN '' THEN status IN ('dispatched') WHEN 'dispatched' THEN status IN ('started', 'waiting_for_prerequisites', 'dispatched', 'error') WHEN 'waiting_for_prerequisites' THEN status IN ('started', 'error') WHEN 'started' THEN status IN ('finished', 'started', 'error') ELSE false END
            THEN postern.broken('flow', 'flow_follows_the_machine')
        ELSE true END;
END $$;
-- +goose StatementEnd

-- Jobs that are started together, each after those that it needs. finished counts those of its jobs that have finished;
-- it is raised behind the lock of this row, which is taken before those of its jobs.
CREATE TABLE postern.flow (
    flow_id     uuid NOT NULL CONSTRAINT one_row_per_flow PRIMARY KEY,
    context_id  int NOT NULL,
    actor       text NOT NULL,                 -- who made it, and alone may change it
    ref         bigint,                        -- that actor's name of it
    env         jsonb NOT NULL,
    was         text NOT NULL DEFAULT '',
    status      text NOT NULL,
    steps       int NOT NULL DEFAULT 0,
    jobs        int NOT NULL,                  -- that it has
    finished    int NOT NULL DEFAULT 0,        -- of them
    result      jsonb,
    truncated   boolean NOT NULL DEFAULT false, -- the results of its jobs are too large to be told together
    error_code  text NOT NULL DEFAULT '',
    error       text NOT NULL DEFAULT '',
    cause       uuid,                          -- the job whose failure ended it
    redrive_of  uuid,
    version     bigint NOT NULL DEFAULT 1,     -- of its environment and its jobs
    created_at  timestamptz NOT NULL,
    released_at timestamptz,                   -- when it was started
    started_at  timestamptz,                   -- when a runner took the first of its jobs
    ended_at    timestamptz,
    updated_at  timestamptz NOT NULL,
    body_hash   bytea,                         -- of the request that made it
    request_key text,                          -- its Idempotency-Key
    CONSTRAINT a_flow_keeps_its_rules CHECK (postern.flow_keeps_its_rules(was, status, ended_at)),
    CONSTRAINT one_flow_per_ref UNIQUE (context_id, actor, ref)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX one_flow_per_request_key ON postern.flow (context_id, actor, request_key)
    WHERE request_key IS NOT NULL;
CREATE INDEX flow_by_time ON postern.flow (context_id, created_at, flow_id);
CREATE INDEX flow_by_end ON postern.flow (ended_at) WHERE ended_at IS NOT NULL; -- what retention lets go

CREATE TABLE postern.job (
    job_id      uuid NOT NULL CONSTRAINT one_row_per_job PRIMARY KEY,
    context_id  int NOT NULL,
    actor       text NOT NULL,                 -- who posted it
    ref         bigint,                        -- its name in its flow, or that actor's; NULL of a transaction
    uid         text,                          -- of what came as a transaction: that one's
    flow_id     uuid,
    removed     boolean NOT NULL DEFAULT false, -- from its flow, which began without it
    script      text NOT NULL,
    script_type text NOT NULL,
    queue       text,
    topic       text,                          -- of the runners that may take it; NULL: those of its script type
    timeout     interval NOT NULL,             -- of each try
    retries     smallint NOT NULL,             -- further tries
    network     boolean NOT NULL DEFAULT false,
    env         jsonb NOT NULL,                -- its own
    frozen      jsonb,                         -- with that of its flow, as it was when the job was posted
    need_time   interval NOT NULL DEFAULT '0', -- for each prerequisite
    was         text NOT NULL DEFAULT '',
    status      text NOT NULL,
    steps       int NOT NULL DEFAULT 0,
    unfit       text NOT NULL DEFAULT '',      -- why it cannot be run, of what came as a transaction
    result      jsonb,
    exit_code   int,
    error_code  text NOT NULL DEFAULT '',
    error       text NOT NULL DEFAULT '',
    cause       uuid,                          -- the job whose failure this one suffers from
    -- of its transaction, written in the commit that accepts that; NULL: not posted yet
    queue_id    bigint,
    seq         bigint,
    day         date,
    tx_id       uuid,
    tx_open     boolean NOT NULL DEFAULT true, -- the end of its transaction has not been read
    stop_at     timestamptz,                   -- since when its runner is told to stop
    stop_why    text NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL,
    started_at  timestamptz,
    ended_at    timestamptz,
    updated_at  timestamptz NOT NULL,
    body_hash   bytea,                         -- of the request that made it
    request_key text,                          -- its Idempotency-Key
    CONSTRAINT a_job_keeps_its_rules CHECK (postern.job_keeps_its_rules(was, status, result, ended_at))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX one_job_per_ref ON postern.job (context_id, actor, ref) WHERE flow_id IS NULL;
CREATE UNIQUE INDEX one_job_per_request_key ON postern.job (context_id, actor, request_key)
    WHERE request_key IS NOT NULL;
CREATE UNIQUE INDEX one_job_per_ref_of_a_flow ON postern.job (flow_id, ref) WHERE NOT removed;
CREATE INDEX job_by_transaction ON postern.job (tx_id);
CREATE UNIQUE INDEX one_job_per_transaction ON postern.job (queue_id, seq);
CREATE INDEX job_by_time ON postern.job (context_id, created_at, job_id);
CREATE INDEX job_unposted ON postern.job (updated_at) WHERE queue_id IS NULL AND tx_open;
-- whose transaction is to be taken back
CREATE INDEX job_ended_early ON postern.job (ended_at) WHERE tx_open AND ended_at IS NOT NULL;
CREATE INDEX job_stopping ON postern.job (stop_at) WHERE stop_at IS NOT NULL AND ended_at IS NULL;
CREATE INDEX job_by_end ON postern.job (ended_at) WHERE ended_at IS NOT NULL; -- what retention lets go

-- What a job needs of other jobs.
CREATE TABLE postern.job_edge (
    job_id uuid NOT NULL,
    needs  uuid NOT NULL,
    CONSTRAINT one_row_per_edge PRIMARY KEY (job_id, needs)
);
CREATE INDEX job_edge_by_cause ON postern.job_edge (needs);

-- What a job needs besides jobs: that somebody says that a name is met. Each is carried by a transaction of type
-- job.need, which ends when it is met, or when its time is over.
CREATE TABLE postern.job_need (
    job_id   uuid NOT NULL,
    n        int NOT NULL,
    name     text NOT NULL,
    deadline timestamptz,                      -- NULL: its job is not posted yet
    met_at   timestamptz,
    met_by   text NOT NULL DEFAULT '',
    ended_at timestamptz,                      -- when it was too late, or its job had ended
    queue_id bigint,                           -- of its transaction
    seq      bigint,
    settled  boolean NOT NULL DEFAULT false,   -- the end of its transaction was seen
    CONSTRAINT one_row_per_need PRIMARY KEY (job_id, n),
    CONSTRAINT one_need_per_name UNIQUE (job_id, name)
);
CREATE INDEX need_by_deadline ON postern.job_need (deadline) WHERE met_at IS NULL AND ended_at IS NULL;
CREATE INDEX need_unsettled ON postern.job_need (queue_id)
    WHERE (met_at IS NOT NULL OR ended_at IS NOT NULL) AND NOT settled;
CREATE UNIQUE INDEX one_need_per_transaction ON postern.job_need (queue_id, seq);

-- Jobs whose transactions have ended, until that was brought to the job. A row is inserted in the commit of the end.
CREATE TABLE postern.job_due (
    queue_id bigint NOT NULL,
    seq      bigint NOT NULL,
    day      date NOT NULL,
    at       timestamptz NOT NULL,
    CONSTRAINT one_row_per_ended_job PRIMARY KEY (queue_id, seq)
);

-- One attempt at a job. Its state changes behind the lock of its row, and so does its fence, a hybrid clock, which
-- rises
-- each time it is handed to a runner or taken back.
CREATE TABLE postern.job_try (
    try_id       uuid NOT NULL CONSTRAINT one_row_per_try PRIMARY KEY,
    context_id   int NOT NULL,
    job_id       uuid NOT NULL,
    queue_id     bigint NOT NULL,              -- of its transaction
    seq          bigint NOT NULL,
    attempt      int NOT NULL,
    token        text NOT NULL CONSTRAINT one_try_per_token UNIQUE,
    lane         text NOT NULL,
    was          text NOT NULL DEFAULT '',
    state        text NOT NULL,
    fence        bigint NOT NULL DEFAULT 0,
    lapses       int NOT NULL DEFAULT 0,
    runner_id    int,                          -- that holds it, or held it last
    runner_epoch bigint,
    missed_at    timestamptz,                  -- since when its runner does not name it
    offered_at   timestamptz NOT NULL,
    held_at      timestamptz,
    deadline_at  timestamptz,
    ended_at     timestamptz,
    settled      boolean NOT NULL DEFAULT false, -- its transaction has gone on since
    final        boolean NOT NULL DEFAULT false, -- no other try follows
    result       jsonb,                        -- also partial, of one that failed
    exit_code    int,
    error_code   text NOT NULL DEFAULT '',
    error        text NOT NULL DEFAULT '',
    usage        jsonb,
    isolation    text NOT NULL DEFAULT '',
    logged       int NOT NULL DEFAULT 0,       -- bytes of its output that were kept
    body_hash    bytea,                        -- of what its runner said at the end
    CONSTRAINT a_try_keeps_its_rules CHECK (postern.try_keeps_its_rules(was, state, runner_id, ended_at))
) WITH (fillfactor = 50);
CREATE INDEX try_offered ON postern.job_try (context_id, lane, offered_at, try_id) WHERE state = 'Offered';
CREATE INDEX try_held ON postern.job_try (runner_id) WHERE state = 'Held';
CREATE INDEX try_by_deadline ON postern.job_try (deadline_at) WHERE state = 'Held';
CREATE INDEX try_unsettled ON postern.job_try (ended_at, try_id) WHERE ended_at IS NOT NULL AND NOT settled;
CREATE INDEX try_offered_by_job ON postern.job_try (job_id) WHERE state = 'Offered'; -- to be withdrawn
CREATE INDEX try_by_job ON postern.job_try (job_id, attempt);
-- No job is executed again after it has succeeded.
CREATE UNIQUE INDEX one_success_per_job ON postern.job_try (job_id) WHERE state = 'Finished';

-- What was said of a try by a runner that held it no more. It changes nothing.
CREATE TABLE postern.try_late (
    try_id uuid NOT NULL,
    fence  bigint NOT NULL,
    at     timestamptz NOT NULL,
    what   text NOT NULL,
    body   jsonb NOT NULL,
    CONSTRAINT one_row_per_stale_fence PRIMARY KEY (try_id, fence)
);

-- The output of a try. The runner that holds it numbers the rows, so that a repeated append changes nothing; the next
-- one
-- begins anew under its own fence.
CREATE TABLE postern.try_log (
    try_id uuid NOT NULL,
    fence  bigint NOT NULL,
    n      int NOT NULL,
    at     timestamptz NOT NULL,
    stream text NOT NULL CONSTRAINT stream_is_known CHECK (stream IN ('stdout', 'stderr', 'runner')),
    text   text NOT NULL,
    CONSTRAINT one_row_per_piece PRIMARY KEY (try_id, fence, n)
);

-- What happened to a job, or to a flow.
CREATE TABLE postern.flow_step (
    object  uuid NOT NULL,
    n       int NOT NULL,
    at      timestamptz NOT NULL,
    machine text NOT NULL CONSTRAINT machine_is_of_jobs CHECK (machine IN ('job', 'flow')),
    was     text NOT NULL,
    event   text NOT NULL,
    status  text NOT NULL,
    by      text NOT NULL DEFAULT '',
    detail  text NOT NULL DEFAULT '',
    CONSTRAINT one_row_per_flow_step PRIMARY KEY (object, n)
);

-- The job or the flow that an event tells of: its key in fanout and delivery has the time in the object's id, and the
-- last 42 bits of the id of its flow, or of its own. See OfJob in internal/outbox.
CREATE FUNCTION postern.told_seq(of_object uuid, of_flow boolean) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('x0' || left(h, 12) || substr(h, 14, 3))::bit(64)::bigint | CASE WHEN $2 THEN 1::bigint << 60 ELSE 0 END
    FROM (SELECT replace($1::text, '-', '') AS h) x
$$;
CREATE FUNCTION postern.told_line(of_flow uuid) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (1::bigint << 43) + (1::bigint << 42)
        + (('x' || right(replace($1::text, '-', ''), 16))::bit(64)::bigint & ((1::bigint << 42) - 1))
$$;
CREATE FUNCTION postern.told_of(of_line bigint, of_seq bigint) RETURNS uuid LANGUAGE sql STABLE AS $$
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

-- The queue and the script type of the job that an event tells of, by which subscriptions filter; no row of a flow.
CREATE FUNCTION postern.told_by(event text, of_line bigint, of_seq bigint)
RETURNS TABLE (queue text, script_type text) LANGUAGE sql STABLE AS $$
    SELECT j.queue, j.script_type
    FROM postern.job j
    WHERE $1 LIKE 'job-%' AND j.job_id = postern.told_of($2, $3)
$$;

-- Whether subscriptions are still to be told of the end of a job or of a flow.
CREATE FUNCTION postern.to_be_told(of_object uuid, of_flow uuid, is_flow boolean) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM postern.fanout f WHERE f.queue_id = postern.told_line($2)
            AND f.seq = postern.told_seq($1, $3))
        OR EXISTS (SELECT FROM postern.delivery d WHERE d.queue_id = postern.told_line($2)
            AND d.seq = postern.told_seq($1, $3) AND d.state IN ('pending', 'queued'))
$$;

-- What is told of the end of a job or of a flow; NULL once retention has forgotten it. Neither the script nor the
-- environment is told: values of that may be secrets.
CREATE FUNCTION postern.job_event(of_line bigint, of_seq bigint, event text, at timestamptz, include text[])
RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('id', j.job_id, 'context', c.name, 'caller_id', j.actor, 'ref', j.ref, 'flow', j.flow_id,
            'uid', coalesce(j.uid, j.job_id::text), 'script_type', j.script_type, 'queue', j.queue,
            'status', substr($3, 5), 'exit_code', j.exit_code, 'error', CASE WHEN $3 = 'job-error' THEN
                jsonb_build_object('code', j.error_code, 'message', j.error, 'cause', j.cause) END,
            'transaction', j.tx_id, 'created_at', postern.rfc3339(j.created_at),
            'started_at', postern.rfc3339(j.started_at), 'ended_at', postern.rfc3339(j.ended_at),
            'event', replace($3, '-', '.'), 'at', postern.rfc3339($4))
        || CASE WHEN 'result' = ANY ($5) THEN jsonb_build_object('result', j.result) ELSE '{}' END
    FROM postern.job j
    JOIN postern.context c ON c.context_id = j.context_id
    WHERE $3 LIKE 'job-%' AND j.job_id = postern.told_of($1, $2)
    UNION ALL
    SELECT jsonb_build_object('id', f.flow_id, 'context', c.name, 'caller_id', f.actor, 'ref', f.ref,
            'status', substr($3, 6), 'job_count', f.jobs, 'finished_count', f.finished, 'error',
            CASE WHEN $3 = 'flow-error' THEN
                jsonb_build_object('code', f.error_code, 'message', f.error, 'cause', f.cause) END,
            'redrive_of', f.redrive_of, 'created_at', postern.rfc3339(f.created_at),
            'started_at', postern.rfc3339(f.started_at), 'ended_at', postern.rfc3339(f.ended_at),
            'event', replace($3, '-', '.'), 'at', postern.rfc3339($4))
        || CASE WHEN 'result' = ANY ($5) THEN jsonb_build_object('result', f.result) ELSE '{}' END
    FROM postern.flow f
    JOIN postern.context c ON c.context_id = f.context_id
    WHERE $3 LIKE 'flow-%' AND f.flow_id = postern.told_of($1, $2)
$$;
CREATE OR REPLACE FUNCTION postern.event_data(of_queue bigint, of_seq bigint, of_day date, event text, at timestamptz,
    include text[]) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $4 IN ('result', 'timeout') THEN postern.batch_event($2, $4, $5, $6)
        WHEN $4 LIKE 'job-%' OR $4 LIKE 'flow-%' THEN postern.job_event($1, $2, $4, $5, $6)
        ELSE postern.transaction_event($1, $2, $3, $4, $5, $6) END
$$;

-- What applications and people read of jobs. uid is that of a job that came as a transaction; else its id.
CREATE VIEW postern.jobs WITH (security_barrier) AS
SELECT c.name AS context, j.job_id AS id, coalesce(j.uid, j.job_id::text) AS uid, j.actor AS caller, j.ref,
    j.flow_id AS flow, j.script_type, j.status, j.result, j.error_code, j.error, j.tx_id AS transaction, j.created_at,
    j.started_at, j.ended_at
FROM postern.job j
JOIN postern.context c ON c.context_id = j.context_id
WHERE j.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]) AND NOT j.removed;

CREATE VIEW report.jobs WITH (security_barrier) AS
SELECT c.name AS context, j.job_id AS id, j.flow_id AS flow, j.ref, j.script_type, j.status, j.error_code,
    (SELECT count(*) FROM postern.job_try t WHERE t.job_id = j.job_id) AS tries, j.created_at, j.started_at, j.ended_at
FROM postern.job j
JOIN postern.context c ON c.context_id = j.context_id
WHERE j.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]) AND NOT j.removed;

CREATE VIEW report.flows WITH (security_barrier) AS
SELECT c.name AS context, f.flow_id AS id, f.ref, f.actor AS caller, f.status, f.jobs, f.finished, f.error_code,
    f.cause AS failed_job, f.redrive_of, f.created_at, f.started_at, f.ended_at
FROM postern.flow f
JOIN postern.context c ON c.context_id = f.context_id
WHERE f.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

-- claimed_age is since when it has asked for no job: a runner that lives and asks for none is stuck.
CREATE VIEW report.runners WITH (security_barrier) AS
SELECT c.name AS context, r.name AS runner, r.able AS script_types, r.slots,
    (SELECT count(*) FROM postern.job_try t WHERE t.runner_id = r.runner_id AND t.state = 'Held') AS held,
    r.paused, clock_timestamp() - r.seen_at AS seen_age, clock_timestamp() - r.claimed_at AS claimed_age, r.isolation,
    r.program
FROM postern.runner r
JOIN postern.context c ON c.context_id = r.context_id
WHERE r.removed_at IS NULL AND r.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

-- Contexts are kept apart here as everywhere; see the migration that makes the roles.
ALTER TABLE postern.runner ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.runner USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.job ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.job USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.flow ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.flow USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.job_need ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.job_need USING (EXISTS (SELECT FROM postern.job j WHERE j.job_id = job_need.job_id));
ALTER TABLE postern.job_edge ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.job_edge USING (EXISTS (SELECT FROM postern.job j WHERE j.job_id = job_edge.job_id));
ALTER TABLE postern.job_due ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.job_due USING (EXISTS (SELECT FROM postern.job j
    WHERE (j.queue_id, j.seq) = (job_due.queue_id, job_due.seq)));
ALTER TABLE postern.job_try ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.job_try USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.try_late ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.try_late USING (EXISTS (SELECT FROM postern.job_try t
    WHERE t.try_id = try_late.try_id));
ALTER TABLE postern.try_log ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.try_log USING (EXISTS (SELECT FROM postern.job_try t WHERE t.try_id = try_log.try_id));
ALTER TABLE postern.flow_step ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.flow_step USING (EXISTS (SELECT FROM postern.job j WHERE j.job_id = flow_step.object)
    OR EXISTS (SELECT FROM postern.flow f WHERE f.flow_id = flow_step.object));
SELECT postern.renew_roles();

-- +goose Down
DROP VIEW report.runners;
DROP VIEW report.flows;
DROP VIEW report.jobs;
DROP VIEW postern.jobs;
CREATE OR REPLACE FUNCTION postern.event_data(of_queue bigint, of_seq bigint, of_day date, event text, at timestamptz,
    include text[]) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $4 IN ('result', 'timeout') THEN postern.batch_event($2, $4, $5, $6)
        ELSE postern.transaction_event($1, $2, $3, $4, $5, $6) END
$$;
DROP FUNCTION postern.job_event;
DROP FUNCTION postern.to_be_told;
DROP FUNCTION postern.told_by;
DROP FUNCTION postern.told_of;
DROP FUNCTION postern.told_line;
DROP FUNCTION postern.told_seq;
DROP TABLE postern.flow_step;
DROP TABLE postern.try_log;
DROP TABLE postern.try_late;
DROP TABLE postern.job_try;
DROP TABLE postern.job_due;
DROP TABLE postern.job_need;
DROP TABLE postern.job_edge;
DROP TABLE postern.job;
DROP TABLE postern.flow;
DROP FUNCTION postern.flow_keeps_its_rules;
DROP FUNCTION postern.try_keeps_its_rules;
DROP FUNCTION postern.job_keeps_its_rules;
DROP TABLE postern.runner;
