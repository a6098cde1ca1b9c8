-- +goose Up
-- The names that this node had in a domain before the present one: under them, intents with a uid have their ids.
ALTER TABLE postern.domain ADD COLUMN former text[] NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE postern.domain DROP COLUMN former;
