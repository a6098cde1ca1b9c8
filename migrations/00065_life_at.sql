-- +goose Up
-- Since when a peer says the life that its store has; epoch: always. What it was told to stop before then it may have
-- forgotten. A message that it was never told to stop comes first.
ALTER TABLE postern.peer ADD COLUMN life_at timestamptz NOT NULL DEFAULT 'epoch';
DROP INDEX postern.message_to_stop;
CREATE INDEX message_to_stop ON postern.message (context_id, peer, coalesce(stop_told_at, '-infinity'), message_id)
    WHERE status = 'error' AND routed_at IS NOT NULL AND context_id IS NOT NULL AND peer IS NOT NULL;

-- +goose Down
DROP INDEX postern.message_to_stop;
CREATE INDEX message_to_stop ON postern.message (context_id, peer, message_id)
    WHERE status = 'error' AND stop_told_at IS NULL AND routed_at IS NOT NULL
        AND context_id IS NOT NULL AND peer IS NOT NULL;
ALTER TABLE postern.peer DROP COLUMN life_at;
