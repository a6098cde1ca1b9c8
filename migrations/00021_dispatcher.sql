-- What people configure: pools of senders, dispatchers, and the lanes in which heads wait for them.
-- +goose Up
CREATE TABLE postern.pool (
    pool_id       int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id    int NOT NULL,
    name          text NOT NULL,
    -- what a failure that reached the worker does to the sender (S1.13)
    after_failure text NOT NULL DEFAULT 'keep' CONSTRAINT after_failure_is_known CHECK (after_failure IN ('keep', 'block')),
    block_for     interval NOT NULL DEFAULT '24 h',
    paused        boolean NOT NULL DEFAULT false,
    version       bigint NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_pool_per_name UNIQUE (context_id, name)
);

CREATE TABLE postern.dispatcher (
    dispatcher_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id    int NOT NULL,
    type          text NOT NULL,
    pool_id       int,
    settings      jsonb NOT NULL,
    posted_by     text NOT NULL GENERATED ALWAYS AS (coalesce(settings->>'posted_by', 'anyone')) STORED,
    paused        boolean NOT NULL DEFAULT false,
    draining      boolean NOT NULL DEFAULT false,
    removed_at    timestamptz,
    -- nothing came of the calls to its worker: nothing goes out before gate_until, then one probe (S2.9)
    gate_until    timestamptz,
    gate_failures int NOT NULL DEFAULT 0,
    gate_reason   text NOT NULL DEFAULT '',    -- the last answer
    gate_probing  boolean NOT NULL DEFAULT false, -- a probe is out
    gate_since    timestamptz,                 -- since when it is closed
    gate_node     text NOT NULL DEFAULT '',    -- whose call came to nothing last
    version       bigint NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_dispatcher_per_type UNIQUE (context_id, type)
) WITH (fillfactor = 50);

-- What the calls of its worker are signed with: a table of its own, so that who reads settings does not read it.
CREATE TABLE postern.dispatcher_secret (
    dispatcher_id int CONSTRAINT one_secret_per_dispatcher PRIMARY KEY,
    secret        bytea NOT NULL
);

CREATE TABLE postern.sender (
    sender_id     int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id    int NOT NULL,
    pool_id       int NOT NULL,
    account       text NOT NULL,
    worker_url    text NOT NULL DEFAULT '',
    attributes    jsonb NOT NULL DEFAULT '{}',
    queue_id      bigint CONSTRAINT one_queue_per_sender UNIQUE,
    bound_since   timestamptz,
    paused        boolean NOT NULL DEFAULT false,
    draining      boolean NOT NULL DEFAULT false, -- it takes only what names it
    removed_at    timestamptz,
    blocked_until timestamptz,
    block_reason  text NOT NULL DEFAULT '',
    gate_failures int NOT NULL DEFAULT 0,
    gate_reason   text NOT NULL DEFAULT '', -- the last answer, where block_reason is worker_unreachable
    gate_since    timestamptz,              -- since when that is so
    gate_node     text NOT NULL DEFAULT '', -- whose call came to nothing last
    last_nonce    text,
    last_used_at  timestamptz,
    version       bigint NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_sender_per_account UNIQUE (context_id, account)
) WITH (fillfactor = 50);
CREATE INDEX sender_by_pool ON postern.sender (pool_id);

-- A lane is what must be free for the queues that stand in it: a dispatcher and its pool, or a
-- dispatcher and one sender, or a value of an exclusive dispatcher (held by one queue from BLOCKED to
-- its end, S2.20). Lanes of several types that exclude each other share a lane of kind group, which
-- is held in their place, and in which nothing stands. The lane resume has no dispatcher: work of dead nodes,
-- which needs nothing but a node.
CREATE TABLE postern.lane (
    lane_id       int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind          text NOT NULL CONSTRAINT lane_kind_is_known
        CHECK (kind IN ('dispatcher', 'sender', 'exclusive', 'group', 'resume')),
    dispatcher_id int,
    pool_id       int,
    sender_id     int,
    value         text,
    shared        int,                         -- the lane of kind group that is held in its place
    holder        bigint,
    CONSTRAINT one_lane_per_need UNIQUE NULLS NOT DISTINCT (dispatcher_id, pool_id, sender_id, value),
    CONSTRAINT lane_has_what_its_kind_says CHECK (
        (kind IN ('resume', 'group')) = (dispatcher_id IS NULL) AND (kind = 'sender') = (sender_id IS NOT NULL)
        AND (kind IN ('exclusive', 'group')) = (value IS NOT NULL) AND (shared IS NULL OR kind = 'exclusive')),
    CONSTRAINT only_exclusive_lanes_are_held CHECK (holder IS NULL OR shared IS NULL AND kind IN ('exclusive', 'group'))
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX one_lane_per_holder ON postern.lane (holder) WHERE holder IS NOT NULL;
INSERT INTO postern.lane (kind) VALUES ('resume');

-- +goose Down
DROP TABLE postern.lane;
DROP TABLE postern.sender;
DROP TABLE postern.dispatcher_secret;
DROP TABLE postern.dispatcher;
DROP TABLE postern.pool;
