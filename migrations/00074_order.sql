-- What keeps the order of a queue whatever a clock does.
-- +goose Up
-- A callback that is queued has a place there, which it keeps.
ALTER TABLE postern.delivery
    DROP CONSTRAINT cursors_are_of_subscriptions,
    ADD CONSTRAINT cursors_are_of_subscriptions
        CHECK (subscription_id = -1 OR (subscription_id > 0) = (cursor IS NOT NULL));

-- +goose Down
UPDATE postern.delivery SET cursor = NULL WHERE subscription_id = -1 AND cursor IS NOT NULL;
ALTER TABLE postern.delivery
    DROP CONSTRAINT cursors_are_of_subscriptions,
    ADD CONSTRAINT cursors_are_of_subscriptions CHECK ((subscription_id > 0) = (cursor IS NOT NULL));
