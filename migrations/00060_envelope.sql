-- +goose Up
-- A peer knows a message by what its actor has signed, whether that carries a job of a flow or not: two would be one
-- there.
DROP INDEX postern.one_job_per_envelope;
DROP INDEX postern.one_sent_message_per_envelope;
CREATE UNIQUE INDEX one_sent_message_per_envelope ON postern.message (context_id, peer,
    postern.signed_digest(envelope))
    WHERE context_id IS NOT NULL AND peer IS NOT NULL AND envelope IS NOT NULL;
-- A peer is asked about messages that were delivered to it. Very many others may wait for their delivery.
CREATE INDEX message_at_peer ON postern.message (context_id, peer, message_id)
    WHERE ended_at IS NULL AND delivered_at IS NOT NULL AND context_id IS NOT NULL AND peer IS NOT NULL;

-- +goose Down
DROP INDEX postern.message_at_peer;
DROP INDEX postern.one_sent_message_per_envelope;
CREATE UNIQUE INDEX one_sent_message_per_envelope ON postern.message (context_id, peer,
    postern.signed_digest(envelope))
    WHERE context_id IS NOT NULL AND peer IS NOT NULL AND envelope IS NOT NULL AND NOT carries_job;
CREATE UNIQUE INDEX one_job_per_envelope ON postern.message (context_id, body_hash) WHERE carries_job;
