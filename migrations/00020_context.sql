-- Contexts (tenants), and the identity of this database. Its epoch is part of every public id and of
-- every call to a worker, so that a restored copy never speaks under the names of the lost time.
-- +goose Up
CREATE TABLE postern.identity (
    epoch  int CONSTRAINT one_row_per_epoch PRIMARY KEY CONSTRAINT epoch_fits_into_an_id CHECK (epoch BETWEEN 1 AND 4095),
    since  timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason text NOT NULL
);
INSERT INTO postern.identity (epoch, reason) VALUES (1, 'created');

CREATE TABLE postern.context (
    context_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL CONSTRAINT one_context_per_name UNIQUE,
    max_depth  int NOT NULL DEFAULT 10000 CONSTRAINT context_depth_is_positive CHECK (max_depth > 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO postern.context (name) VALUES ('system'), ('default');

CREATE TABLE postern.audit (
    audit_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id int NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text NOT NULL,
    via        text NOT NULL,
    action     text NOT NULL,
    object     text NOT NULL,
    reason     text NOT NULL DEFAULT '',
    request_id text NOT NULL DEFAULT ''
);
CREATE INDEX audit_by_object ON postern.audit (context_id, object, at);

-- +goose Down
DROP TABLE postern.audit;
DROP TABLE postern.context;
DROP TABLE postern.identity;
