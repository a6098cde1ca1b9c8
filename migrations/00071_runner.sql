-- +goose Up
-- What the process of a runner was told of its ttl: by the last answer to a heartbeat, and by the one before, which may
-- be all that it got. It goes by that, and not by a ttl that somebody has written since: until its ttl is over by each
-- of the three, nothing that it holds is given to others.
ALTER TABLE postern.runner ADD COLUMN told_ttl interval NOT NULL DEFAULT '0';
ALTER TABLE postern.runner ADD COLUMN told_before interval NOT NULL DEFAULT '0';
UPDATE postern.runner SET told_ttl = ttl, told_before = ttl;

-- The newest fence under which output of a try was kept, and the bytes that those before it have written: each fence
-- may write as much as the limit allows.
ALTER TABLE postern.job_try ADD COLUMN log_fence bigint NOT NULL DEFAULT 0;
ALTER TABLE postern.job_try ADD COLUMN log_from int NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE postern.job_try DROP COLUMN log_from;
ALTER TABLE postern.job_try DROP COLUMN log_fence;
ALTER TABLE postern.runner DROP COLUMN told_before;
ALTER TABLE postern.runner DROP COLUMN told_ttl;
