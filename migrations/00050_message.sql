-- Messages between contexts, of this installation or of another one. One row is one message: it stands in the box
-- msg_out of the context that sent it, and, once it is delivered, in the box msg_in of the one that it is for. Of a
-- message to another installation the sender's row stands here alone, and the receiver's row there.
-- +goose Up

-- What must hold in every row of a message, the legal edges of its machine among it; a function for the reason that
-- queue_keeps_its_rules gives.
-- +goose StatementBegin
CREATE FUNCTION postern.message_keeps_its_rules(was text, status text, error_code text, delivered_at timestamptz,
    acked_at timestamptz, ended_at timestamptz)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE
        WHEN (status IN ('processed', 'error')) <> (ended_at IS NOT NULL)
            THEN postern.broken('message', 'a_message_that_ended_has_a_time')
        WHEN (status = 'error') <> (error_code <> '') THEN postern.broken('message', 'an_error_has_a_code')
        WHEN status IN ('acknowledged', 'processed') AND (delivered_at IS NULL OR acked_at IS NULL)
            THEN postern.broken('message', 'acknowledged_is_delivered')
        WHEN NOT
CASE was WHEN '' THEN status IN ('dispatched') WHEN 'dispatched' THEN status IN ('dispatched', 'acknowledged', 'error') WHEN 'acknowledged' THEN status IN ('processed', 'error') ELSE false END
            THEN postern.broken('message', 'message_follows_the_machine')
        ELSE true END;
END $$;
-- +goose StatementEnd

CREATE TABLE postern.message (
    message_id     uuid NOT NULL CONSTRAINT one_row_per_message PRIMARY KEY,
    context_id     int,                        -- in whose msg_out it is; NULL: it came from a peer
    target_id      int,                        -- in whose msg_in it is, once delivered; NULL: it goes to a peer
    peer           text,                       -- the other installation, as the context here calls it; NULL: this one
    peer_message   uuid,                       -- its id there, once that is known
    to_context     text NOT NULL,              -- the context that it is for, as the target calls it
    to_actor       text,                       -- the only one that may receive it; NULL: any executor there
    topic          text,                       -- what a receiver may ask for
    actor          text NOT NULL,              -- who sent it; of one from a peer, the actor here that has its key
    caller_key     bytea,                      -- the public key that signed it
    ref            bigint,                     -- its sender's name of it
    reply_to       uuid,                       -- the message that it answers: of a result, whose result it is
    type           text NOT NULL
        CONSTRAINT message_type_is_known CHECK (type IN ('job', 'chat', 'mail', 'result')),
    format         text NOT NULL
        CONSTRAINT message_format_is_known CHECK (format IN ('html', 'text', 'md', 'logs')),
    body           text NOT NULL,
    jobs           jsonb,                      -- of type job: what is to be executed, as the sender wrote it
    jobs_open      int,                        -- of the jobs made of it here, how many have not ended; NULL: settled
    result         jsonb,                      -- of the result of jobs: how each of them ended
    timeout        int NOT NULL,               -- seconds until it is delivered; 0: any time
    timeout_ack    int NOT NULL,               -- from then on until it is acknowledged
    timeout_result int NOT NULL,               -- from then on until it has its result
    envelope       bytea,                      -- what the actor signed, as it was received
    was            text NOT NULL DEFAULT '',
    status         text NOT NULL,
    steps          int NOT NULL DEFAULT 0,
    cursor         bigint NOT NULL DEFAULT 0,  -- of one from a peer: a hybrid clock that rises with each change of it
    peer_steps     int NOT NULL DEFAULT 0,     -- of one to a peer: how far its steps there are known here
    fence          bigint NOT NULL DEFAULT 0,  -- a hybrid clock that rises each time it is handed to a receiver
    lease_until    timestamptz,                -- until when nobody else is handed it
    receiver       text,                       -- the actor that was handed it last
    due_at         timestamptz,                -- the deadline that runs; NULL: none does
    created_at     timestamptz NOT NULL,
    routed_at      timestamptz,                -- when its rights were checked again, and it was let go
    delivered_at   timestamptz,                -- when it reached msg_in, here or at the peer
    acked_at       timestamptz,
    ended_at       timestamptz,
    updated_at     timestamptz NOT NULL,
    error_code     text NOT NULL DEFAULT '',
    error          text NOT NULL DEFAULT '',
    body_hash      bytea,                      -- of the request that made it
    request_key    text,                       -- its Idempotency-Key
    CONSTRAINT a_message_keeps_its_rules CHECK (postern.message_keeps_its_rules(was, status, error_code, delivered_at,
        acked_at, ended_at)),
    -- between two contexts here, or with one context here and a peer
    CONSTRAINT a_message_has_two_ends CHECK (CASE WHEN peer IS NULL
        THEN num_nonnulls(context_id, target_id) = 2 ELSE num_nonnulls(context_id, target_id) = 1 END),
    CONSTRAINT timeouts_are_lengths CHECK (least(timeout, timeout_ack, timeout_result) >= 0)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX one_message_per_ref ON postern.message (context_id, actor, ref)
    WHERE ref IS NOT NULL AND context_id IS NOT NULL;
CREATE UNIQUE INDEX one_message_per_request_key ON postern.message (context_id, actor, request_key)
    WHERE request_key IS NOT NULL;
-- what a peer delivers again is there already
CREATE UNIQUE INDEX one_message_per_peer_and_ref ON postern.message (target_id, peer, caller_key, ref)
    WHERE ref IS NOT NULL AND context_id IS NULL;
CREATE UNIQUE INDEX one_message_per_peer_message ON postern.message (target_id, peer, peer_message)
    WHERE peer_message IS NOT NULL AND context_id IS NULL;
CREATE UNIQUE INDEX one_result_per_message ON postern.message (reply_to) WHERE type = 'result';
CREATE INDEX message_unrouted ON postern.message (message_id) WHERE routed_at IS NULL AND ended_at IS NULL;
-- what receivers take, the oldest first
CREATE INDEX message_inbox ON postern.message (target_id, delivered_at, message_id)
    WHERE status = 'dispatched' AND delivered_at IS NOT NULL AND type <> 'job';
-- what a peer has not stored, and what it has and has not ended
CREATE INDEX message_to_peer ON postern.message (context_id, peer, message_id)
    WHERE ended_at IS NULL AND context_id IS NOT NULL AND peer IS NOT NULL;
CREATE INDEX message_from_peer ON postern.message (target_id, peer, cursor) WHERE context_id IS NULL;
CREATE INDEX message_open ON postern.message (created_at) WHERE ended_at IS NULL; -- what metrics count
CREATE INDEX message_due ON postern.message (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX message_jobs_ended ON postern.message (message_id) WHERE jobs_open = 0;
CREATE INDEX message_sent ON postern.message (context_id, created_at, message_id) WHERE context_id IS NOT NULL;
CREATE INDEX message_received ON postern.message (target_id, created_at, message_id) WHERE target_id IS NOT NULL;
CREATE INDEX message_by_end ON postern.message (ended_at) WHERE ended_at IS NOT NULL; -- what retention lets go

-- The message that a job was made of.
ALTER TABLE postern.job ADD COLUMN message_id uuid;
CREATE INDEX job_by_message ON postern.job (message_id) WHERE message_id IS NOT NULL;

-- What happened to a message.
CREATE TABLE postern.message_step (
    message_id uuid NOT NULL,
    n          int NOT NULL,
    at         timestamptz NOT NULL,
    was        text NOT NULL,
    event      text NOT NULL,
    status     text NOT NULL,
    by         text NOT NULL DEFAULT '',
    detail     text NOT NULL DEFAULT '',
    CONSTRAINT one_row_per_message_step PRIMARY KEY (message_id, n)
);

-- What was said of a message after its end, or by a receiver that held it no more. It changes nothing.
CREATE TABLE postern.message_late (
    message_id uuid NOT NULL,
    event      text NOT NULL,
    fence      bigint NOT NULL,                -- under which it was said; 0: none
    at         timestamptz NOT NULL,
    by         text NOT NULL,
    body       jsonb NOT NULL,
    CONSTRAINT one_row_per_late_word PRIMARY KEY (message_id, event, fence)
);

-- Output of jobs that a peer executes, as it told it.
CREATE TABLE postern.message_log (
    message_id uuid NOT NULL,
    n          bigint NOT NULL,
    at         timestamptz NOT NULL,
    stream     text NOT NULL,
    text       text NOT NULL,
    CONSTRAINT one_row_per_message_line PRIMARY KEY (message_id, n)
);

-- deadline is the one that runs. A message between two contexts that one role may read has a row for each of its boxes.
CREATE VIEW report.messages WITH (security_barrier) AS
SELECT c.name AS context, b.box, m.message_id AS id, m.ref, m.actor AS caller, m.type, m.format, m.peer, m.to_context,
    m.status, m.due_at AS deadline, m.error_code, m.created_at, m.delivered_at, m.acked_at, m.ended_at
FROM postern.message m
CROSS JOIN LATERAL (VALUES ('out', m.context_id), ('in', CASE WHEN m.delivered_at IS NOT NULL THEN m.target_id END))
    b(box, context_id)
JOIN postern.context c ON c.context_id = b.context_id
WHERE b.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

-- Contexts are kept apart here as everywhere; see the migration that makes the roles. A message belongs to both of its
-- ends, to the second one once it is delivered.
ALTER TABLE postern.message ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.message USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[])
    OR delivered_at IS NOT NULL AND target_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
ALTER TABLE postern.message_step ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.message_step USING (EXISTS (SELECT FROM postern.message m
    WHERE m.message_id = message_step.message_id));
ALTER TABLE postern.message_late ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.message_late USING (EXISTS (SELECT FROM postern.message m
    WHERE m.message_id = message_late.message_id));
ALTER TABLE postern.message_log ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.message_log USING (EXISTS (SELECT FROM postern.message m
    WHERE m.message_id = message_log.message_id));
SELECT postern.renew_roles();

-- +goose Down
DROP VIEW report.messages;
DROP TABLE postern.message_log;
DROP TABLE postern.message_late;
DROP TABLE postern.message_step;
ALTER TABLE postern.job DROP COLUMN message_id;
DROP TABLE postern.message;
DROP FUNCTION postern.message_keeps_its_rules;
