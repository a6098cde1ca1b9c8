-- Keys with which actors sign their requests and messages, and what was signed once.
-- +goose Up

-- A key names one actor for good. It is live until it is retired: then it signs no request any more, and of messages
-- those alone that were on their way. A compromised key signs nothing. Two may be live, for a rotation: each of these
-- has one of two slots.
CREATE TABLE postern.actor_key (
    public_key  bytea NOT NULL CONSTRAINT one_actor_per_public_key PRIMARY KEY
        CONSTRAINT public_key_has_32_bytes CHECK (octet_length(public_key) = 32),
    actor_id    text NOT NULL CONSTRAINT public_key_is_of_an_actor REFERENCES postern.actor ON DELETE CASCADE,
    slot        smallint NOT NULL CONSTRAINT slot_of_a_key_is_one_of_two CHECK (slot IN (1, 2)),
    added_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    retired_at  timestamptz,
    compromised boolean NOT NULL DEFAULT false,
    CONSTRAINT compromised_keys_are_retired CHECK (retired_at IS NOT NULL OR NOT compromised)
);
CREATE UNIQUE INDEX two_live_keys_at_most ON postern.actor_key (actor_id, slot) WHERE retired_at IS NULL;
CREATE INDEX actor_key_by_actor ON postern.actor_key (actor_id);
INSERT INTO postern.actor_key (public_key, actor_id, slot)
SELECT DISTINCT ON (k.key) k.key, k.actor_id, k.slot
FROM (SELECT decode(n.text, 'base64') AS key, a.actor_id, n.slot::smallint AS slot
    FROM postern.actor a
    CROSS JOIN LATERAL unnest(a.public_keys) WITH ORDINALITY n(text, slot)) k
ORDER BY k.key, k.actor_id;
ALTER TABLE postern.actor DROP COLUMN public_keys;

-- A nonce that a signature of a key has used. It is kept until no clock takes the signature any more.
CREATE TABLE postern.nonce (
    public_key bytea NOT NULL,
    nonce      text NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT one_use_per_nonce PRIMARY KEY (public_key, nonce)
);
CREATE INDEX nonce_by_expiry ON postern.nonce (expires_at);

-- installation is the id of this installation, which others sign with what is meant for it. No request holds whose
-- signature was made before signed_after: nonces may be missing that were used until then.
ALTER TABLE postern.store
    ADD COLUMN installation uuid NOT NULL DEFAULT gen_random_uuid(),
    ADD COLUMN signed_after timestamptz;
SELECT postern.renew_roles();

-- +goose Down
ALTER TABLE postern.store
    DROP COLUMN signed_after,
    DROP COLUMN installation;
DROP TABLE postern.nonce;
ALTER TABLE postern.actor ADD COLUMN public_keys text[] NOT NULL DEFAULT '{}'
    CONSTRAINT two_public_keys_at_most CHECK (cardinality(public_keys) <= 2);
UPDATE postern.actor a SET public_keys = k.keys
FROM (SELECT actor_id, array_agg(encode(public_key, 'base64')) AS keys
    FROM postern.actor_key
    WHERE retired_at IS NULL
    GROUP BY actor_id) k
WHERE k.actor_id = a.actor_id;
DROP TABLE postern.actor_key;
