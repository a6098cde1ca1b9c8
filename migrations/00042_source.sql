-- Sources of events, and the events (S1.1 to S1.5).
-- +goose Up
CREATE TABLE postern.source (
    source_id      int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id     int NOT NULL,
    name           text NOT NULL,
    kind           text NOT NULL CONSTRAINT source_kind_is_known CHECK (kind IN ('sui', 'http_json', 'push')),
    url            text NOT NULL,
    filter         jsonb,
    map            jsonb NOT NULL,
    start          text NOT NULL CONSTRAINT source_start_is_known CHECK (start IN ('earliest', 'latest')),
    poll_every     interval NOT NULL,
    page_size      int NOT NULL,
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
    failures       int NOT NULL DEFAULT 0,    -- since the last answer
    last_error     text NOT NULL DEFAULT '',
    removed_at     timestamptz,
    version        bigint NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_source_per_name UNIQUE (context_id, name)
) WITH (fillfactor = 50);

CREATE TABLE postern.event (
    event_id   uuid CONSTRAINT one_event_per_number PRIMARY KEY,
    context_id int NOT NULL,
    source_id  int NOT NULL,
    identity   text NOT NULL,              -- how its source names it
    checkpoint text NOT NULL DEFAULT '',
    digest     text NOT NULL DEFAULT '',
    json       jsonb NOT NULL,
    fqn        text NOT NULL DEFAULT '',   -- the tool; '' for one that could not be read
    status     text NOT NULL CONSTRAINT event_status_is_known CHECK (status IN ('Queued', 'Active', 'Successful', 'Dead')),
    retried    int NOT NULL DEFAULT 0,
    error      text NOT NULL DEFAULT '',
    not_before timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT one_event_per_identity UNIQUE (source_id, identity)
) WITH (fillfactor = 70);
CREATE INDEX event_listed ON postern.event (context_id, created_at, event_id);
CREATE INDEX event_live ON postern.event (context_id, status, created_at, event_id) WHERE status IN ('Queued', 'Active', 'Dead');

-- Contexts are kept apart here as everywhere; see the migration that makes the roles.
ALTER TABLE postern.source ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.source USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.event ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.event USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolcreaterole))
            OR (SELECT count(*) FROM pg_roles WHERE rolname IN ('postern_migrator', 'postern_app', 'postern_submit', 'postern_reporter', 'postern_verify')) = 5 THEN
        PERFORM postern.make_roles();
    END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE postern.event;
DROP TABLE postern.source;
