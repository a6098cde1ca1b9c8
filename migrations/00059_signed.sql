-- +goose Up
-- What an actor has signed is known again by what the signature covers: an envelope may be written in many ways.
-- +goose StatementBegin
CREATE FUNCTION postern.signed_digest(envelope bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN sha256(decode(convert_from(envelope, 'UTF8')::json ->> 'payload', 'base64'));
END $$;
-- +goose StatementEnd
DROP INDEX postern.one_sent_message_per_envelope;
CREATE UNIQUE INDEX one_sent_message_per_envelope ON postern.message (context_id, peer,
    postern.signed_digest(envelope))
    WHERE context_id IS NOT NULL AND peer IS NOT NULL AND envelope IS NOT NULL AND NOT carries_job;

-- Copies that a peer brought before 00058 have their deadlines here, too.
UPDATE postern.message m
SET due_at = CASE m.status WHEN 'dispatched' THEN m.delivered_at + make_interval(secs => m.timeout_ack)
    ELSE m.acked_at + make_interval(secs => m.timeout_result) END + interval '1 minute'
WHERE m.context_id IS NULL AND m.ended_at IS NULL AND m.due_at IS NULL
    AND CASE m.status WHEN 'dispatched' THEN m.timeout_ack ELSE m.timeout_result END > 0;

-- Retention has forgotten up to a moment of that day, also where it has left no message.
UPDATE postern.retained SET messages_before = greatest(messages_before, before + 1);

-- +goose Down
DROP INDEX postern.one_sent_message_per_envelope;
DROP FUNCTION postern.signed_digest;
CREATE UNIQUE INDEX one_sent_message_per_envelope ON postern.message (context_id, peer, sha256(envelope))
    WHERE context_id IS NOT NULL AND peer IS NOT NULL AND envelope IS NOT NULL AND NOT carries_job;
