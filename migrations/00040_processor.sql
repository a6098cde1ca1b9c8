-- Processors: what each is to execute, in two lines of batches that wait in front of the core.
-- +goose Up
-- Every change of a processor's batches locks its row first, so that its changes are serial (S4.4). The row
-- itself says only what is configured, and is not written by ticks.
CREATE TABLE postern.processor (
    processor_id  int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id    int NOT NULL,
    name          text NOT NULL,
    owner         text NOT NULL DEFAULT '',      -- the actor that may do what an authorization may
    fair          boolean NOT NULL DEFAULT false,
    tick_interval interval NOT NULL DEFAULT '1 s' CONSTRAINT tick_interval_is_not_negative CHECK (tick_interval >= '0'),
    paused        boolean NOT NULL DEFAULT false,
    height        bigint NOT NULL DEFAULT 0 CONSTRAINT height_is_not_negative CHECK (height >= 0),
    removed_at    timestamptz,
    version       bigint NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_processor_per_name UNIQUE (context_id, name)
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

-- Contexts are kept apart here as everywhere; see the migration that makes the roles.
ALTER TABLE postern.processor ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.processor USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.batch_line ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.batch_line USING (EXISTS (SELECT FROM postern.processor p WHERE p.processor_id = batch_line.processor_id));
ALTER TABLE postern.batch_place ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.batch_place USING (EXISTS (SELECT FROM postern.processor p WHERE p.processor_id = batch_place.processor_id));
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
DROP SEQUENCE postern.batch_id;
DROP TABLE postern.batch_place;
DROP TABLE postern.batch_line;
DROP TABLE postern.processor;
