-- Subscriptions: who wants to hear of events, and how far each has got.
-- +goose Up
CREATE TABLE postern.subscription (
    subscription_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id      int NOT NULL,
    name            text NOT NULL,               -- ':stream' is that of the context itself
    kind            text NOT NULL CONSTRAINT subscription_kind_is_known CHECK (kind IN ('webhook', 'pull', 'stream')),
    url             text NOT NULL DEFAULT '',
    events          text[] NOT NULL DEFAULT '{}', -- empty: all
    filter          jsonb NOT NULL DEFAULT '{}',
    on_error        text NOT NULL DEFAULT 'skip' CONSTRAINT on_error_is_known CHECK (on_error IN ('skip', 'block')),
    include         text[] NOT NULL DEFAULT '{}',
    secret          bytea,                       -- signs, so it cannot be a hash
    secret_before   bytea,                       -- valid beside it until
    secret_until    timestamptz,
    enabled         boolean NOT NULL DEFAULT true,
    disabled_reason text NOT NULL DEFAULT '',
    since           timestamptz,                 -- complete from then on; see fanout.go
    newest          bigint NOT NULL DEFAULT 0,   -- the last position that was given: position in internal/pg/clock.go
    dropped         bigint NOT NULL DEFAULT 0,   -- the highest position that retention has dropped
    failing_since   timestamptz,                 -- nothing was delivered since, and something failed
    tests           bigint NOT NULL DEFAULT 0,
    used_at         timestamptz,                 -- a stream of the context was last open
    version         bigint NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    removed_at      timestamptz,
    CONSTRAINT webhook_has_url_and_secret CHECK (kind <> 'webhook' OR (url <> '' AND secret IS NOT NULL))
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX one_subscription_per_name ON postern.subscription (context_id, name) WHERE removed_at IS NULL;

-- How far a pull subscription is acknowledged. A row of its own, since consumers hold its lock for as long
-- as their SQL transaction takes, and numbering must not wait for them.
CREATE TABLE postern.checkpoint (
    subscription_id int CONSTRAINT one_checkpoint_of_each PRIMARY KEY,
    acked           bigint NOT NULL DEFAULT 0,
    acked_at        timestamptz
);

-- What has happened and is not numbered yet: inserted by the SQL transaction in which it happened. Its key is
-- the order within a queue, since at is read under the queue's lock: see fanout.go.
CREATE TABLE postern.fanout (
    subscription_id int NOT NULL,
    at              timestamptz NOT NULL,
    queue_id        bigint NOT NULL,
    seq             bigint NOT NULL,
    event           text NOT NULL,
    day             date NOT NULL,
    CONSTRAINT one_fanout_per_subscription PRIMARY KEY (subscription_id, at, queue_id, seq, event)
);

-- +goose StatementBegin
CREATE FUNCTION postern.rfc3339(at timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

-- What is told of an event: the transaction as it was right after it, from task and outcome alone, so that it
-- reads the same however late and however often it is told. NULL if the transaction is gone.
CREATE FUNCTION postern.event_data(of_queue bigint, of_seq bigint, of_day date, event text, at timestamptz, include text[])
RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
            'id', i.id, 'context', c.name, 'actor', t.actor, 'queue', n.name, 'position', t.seq, 'type', t.type,
            'uid', coalesce(t.uid, i.id::text), 'state', coalesce(o.state, 'WAITING'),
            'queue_state', CASE WHEN o.state IS NULL THEN 'FREE' END, 'retries', coalesce(o.retries, 0), 'attempt', coalesce(o.attempt, 0),
            'max_retries', t.max_retries, 'sender', s.account, 'fee', o.fee, 'hash', o.hash, 'block_height', o.block_height)
        || jsonb_build_object(
            'received_at', postern.rfc3339(t.created_at), 'not_before', postern.rfc3339(t.not_before),
            'submitted_at', postern.rfc3339(o.submitted_at), 'retried_at', postern.rfc3339(o.retried_at),
            'done_at', postern.rfc3339(o.done_at), 'next_at', NULL, 'suspended', false, 'held', false, 'staged', false,
            'redrive_of', t.redrive_of, 'redriven_by', NULL, 'moved_from', t.moved_from, 'callback', t.callback, 'depends_on', to_jsonb(ARRAY(
                SELECT postern.public_id(d.on_queue, d.on_seq, d.on_day, d.on_salt) FROM (SELECT * FROM postern.dependency d
                WHERE (d.queue_id, d.seq) = (t.queue_id, t.seq) OFFSET 0) d ORDER BY d.on_queue, d.on_seq)), 'tags', coalesce(t.tags, '{}'),
            'error', CASE WHEN coalesce(o.error_class, o.error_code, o.error) IS NOT NULL
                THEN jsonb_build_object('class', o.error_class, 'code', coalesce(o.error_code, ''), 'message', coalesce(o.error, '')) END,
            'from', o.was, 'event', 'transaction.' || $4, 'at', postern.rfc3339($5))
        || CASE WHEN 'data' = ANY ($6) THEN jsonb_build_object('data', postern.shown_data(t.type, t.data)) ELSE '{}' END
        || CASE WHEN 'result' = ANY ($6) THEN jsonb_build_object('result', o.result) ELSE '{}' END
    FROM postern.task t
    CROSS JOIN LATERAL (SELECT postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from)) AS id) i
    JOIN postern.context c ON c.context_id = t.context_id
    LEFT JOIN postern.outcome o ON $4 <> 'accepted' AND (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day)
    LEFT JOIN postern.queue_name n ON n.queue_id = t.queue_id
    LEFT JOIN postern.sender s ON s.sender_id = coalesce(o.sender_id, t.sender_id)
    WHERE (t.queue_id, t.seq, t.day) = ($1, $2, $3) AND $4 <> 'test'
    UNION ALL
    SELECT jsonb_build_object('event', 'subscription.test', 'at', postern.rfc3339($5)) WHERE $4 = 'test'
$$;
-- +goose StatementEnd

-- The subscription of that name that consumers of this database fetch from, or a refusal.
-- +goose StatementBegin
CREATE FUNCTION postern.pulled(subscription text, context text) RETURNS postern.subscription LANGUAGE plpgsql STABLE AS $$
DECLARE
    s postern.subscription;
BEGIN
    -- column by column: who calls may not read secrets
    SELECT x.subscription_id, x.kind, x.include, x.newest INTO s.subscription_id, s.kind, s.include, s.newest
    FROM postern.subscription x JOIN postern.context c ON c.context_id = x.context_id
    WHERE c.name = coalesce(pulled.context, 'default') AND x.name = pulled.subscription AND x.removed_at IS NULL;
    IF NOT FOUND THEN
        PERFORM postern.refuse(NULL, 'not_found', NULL, format('no subscription %s', coalesce(postern.quoted(subscription), 'without a name')));
    ELSIF s.kind <> 'pull' THEN
        PERFORM postern.refuse(NULL, 'wrong_state', NULL, format('subscription %s is of kind %s: only one of kind pull is fetched here', postern.quoted(subscription), s.kind));
    END IF;
    RETURN s;
END $$;
-- +goose StatementEnd

-- Fetches up to max events after what was acknowledged, in order, as a part of the caller's SQL transaction;
-- nothing, while another transaction that fetched has not ended. Effect and checkpoint commit together with
-- postern.ack, or neither does: the events then come again. Only the checkpoint's row is locked, for which
-- only other consumers wait.
-- +goose StatementBegin
CREATE FUNCTION postern.feed(subscription text, max int, context text DEFAULT NULL)
RETURNS TABLE (cursor text, at timestamptz, event text, uid text, transaction_id uuid, body jsonb) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    s postern.subscription := postern.pulled(feed.subscription, feed.context);
    acked bigint;
    after bigint;
    lost bigint;
    e record;
BEGIN
    SELECT k.acked INTO after FROM postern.checkpoint k WHERE k.subscription_id = s.subscription_id FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    acked := after;
    FOR e IN SELECT d.cursor AS pos, d.at, d.event, d.queue_id, d.seq,
            postern.event_data(d.queue_id, d.seq, d.day, d.event, d.at, s.include) AS data
        FROM postern.delivery d WHERE d.subscription_id = s.subscription_id AND d.subscription_id > 0 AND d.cursor > after
        ORDER BY d.cursor LIMIT least(greatest(feed.max, 0), 10000) LOOP
        IF e.data IS NULL THEN -- dropped by retention
            lost := e.pos;
            EXIT;
        END IF;
        after := e.pos;
        cursor := format('c%s-%s', s.subscription_id, e.pos);
        at := e.at;
        event := e.data->>'event';
        uid := e.data->>'uid';
        transaction_id := CASE WHEN e.data ? 'transaction' THEN (e.data->>'transaction')::uuid -- of a job
            WHEN e.data ? 'uid' THEN (e.data->>'id')::uuid END; -- a batch and a flow have none
        body := e.data;
        RETURN NEXT;
    END LOOP;
    -- behind the events: what is dropped between is seen
    SELECT CASE WHEN x.dropped > acked THEN x.dropped WHEN after = acked THEN lost END INTO lost
    FROM postern.subscription x WHERE x.subscription_id = s.subscription_id;
    IF lost IS NOT NULL AND feed.max > 0 THEN
        PERFORM postern.refuse(NULL, 'cursor_expired', NULL, format('events after cursor c%1$s-%2$s have been dropped by retention: read what you need anew, then acknowledge c%1$s-%3$s',
            s.subscription_id, acked, lost));
    END IF;
END $$;
-- +goose StatementEnd

-- The highest position of a subscription that can be acknowledged. One between the newest event and now is of a time
-- that was lost: what happens next comes after it.
CREATE FUNCTION postern.most_acked(of_subscription int) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT greatest(s.newest, postern.micros(clock_timestamp()))
    FROM postern.subscription s WHERE s.subscription_id = of_subscription
$$;

-- Judges each checkpoint that is moved, by ack or past it: it locks the row as its caller, so that an application may
-- update it. It goes forward, and not beyond all events, where what happens later would never be fetched. Who may
-- update the whole table is the service: it goes back, too, and judges by its own clock. The time is set here.
-- +goose StatementBegin
CREATE FUNCTION postern.judge_ack() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(current_user, TG_RELID, 'UPDATE') THEN
        IF NEW.acked IS NULL OR NEW.acked < OLD.acked THEN
            PERFORM postern.refuse(NULL, 'bad_cursor', NULL, format('position %s lies before %s, which is '
                || 'acknowledged: POST /subscriptions/{name}/redeliver goes back',
                coalesce(NEW.acked::text, 'null'), OLD.acked));
        ELSIF NEW.acked > OLD.acked AND NEW.acked > coalesce(postern.most_acked(NEW.subscription_id), 0) THEN
            PERFORM postern.refuse(NULL, 'bad_cursor', NULL,
                format('position %s lies ahead of all events', NEW.acked));
        END IF;
    END IF;
    IF NEW.acked > OLD.acked AND NEW.acked_at IS NOT DISTINCT FROM OLD.acked_at THEN
        NEW.acked_at := clock_timestamp();
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER judged BEFORE UPDATE ON postern.checkpoint FOR EACH ROW EXECUTE FUNCTION postern.judge_ack();

-- Acknowledges everything up to and with a cursor; false if it was so already.
-- +goose StatementBegin
CREATE FUNCTION postern.ack(subscription text, cursor text, context text DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    s postern.subscription := postern.pulled(ack.subscription, ack.context);
    part text[] := regexp_match(ack.cursor, '^c([0-9]{1,10})-([0-9]{1,18})$');
BEGIN
    IF part IS NULL THEN
        PERFORM postern.refuse(NULL, 'bad_cursor', NULL, format('cursor %s is none of ours', coalesce(postern.quoted(ack.cursor), 'null')));
    ELSIF part[1]::bigint <> s.subscription_id THEN
        PERFORM postern.refuse(NULL, 'cursor_expired', NULL, format('cursor %s is of another subscription, or of one that was deleted', postern.quoted(ack.cursor)));
    ELSIF part[2]::bigint > postern.most_acked(s.subscription_id) THEN
        PERFORM postern.refuse(NULL, 'bad_cursor', NULL, format('cursor %s lies ahead of all events', postern.quoted(ack.cursor)));
    END IF;
    UPDATE postern.checkpoint k SET acked = part[2]::bigint
    WHERE k.subscription_id = s.subscription_id AND k.acked < part[2]::bigint;
    RETURN FOUND;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postern.ack;
DROP TRIGGER judged ON postern.checkpoint;
DROP FUNCTION postern.judge_ack;
DROP FUNCTION postern.most_acked;
DROP FUNCTION postern.feed;
DROP FUNCTION postern.pulled;
DROP FUNCTION postern.event_data;
DROP FUNCTION postern.rfc3339;
DROP TABLE postern.fanout;
DROP TABLE postern.checkpoint;
DROP TABLE postern.subscription;
