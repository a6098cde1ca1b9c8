-- +goose Up
-- A rotation that is repeated, or followed by another one, while the one before is under way keeps all secrets that are
-- still good: the other end may have any of them.
ALTER TABLE postern.peer_secret
    ADD COLUMN secret_older bytea[] NOT NULL DEFAULT '{}',
    ADD COLUMN older_until timestamptz[] NOT NULL DEFAULT '{}',
    ADD CONSTRAINT secret_older_has_an_end CHECK (cardinality(secret_older) = cardinality(older_until));

-- +goose Down
ALTER TABLE postern.peer_secret
    DROP COLUMN secret_older,
    DROP COLUMN older_until;
