-- +goose Up
-- A rotation that is repeated, since its answer was lost, or followed by another one, keeps all secrets that are still
-- good: clients and receivers may have any of them. One that would make them too many is refused, and ends none.
ALTER TABLE postern.api_key
    ADD COLUMN older_hash bytea[] NOT NULL DEFAULT '{}',
    ADD COLUMN older_until timestamptz[] NOT NULL DEFAULT '{}',
    ADD CONSTRAINT older_hash_has_an_end CHECK (cardinality(older_hash) = cardinality(older_until)),
    ADD CONSTRAINT twenty_older_secrets_of_a_key_at_most CHECK (cardinality(older_hash) <= 20);
ALTER TABLE postern.subscription
    ADD COLUMN secret_older bytea[] NOT NULL DEFAULT '{}',
    ADD COLUMN older_until timestamptz[] NOT NULL DEFAULT '{}',
    ADD CONSTRAINT older_secret_has_an_end CHECK (cardinality(secret_older) = cardinality(older_until)),
    ADD CONSTRAINT twenty_older_secrets_of_a_webhook_at_most CHECK (cardinality(secret_older) <= 20);

-- +goose Down
ALTER TABLE postern.subscription
    DROP COLUMN secret_older,
    DROP COLUMN older_until;
ALTER TABLE postern.api_key
    DROP COLUMN older_hash,
    DROP COLUMN older_until;
