-- Other installations. A peer is one noun of a context: messages go to its door and come from it. The peers of
-- processors, which send batches alone, stand with their processors.
-- +goose Up
CREATE TABLE postern.peer (
    peer_id      int GENERATED ALWAYS AS IDENTITY CONSTRAINT one_row_per_peer PRIMARY KEY,
    context_id   int NOT NULL,
    name         text NOT NULL CONSTRAINT peer_name_fits_a_type CHECK (length(name) <= 100),
    url          text NOT NULL DEFAULT '',       -- its door for this installation; '': it calls, and is not called
    insecure     boolean NOT NULL DEFAULT false, -- url may be http over a network
    installation text NOT NULL DEFAULT '',       -- who it said that it is, in the first answer that it signed
    met_at       timestamptz,                    -- when that was
    refused_at   timestamptz,                    -- since when it refuses calls; null: it took the last one
    refused_code text NOT NULL DEFAULT '',
    refused      text NOT NULL DEFAULT '',
    followed_by    text NOT NULL DEFAULT '',     -- the process that asks it what became of messages
    followed_until timestamptz,                  -- until when no other one does
    version      bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    removed_at   timestamptz,
    CONSTRAINT one_installation_per_name UNIQUE (context_id, name)
) WITH (fillfactor = 50);

-- What calls of both ends are signed with, so it cannot be a hash. After a rotation the one before it is good, too,
-- until a time.
CREATE TABLE postern.peer_secret (
    peer_id       int NOT NULL CONSTRAINT one_secret_per_peer PRIMARY KEY
        CONSTRAINT secret_is_of_a_peer REFERENCES postern.peer ON DELETE CASCADE,
    secret        bytea NOT NULL,
    secret_before bytea,
    secret_until  timestamptz,
    CONSTRAINT secret_before_has_an_end CHECK ((secret_before IS NULL) = (secret_until IS NULL))
);

-- Of a message to a peer: the transaction that carries it, how often it was delivered again, since the peer had lost
-- it, and when the peer was told to stop, since the message had ended here.
ALTER TABLE postern.message
    ADD COLUMN peer_tx text,
    ADD COLUMN redelivered int NOT NULL DEFAULT 0,
    ADD COLUMN redelivering boolean NOT NULL DEFAULT false,
    ADD COLUMN stop_told_at timestamptz;
CREATE INDEX message_to_stop ON postern.message (context_id, peer, message_id)
    WHERE status = 'error' AND stop_told_at IS NULL AND delivered_at IS NOT NULL AND context_id IS NOT NULL
        AND peer IS NOT NULL;
CREATE INDEX message_uncarried ON postern.message (message_id)
    WHERE peer_tx IS NULL AND peer IS NOT NULL AND context_id IS NOT NULL AND routed_at IS NOT NULL
        AND ended_at IS NULL;

-- Contexts are kept apart here as everywhere; see the migration that makes the roles.
ALTER TABLE postern.peer ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.peer USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.peer_secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.peer_secret USING (EXISTS (SELECT FROM postern.peer p
    WHERE p.peer_id = peer_secret.peer_id));
SELECT postern.renew_roles();

-- +goose Down
ALTER TABLE postern.message
    DROP COLUMN peer_tx,
    DROP COLUMN redelivered,
    DROP COLUMN redelivering,
    DROP COLUMN stop_told_at;
DROP TABLE postern.peer_secret;
DROP TABLE postern.peer;
