-- Sources of events, and the events (S1.1 to S1.5).
-- +goose Up
CREATE TABLE postern.source (
    source_id      int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id     int NOT NULL,
    name           text NOT NULL,
    kind           text NOT NULL CONSTRAINT source_kind_is_known CHECK (kind IN ('sui', 'http_json', 'devnet', 'push')),
    url            text NOT NULL,
    filter         jsonb,
    map            jsonb NOT NULL,
    start          text NOT NULL CONSTRAINT source_start_is_known CHECK (start IN ('earliest', 'latest')),
    poll_every     interval NOT NULL,
    page_size      int NOT NULL,
    channel_id     int NOT NULL,              -- between its listener and the engine (S1.15)
    max_retries    int NOT NULL CONSTRAINT event_retries_not_below_zero CHECK (max_retries >= 0),
    stale_after    interval NOT NULL CONSTRAINT events_grow_stale_later CHECK (stale_after > '0'),
    on_undecodable text NOT NULL CONSTRAINT on_undecodable_is_known CHECK (on_undecodable IN ('halt', 'dead')),
    state          text NOT NULL DEFAULT 'running' CONSTRAINT source_state_is_known CHECK (state IN ('running', 'paused', 'failed')),
    cursor         jsonb,                     -- after what is stored; null: from its start
    fence          bigint NOT NULL DEFAULT 0, -- rises with each look, and whenever somebody changes what a look goes by
    node_id        bigint,                    -- who looks just now
    node_epoch     int,
    lease_until    timestamptz,
    next_at        timestamptz NOT NULL,      -- of the next look
    polled_at      timestamptz,               -- of the last look that was answered
    caught_up_at   timestamptz,               -- of the last one after which there was no more
    kept_from      timestamptz,               -- retention keeps events from there on: those of the last page that moved the cursor; null: all
    failures       int NOT NULL DEFAULT 0,    -- since the last answer
    last_error     text NOT NULL DEFAULT '',
    removed_at     timestamptz,
    version        bigint NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_source_per_name UNIQUE (context_id, name)
) WITH (fillfactor = 50);

-- What must hold in every row of an event, the legal edges of leader.Machine among it; a function for the
-- reason that queue_keeps_its_rules gives.
-- +goose StatementBegin
CREATE FUNCTION postern.event_keeps_its_rules(was text, status text, outcome text)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE
        WHEN outcome NOT IN ('', 'successful', 'failed', 'stale') THEN postern.broken('event', 'event_outcome_is_known')
        WHEN NOT
CASE was WHEN '' THEN status IN ('Dead', 'Queued') WHEN 'Queued' THEN status IN ('Active') WHEN 'Active' THEN status IN ('Active', 'Queued', 'Dead', 'Successful') ELSE false END
            THEN postern.broken('event', 'event_follows_the_machine')
        ELSE true END;
END $$;
-- +goose StatementEnd

CREATE TABLE postern.event (
    event_id   uuid CONSTRAINT one_event_per_number PRIMARY KEY,
    context_id int NOT NULL,
    source_id  int NOT NULL,
    identity   text NOT NULL,              -- how its source names it
    checkpoint text NOT NULL DEFAULT '',
    digest     text NOT NULL DEFAULT '',
    json       jsonb NOT NULL,
    fqn        text NOT NULL DEFAULT '',   -- the tool; '' for one that could not be read
    was        text NOT NULL DEFAULT '',
    status     text NOT NULL,
    fence      bigint NOT NULL DEFAULT 0,  -- rises when it is taken, and when it grows stale
    moves      int NOT NULL DEFAULT 1,     -- rows of event_move
    retried    int NOT NULL DEFAULT 0,
    outcome    text NOT NULL DEFAULT '', -- what its result tells
    code       text NOT NULL DEFAULT '',
    error      text NOT NULL DEFAULT '',
    not_before timestamptz,                -- of its next try, while no message about it is out
    tool_queue bigint,                     -- the last transaction that called its tool
    tool_seq   bigint,
    tool_day   date,
    tool_id    text NOT NULL DEFAULT '',
    result_queue bigint,                   -- the last one that tells the workflow
    result_seq bigint,
    result_day date,
    result_id  text NOT NULL DEFAULT '',
    result_redriven boolean NOT NULL DEFAULT false, -- it is not the first one
    redrive_of uuid,
    redriven_by uuid,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    entered_at timestamptz NOT NULL,       -- its status
    CONSTRAINT an_event_keeps_its_rules CHECK (postern.event_keeps_its_rules(was, status, outcome)),
    CONSTRAINT one_event_per_identity UNIQUE (source_id, identity)
) WITH (fillfactor = 70);
CREATE INDEX event_listed ON postern.event (context_id, created_at, event_id);
CREATE INDEX event_live ON postern.event (source_id, status, created_at, event_id) WHERE status IN ('Queued', 'Active', 'Dead');
CREATE INDEX event_due ON postern.event (not_before) WHERE status = 'Queued' AND not_before IS NOT NULL;
CREATE INDEX event_calling ON postern.event (event_id) WHERE status = 'Active' AND outcome = '';
CREATE INDEX event_reporting ON postern.event (event_id) WHERE status = 'Active' AND outcome <> '';

-- Every move of an event: one row each (S0.5).
CREATE TABLE postern.event_move (
    event_id   uuid NOT NULL,
    n          int NOT NULL,
    at         timestamptz NOT NULL,
    was        text NOT NULL,
    event      text NOT NULL,
    status     text NOT NULL,
    fence      bigint NOT NULL,
    by         text NOT NULL DEFAULT '',   -- the actor or the node
    detail     text NOT NULL DEFAULT '',
    CONSTRAINT one_move_at_a_time PRIMARY KEY (event_id, n)
);

-- Events of which a channel has dropped the message: the node that moves events on tells them.
CREATE TABLE postern.event_drop (
    event_id uuid CONSTRAINT one_drop_per_event PRIMARY KEY,
    reason   text NOT NULL
);

-- Contexts are kept apart here as everywhere; see the migration that makes the roles.
ALTER TABLE postern.source ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.source USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.event ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.event USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.event_move ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.event_move USING (EXISTS (SELECT FROM postern.event e WHERE e.event_id = event_move.event_id));
ALTER TABLE postern.event_drop ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.event_drop USING (EXISTS (SELECT FROM postern.event e WHERE e.event_id = event_drop.event_id));
SELECT postern.renew_roles();

-- +goose Down
DROP TABLE postern.event_drop;
DROP TABLE postern.event_move;
DROP TABLE postern.event;
DROP FUNCTION postern.event_keeps_its_rules;
DROP TABLE postern.source;
