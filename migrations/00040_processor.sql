-- Processors: what each is to execute, in two lines of batches that wait in front of the core.
-- +goose Up
-- Every change of a processor's batches locks its row first, so that its changes are serial (S4.4).
CREATE TABLE postern.processor (
    processor_id  int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id    int NOT NULL,
    name          text NOT NULL,
    owner         text NOT NULL DEFAULT '',      -- the actor that may do what an authorization may
    fair          boolean NOT NULL DEFAULT false,
    tick_interval interval NOT NULL DEFAULT '1 s' CONSTRAINT tick_interval_is_not_negative CHECK (tick_interval >= '0'),
    deliver_within interval NOT NULL DEFAULT '0' CONSTRAINT deliver_within_not_negative CHECK (deliver_within >= '0'), -- '0': however long it takes
    deliver_as    text NOT NULL DEFAULT '',      -- the type as which its batches go whole to a processor of another installation
    paused        boolean NOT NULL DEFAULT false,
    height        bigint NOT NULL DEFAULT 0 CONSTRAINT height_is_not_negative CHECK (height >= 0),
    ticked_at     timestamptz,
    removed_at    timestamptz,
    version       bigint NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_processor_per_name UNIQUE (context_id, name)
) WITH (fillfactor = 50);

-- Other installations whose batches a processor executes, with what their messages are signed with (S4.14): a table of
-- its own, so that who reads processors does not read that.
CREATE TABLE postern.processor_peer (
    processor_id int NOT NULL,
    name         text NOT NULL,
    secret       bytea NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_peer_per_name PRIMARY KEY (processor_id, name)
);

-- A line of a processor: how many batches wait in it, and between which places they stand. The bounds may be
-- wider than what is there, and never narrower: a read that starts at the lower one meets few of the index
-- entries that popped batches leave behind.
CREATE TABLE postern.batch_line (
    processor_id int NOT NULL,
    priority     smallint NOT NULL CONSTRAINT line_is_high_or_med CHECK (priority IN (0, 1)), -- 0 High, 1 Med
    length       bigint NOT NULL DEFAULT 0 CONSTRAINT length_is_not_negative CHECK (length >= 0),
    lowest       bigint NOT NULL DEFAULT 0,
    highest      bigint NOT NULL DEFAULT 0,
    CONSTRAINT one_line_per_priority PRIMARY KEY (processor_id, priority),
    CONSTRAINT bounds_enclose CHECK (lowest <= highest)
) WITH (fillfactor = 50);

-- Where a batch stands: places rise from the head on, with gaps, so that one can be put between two others
-- without moving those behind it. A batch that is executed or waits for a callback stands nowhere.
CREATE TABLE postern.batch_place (
    processor_id int NOT NULL,
    priority     smallint NOT NULL,
    place        bigint NOT NULL,
    batch_id     bigint NOT NULL CONSTRAINT one_place_per_batch UNIQUE,
    CONSTRAINT one_batch_per_place PRIMARY KEY (processor_id, priority, place)
);

-- Batches are numbered over all processors of this database (S4.1).
CREATE SEQUENCE postern.batch_id;

-- Has the numbers of batches, and of what is told of them, go on from the milliseconds since 2020, unless they are
-- ahead of them or were never used. Each process calls it when it starts, as all do behind a restore or a failover that
-- lost something: so no number is given twice, unless more than a thousand a second were drawn since the start before.
-- Who draws at the same moment gets a number that is still below, since it is only a few ahead of the last one.
-- +goose StatementBegin
CREATE FUNCTION postern.leap() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    least CONSTANT bigint := (extract(epoch FROM clock_timestamp() - timestamptz '2020-01-01 00:00:00+00') * 1000)::bigint;
BEGIN
    PERFORM FROM postern.identity ORDER BY epoch LIMIT 1 FOR UPDATE; -- one process after the other
    IF (SELECT s.is_called AND s.last_value < least FROM postern.batch_id s) THEN
        PERFORM setval('postern.batch_id', least);
    END IF;
    IF (SELECT s.is_called AND s.last_value < least FROM postern.batch_notice s) THEN
        PERFORM setval('postern.batch_notice', least);
    END IF;
END $$;
-- +goose StatementEnd

-- Who may send batches of which shape to which processor (S4.11). What is counted of one is changed under the
-- lock of its processor and then of its row.
CREATE TABLE postern.batch_authorization (
    authorization_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id       int NOT NULL,
    label            text NOT NULL,
    domain           text NOT NULL,              -- the name of the processor of all its functions
    settings         jsonb NOT NULL,
    enabled          boolean NOT NULL DEFAULT true,
    ends_at          timestamptz,
    ends_at_height   bigint,
    running          int NOT NULL DEFAULT 0 CONSTRAINT running_is_not_negative CHECK (running >= 0),
    removed_at       timestamptz,
    version          bigint NOT NULL DEFAULT 1,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_authorization_per_label UNIQUE (context_id, label)
) WITH (fillfactor = 50);

-- How many calls of an actor are held by batches that run, or burned by those that ended (S4.13).
CREATE TABLE postern.batch_call (
    authorization_id int NOT NULL,
    actor            text NOT NULL,
    spent            bigint NOT NULL CONSTRAINT spent_is_not_negative CHECK (spent >= 0),
    CONSTRAINT one_count_of_calls_per_actor PRIMARY KEY (authorization_id, actor)
) WITH (fillfactor = 50);

-- What must hold in every row of a batch, the legal edges of processor.Machine among it; a function for the
-- reason that queue_keeps_its_rules gives.
-- +goose StatementBegin
CREATE FUNCTION postern.batch_keeps_its_rules(was text, state text, priority smallint, next_action int, result text, result_n int)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE
        WHEN priority NOT IN (0, 1) THEN postern.broken('batch', 'batch_is_high_or_med')
        WHEN (state IN ('Done', 'Timed_Out')) <> (result IS NOT NULL) THEN postern.broken('batch', 'result_comes_with_the_end')
        WHEN result NOT IN ('executed', 'rejected', 'partially_executed', 'removed_by_owner', 'expired', 'timeout', 'unexpected_error')
            THEN postern.broken('batch', 'result_is_known')
        WHEN result = 'partially_executed' AND (result_n <> next_action OR next_action <= 0)
            THEN postern.broken('batch', 'what_was_executed_is_counted')
        WHEN NOT
CASE was WHEN '' THEN state IN ('Done', 'Queued') WHEN 'Queued' THEN state IN ('Done', 'Queued', 'Executing') WHEN 'Executing' THEN state IN ('Waiting_Callback', 'Queued', 'Done', 'Timed_Out') WHEN 'Timed_Out' THEN state IN ('Queued', 'Done') WHEN 'Waiting_Callback' THEN state IN ('Queued', 'Done') ELSE false END
            THEN postern.broken('batch', 'batch_follows_the_machine')
        ELSE true END;
END $$;
-- +goose StatementEnd

-- A batch, and the record of its execution: who sent it, how far it has come, how it ended.
CREATE TABLE postern.batch (
    batch_id         bigint NOT NULL CONSTRAINT one_row_per_batch PRIMARY KEY,
    context_id       int NOT NULL,
    processor_id     int NOT NULL,
    authorization_id int,                        -- NULL: none, it is the owner's
    label            text NOT NULL DEFAULT '',
    initiator        text NOT NULL,
    by_owner         boolean NOT NULL,
    call_held        boolean NOT NULL DEFAULT false,
    priority         smallint NOT NULL,
    actions          jsonb NOT NULL,
    messages         json NOT NULL,              -- as they were sent
    expiration_time  timestamptz,
    ttl              timestamptz,                -- until when it may be sent again after it was not delivered (S4.14)
    delivered        boolean NOT NULL DEFAULT false, -- a worker has taken something of it
    deliver_as       text NOT NULL DEFAULT '',   -- of its processor, as it was sent
    origin           text,                       -- the transaction of another installation that brought it
    was              text NOT NULL DEFAULT '',
    state            text NOT NULL,
    position         int NOT NULL DEFAULT 0,     -- the action that is next
    retries          int NOT NULL DEFAULT 0,     -- of that action
    cooldown_until   timestamptz,
    cooldown_height  bigint,
    left_alone       boolean NOT NULL DEFAULT false, -- its last try came to nothing because its worker is away
    run              int NOT NULL DEFAULT 0,     -- executions that have begun; the last is in the uid of its transaction
    steps            int NOT NULL DEFAULT 0,
    result           text,
    result_n         int NOT NULL DEFAULT 0,
    result_reason    text NOT NULL DEFAULT '',
    result_retriable boolean NOT NULL DEFAULT false,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    request_key      text,                       -- of the request that made it
    request_hash     bytea,
    CONSTRAINT a_batch_keeps_its_rules CHECK (postern.batch_keeps_its_rules(was, state, priority, position, result, result_n))
) WITH (fillfactor = 70);
CREATE INDEX batch_by_authorization ON postern.batch (authorization_id, batch_id) WHERE authorization_id IS NOT NULL;
CREATE INDEX batch_by_processor ON postern.batch (processor_id, batch_id);
-- A tick while another batch is being executed waits for it; this says so whatever the ticks do.
CREATE UNIQUE INDEX one_execution_per_processor ON postern.batch (processor_id) WHERE state = 'Executing';
CREATE INDEX batch_by_origin ON postern.batch (processor_id, origin) WHERE origin IS NOT NULL; -- what its sender asks by
CREATE UNIQUE INDEX one_batch_per_request_key ON postern.batch (context_id, request_key) WHERE request_key IS NOT NULL;
CREATE INDEX batch_by_end ON postern.batch (updated_at) WHERE state = 'Done'; -- what retention lets go
CREATE INDEX batch_that_waits ON postern.batch (processor_id) WHERE state = 'Waiting_Callback';
CREATE INDEX batch_that_timed_out ON postern.batch (processor_id) WHERE state = 'Timed_Out';

-- Each execution of a batch: of one action, or of an atomic batch as a whole. Its verdict is that of the action:
-- one that is to be confirmed has none before its callback.
CREATE TABLE postern.batch_action (
    batch_id   bigint NOT NULL,
    run        int NOT NULL,
    position   int NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz,
    ok         boolean,
    error      text NOT NULL DEFAULT '',
    CONSTRAINT one_row_per_run PRIMARY KEY (batch_id, run),
    CONSTRAINT a_verdict_has_a_time CHECK ((ok IS NULL) = (ended_at IS NULL))
) WITH (fillfactor = 70);
-- No action is executed again after it has succeeded.
CREATE UNIQUE INDEX one_success_per_action ON postern.batch_action (batch_id, position) WHERE ok;

-- The callback that a batch waits for, or will wait for: it is there before the worker is called (S4.5).
CREATE TABLE postern.batch_callback (
    batch_id bigint NOT NULL CONSTRAINT one_callback_per_batch PRIMARY KEY,
    address  text NOT NULL,
    payload  jsonb NOT NULL,
    deadline timestamptz,                        -- once the action was executed
    received jsonb                               -- it came before the execution was known to have ended
);
CREATE INDEX batch_callback_by_deadline ON postern.batch_callback (deadline) WHERE deadline IS NOT NULL;

-- What happened to a batch, but for its rotations. What is told of it besides its end has a number.
CREATE SEQUENCE postern.batch_notice;
CREATE TABLE postern.batch_step (
    batch_id   bigint NOT NULL,
    step       int NOT NULL,
    at         timestamptz NOT NULL,
    event      text NOT NULL,
    from_state text NOT NULL,
    to_state   text NOT NULL,
    actor      text NOT NULL DEFAULT '',
    reason     text NOT NULL DEFAULT '',
    notice     bigint,                           -- of a timeout that is no end
    CONSTRAINT one_row_per_step PRIMARY KEY (batch_id, step),
    CONSTRAINT notices_are_of_timeouts CHECK ((notice IS NOT NULL) = (to_state = 'Timed_Out'))
);
CREATE UNIQUE INDEX one_step_per_notice ON postern.batch_step (notice) WHERE notice IS NOT NULL;

-- What is told of the end of a batch, or of a timeout that is none yet; that is read from its step, since the batch may
-- have gone on. NULL once retention has forgotten it. A batch is no transaction, so that its function stands beside
-- theirs.
ALTER FUNCTION postern.event_data RENAME TO transaction_event;
CREATE FUNCTION postern.batch_event(of_number bigint, event text, at timestamptz, include text[]) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('id', b.batch_id, 'context', c.name, 'processor', p.name, 'state', CASE $2 WHEN 'timeout' THEN 'Timed_Out' ELSE b.state END,
            'priority', CASE b.priority WHEN 0 THEN 'High' ELSE 'Med' END, 'label', nullif(b.label, ''), 'initiator', b.initiator,
            'by', CASE WHEN b.by_owner THEN 'Owner' ELSE 'User' END, 'functions', json_array_length(b.messages), 'index', CASE $2 WHEN 'timeout' THEN 0 ELSE b.position END,
            'runs', CASE $2 WHEN 'timeout' THEN (SELECT count(*) FROM postern.batch_step s WHERE s.batch_id = b.batch_id AND s.notice <= $1) ELSE b.run END,
            'result', CASE $2 WHEN 'timeout' THEN '{"kind": "timeout", "n": 0, "reason": "", "retriable": true}'
                ELSE jsonb_build_object('kind', b.result, 'n', b.result_n, 'reason', b.result_reason, 'retriable', b.result_retriable) END,
            'expiration_time', postern.rfc3339(b.expiration_time), 'ttl', postern.rfc3339(b.ttl), 'created_at', postern.rfc3339(b.created_at),
            'last_updated_at', postern.rfc3339($3), 'event', 'batch.' || $2, 'at', postern.rfc3339($3))
        || CASE WHEN 'data' = ANY ($4) THEN jsonb_build_object('msgs', b.messages) ELSE '{}' END
    FROM postern.batch b JOIN postern.processor p ON p.processor_id = b.processor_id JOIN postern.context c ON c.context_id = b.context_id
    WHERE b.batch_id = CASE $2 WHEN 'timeout' THEN (SELECT s.batch_id FROM postern.batch_step s WHERE s.notice = $1) ELSE $1 END
$$;
CREATE FUNCTION postern.event_data(of_queue bigint, of_seq bigint, of_day date, event text, at timestamptz, include text[])
RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $4 IN ('result', 'timeout') THEN postern.batch_event($2, $4, $5, $6) ELSE postern.transaction_event($1, $2, $3, $4, $5, $6) END
$$;

CREATE VIEW report.processors WITH (security_barrier) AS
SELECT c.name AS context, p.name AS processor, p.paused, h.length AS high, m.length AS med, x.batch_id AS executing,
    (SELECT count(*) FROM postern.batch b WHERE b.processor_id = p.processor_id AND b.state = 'Waiting_Callback') AS waiting_callbacks
FROM postern.processor p JOIN postern.context c ON c.context_id = p.context_id
JOIN postern.batch_line h ON h.processor_id = p.processor_id AND h.priority = 0
JOIN postern.batch_line m ON m.processor_id = p.processor_id AND m.priority = 1
LEFT JOIN postern.batch x ON x.processor_id = p.processor_id AND x.state = 'Executing'
WHERE p.removed_at IS NULL AND p.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

-- done is how many actions were executed. place rises from the head of a line on, and is null for a batch
-- in none; it is no position, which would have to be counted.
CREATE VIEW report.batches WITH (security_barrier) AS
SELECT c.name AS context, p.name AS processor, CASE b.priority WHEN 0 THEN 'High' ELSE 'Med' END AS priority, l.place, b.batch_id AS id, b.label, b.state,
    json_array_length(b.messages) AS functions,
    CASE b.result WHEN 'executed' THEN json_array_length(b.messages) ELSE b.position END AS done, b.retries, b.cooldown_until, b.cooldown_height, b.expiration_time,
    b.result, b.result_n, b.result_reason, b.created_at, b.updated_at
FROM postern.batch b JOIN postern.processor p ON p.processor_id = b.processor_id JOIN postern.context c ON c.context_id = b.context_id
LEFT JOIN postern.batch_place l ON l.batch_id = b.batch_id
WHERE b.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

-- Contexts are kept apart here as everywhere; see the migration that makes the roles.
ALTER TABLE postern.processor ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.processor USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.batch_line ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.batch_line USING (EXISTS (SELECT FROM postern.processor p WHERE p.processor_id = batch_line.processor_id));
ALTER TABLE postern.batch_place ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.batch_place USING (EXISTS (SELECT FROM postern.processor p WHERE p.processor_id = batch_place.processor_id));
ALTER TABLE postern.batch_authorization ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.batch_authorization USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.batch_call ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.batch_call USING (EXISTS (SELECT FROM postern.batch_authorization a WHERE a.authorization_id = batch_call.authorization_id));
ALTER TABLE postern.batch ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.batch USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.batch_action ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.batch_action USING (EXISTS (SELECT FROM postern.batch b WHERE b.batch_id = batch_action.batch_id));
ALTER TABLE postern.batch_callback ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.batch_callback USING (EXISTS (SELECT FROM postern.batch b WHERE b.batch_id = batch_callback.batch_id));
ALTER TABLE postern.batch_step ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.batch_step USING (EXISTS (SELECT FROM postern.batch b WHERE b.batch_id = batch_step.batch_id));
SELECT postern.renew_roles();

-- +goose Down
DROP VIEW report.batches;
DROP VIEW report.processors;
DROP FUNCTION postern.event_data;
DROP FUNCTION postern.batch_event;
ALTER FUNCTION postern.transaction_event RENAME TO event_data;
DROP TABLE postern.batch_step;
DROP SEQUENCE postern.batch_notice;
DROP TABLE postern.batch_callback;
DROP TABLE postern.batch_action;
DROP TABLE postern.batch;
DROP FUNCTION postern.batch_keeps_its_rules;
DROP TABLE postern.batch_call;
DROP TABLE postern.batch_authorization;
DROP FUNCTION postern.leap;
DROP SEQUENCE postern.batch_id;
DROP TABLE postern.batch_place;
DROP TABLE postern.batch_line;
DROP TABLE postern.processor_peer;
DROP TABLE postern.processor;
