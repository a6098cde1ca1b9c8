-- +goose Up
-- What a peer had us stop before it had brought it: a call that was frozen on its way may still bring it.
CREATE TABLE postern.message_stopped (
    target_id    int NOT NULL,
    peer         text NOT NULL,
    peer_message uuid NOT NULL,
    at           timestamptz NOT NULL,
    CONSTRAINT one_row_per_stopped_message PRIMARY KEY (target_id, peer, peer_message)
);
CREATE INDEX message_stopped_at ON postern.message_stopped (at);
ALTER TABLE postern.message_stopped ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.message_stopped
    USING (target_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));

-- Messages that ended before messages_before may be forgotten, so that what was signed earlier is not known again.
ALTER TABLE postern.retained ADD COLUMN messages_before timestamptz;
UPDATE postern.retained SET messages_before = before WHERE EXISTS (SELECT FROM postern.message);
SELECT postern.renew_roles();

-- +goose Down
ALTER TABLE postern.retained DROP COLUMN messages_before;
DROP TABLE postern.message_stopped;
