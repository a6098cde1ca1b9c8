-- Bodies, attempts, outcomes and hook deliveries of transactions: inserted once, partitioned by the
-- day of the transaction.
-- +goose Up
CREATE TABLE postern.task (
    queue_id    bigint NOT NULL,
    seq         bigint NOT NULL,
    day         date NOT NULL,
    context_id  int NOT NULL,
    uid         text,
    actor       text NOT NULL DEFAULT '',
    type        text NOT NULL,
    data        jsonb NOT NULL,
    max_retries int,
    not_before  timestamptz,
    sender_id   int,                         -- only this account may sign it
    tags        jsonb,
    traceparent text,
    redrive_of  uuid,
    moved_from  uuid,                        -- its id in the queue that it was moved out of
    callback    jsonb,                       -- {url, on}: whom to tell of its end
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_task_per_position PRIMARY KEY (queue_id, seq, day)
) PARTITION BY RANGE (day);
-- The condition holds for all, and keeps those who look for a row by its key from this index: a day that is empty when
-- their plan is made costs the same by either, and once it is full this one would be read whole. A query that
-- wants the order of time says it too.
CREATE INDEX task_by_time ON postern.task (context_id, created_at, queue_id, seq) WHERE created_at > '-infinity';

-- The legal ends of sequencer.Transaction; a function for the reason that queue_keeps_its_rules gives.
-- +goose StatementBegin
CREATE FUNCTION postern.outcome_keeps_its_rules(was text, state text)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE
        WHEN state NOT IN ('DONE', 'FAILED', 'UNRESOLVED', 'CANCELLED') OR NOT
CASE was WHEN '' THEN state IN ('WAITING') WHEN 'WAITING' THEN state IN ('DISPATCHING', 'CANCELLED', 'FAILED') WHEN 'DISPATCHING' THEN state IN ('REVISION', 'DONE', 'WAITING', 'FAILED', 'RETRY', 'DISPATCHING', 'UNRESOLVED') WHEN 'REVISION' THEN state IN ('REVISION', 'DONE', 'RETRY', 'FAILED', 'UNRESOLVED') WHEN 'RETRY' THEN state IN ('RETRY', 'FAILED', 'DONE', 'WAITING', 'DISPATCHING', 'CANCELLED', 'UNRESOLVED') ELSE false END
            THEN postern.broken('outcome', 'outcome_follows_the_machine')
        ELSE true END;
END $$;
-- +goose StatementEnd

CREATE TABLE postern.outcome (
    queue_id     bigint NOT NULL,
    seq          bigint NOT NULL,
    day          date NOT NULL,
    context_id   int NOT NULL,
    was          text NOT NULL,
    state        text NOT NULL,
    result       jsonb,
    error_class  text,
    error_code   text,
    error        text,
    attempt      int,
    retries      int NOT NULL DEFAULT 0,
    fence        bigint,                     -- null where no lease wrote it (cancelled)
    sender_id    int,
    node_id      bigint,
    fee          text,
    nonce        text,
    hash         text,
    block_height text,
    started_at   timestamptz,
    submitted_at timestamptz,
    retried_at   timestamptz,
    done_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    members      jsonb,                      -- what its worker answered besides, for its hooks alone
    CONSTRAINT an_outcome_keeps_its_rules CHECK (postern.outcome_keeps_its_rules(was, state)),
    CONSTRAINT one_outcome_per_transaction PRIMARY KEY (queue_id, seq, day)
) PARTITION BY RANGE (day);
CREATE INDEX outcome_not_done ON postern.outcome (context_id, done_at, queue_id, seq) WHERE state <> 'DONE';

CREATE TABLE postern.attempt (
    queue_id     bigint NOT NULL,
    seq          bigint NOT NULL,
    day          date NOT NULL,
    attempt      int NOT NULL,
    fence        bigint NOT NULL,
    step         text NOT NULL CONSTRAINT step_is_known CHECK (step IN ('dispatch', 'inclusion', 'unknown', 'late')),
    sender_id    int,
    node_id      bigint,
    fee          text,
    nonce        text,
    hash         text,
    data         jsonb,                      -- replaces the transaction's data from here on
    class        text,
    code         text,
    error        text,
    nothing_done boolean,                    -- true: the call certainly had no effect, so another sender may send its token;
                                             -- false: its worker itself said that it may have had one
    started_at   timestamptz,
    answered_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    members      jsonb,                      -- what its worker answered besides, for its next calls alone
    CONSTRAINT one_row_per_attempt_and_step PRIMARY KEY (queue_id, seq, day, attempt, fence, step)
) PARTITION BY RANGE (day);

-- What is to be told to others: to a worker by its hook, to the endpoint that a transaction named
-- (callback), or to a subscription, in which it then has a position. One row per event and endpoint.
CREATE TABLE postern.delivery (
    queue_id        bigint NOT NULL,
    seq             bigint NOT NULL,
    day             date NOT NULL,
    subscription_id int NOT NULL DEFAULT 0,  -- 0: a hook; -1: a callback of the transaction
    event           text NOT NULL CONSTRAINT event_is_known CHECK (event IN
                        ('accepted', 'done', 'failed', 'unresolved', 'cancelled', 'result', 'timeout', 'test', 'on-success', 'on-failure',
                         'job-finished', 'job-error', 'flow-finished', 'flow-error')),
    context_id      int NOT NULL,
    cursor          bigint,                  -- its position in the subscription
    at              timestamptz NOT NULL,    -- when it happened
    url             text,                    -- of a callback
    -- queued: behind another of its queue. kept: to be fetched, never sent.
    state           text NOT NULL DEFAULT 'pending' CONSTRAINT delivery_state_is_known CHECK (state IN
                        ('queued', 'pending', 'delivered', 'failed', 'absent', 'kept')),
    attempts        int NOT NULL DEFAULT 0,
    next_at         timestamptz,
    tries           jsonb NOT NULL DEFAULT '[]',
    error           text,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    first_at        timestamptz,             -- of the tries since it was last asked for
    ended_at        timestamptz,
    CONSTRAINT one_delivery_per_endpoint PRIMARY KEY (queue_id, seq, day, subscription_id, event),
    CONSTRAINT pending_has_a_next_time CHECK ((state = 'pending') = (next_at IS NOT NULL)),
    CONSTRAINT cursors_are_of_subscriptions CHECK ((subscription_id > 0) = (cursor IS NOT NULL))
) PARTITION BY RANGE (day);
CREATE INDEX delivery_due ON postern.delivery (subscription_id, next_at) WHERE state = 'pending';
CREATE INDEX delivery_pending ON postern.delivery (subscription_id, queue_id) INCLUDE (at) WHERE state = 'pending' AND subscription_id <> 0;
CREATE INDEX delivery_queued ON postern.delivery (subscription_id, queue_id, cursor) WHERE state = 'queued';
CREATE INDEX delivery_failed ON postern.delivery (subscription_id) WHERE state = 'failed' AND subscription_id > 0;
CREATE INDEX delivery_cursor ON postern.delivery (subscription_id, cursor) WHERE subscription_id > 0;
-- a worker's hooks are looked up by their transaction, unless they failed
CREATE INDEX delivery_by_time ON postern.delivery (context_id, created_at, queue_id, seq) WHERE event NOT IN ('on-success', 'on-failure') OR state = 'failed';

-- Sparse: what is exceptional about one transaction.
CREATE TABLE postern.mark (
    queue_id bigint NOT NULL,
    seq      bigint NOT NULL,
    kind     text NOT NULL CONSTRAINT mark_kind_is_known CHECK (kind IN ('cancelled', 'cancelling', 'held', 'watched', 'suspended', 'placed', 'unknown')),
    reason   text NOT NULL DEFAULT '',
    actor    text NOT NULL DEFAULT '',
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    rank     numeric,                        -- of what was placed: it goes out in this order, others in that of seq
    before_seq bigint,                       -- what it was placed before; null at the end of the queue
    CONSTRAINT placed_has_a_rank CHECK ((kind = 'placed') = (rank IS NOT NULL)),
    CONSTRAINT one_mark_of_a_kind PRIMARY KEY (queue_id, seq, kind)
);
-- what an operator has to say something about is found without a look at other marks
CREATE INDEX mark_unknown ON postern.mark (queue_id, seq) WHERE kind = 'unknown';

CREATE TABLE postern.redrive (
    queue_id bigint NOT NULL,
    seq      bigint NOT NULL,
    new_id   uuid NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_redrive_per_transaction PRIMARY KEY (queue_id, seq)
);

CREATE TABLE postern.idempotency (
    context_id int NOT NULL,
    key        text NOT NULL,
    queue_id   bigint NOT NULL,
    seq        bigint NOT NULL,
    day        date NOT NULL,
    body_hash  bytea NOT NULL,
    CONSTRAINT one_transaction_per_key PRIMARY KEY (context_id, key)
);

-- Creates the partitions of every day in [first, last]; existing ones stay. Returns how many are new.
-- +goose StatementBegin
CREATE FUNCTION postern.ensure_days(first date, last date) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    d date := first;
    t text;
    n int := 0;
BEGIN
    -- Two processes that start together both find a day missing: the second one waits here and looks again.
    IF EXISTS (SELECT FROM generate_series(first, last, interval '1 day') g
            WHERE to_regclass(format('postern.%I', 'delivery_' || to_char(g, 'YYYYMMDD'))) IS NULL) THEN
        PERFORM FROM postern.identity ORDER BY epoch LIMIT 1 FOR UPDATE;
    END IF;
    WHILE d <= last LOOP
        FOREACH t IN ARRAY ARRAY['task', 'outcome', 'attempt', 'delivery'] LOOP
            IF to_regclass(format('postern.%I', t || '_' || to_char(d, 'YYYYMMDD'))) IS NULL THEN
                -- In two steps, since the second takes a weaker lock than PARTITION OF would: none waits for it.
                EXECUTE format('CREATE TABLE postern.%I (LIKE postern.%I INCLUDING ALL)', t || '_' || to_char(d, 'YYYYMMDD'), t);
                EXECUTE format('ALTER TABLE postern.%I ATTACH PARTITION postern.%I FOR VALUES FROM (%L) TO (%L)',
                    t, t || '_' || to_char(d, 'YYYYMMDD'), d, d + 1);
                IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'postern_app') THEN -- which reads what is of today by its name (00039)
                    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON postern.%I TO postern_app', t || '_' || to_char(d, 'YYYYMMDD'));
                END IF;
                n := n + 1;
            END IF;
        END LOOP;
        d := d + 1;
    END LOOP;
    RETURN n;
END $$;
-- +goose StatementEnd
SELECT postern.ensure_days((clock_timestamp() AT TIME ZONE 'UTC')::date - 1, (clock_timestamp() AT TIME ZONE 'UTC')::date + 3);

-- +goose Down
DROP FUNCTION postern.ensure_days;
DROP TABLE postern.idempotency;
DROP TABLE postern.redrive;
DROP TABLE postern.mark;
DROP TABLE postern.delivery;
DROP TABLE postern.attempt;
DROP TABLE postern.outcome;
DROP FUNCTION postern.outcome_keeps_its_rules;
DROP TABLE postern.task;
