-- +goose Up
-- How often a receiver was handed a message, and when last. The history has the first time of each receiver alone.
ALTER TABLE postern.message
    ADD COLUMN handed int NOT NULL DEFAULT 0,
    ADD COLUMN handed_at timestamptz;
UPDATE postern.message m
SET handed = s.n, handed_at = s.at
FROM (
    SELECT message_id, count(*) AS n, max(at) AS at
    FROM postern.message_step
    WHERE event = 'Received'
    GROUP BY message_id) s
WHERE m.message_id = s.message_id;

-- +goose Down
ALTER TABLE postern.message
    DROP COLUMN handed,
    DROP COLUMN handed_at;
