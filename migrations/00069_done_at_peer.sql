-- +goose Up
-- From when on a peer whose store has another life is to be told to stop what was processed here before it; NULL: of
-- none. What its store has forgotten of them may be open there again.
ALTER TABLE postern.peer ADD COLUMN stop_from timestamptz;
CREATE INDEX message_done_at_peer ON postern.message (context_id, peer, ended_at)
    WHERE status = 'processed' AND context_id IS NOT NULL AND peer IS NOT NULL;

-- +goose Down
DROP INDEX postern.message_done_at_peer;
ALTER TABLE postern.peer DROP COLUMN stop_from;
