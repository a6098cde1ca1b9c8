-- Quarantine: what may go out to nobody until an operator releases it, and what a database says of itself, by which a copy is told.
-- +goose Up
-- One row. life is drawn anew when quarantine is entered because something may be lost, so that others can compare it.
-- deployment is the name under which the first process that has one ran here. quarantine rises with each change of the table
-- below: postern.node.quarantine is the number that a process has to know before it may lease anything.
CREATE TABLE postern.store (
    one        boolean NOT NULL DEFAULT true CONSTRAINT one_store PRIMARY KEY CONSTRAINT one_store_only CHECK (one),
    life       bigint NOT NULL DEFAULT (random() * 9007199254740991)::bigint,
    deployment text NOT NULL DEFAULT '',
    quarantine bigint NOT NULL DEFAULT 0
);
INSERT INTO postern.store DEFAULT VALUES;

-- A scope that is in quarantine. No context: all of them; no type: all of its types. The lost time is the one whose commits may be
-- missing, where something may be lost.
CREATE TABLE postern.quarantine (
    quarantine_id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT one_quarantine_per_id PRIMARY KEY,
    context_id    int,
    type          text,
    reason        text NOT NULL,
    actor         text NOT NULL,
    via           text NOT NULL,
    entered_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    lost_from     timestamptz,
    lost_until    timestamptz,
    -- how far the workers were asked: behind which position of which queue it goes on, and what came of it so far
    reconcile_at  timestamptz,               -- when the present round, or the last one, began; null: none has
    reconciled_at timestamptz,               -- when it reached the end
    after_queue   bigint NOT NULL DEFAULT 0,
    after_seq     bigint NOT NULL DEFAULT 0,
    asked         bigint NOT NULL DEFAULT 0, -- transactions
    moved         bigint NOT NULL DEFAULT 0, -- that the worker knew, and that were moved on
    unknown       bigint NOT NULL DEFAULT 0, -- that it never saw: they go out at release
    CONSTRAINT one_quarantine_per_scope UNIQUE NULLS NOT DISTINCT (context_id, type)
);

-- What a round of questions left open: whose worker did not answer, cannot be asked, or knows what may not be moved on yet.
CREATE TABLE postern.unreconciled (
    queue_id   bigint NOT NULL,
    seq        bigint NOT NULL,
    day        date NOT NULL,
    context_id int NOT NULL,
    type       text NOT NULL,
    why        text NOT NULL CONSTRAINT unreconciled_is_known CHECK (why IN ('unreachable', 'unsupported', 'ahead', 'busy')),
    detail     text NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_unreconciled_per_transaction PRIMARY KEY (queue_id, seq, day)
);

SELECT postern.renew_roles();

-- +goose Down
DROP TABLE postern.unreconciled;
DROP TABLE postern.quarantine;
DROP TABLE postern.store;
