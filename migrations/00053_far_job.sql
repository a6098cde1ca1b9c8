-- Jobs that another installation executes. The try of such a job is carried by a message, whose id it has, and no
-- runner here holds it.
-- +goose Up
ALTER TABLE postern.job
    ADD COLUMN peer text,      -- the other installation that is to execute it; NULL: runners of this one do
    ADD COLUMN envelope bytea, -- what its actor has signed for there
    ADD COLUMN inputs jsonb;   -- of one that a peer has brought: the results of the jobs that it needs there

-- Whether a message carries a try, and how much of the output of each of its jobs at a peer is known here.
ALTER TABLE postern.message
    ADD COLUMN carries_job boolean NOT NULL DEFAULT false,
    ADD COLUMN peer_lines int[] NOT NULL DEFAULT '{}';
-- What an actor has signed makes jobs once, however often it comes and under which id.
CREATE UNIQUE INDEX one_job_per_envelope ON postern.message (context_id, body_hash) WHERE carries_job;
CREATE UNIQUE INDEX one_message_per_envelope ON postern.message (target_id, peer, body_hash)
    WHERE context_id IS NULL AND body_hash IS NOT NULL;
CREATE INDEX try_sent ON postern.job_try (job_id) WHERE state = 'Sent'; -- to be taken back

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION postern.try_keeps_its_rules(was text, state text, runner_id int, ended_at timestamptz)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE
        WHEN (state IN ('Finished', 'Failed', 'Withdrawn')) <> (ended_at IS NOT NULL)
            THEN postern.broken('job_try', 'a_try_that_ended_has_a_time')
        WHEN state = 'Held' AND runner_id IS NULL THEN postern.broken('job_try', 'a_runner_holds_it')
        WHEN state IN ('Offered', 'Sent') AND runner_id IS NOT NULL
            THEN postern.broken('job_try', 'no_runner_holds_what_is_offered')
        WHEN NOT
CASE was WHEN '' THEN state IN ('Offered') WHEN 'Offered' THEN state IN ('Held', 'Withdrawn', 'Sent') WHEN 'Held' THEN state IN ('Finished', 'Failed', 'Offered') WHEN 'Sent' THEN state IN ('Finished', 'Failed') ELSE false END
            THEN postern.broken('job_try', 'try_follows_the_machine')
        ELSE true END;
END $$;
-- +goose StatementEnd
SELECT postern.renew_roles();

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION postern.try_keeps_its_rules(was text, state text, runner_id int, ended_at timestamptz)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE
        WHEN (state IN ('Finished', 'Failed', 'Withdrawn')) <> (ended_at IS NOT NULL)
            THEN postern.broken('job_try', 'a_try_that_ended_has_a_time')
        WHEN state = 'Held' AND runner_id IS NULL THEN postern.broken('job_try', 'a_runner_holds_it')
        WHEN state = 'Offered' AND runner_id IS NOT NULL
            THEN postern.broken('job_try', 'no_runner_holds_what_is_offered')
        WHEN NOT
CASE was WHEN '' THEN state IN ('Offered') WHEN 'Offered' THEN state IN ('Held', 'Withdrawn') WHEN 'Held' THEN state IN ('Finished', 'Failed', 'Offered') ELSE false END
            THEN postern.broken('job_try', 'try_follows_the_machine')
        ELSE true END;
END $$;
-- +goose StatementEnd
DROP INDEX postern.try_sent;
ALTER TABLE postern.message
    DROP COLUMN carries_job,
    DROP COLUMN peer_lines;
DROP INDEX IF EXISTS postern.one_message_per_envelope;
ALTER TABLE postern.job
    DROP COLUMN peer,
    DROP COLUMN envelope,
    DROP COLUMN inputs;
