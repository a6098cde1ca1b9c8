-- What keeps the order of a queue whatever a clock does.
-- +goose Up
-- A callback that is queued has a place there, which it keeps.
ALTER TABLE postern.delivery
    DROP CONSTRAINT cursors_are_of_subscriptions,
    ADD CONSTRAINT cursors_are_of_subscriptions
        CHECK (subscription_id = -1 OR (subscription_id > 0) = (cursor IS NOT NULL));

-- What has happened is numbered in the order of its rows' numbers, which rise along a queue: see fanout.go. What was
-- there before keeps its order, in front.
ALTER TABLE postern.fanout ADD COLUMN number bigint;
UPDATE postern.fanout f SET number = -o.number
FROM (SELECT subscription_id, at, queue_id, seq, event,
        row_number() OVER (ORDER BY at DESC, queue_id DESC, seq DESC, event DESC) AS number
    FROM postern.fanout) o
WHERE (f.subscription_id, f.at, f.queue_id, f.seq, f.event) = (o.subscription_id, o.at, o.queue_id, o.seq, o.event);
ALTER TABLE postern.fanout
    ALTER COLUMN number SET NOT NULL,
    ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY,
    DROP CONSTRAINT one_fanout_per_subscription,
    ADD CONSTRAINT one_fanout_per_subscription PRIMARY KEY (subscription_id, number);

-- +goose Down
ALTER TABLE postern.fanout
    DROP CONSTRAINT one_fanout_per_subscription,
    ADD CONSTRAINT one_fanout_per_subscription PRIMARY KEY (subscription_id, at, queue_id, seq, event),
    DROP COLUMN number;
UPDATE postern.delivery SET cursor = NULL WHERE subscription_id = -1 AND cursor IS NOT NULL;
ALTER TABLE postern.delivery
    DROP CONSTRAINT cursors_are_of_subscriptions,
    ADD CONSTRAINT cursors_are_of_subscriptions CHECK ((subscription_id > 0) = (cursor IS NOT NULL));
