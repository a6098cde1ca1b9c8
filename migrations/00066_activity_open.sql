-- +goose Up
-- Those that the core is to be told something of, also when they have ended.
DROP INDEX postern.activity_open;
CREATE INDEX activity_open ON postern.coord_activity (domain_id, n) WHERE ended_at IS NULL OR recalled OR held_back;

-- +goose Down
DROP INDEX postern.activity_open;
CREATE INDEX activity_open ON postern.coord_activity (domain_id, n) WHERE ended_at IS NULL;
