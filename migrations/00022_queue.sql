-- The queue row decides everything about a queue, under its lock. It has no index but its primary key,
-- so that every update stays on its page.
-- +goose Up

-- What follows a fence: see fence in internal/pg/clock.go.
CREATE FUNCTION postern.next_fence(fence bigint) RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT greatest(fence + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

CREATE SEQUENCE postern.queue_id CACHE 64;

CREATE TABLE postern.queue_name (
    context_id int NOT NULL,
    name       text NOT NULL,
    queue_id   bigint NOT NULL CONSTRAINT one_name_per_queue UNIQUE,
    -- where a reaped queue goes on: positions and fences of a name never begin anew
    last_seq   bigint NOT NULL DEFAULT 0,
    last_fence bigint NOT NULL DEFAULT 0,
    last_day   date NOT NULL DEFAULT '1970-01-01',
    -- settings (S2.19); the hot row carries what its decisions need
    configured boolean NOT NULL DEFAULT false,
    prio       smallint NOT NULL DEFAULT 1 CONSTRAINT priority_is_high_or_med CHECK (prio IN (0, 1)),
    max_depth  int CONSTRAINT queue_depth_is_positive CHECK (max_depth > 0),
    pool_id    int,
    when_full  text NOT NULL DEFAULT 'refuse' CONSTRAINT when_full_is_known CHECK (when_full IN ('refuse', 'drop_oldest')),
    on_failure text NOT NULL DEFAULT 'continue' CONSTRAINT on_failure_is_known CHECK (on_failure IN ('continue', 'pause')),
    version    bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_queue_per_name PRIMARY KEY (context_id, name)
);

-- What must hold in every row of a queue, with the name that its violation is reported under. One function
-- instead of a CHECK for each: PostgreSQL reads the text of every CHECK of a table anew with each statement,
-- which for these took 38 of the 46 us of an UPDATE of one row. The function is compiled once a session: 5 us
-- a statement and 0.2 a row.
-- The last rule is the legal edges of sequencer.Queue: literal, since a foreign key would lock and grow
-- multixacts on the hot path.
-- +goose StatementBegin
CREATE FUNCTION postern.queue_keeps_its_rules(was text, phase text, head_seq bigint, cur_seq bigint, next_seq bigint,
    tail_seq bigint, lane int, sender_id int, node_id bigint, node_epoch int)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE
        WHEN (cur_seq IS NOT NULL) <> (phase IN ('DISPATCHING', 'INCLUSION', 'WAITING_INCLUSION', 'RETRY', 'DELAY'))
            THEN postern.broken('queue', 'in_flight_has_a_position')
        WHEN (phase = 'IDLE') <> (head_seq > tail_seq) THEN postern.broken('queue', 'idle_is_empty')
        WHEN head_seq > tail_seq + 1 THEN postern.broken('queue', 'head_follows_tail_by_one')
        WHEN cur_seq NOT BETWEEN head_seq AND tail_seq THEN postern.broken('queue', 'position_lies_in_queue')
        WHEN next_seq IS NOT NULL AND (cur_seq IS NOT NULL OR next_seq NOT BETWEEN head_seq + 1 AND tail_seq)
            THEN postern.broken('queue', 'next_lies_in_queue')
        WHEN sender_id IS NOT NULL AND cur_seq IS NULL THEN postern.broken('queue', 'sender_is_held_in_flight_only')
        WHEN (node_id IS NULL) <> (node_epoch IS NULL) THEN postern.broken('queue', 'owner_has_an_epoch')
        WHEN node_id IS NOT NULL AND cur_seq IS NULL THEN postern.broken('queue', 'owner_has_work_in_flight')
        WHEN phase = 'READY' AND lane IS NULL THEN postern.broken('queue', 'waiting_has_a_lane')
        WHEN NOT
CASE was WHEN '' THEN phase IN ('IDLE', 'READY', 'HELD') WHEN 'IDLE' THEN phase IN ('DISPATCHING', 'IDLE', 'READY', 'HELD') WHEN 'READY' THEN phase IN ('DISPATCHING', 'IDLE', 'READY', 'HELD') WHEN 'HELD' THEN phase IN ('DISPATCHING', 'IDLE', 'READY', 'HELD') WHEN 'DISPATCHING' THEN phase IN ('INCLUSION', 'IDLE', 'READY', 'HELD', 'RETRY', 'DISPATCHING') WHEN 'INCLUSION' THEN phase IN ('WAITING_INCLUSION', 'INCLUSION', 'IDLE', 'READY', 'HELD') WHEN 'WAITING_INCLUSION' THEN phase IN ('WAITING_INCLUSION', 'IDLE', 'READY', 'HELD', 'RETRY') WHEN 'RETRY' THEN phase IN ('RETRY', 'DELAY', 'IDLE', 'READY', 'HELD') WHEN 'DELAY' THEN phase IN ('DELAY', 'IDLE', 'READY', 'HELD', 'DISPATCHING') ELSE false END
            THEN postern.broken('queue', 'phase_follows_the_machine')
        ELSE true END;
END $$;
-- +goose StatementEnd

CREATE TABLE postern.queue (
    queue_id      bigint NOT NULL,
    -- how often the row was written, in sixteens and what is left. While any session holds an old snapshot, no version
    -- of a row can be removed, and a key leads to all that do not share a page: who looks for a row by its id, and
    -- PostgreSQL itself when it compares a new version with all that bear its key. With the era in it, these are
    -- sixteen, whatever the snapshot keeps; and of sixteen updates one at most leaves its page for the key's sake.
    era           int NOT NULL DEFAULT 0,
    writes        smallint NOT NULL DEFAULT 0,
    context_id    int NOT NULL,
    named         boolean NOT NULL DEFAULT true,
    head_seq      bigint NOT NULL,           -- first position without an outcome; written lazily
    cur_seq       bigint,                    -- in flight; while a node works through: its first position
    next_seq      bigint,                    -- goes out next, where that is not head_seq: it was placed ahead
    tail_seq      bigint NOT NULL,
    head_day      date NOT NULL,             -- the head's day is not before it
    tail_day      date NOT NULL,
    marks         int NOT NULL DEFAULT 0,    -- marks at or above head
    fence         bigint NOT NULL,
    was           text NOT NULL DEFAULT 'IDLE', -- the phase before this one
    phase         text NOT NULL DEFAULT 'IDLE',
    attempt       int NOT NULL DEFAULT 1,    -- of the head
    retries       int NOT NULL DEFAULT 0,    -- of the head
    fee           text,                      -- of the head's attempt
    lane          int,                       -- of the head
    prio          smallint NOT NULL DEFAULT 1,
    paused        boolean NOT NULL DEFAULT false,
    draining      boolean NOT NULL DEFAULT false,
    pool_id       int,                       -- wins over the dispatcher's
    max_depth     int,
    drop_oldest   boolean NOT NULL DEFAULT false,
    pause_on_failure boolean NOT NULL DEFAULT false,
    pin_sender_id int,                       -- only this sender may take the head
    sender_id     int,
    node_id       bigint,
    node_epoch    int,
    entered_at    timestamptz NOT NULL,      -- into this phase; rises along a queue
    not_before    timestamptz,               -- what the timer was first set to
    blocked_since timestamptz,               -- since when calls of the head come to nothing; null: they do not
    CONSTRAINT queue_by_era PRIMARY KEY (queue_id, era) WITH (deduplicate_items = off), -- of entries that are packed together the oldest would come first
    CONSTRAINT a_queue_keeps_its_rules CHECK (postern.queue_keeps_its_rules(
        was, phase, head_seq, cur_seq, next_seq, tail_seq, lane, sender_id, node_id, node_epoch))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- One id, one row: who inserts a second is refused by this trigger, and where two insert the same at one time, by the
-- key, since both begin in era 0.
-- +goose StatementBegin
CREATE FUNCTION postern.one_row_per_queue() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM postern.queue q WHERE q.queue_id = NEW.queue_id) THEN
        PERFORM postern.broken('queue', 'one_row_per_queue');
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER one_row_per_queue BEFORE INSERT ON postern.queue FOR EACH ROW EXECUTE FUNCTION postern.one_row_per_queue();

-- Queues with work and no owner. since = queue.entered_at, so that the key is known from the queue row.
CREATE TABLE postern.ready (
    lane     int NOT NULL,
    prio     smallint NOT NULL,
    since    timestamptz NOT NULL,
    queue_id bigint NOT NULL,
    era      int NOT NULL DEFAULT 0, -- of the queue, or an earlier one: from there on its row is looked for
    CONSTRAINT one_place_in_a_lane PRIMARY KEY (lane, prio, since, queue_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Every wait is a row: when a queue wants to be looked at again.
CREATE TABLE postern.timer (
    queue_id bigint NOT NULL CONSTRAINT one_timer_per_queue PRIMARY KEY,
    due_at   timestamptz NOT NULL,
    said     text -- what the worker was heard to say when it was asked last, for people: so it is asked again
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX timer_by_due ON postern.timer (due_at);

-- An id is drawn: the milliseconds since 2020 and 12 random bits, 53 bits together, which JSON can hold. A sequence of
-- a database that was restored would give the id of a process that still runs to another one, and with it what that
-- process leased.
CREATE TABLE postern.node (
    node_id      bigint PRIMARY KEY
        DEFAULT (extract(epoch FROM clock_timestamp()) * 1000 - 1577836800000)::bigint * 4096 + floor(random() * 4096)::bigint,
    name         text NOT NULL,
    kind         text NOT NULL DEFAULT 'work' CONSTRAINT node_kind_is_known CHECK (kind IN ('work', 'pull')),
    epoch        int NOT NULL DEFAULT 1,
    released_epoch int NOT NULL DEFAULT 1,      -- no queue is owned by it under an epoch before this one
    ttl          interval NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    beats        bigint NOT NULL DEFAULT 0,     -- how many there were: it never falls, whatever the clock does
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    dead_at      timestamptz,
    version      text NOT NULL DEFAULT '',
    draining     boolean NOT NULL DEFAULT false, -- it claims nothing; see internal/pg/node_lever.go
    worker_allow_cidr text[],                   -- private ranges that it may call; null: it has not said yet
    quarantine   bigint NOT NULL DEFAULT 0,     -- the number of postern.store that it has to know before it leases anything
    heeds        bigint NOT NULL DEFAULT 0,     -- the one that it knew at its last heartbeat
    -- what it said of itself at its last heartbeat, for those who ask why nothing goes out: nothing is decided by it
    types        text[] NOT NULL DEFAULT '{}',  -- that it works on; empty: all
    concurrency  int NOT NULL DEFAULT 0,        -- how many calls it may have out; 0: it did not say
    calls        int NOT NULL DEFAULT 0,        -- how many it had out
    -- a key: a claim holds it, and what ends an epoch, or puts something into quarantine, waits for the claim's commit
    CONSTRAINT one_epoch_of_a_node UNIQUE (node_id, epoch, quarantine)
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE postern.node;
DROP TABLE postern.timer;
DROP TABLE postern.ready;
DROP TABLE postern.queue;
DROP FUNCTION postern.one_row_per_queue;
DROP FUNCTION postern.queue_keeps_its_rules;
DROP TABLE postern.queue_name;
DROP SEQUENCE postern.queue_id;
DROP FUNCTION postern.next_fence;
