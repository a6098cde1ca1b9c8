-- +goose Up
-- All behind head_seq up to here has ended, so that what has not is looked for behind it: a head in flight keeps its
-- place, however many are dropped behind it. Outcomes stay and head_seq only rises, so what it says stays true.
ALTER TABLE postern.queue ADD COLUMN past_seq bigint NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE postern.queue DROP COLUMN past_seq;
