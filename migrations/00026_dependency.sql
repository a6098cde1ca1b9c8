-- What waits for what (S2.15). Sparse, as marks are: most transactions depend on none.
-- +goose Up
CREATE TABLE postern.dependency (
    queue_id bigint NOT NULL,                -- the dependent
    seq      bigint NOT NULL,
    day      date NOT NULL,
    on_queue bigint NOT NULL,                -- what it waits for, watched until it ends
    on_seq   bigint NOT NULL,
    on_day   date NOT NULL,
    on_salt  int NOT NULL,                   -- of its id
    CONSTRAINT one_row_per_dependency PRIMARY KEY (queue_id, seq, on_queue, on_seq)
);
CREATE INDEX dependency_by_cause ON postern.dependency (on_queue, on_seq);

-- Ends that have not reached all their dependents yet: more than one SQL transaction should take at once,
-- or an end whose SQL transaction could not lock the queues of others any more.
CREATE TABLE postern.ripple (
    queue_id bigint NOT NULL,
    seq      bigint NOT NULL,
    day      date NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_ripple_per_end PRIMARY KEY (queue_id, seq)
);

-- +goose Down
DROP TABLE postern.ripple;
DROP TABLE postern.dependency;
