-- +goose Up
-- What the process of a runner was told of its ttl: by the last answer to a heartbeat, and by the one before, which may
-- be all that it got. It goes by that, and not by a ttl that somebody has written since: until its ttl is over by each
-- of the three, nothing that it holds is given to others.
ALTER TABLE postern.runner ADD COLUMN told_ttl interval NOT NULL DEFAULT '0';
ALTER TABLE postern.runner ADD COLUMN told_before interval NOT NULL DEFAULT '0';
UPDATE postern.runner SET told_ttl = ttl, told_before = ttl;

-- +goose Down
ALTER TABLE postern.runner DROP COLUMN told_before;
ALTER TABLE postern.runner DROP COLUMN told_ttl;
