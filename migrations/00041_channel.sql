-- High-integrity channels (S1.15): messages between two processes; none is lost.
-- +goose Up
CREATE TABLE postern.channel (
    channel_id  int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id  int NOT NULL,
    name        text NOT NULL,
    capacity    int NOT NULL DEFAULT 100 CONSTRAINT channel_capacity_is_positive CHECK (capacity > 0),
    max_retries int NOT NULL DEFAULT 5 CONSTRAINT channel_retries_are_positive CHECK (max_retries > 0), -- with 0, it would be dropped unseen
    retry_every interval NOT NULL DEFAULT '5 s',
    stale_after interval NOT NULL DEFAULT '5 min',
    sweep_every interval NOT NULL DEFAULT '30 s',
    retried_at  timestamptz,               -- when its retrier and its sweeper last ran
    swept_at    timestamptz,
    version     bigint NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT channel_waits_are_positive CHECK (least(retry_every, stale_after, sweep_every) > '0'),
    CONSTRAINT one_channel_per_name UNIQUE (context_id, name)
);

-- A message that has not ended. Its fence rises whenever it is handed to somebody or taken back.
CREATE TABLE postern.channel_message (
    channel_id int NOT NULL,
    message_id text NOT NULL,              -- the sender's name for it
    payload    jsonb NOT NULL,
    state      text NOT NULL CONSTRAINT channel_message_state_is_known CHECK (state IN ('Queued', 'Offered', 'Active')),
    retries    int NOT NULL DEFAULT 0,     -- nacks, and nothing else
    fence      bigint NOT NULL,
    draw       bigint NOT NULL,            -- anew whenever it is queued: where the retrier may meet it
    node_id    bigint,                     -- the holder, if it is one of our processes
    node_epoch int,
    error      text NOT NULL DEFAULT '',   -- of the last nack
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,       -- of the present state
    CONSTRAINT only_active_channel_messages_are_held CHECK (node_id IS NULL OR state = 'Active'),
    CONSTRAINT one_channel_message_per_id PRIMARY KEY (channel_id, message_id)
) WITH (fillfactor = 70);
CREATE INDEX channel_message_by_state ON postern.channel_message (channel_id, state, updated_at);
CREATE INDEX channel_message_to_draw ON postern.channel_message (channel_id, draw) WHERE state = 'Queued';

-- How messages ended. The fence of an id goes on from here when it is sent again, so that who held it in an
-- earlier life holds nothing of the next.
CREATE TABLE postern.channel_message_end (
    channel_id int NOT NULL,
    message_id text NOT NULL,
    fence      bigint NOT NULL,
    state      text NOT NULL CONSTRAINT channel_message_end_is_known CHECK (state IN ('Acked', 'Dropped')),
    retries    int NOT NULL,
    reason     text NOT NULL,
    payload    jsonb,                      -- of one that was dropped
    created_at timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL,
    CONSTRAINT one_end_per_life PRIMARY KEY (channel_id, message_id, fence)
);
CREATE INDEX channel_message_end_by_time ON postern.channel_message_end (ended_at);
CREATE INDEX channel_message_dropped ON postern.channel_message_end (channel_id, message_id) WHERE state = 'Dropped';

-- Contexts are kept apart here as everywhere; see the migration that makes the roles.
ALTER TABLE postern.channel ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.channel USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.channel_message ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.channel_message USING (EXISTS (SELECT FROM postern.channel c WHERE c.channel_id = channel_message.channel_id));
ALTER TABLE postern.channel_message_end ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.channel_message_end USING (EXISTS (SELECT FROM postern.channel c WHERE c.channel_id = channel_message_end.channel_id));
SELECT postern.renew_roles();

-- +goose Down
DROP TABLE postern.channel_message_end;
DROP TABLE postern.channel_message;
DROP TABLE postern.channel;
