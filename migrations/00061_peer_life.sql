-- +goose Up
-- The life of the store of a peer, as the peer said last, and the life of this one, as the peer was told last (-1: it
-- is to be told). A store that was restored has another life: it may have forgotten what it was told to stop, which it
-- was at stop_told_at last.
ALTER TABLE postern.peer
    ADD COLUMN life bigint,
    ADD COLUMN told_life bigint,
    ADD COLUMN stop_told_at timestamptz;

-- +goose Down
ALTER TABLE postern.peer
    DROP COLUMN life,
    DROP COLUMN told_life,
    DROP COLUMN stop_told_at;
