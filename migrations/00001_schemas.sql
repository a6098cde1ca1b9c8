-- Schemas: postern holds our rows, river the jobs that wake and sweep.
-- The runner (internal/pg.Migrate) makes postern before this file runs, because its own table of versions lies
-- there, and drops it last.

-- +goose Up
CREATE SCHEMA IF NOT EXISTS postern;
CREATE SCHEMA river;

-- +goose Down
DROP SCHEMA river;
