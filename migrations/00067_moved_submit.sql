-- What was moved to another queue is told by the queue that it was posted to, and found by its old ids.
-- +goose Up

-- The place of what a client calls ref, an id or a uid; no row if there is no such transaction in the context. An id
-- that it had before a move leads to where it was moved to, however often that was.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION postern.place_of(context_id int, ref text)
RETURNS TABLE (queue_id bigint, seq bigint, day date) LANGUAGE sql STABLE AS $$
    SELECT i.queue_id, i.seq, i.day FROM postern.idempotency i WHERE (i.context_id, i.key) = ($1, $2)
    UNION ALL
    (WITH RECURSIVE m AS (
        SELECT t.queue_id, t.seq, t.day, 0 AS moves
        FROM postern.id_place($2) p
        JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (p.queue_id, p.seq, p.day)
        WHERE t.context_id = $1
            AND postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from))::text = lower($2)
        UNION ALL
        SELECT p.queue_id, p.seq, p.day, m.moves + 1
        FROM m
        -- By its key: a plain join may read the outcomes of all days.
        CROSS JOIN LATERAL (SELECT o.result FROM postern.outcome o
            WHERE (o.queue_id, o.seq, o.day) = (m.queue_id, m.seq, m.day) AND o.error_code = 'moved' OFFSET 0) o
        CROSS JOIN LATERAL postern.id_place(o.result->>'moved_to') p)
    SELECT m.queue_id, m.seq, m.day FROM m ORDER BY m.moves DESC LIMIT 1)
$$;
-- +goose StatementEnd

-- Whether the uid is known, to the tables or (unless drained_only) to what is staged: true with the same
-- body, a refusal with another one. Compared as POST compares: numbers by value, keys in any order. The body names the
-- queue that it was posted to, wherever it was moved since; once retention has forgotten that one, any queue will do.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION postern.known_uid(nth int, s postern.outbox, drained_only boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    k record;
    place record;
    wanted text[] := coalesce(s.depends_on, '{}');
    differs text[];
BEGIN
    SELECT i.queue_id, i.seq, i.day INTO place
    FROM postern.idempotency i WHERE i.context_id = s.context_id AND i.key = s.uid;
    IF FOUND THEN
        SELECT postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from)) AS id, t.type,
            t.data, t.not_before, t.max_retries, t.tags, t.callback, t.sender_id,
            ARRAY(SELECT (d.on_queue, d.on_seq)::text FROM postern.dependency d
                WHERE (d.queue_id, d.seq) = (t.queue_id, t.seq) ORDER BY 1) AS depends_on,
            (SELECT n.name FROM postern.queue_name n WHERE n.queue_id = t.queue_id) AS queue, t.moved_from
        INTO k FROM postern.task t WHERE (t.queue_id, t.seq, t.day) = (place.queue_id, place.seq, place.day);
    ELSIF NOT drained_only THEN
        SELECT NULL::uuid AS id, o.type, o.data, o.not_before, o.max_retries, o.tags, o.callback,
            NULL::int AS sender_id, o.depends_on, o.queue, NULL::uuid AS moved_from
        INTO k FROM postern.outbox o WHERE o.context_id = s.context_id AND o.uid = s.uid;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    WHILE k.moved_from IS NOT NULL LOOP
        SELECT t.moved_from, CASE WHEN t.seq IS NULL THEN s.queue
            ELSE (SELECT n.name FROM postern.queue_name n WHERE n.queue_id = t.queue_id) END
        INTO k.moved_from, k.queue
        FROM postern.id_place(k.moved_from::text) p
        LEFT JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (p.queue_id, p.seq, p.day);
    END LOOP;
    IF k.id IS NOT NULL AND s.depends_on IS NOT NULL THEN -- what has a place names others by theirs
        wanted := ARRAY(SELECT DISTINCT coalesce((p.queue_id, p.seq)::text, n)
            FROM unnest(s.depends_on) n LEFT JOIN LATERAL postern.place_of(s.context_id, n) p ON true ORDER BY 1);
    END IF;
    differs := array_remove(ARRAY[
        CASE WHEN k.queue IS DISTINCT FROM s.queue THEN 'queue' END,
        CASE WHEN k.type <> s.type THEN 'type' END,
        CASE WHEN k.data <> s.data THEN 'data' END,
        CASE WHEN k.not_before IS DISTINCT FROM s.not_before THEN 'not_before' END,
        CASE WHEN k.max_retries IS DISTINCT FROM s.max_retries THEN 'max_retries' END,
        CASE WHEN coalesce(k.depends_on, '{}') <> wanted THEN 'depends_on' END,
        CASE WHEN k.callback IS DISTINCT FROM s.callback THEN 'callback' END,
        CASE WHEN k.tags IS DISTINCT FROM s.tags THEN 'tags' END,
        CASE WHEN k.sender_id IS NOT NULL THEN 'sender' END], NULL);
    IF cardinality(differs) > 0 THEN
        PERFORM postern.refuse(nth, 'idempotency_conflict', NULL,
            format('uid %s names a transaction with another body: use a new uid, or send the same body',
                postern.quoted(s.uid)),
            jsonb_build_object('existing', jsonb_build_object('id', k.id, 'uid', s.uid), 'differs', differs));
    END IF;
    RETURN true;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION postern.known_uid(nth int, s postern.outbox, drained_only boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    k record;
    place record;
    wanted text[] := coalesce(s.depends_on, '{}');
    differs text[];
BEGIN
    SELECT i.queue_id, i.seq, i.day INTO place
    FROM postern.idempotency i WHERE i.context_id = s.context_id AND i.key = s.uid;
    IF FOUND THEN
        SELECT postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from)) AS id, t.type,
            t.data, t.not_before, t.max_retries, t.tags, t.callback, t.sender_id,
            ARRAY(SELECT (d.on_queue, d.on_seq)::text FROM postern.dependency d
                WHERE (d.queue_id, d.seq) = (t.queue_id, t.seq) ORDER BY 1) AS depends_on,
            (SELECT n.name FROM postern.queue_name n WHERE n.queue_id = t.queue_id) AS queue
        INTO k FROM postern.task t WHERE (t.queue_id, t.seq, t.day) = (place.queue_id, place.seq, place.day);
    ELSIF NOT drained_only THEN
        SELECT NULL::uuid AS id, o.type, o.data, o.not_before, o.max_retries, o.tags, o.callback,
            NULL::int AS sender_id, o.depends_on, o.queue
        INTO k FROM postern.outbox o WHERE o.context_id = s.context_id AND o.uid = s.uid;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF k.id IS NOT NULL AND s.depends_on IS NOT NULL THEN -- what has a place names others by theirs
        wanted := ARRAY(SELECT DISTINCT coalesce((p.queue_id, p.seq)::text, n)
            FROM unnest(s.depends_on) n LEFT JOIN LATERAL postern.place_of(s.context_id, n) p ON true ORDER BY 1);
    END IF;
    differs := array_remove(ARRAY[
        CASE WHEN k.queue IS DISTINCT FROM s.queue THEN 'queue' END,
        CASE WHEN k.type <> s.type THEN 'type' END,
        CASE WHEN k.data <> s.data THEN 'data' END,
        CASE WHEN k.not_before IS DISTINCT FROM s.not_before THEN 'not_before' END,
        CASE WHEN k.max_retries IS DISTINCT FROM s.max_retries THEN 'max_retries' END,
        CASE WHEN coalesce(k.depends_on, '{}') <> wanted THEN 'depends_on' END,
        CASE WHEN k.callback IS DISTINCT FROM s.callback THEN 'callback' END,
        CASE WHEN k.tags IS DISTINCT FROM s.tags THEN 'tags' END,
        CASE WHEN k.sender_id IS NOT NULL THEN 'sender' END], NULL);
    IF cardinality(differs) > 0 THEN
        PERFORM postern.refuse(nth, 'idempotency_conflict', NULL,
            format('uid %s names a transaction with another body: use a new uid, or send the same body',
                postern.quoted(s.uid)),
            jsonb_build_object('existing', jsonb_build_object('id', k.id, 'uid', s.uid), 'differs', differs));
    END IF;
    RETURN true;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION postern.place_of(context_id int, ref text)
RETURNS TABLE (queue_id bigint, seq bigint, day date) LANGUAGE sql STABLE AS $$
    SELECT i.queue_id, i.seq, i.day FROM postern.idempotency i WHERE (i.context_id, i.key) = ($1, $2)
    UNION ALL
    SELECT t.queue_id, t.seq, t.day FROM postern.id_place($2) p
    JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (p.queue_id, p.seq, p.day)
    WHERE t.context_id = $1
        AND postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from))::text = lower($2)
$$;
-- +goose StatementEnd
