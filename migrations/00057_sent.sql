-- +goose Up
-- What a peer is to stop: also what ended before its delivery, or what carries it, was noted, since the peer may have
-- it all the same.
DROP INDEX postern.message_to_stop;
CREATE INDEX message_to_stop ON postern.message (context_id, peer, message_id)
    WHERE status = 'error' AND stop_told_at IS NULL AND routed_at IS NOT NULL
        AND context_id IS NOT NULL AND peer IS NOT NULL;

-- A peer knows a message by its envelope: two messages with one would be one there.
CREATE UNIQUE INDEX one_sent_message_per_envelope ON postern.message (context_id, peer, sha256(envelope))
    WHERE context_id IS NOT NULL AND peer IS NOT NULL AND envelope IS NOT NULL AND NOT carries_job;

-- +goose Down
DROP INDEX postern.one_sent_message_per_envelope;
DROP INDEX postern.message_to_stop;
CREATE INDEX message_to_stop ON postern.message (context_id, peer, message_id)
    WHERE status = 'error' AND stop_told_at IS NULL AND delivered_at IS NOT NULL AND context_id IS NOT NULL
        AND peer IS NOT NULL;
