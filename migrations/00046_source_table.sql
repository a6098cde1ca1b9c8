-- Sources that are tables or views of a database, and those that ask Sui by GraphQL (S1.1).
-- +goose Up
ALTER TABLE postern.source DROP CONSTRAINT source_kind_is_known,
    ADD CONSTRAINT source_kind_is_known
        CHECK (kind IN ('sui_graphql', 'sui', 'http_json', 'devnet', 'push', 'postgres_table')),
    ADD COLUMN relation jsonb, -- which, and its columns: of postgres_table
    ADD CONSTRAINT table_source_has_one CHECK ((kind = 'postgres_table') = (relation IS NOT NULL));

-- +goose Down
ALTER TABLE postern.source DROP CONSTRAINT table_source_has_one, DROP COLUMN relation, DROP CONSTRAINT source_kind_is_known,
    ADD CONSTRAINT source_kind_is_known CHECK (kind IN ('sui', 'http_json', 'devnet', 'push'));
