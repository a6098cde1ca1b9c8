-- The SQL outbox: postern.submit writes a staged row inside the application's own transaction, and the
-- drain (internal/pg/drain.go) gives it its position later. Nothing of ours is locked meanwhile: an open
-- transaction holds its own staged rows and nothing else. The table judges each row itself (judge_staged), so that what
-- is inserted past submit is worth as much as what came through it.
-- +goose Up

-- stage_id orders what is staged: a call after another one's commit has the higher one, also
-- after a failover in which the clock went back. Numbers are drawn at the call and seen at the commit, so
-- that a lower one may appear behind a higher one: no reader may remember how far it has read.
CREATE TABLE postern.outbox (
    stage_id    bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
    context_id  int NOT NULL,
    uid         text NOT NULL,
    queue       text,                        -- null = unordered
    type        text NOT NULL,
    data        jsonb NOT NULL,
    not_before  timestamptz,
    max_retries int,
    depends_on  text[],
    tags        jsonb,
    callback    jsonb,                       -- {url, on}
    actor       text NOT NULL,
    by_admin    boolean NOT NULL DEFAULT false, -- its type asked for an admin, and its actor is one
    staged_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_staged_row_per_uid PRIMARY KEY (context_id, uid)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000);
CREATE INDEX outbox_by_queue ON postern.outbox (queue, context_id, stage_id);

-- Raises a refusal: SQLSTATE ZP and the status, MESSAGE the sentence, DETAIL the problem document as HTTP
-- would answer it (a test compares both doors). nth is the place in submit_many, null outside. A field is at
-- pointer; said is what is wrong with it, and the sentence unless detail says more.
-- +goose StatementBegin
CREATE FUNCTION postern.refuse(nth int, code text, pointer text, said text, more jsonb DEFAULT '{}', detail text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    p record;
    doc jsonb;
    sentence text := coalesce(refuse.detail, said);
BEGIN
    SELECT v.* INTO STRICT p FROM (VALUES
        ('bad_cursor', 400, 'Cursor does not fit', NULL),
        ('key_required', 400, 'An idempotency key is required', NULL),
        ('forbidden', 403, 'Not allowed', NULL),
        ('not_found', 404, 'Not found', NULL),
        ('idempotency_conflict', 409, 'The key names another transaction', NULL),
        ('wrong_state', 409, 'Wrong state', NULL),
        ('cursor_expired', 410, 'Cursor has expired', NULL),
        ('dependency_cycle', 422, 'Cycle of dependencies', NULL),
        ('queue_draining', 409, 'Queue is draining', 1),
        ('too_large', 413, 'Too large', NULL),
        ('invalid', 422, 'Invalid request', NULL),
        ('address_refused', 422, 'Address is not called', NULL),
        ('unknown_dependency', 422, 'Unknown dependency', NULL),
        ('unknown_type', 422, 'Unknown type', NULL),
        ('unknown_queue', 422, 'Unknown queue', NULL),
        ('queue_full', 429, 'Queue is full', 2)) v (code, status, title, retry_after) WHERE v.code = refuse.code;
    IF nth IS NOT NULL THEN
        sentence := format('item %s: %s; nothing of the batch was accepted', nth, sentence);
    END IF;
    doc := jsonb_build_object('type', 'urn:postern:problem:' || p.code, 'title', p.title, 'status', p.status, 'code', p.code,
        'retryable', p.retry_after IS NOT NULL, 'detail', sentence,
        'help', 'docs/errors.md#problem-' || p.code) || more;
    IF p.retry_after IS NOT NULL THEN
        doc := doc || jsonb_build_object('retry_after', p.retry_after);
    END IF;
    IF pointer IS NOT NULL OR nth IS NOT NULL THEN
        doc := doc || jsonb_build_object('errors', jsonb_build_array(jsonb_build_object(
            'pointer', coalesce('/items/' || nth, '') || coalesce(pointer, ''), 'code', p.code, 'detail', said)));
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'ZP' || CASE p.status WHEN 400 THEN 422 WHEN 410 THEN 404 WHEN 413 THEN 422 ELSE p.status END, MESSAGE = sentence, DETAIL = doc::text;
END $$;
-- +goose StatementEnd

-- Refuses a field whose form is wrong: want says what would be right, value is shown if there is one.
-- +goose StatementBegin
CREATE FUNCTION postern.refuse_form(nth int, pointer text, want text, value text DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    said text := 'expected ' || want || coalesce(', not ' || nullif(value, '""'), '');
BEGIN
    PERFORM postern.refuse(nth, 'invalid', pointer, said, '{}', CASE pointer WHEN '' THEN said ELSE pointer || ': ' || said END);
END $$;
-- +goose StatementEnd

-- A value from outside for a sentence: at most 64 characters, in quotes.
CREATE FUNCTION postern.quoted(v text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT to_jsonb(CASE WHEN length(v) > 64 THEN left(v, 61) || '...' ELSE v END)::text
$$;

-- Whether each node may call an address, whatever it is started with: the ranges are those of the dialler
-- (internal/remote), with which a test compares them.
CREATE FUNCTION postern.is_public(address inet) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE family(address)
        WHEN 4 THEN NOT address <<= ANY (ARRAY['0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8',
            '169.254.0.0/16', '172.16.0.0/12', '192.0.0.0/24', '192.0.2.0/24', '192.31.196.0/24', '192.52.193.0/24',
            '192.88.99.0/24', '192.168.0.0/16', '192.175.48.0/24', '198.18.0.0/15', '198.51.100.0/24',
            '203.0.113.0/24', '224.0.0.0/4', '240.0.0.0/4']::inet[])
        ELSE address <<= '2000::/3'::inet AND NOT address <<= ANY (ARRAY['2001::/23', '2001:db8::/32', '2002::/16',
            '2620:4f:8000::/48', '3fff::/20']::inet[])
    END
$$;

-- Whether a node that lives may call an address that is not public. Where none has said what it may call, nothing is
-- known, and the node decides when it calls. It runs as the owner, since nodes are nothing to applications.
CREATE FUNCTION postern.is_allowed(address inet) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(bool_or(address <<= ANY (n.worker_allow_cidr::inet[])), true)
    FROM postern.node n
    WHERE n.dead_at IS NULL
        AND n.heartbeat_at + n.ttl > clock_timestamp()
        AND n.worker_allow_cidr IS NOT NULL
$$;

-- Refuses a URL whose host is none, or an address that no node may call (remote.Literal). What a name means may be
-- another address tomorrow: that is looked at when it is called.
-- +goose StatementBegin
CREATE FUNCTION postern.check_host(nth int, pointer text, url text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    says CONSTANT text := substring(pointer from '[^/]+$') || ' ' || postern.quoted(url) || ': ';
    host CONSTANT text := lower(substring(url from '^[^/]*//([[][^]]*[]]|[^/?#:]*)'));
    octet CONSTANT text := '(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])';
    found inet[]; -- what it names, without a look-up
    bits text;
BEGIN
    IF host ~ ('^(' || octet || '[.]){3}' || octet || '$') THEN
        found := ARRAY[host::inet];
    ELSIF host ~ '^[[][0-9a-f:.]*:[0-9a-f:.]*[]]$' THEN
        BEGIN
            found := ARRAY[btrim(host, '[]')::inet];
        EXCEPTION WHEN invalid_text_representation THEN NULL;
        END;
        IF found[1] <<= '::ffff:0:0/96' THEN
            found := ARRAY['0.0.0.0'::inet + (found[1] - '::ffff:0:0'::inet)];
        END IF;
    ELSIF host ~ '^([a-z0-9_-]+[.])*localhost[.]?$' THEN
        found := ARRAY['127.0.0.1', '::1']::inet[];
    END IF;
    IF found IS NULL THEN
        IF host ~ '^[[][^%]*$' THEN
            PERFORM postern.refuse(nth, 'invalid', pointer, says || 'want an absolute http or https URL');
        ELSIF host !~ '^[a-z0-9_-]+([.][a-z0-9_-]+)*[.]?$' OR host ~ '(^|[.])([0-9]+|0x[0-9a-f]*)[.]?$' THEN
            PERFORM postern.refuse(nth, 'invalid', pointer, says || 'its host is neither a name in ASCII nor an '
                || 'address such as 192.0.2.1 or [2001:db8::1]');
        END IF;
    ELSIF NOT EXISTS (SELECT FROM unnest(found) f(a) WHERE postern.is_public(a) OR postern.is_allowed(a)) THEN
        bits := CASE WHEN found[1] <<= '127.0.0.0/8' THEN '127.0.0.0/8,::1/128'
            ELSE host(found[1]) || '/' || CASE family(found[1]) WHEN 4 THEN 32 ELSE 128 END END;
        PERFORM postern.refuse(nth, 'address_refused', pointer, says || 'no node may call it, since it is not '
            || 'public: start `postern work` with --worker-allow-cidr ' || bits
            || ' (POSTERN_WORKER_ALLOW_CIDR), or with a range around it');
    END IF;
END $$;
-- +goose StatementEnd

-- A callback as it is kept, or a refusal.
-- +goose StatementBegin
CREATE FUNCTION postern.checked_callback(nth int, callback jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    f record;
    url text;
BEGIN
    IF jsonb_typeof(callback) <> 'object' THEN
        PERFORM postern.refuse_form(nth, '/callback', 'object');
    END IF;
    FOR f IN SELECT key, value, jsonb_typeof(value) AS kind, value #>> '{}' AS text FROM jsonb_each(callback) LOOP
        IF f.key NOT IN ('url', 'on') THEN
            PERFORM postern.refuse(nth, 'invalid', '/callback/' || f.key, 'unexpected property', '{}', '/callback/' || f.key || ': unexpected property');
        ELSIF f.key = 'url' AND f.kind <> 'string' THEN
            PERFORM postern.refuse_form(nth, '/callback/url', 'string', CASE WHEN f.kind IN ('number', 'boolean') THEN left(f.text, 64) END);
        ELSIF f.key = 'on' AND f.kind <> 'array' THEN
            PERFORM postern.refuse_form(nth, '/callback/on', 'array', CASE f.kind WHEN 'string' THEN postern.quoted(f.text) WHEN 'number' THEN left(f.text, 64) END);
        END IF;
    END LOOP;
    url := callback->>'url';
    IF url IS NULL THEN
        PERFORM postern.refuse(nth, 'invalid', '/callback/url', 'is required', '{}', '/callback/url: is required');
    ELSIF length(url) > 2000 THEN
        PERFORM postern.refuse_form(nth, '/callback/url', 'length <= 2000', postern.quoted(url));
    ELSIF url COLLATE "C" ~ ('[' || chr(1) || '-' || chr(31) || chr(127) || ']')
            OR NOT url ~* ('^https?://([^/?#]*@)?([[][^][/?#]*[]](:[0-9]*)?|[^][/?#:%[:cntrl:] ]+(:[0-9]*)?|:[0-9]+)'
            || '(/([^?#%]|%[0-9a-f][0-9a-f])*)?([?][^#]*)?(#.*)?$') THEN -- as Go reads a URL
        PERFORM postern.refuse(nth, 'invalid', '/callback/url', format('url %s: want an absolute http or https URL', postern.quoted(url)));
    ELSIF url ~* '^https?://[^/?#]*@' OR url ~ '#.' THEN
        PERFORM postern.refuse(nth, 'invalid', '/callback/url', 'url: want neither credentials nor a fragment in it; verify the signature instead');
    END IF;
    PERFORM postern.check_host(nth, '/callback/url', url);
    IF jsonb_array_length(callback->'on') > 4 THEN
        PERFORM postern.refuse_form(nth, '/callback/on', 'array length <= 4');
    END IF;
    FOR f IN SELECT e.ordinality - 1 AS at, jsonb_typeof(e.value) AS kind, e.value #>> '{}' AS text FROM jsonb_array_elements(callback->'on') WITH ORDINALITY e LOOP
        IF f.kind <> 'string' THEN
            PERFORM postern.refuse_form(nth, '/callback/on/' || f.at, 'string', left(f.text, 64));
        ELSIF f.text NOT IN ('DONE', 'FAILED', 'UNRESOLVED', 'CANCELLED') THEN
            PERFORM postern.refuse(nth, 'invalid', '/callback/on/' || f.at, format('on %s: want DONE, FAILED, UNRESOLVED or CANCELLED', postern.quoted(f.text)));
        END IF;
    END LOOP;
    RETURN CASE WHEN callback->'on' = '[]' THEN callback - 'on' ELSE callback END;
END $$;
-- +goose StatementEnd

-- Refuses what POST /transactions refuses of the form of a transaction.
-- +goose StatementBegin
CREATE FUNCTION postern.check_form(nth int, s postern.outbox) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name_is CONSTANT text := '200 of A-Z a-z 0-9 . _ : @ -, the first a letter or digit';
    n int;
    tag record;
BEGIN
    IF s.type IS NULL THEN
        PERFORM postern.refuse(nth, 'invalid', '/type', 'is required', '{}', '/type: is required');
    END IF;
    -- a length is counted by length(): a repetition in a pattern is a state for each character
    IF length(s.type) > 200 THEN
        PERFORM postern.refuse_form(nth, '/type', 'length <= 200', postern.quoted(s.type));
    END IF;
    IF NOT s.type COLLATE "C" ~ '^[A-Za-z0-9][A-Za-z0-9._:@-]*$' THEN
        PERFORM postern.refuse_form(nth, '/type', 'string to be 1 to ' || name_is, postern.quoted(s.type));
    END IF;
    IF length(s.queue) > 200 THEN
        PERFORM postern.refuse_form(nth, '/queue', 'length <= 200', postern.quoted(s.queue));
    END IF;
    IF NOT s.queue COLLATE "C" ~ '^[A-Za-z0-9][A-Za-z0-9._:@-]*$' THEN
        PERFORM postern.refuse_form(nth, '/queue', 'string to be 1 to ' || name_is, postern.quoted(s.queue));
    END IF;
    IF length(s.uid) > 255 THEN
        PERFORM postern.refuse_form(nth, '/uid', 'length <= 255', postern.quoted(s.uid));
    END IF;
    IF NOT s.uid COLLATE "C" ~ '^[A-Za-z0-9][A-Za-z0-9._:@-]*$' THEN
        PERFORM postern.refuse_form(nth, '/uid', 'string to be 1 to ' || replace(name_is, '200', '255'), postern.quoted(s.uid));
    END IF;
    n := octet_length(s.data::text);
    IF n > 262144 THEN
        PERFORM postern.refuse(nth, 'too_large', '/data',
            format('data has %s bytes, more than the limit of 262144: store it elsewhere and post a reference', n));
    END IF;
    -- 64 levels of a body, of which data is the second
    IF n > 126 AND jsonb_path_exists(s.data, 'strict $.**{63} ? (@.type() == "object" || @.type() == "array")') THEN
        PERFORM postern.refuse(nth, 'invalid', '/data', 'data is nested deeper than the limit of 64 levels of a body');
    END IF;
    IF n > 308 AND jsonb_path_exists(s.data, 'strict $.** ? (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308)') THEN
        PERFORM postern.refuse(nth, 'invalid', '/data', 'data has a number beyond 1e308');
    END IF;
    IF s.max_retries < 0 THEN
        PERFORM postern.refuse_form(nth, '/max_retries', 'number >= 0', s.max_retries::text);
    ELSIF s.max_retries > 10000 THEN
        PERFORM postern.refuse_form(nth, '/max_retries', 'number <= 10000', s.max_retries::text);
    END IF;
    IF NOT isfinite(s.not_before) OR NOT extract(year FROM s.not_before AT TIME ZONE 'UTC') BETWEEN 1970 AND 9999 THEN
        PERFORM postern.refuse(nth, 'invalid', '/not_before',
            format('not_before %s lies before 1970 or after 9999', postern.quoted(s.not_before::text)));
    ELSIF s.not_before > clock_timestamp() + interval '100 years' THEN
        PERFORM postern.refuse(nth, 'invalid', '/not_before', format('not_before "%s" lies more than 100 years ahead',
            to_char(s.not_before AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')));
    END IF;
    IF cardinality(s.depends_on) > 64 THEN
        PERFORM postern.refuse_form(nth, '/depends_on', 'array length <= 64');
    END IF;
    FOR n IN 1 .. coalesce(cardinality(s.depends_on), 0) LOOP
        IF s.depends_on[n] IS NULL THEN
            PERFORM postern.refuse_form(nth, '/depends_on/' || n - 1, 'string');
        ELSIF length(s.depends_on[n]) > 255 THEN
            PERFORM postern.refuse_form(nth, '/depends_on/' || n - 1, 'length <= 255', postern.quoted(s.depends_on[n]));
        ELSIF NOT s.depends_on[n] COLLATE "C" ~ '^[A-Za-z0-9][A-Za-z0-9._:@-]*$' THEN
            PERFORM postern.refuse_form(nth, '/depends_on/' || n - 1, 'string to be 1 to ' || replace(name_is, '200', '255'), postern.quoted(s.depends_on[n]));
        END IF;
    END LOOP;
    IF s.tags IS NULL THEN
        RETURN;
    ELSIF jsonb_typeof(s.tags) <> 'object' THEN
        PERFORM postern.refuse_form(nth, '/tags', 'object');
    END IF;
    n := 0;
    FOR tag IN SELECT key, value, value #>> '{}' AS text FROM jsonb_each(s.tags) LOOP
        n := n + 1;
        IF n > 16 THEN
            PERFORM postern.refuse_form(nth, '/tags', 'object with at most 16 properties');
        ELSIF jsonb_typeof(tag.value) <> 'string' THEN
            PERFORM postern.refuse_form(nth, '/tags/' || tag.key, 'string', left(tag.text, 64));
        ELSIF octet_length(tag.key) NOT BETWEEN 1 AND 64 THEN
            PERFORM postern.refuse(nth, 'invalid', '/tags',
                format('the tag %s has %s bytes: want 1 to 64', postern.quoted(tag.key), octet_length(tag.key)));
        ELSIF octet_length(tag.text) > 256 THEN
            PERFORM postern.refuse(nth, 'invalid', '/tags/' || tag.key,
                format('the value of tag %s has %s bytes: want at most 256', to_jsonb(tag.key), octet_length(tag.text)));
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd

-- Refuses what depends on itself, or on what has not been posted or staged yet; so what is staged depends only on
-- what has a lower stage_id or a place already, and there are no cycles. (The number of s is drawn before this looks:
-- what another one staged between the two has a higher one, and is refused.) Of what is named by uid the drain finds
-- the place.
-- +goose StatementBegin
CREATE FUNCTION postern.check_dependencies(nth int, s postern.outbox) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY coalesce(s.depends_on, '{}') LOOP
        IF name = s.uid THEN
            PERFORM postern.refuse(nth, 'dependency_cycle', '/depends_on',
                format('depends_on makes a cycle, so that none of these could ever go out: %s -> %1$s', name),
                jsonb_build_object('cycle', jsonb_build_array(name, name)));
        END IF;
        PERFORM FROM postern.outbox o WHERE (o.context_id, o.uid) = (s.context_id, name) AND o.stage_id < s.stage_id;
        IF NOT FOUND THEN
            PERFORM FROM postern.place_of(s.context_id, name);
        END IF;
        IF NOT FOUND THEN
            PERFORM postern.refuse(nth, 'unknown_dependency', '/depends_on',
                format('depends_on names %s, which is neither the id nor the uid of a transaction here: post that one first', postern.quoted(name)));
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd

-- Whether the uid is known, to the tables or (unless drained_only) to what is staged: true with the same
-- body, a refusal with another one. Compared as POST compares: numbers by value, keys in any order.
-- +goose StatementBegin
CREATE FUNCTION postern.known_uid(nth int, s postern.outbox, drained_only boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    k record;
    place record;
    wanted text[] := coalesce(s.depends_on, '{}');
    differs text[];
BEGIN
    SELECT i.queue_id, i.seq, i.day INTO place FROM postern.idempotency i WHERE i.context_id = s.context_id AND i.key = s.uid;
    IF FOUND THEN
        SELECT postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from)) AS id, t.type, t.data, t.not_before, t.max_retries, t.tags, t.callback, t.sender_id,
            ARRAY(SELECT (d.on_queue, d.on_seq)::text FROM postern.dependency d WHERE (d.queue_id, d.seq) = (t.queue_id, t.seq) ORDER BY 1) AS depends_on,
            (SELECT n.name FROM postern.queue_name n WHERE n.queue_id = t.queue_id) AS queue
        INTO k FROM postern.task t WHERE (t.queue_id, t.seq, t.day) = (place.queue_id, place.seq, place.day);
    ELSIF NOT drained_only THEN
        SELECT NULL::uuid AS id, o.type, o.data, o.not_before, o.max_retries, o.tags, o.callback, NULL::int AS sender_id, o.depends_on, o.queue
        INTO k FROM postern.outbox o WHERE o.context_id = s.context_id AND o.uid = s.uid;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF k.id IS NOT NULL AND s.depends_on IS NOT NULL THEN -- what has a place names others by theirs
        wanted := ARRAY(SELECT DISTINCT coalesce((p.queue_id, p.seq)::text, n) FROM unnest(s.depends_on) n LEFT JOIN LATERAL postern.place_of(s.context_id, n) p ON true ORDER BY 1);
    END IF;
    differs := array_remove(ARRAY[
        CASE WHEN k.queue IS DISTINCT FROM s.queue THEN 'queue' END, CASE WHEN k.type <> s.type THEN 'type' END,
        CASE WHEN k.data <> s.data THEN 'data' END, CASE WHEN k.not_before IS DISTINCT FROM s.not_before THEN 'not_before' END,
        CASE WHEN k.max_retries IS DISTINCT FROM s.max_retries THEN 'max_retries' END,
        CASE WHEN coalesce(k.depends_on, '{}') <> wanted THEN 'depends_on' END, CASE WHEN k.callback IS DISTINCT FROM s.callback THEN 'callback' END,
        CASE WHEN k.tags IS DISTINCT FROM s.tags THEN 'tags' END, CASE WHEN k.sender_id IS NOT NULL THEN 'sender' END], NULL);
    IF cardinality(differs) > 0 THEN
        PERFORM postern.refuse(nth, 'idempotency_conflict', NULL,
            format('uid %s names a transaction with another body: use a new uid, or send the same body', postern.quoted(s.uid)),
            jsonb_build_object('existing', jsonb_build_object('id', k.id, 'uid', s.uid), 'differs', differs));
    END IF;
    RETURN true;
END $$;
-- +goose StatementEnd

-- The names under which systems of Postern post transactions of their own: the list of outbox.ReservedNames.
CREATE FUNCTION postern.reserved() RETURNS TABLE (field text, prefix text, system text, whose text)
LANGUAGE sql IMMUTABLE AS $$
    VALUES ('type', 'leader.', 'leader', 'for events of sources'),
        ('uid', 'event:', 'leader', 'for events of sources'),
        ('queue', 'processor:', 'processors', 'for batches of processors'),
        ('type', 'peer.', 'peers', 'to other installations'),
        ('queue', 'peer:', 'peers', 'to other installations')
$$;

-- Refuses these names.
-- +goose StatementBegin
CREATE FUNCTION postern.refuse_reserved(nth int, s postern.outbox) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT n.field, n.whose, v.value
        FROM postern.reserved() n
        JOIN (VALUES ('type', s.type), ('uid', s.uid), ('queue', s.queue)) v (field, value) ON v.field = n.field
        WHERE starts_with(v.value, n.prefix)
    LOOP
        PERFORM postern.refuse(nth, 'forbidden', '/' || r.field,
            format('%s %s is posted %s, by Postern alone: use one of your own', r.field,
                CASE WHEN length(r.value) > 64 THEN left(r.value, 61) || '...' ELSE r.value END, r.whose));
    END LOOP;
END $$;
-- +goose StatementEnd

-- Refuses what the type or the queue cannot take now, and who may not post to the type. It locks nothing, and what is
-- staged has no place in the queue yet: the drain decides for good. It returns whether the type asks for an admin, and
-- has one.
-- +goose StatementBegin
CREATE FUNCTION postern.check_room(nth int, s postern.outbox) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    q record;
    depth bigint;
    by_admin boolean;
BEGIN
    SELECT d.posted_by, d.draining AS type, c.draining AS context, c.name INTO q FROM postern.dispatcher d JOIN postern.context c USING (context_id)
    WHERE d.context_id = s.context_id AND d.type = s.type AND d.removed_at IS NULL;
    IF NOT FOUND THEN
        PERFORM postern.refuse(nth, 'unknown_type', NULL,
            format('type %s has no dispatcher: PUT /dispatchers/%s first', postern.quoted(s.type), s.type));
    END IF;
    by_admin := q.posted_by = 'admin' AND s.context_id = ANY (postern.contexts_of(current_user, 'admin'));
    IF q.posted_by <> 'anyone' AND NOT by_admin THEN
        PERFORM postern.refuse(nth, 'forbidden', '/type', format('type %s is posted by %s', s.type, CASE q.posted_by
            WHEN 'processors' THEN 'processors alone: send a batch through an authorization that names it'
            WHEN 'leader' THEN 'the leader alone: it is for events of sources'
            WHEN 'peers' THEN 'Postern alone: it goes to another installation'
            ELSE 'the role admin alone' END));
    END IF;
    IF q.context THEN
        PERFORM postern.refuse(nth, 'queue_draining', NULL, format('context %s accepts nothing more until it is resumed', q.name));
    ELSIF q.type THEN
        PERFORM postern.refuse(nth, 'queue_draining', NULL, format('type %s accepts nothing more until it is resumed', s.type));
    END IF;
    SELECT r.queue_id, r.draining, r.drop_oldest, r.head_seq, r.head_day, r.tail_seq - r.head_seq + 1 AS depth,
        coalesce(r.max_depth, (SELECT c.max_depth FROM postern.context c WHERE c.context_id = s.context_id)) AS most
    INTO q FROM postern.queue_name n JOIN postern.queue r ON r.queue_id = n.queue_id WHERE n.context_id = s.context_id AND n.name = s.queue;
    IF q.draining THEN
        PERFORM postern.refuse(nth, 'queue_draining', NULL,
            format('queue %s accepts nothing more until it is resumed', postern.quoted(s.queue)));
    ELSIF q.depth >= q.most AND NOT q.drop_oldest THEN
        SELECT q.depth - count(*) INTO depth FROM postern.outcome o WHERE o.queue_id = q.queue_id AND o.seq >= q.head_seq AND o.day >= q.head_day;
        IF depth >= q.most THEN
            PERFORM postern.refuse(nth, 'queue_full', NULL, format('queue %s holds %s of at most %s transactions: wait, or raise max_depth',
                postern.quoted(s.queue), depth, q.most), jsonb_build_object('queue_depth', depth));
        END IF;
    END IF;
    RETURN by_admin;
END $$;
-- +goose StatementEnd

-- A row in the form in which it is kept, or a refusal: each dependency once, and null for what is empty.
-- +goose StatementBegin
CREATE FUNCTION postern.checked_form(nth int, s postern.outbox) RETURNS postern.outbox LANGUAGE plpgsql AS $$
BEGIN
    s.data := coalesce(s.data, '{}');
    s.tags := nullif(s.tags, '{}');
    PERFORM postern.check_form(nth, s);
    IF s.callback IS NOT NULL THEN
        s.callback := postern.checked_callback(nth, s.callback);
    END IF;
    IF s.depends_on IS NOT NULL THEN
        s.depends_on := nullif(ARRAY(SELECT n FROM unnest(s.depends_on) WITH ORDINALITY u(n, at)
            GROUP BY n ORDER BY min(at)), '{}');
    END IF;
    RETURN s;
END $$;
-- +goose StatementEnd

-- Judges each row that is inserted, by submit or past it: INSERT, COPY, MERGE, a function or a trigger of an
-- application. It sets the actor and the time, fills in the context default and a uid, and refuses what POST
-- /transactions refuses. A row whose uid is known with the same body is not inserted, and that is no error.
--
-- It runs as its invoker: current_user is who inserts, also under SET ROLE, behind a login that many share, and within
-- a function of an application that is SECURITY DEFINER. It looks in pg_catalog alone, so that no function or operator
-- of a caller stands in for one of ours, and it has no backslash in a pattern, which standard_conforming_strings would
-- change. Triggers fire in the order of their names: this one has the last, so that nothing changes a row behind it.
--
-- A restore is not judged: pg_restore makes triggers after the rows, and with --disable-triggers none fires, as under
-- session_replication_role = replica. Only a superuser can do the last two. postern_submit may not give stage_id,
-- actor and staged_at (its grants name the columns), and may neither change nor delete a row.
-- +goose StatementBegin
CREATE FUNCTION postern.judge_staged() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    said CONSTANT text := current_setting('postern.item', true);
    nth CONSTANT int := CASE WHEN said ~ '^[0-9]{1,9}$' THEN said::int END;
    named CONSTANT boolean := NEW.uid IS NOT NULL;
    home record;
BEGIN
    IF NEW.context_id IS NULL THEN
        NEW.context_id := (SELECT c.context_id FROM postern.context c
            WHERE c.name = 'default' AND c.removed_at IS NULL);
    END IF;
    SELECT c.name, c.require_key, c.declared_queues,
        c.removed_at IS NULL AND c.context_id = ANY (postern.contexts_of(current_user, 'executor')) AS ours
    INTO home FROM postern.context c WHERE c.context_id = NEW.context_id;
    IF home.ours IS NOT TRUE THEN
        PERFORM postern.refuse(nth, 'not_found', NULL, format('no context %s for you',
            coalesce(postern.quoted(home.name), NEW.context_id::text, '"default"')));
    ELSIF home.require_key AND NOT named THEN
        PERFORM postern.refuse(nth, 'key_required', NULL,
            format('context %s wants an idempotency key: give a uid', home.name));
    ELSIF home.declared_queues AND NEW.queue IS NOT NULL AND NOT EXISTS (SELECT FROM postern.queue_name n
            WHERE n.context_id = NEW.context_id AND n.name = NEW.queue AND n.configured) THEN
        PERFORM postern.refuse(nth, 'unknown_queue', '/queue',
            format('queue %s is not configured, and context %s takes declared queues only: '
                || 'PUT /queues/{name} declares one', postern.quoted(NEW.queue), home.name));
    END IF;
    NEW.actor := current_user;
    NEW.staged_at := clock_timestamp();
    NEW := postern.checked_form(nth, NEW);
    PERFORM postern.refuse_reserved(nth, NEW);
    NEW.uid := coalesce(NEW.uid, gen_random_uuid()::text);
    IF named AND postern.known_uid(nth, NEW, false) THEN
        RETURN NULL;
    END IF;
    PERFORM postern.check_dependencies(nth, NEW);
    NEW.by_admin := postern.check_room(nth, NEW);
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER zz_judged BEFORE INSERT ON postern.outbox FOR EACH ROW EXECUTE FUNCTION postern.judge_staged();

-- Stages one transaction and returns its uid; the rest is filled in and judged by the trigger, which reads of the
-- setting postern.item which one of many it is. A uid that is known with the same body is returned, and nothing is
-- written. One that another transaction has staged and not committed is waited for, here and nowhere else.
--
-- READ COMMITTED: each statement below has its own snapshot. The insert succeeds only if no other row of
-- that uid is staged; whether it was drained, or posted, until then is asked once more behind it: with another body it
-- is refused, with the same one the drain drops the row. What is posted later, and what a REPEATABLE READ transaction
-- cannot see, the drain finds (ends FAILED there, or is the same). In REPEATABLE READ a row that was staged since is
-- 40001: run the transaction again.
-- +goose StatementBegin
CREATE FUNCTION postern.stage(nth int, context text, s postern.outbox) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    named CONSTANT boolean := s.uid IS NOT NULL;
    kept postern.outbox;
BEGIN
    IF nth IS NOT NULL THEN
        PERFORM set_config('postern.item', nth::text, true);
    END IF;
    SELECT c.context_id INTO s.context_id FROM postern.context c
    WHERE c.name = coalesce(stage.context, 'default') AND c.removed_at IS NULL;
    IF NOT FOUND THEN
        PERFORM postern.refuse(nth, 'not_found', NULL,
            format('no context %s for you', postern.quoted(coalesce(stage.context, 'default'))));
    END IF;
    LOOP
        INSERT INTO postern.outbox AS o
            (context_id, uid, queue, type, data, not_before, max_retries, depends_on, tags, callback)
        VALUES (s.context_id, s.uid, s.queue, s.type, s.data, s.not_before, s.max_retries, s.depends_on, s.tags,
            s.callback)
        ON CONFLICT ON CONSTRAINT one_staged_row_per_uid DO NOTHING
        RETURNING o.* INTO kept;
        IF FOUND THEN
            IF named THEN
                PERFORM postern.known_uid(nth, kept, true);
            END IF;
            RETURN kept.uid;
        ELSIF postern.known_uid(nth, postern.checked_form(nth, s), false) THEN
            RETURN s.uid;
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd

-- Submits one transaction as part of the caller's own SQL transaction, and returns its uid (one that is made
-- here, if none is given). queue null = unordered.
-- +goose StatementBegin
CREATE FUNCTION postern.submit(queue text, type text, data jsonb, uid text DEFAULT NULL, context text DEFAULT NULL,
    not_before timestamptz DEFAULT NULL, depends_on text[] DEFAULT NULL, max_retries int DEFAULT NULL, tags jsonb DEFAULT NULL,
    callback jsonb DEFAULT NULL)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    s postern.outbox;
BEGIN
    s.queue := submit.queue;
    s.type := submit.type;
    s.data := submit.data;
    s.uid := submit.uid;
    s.not_before := submit.not_before;
    s.depends_on := submit.depends_on;
    s.max_retries := submit.max_retries;
    s.tags := submit.tags;
    s.callback := submit.callback;
    RETURN postern.stage(NULL, submit.context, s);
END $$;
-- +goose StatementEnd

-- Submits many, all or none, in their order: an array of objects with the fields of POST /transactions and
-- context. Returns their uids in the same order.
-- +goose StatementBegin
CREATE FUNCTION postern.submit_many(items jsonb) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    s postern.outbox;
    item jsonb;
    f record;
    odd bigint;
    n int := -1;
BEGIN
    IF jsonb_typeof(items) IS DISTINCT FROM 'array' THEN
        PERFORM postern.refuse(NULL, 'invalid', '/items', 'items: want an array of transactions');
    END IF;
    FOR item IN SELECT value FROM jsonb_array_elements(items) LOOP
        n := n + 1;
        s := NULL;
        IF jsonb_typeof(item) <> 'object' THEN
            PERFORM postern.refuse_form(n, '', 'object');
        END IF;
        FOR f IN SELECT key, jsonb_typeof(value) AS kind, value, value #>> '{}' AS text FROM jsonb_each(item) LOOP
            CASE
            WHEN f.key = 'data' THEN
                s.data := f.value;
            WHEN f.key = 'tags' THEN
                s.tags := f.value;
            WHEN f.key = 'callback' THEN
                s.callback := f.value;
            WHEN f.key = 'queue' AND f.kind = 'null' THEN
                NULL;
            WHEN f.key IN ('queue', 'type', 'uid', 'context', 'not_before') AND f.kind <> 'string' THEN
                PERFORM postern.refuse_form(n, '/' || f.key, 'string', CASE WHEN f.kind IN ('number', 'boolean') THEN left(f.text, 64) END);
            WHEN f.key = 'queue' THEN
                s.queue := f.text;
            WHEN f.key = 'type' THEN
                s.type := f.text;
            WHEN f.key = 'uid' THEN
                s.uid := f.text;
            WHEN f.key = 'not_before' THEN
                BEGIN
                    IF f.text !~* '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$' THEN
                        RAISE invalid_datetime_format;
                    END IF;
                    s.not_before := f.text;
                EXCEPTION WHEN data_exception THEN
                    PERFORM postern.refuse_form(n, '/not_before', 'string to be RFC 3339 date-time', postern.quoted(f.text));
                END;
            WHEN f.key = 'max_retries' THEN
                IF f.kind <> 'number' OR f.text::numeric % 1 <> 0 THEN
                    PERFORM postern.refuse_form(n, '/max_retries', 'integer', left(f.text, 64));
                END IF;
                s.max_retries := greatest(-1, least(10001, f.text::numeric));
            WHEN f.key = 'depends_on' THEN
                IF f.kind <> 'array' THEN
                    PERFORM postern.refuse_form(n, '/depends_on', 'array', CASE f.kind WHEN 'string' THEN postern.quoted(f.text) WHEN 'number' THEN left(f.text, 64) END);
                END IF;
                SELECT array_agg(e.value #>> '{}' ORDER BY e.ordinality), min(e.ordinality) FILTER (WHERE jsonb_typeof(e.value) <> 'string')
                INTO s.depends_on, odd FROM jsonb_array_elements(f.value) WITH ORDINALITY e;
                IF odd IS NOT NULL THEN
                    PERFORM postern.refuse_form(n, '/depends_on/' || odd - 1, 'string', left(f.value->(odd - 1)::int #>> '{}', 64));
                END IF;
            WHEN f.key = 'context' THEN
                NULL;
            ELSE
                PERFORM postern.refuse(n, 'invalid', '/' || f.key, 'unexpected property', '{}', '/' || f.key || ': unexpected property');
            END CASE;
        END LOOP;
        RETURN NEXT postern.stage(n, item->>'context', s);
    END LOOP;
    PERFORM set_config('postern.item', '', true); -- what is inserted next is none of these
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postern.submit_many;
DROP FUNCTION postern.submit;
DROP FUNCTION postern.stage;
DROP TRIGGER zz_judged ON postern.outbox;
DROP FUNCTION postern.judge_staged;
DROP FUNCTION postern.checked_form;
DROP FUNCTION postern.check_room;
DROP FUNCTION postern.refuse_reserved;
DROP FUNCTION postern.reserved;
DROP FUNCTION postern.known_uid;
DROP FUNCTION postern.check_dependencies;
DROP FUNCTION postern.check_form;
DROP FUNCTION postern.checked_callback;
DROP FUNCTION postern.check_host;
DROP FUNCTION postern.is_allowed;
DROP FUNCTION postern.is_public;
DROP FUNCTION postern.quoted;
DROP FUNCTION postern.refuse_form;
DROP FUNCTION postern.refuse;
DROP TABLE postern.outbox;
