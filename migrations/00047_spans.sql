-- A partition holds one day or several: a span. What is kept for long is divided into wider spans, so that the number
-- of partitions stays about the same whatever the age of the database. The day in ids and keys stays a day.
-- +goose Up

-- How long what has ended is kept, as the process that looked last was told; null if everything is. Spans that are made
-- from then on have the width that goes with it.
ALTER TABLE postern.retained ADD COLUMN keep int;

-- With its salt a key says the whole id, so that no statement looks for the transaction in the partitions of all days.
ALTER TABLE postern.idempotency ADD COLUMN salt int NOT NULL DEFAULT 0;
UPDATE postern.idempotency i SET salt = postern.salt(t.created_at, t.moved_from)
FROM postern.task t WHERE (t.queue_id, t.seq, t.day) = (i.queue_id, i.seq, i.day);

-- The spans that are stored. The name of a partition says its days: task_20261001 holds one, task_20261001_20261231
-- those from the first to the last. So a process that remembers a partition names it, and never another one in its
-- place.
CREATE VIEW postern.spans AS
SELECT p.relname AS relation, k.oid, k.relname AS partition, to_date(substring(k.relname
    FROM '_([0-9]{8})'), 'YYYYMMDD') AS first,
    to_date(right(k.relname, 8), 'YYYYMMDD') AS last
FROM pg_catalog.pg_inherits i
JOIN pg_catalog.pg_class k ON k.oid = i.inhrelid
JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
WHERE i.inhparent IN ('postern.task'::regclass, 'postern.outcome'::regclass, 'postern.attempt'::regclass,
    'postern.delivery'::regclass)
    AND k.relname ~ '_[0-9]{8}$';

-- The width of the spans that are made where what has ended is kept for so many days (null: for ever), and so many
-- spans exist: a thirtieth of that, rounded up. Where something keeps spans from being dropped, or more is kept than
-- before, they are wider, so that they are not more than sixty.
CREATE FUNCTION postern.span_width(keep int, spans bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT (ARRAY['day', 'week', 'month', 'quarter', 'year'])[greatest(
        CASE WHEN keep <= 30 THEN 1 WHEN keep <= 7 * 30 THEN 2 WHEN keep <= 30 * 30 THEN 3 ELSE 4 END,
        CASE WHEN spans < 40 THEN 1 WHEN spans < 44 THEN 2 WHEN spans < 48 THEN 3 WHEN spans < 52 THEN 4 ELSE 5 END)]
$$;

-- Whether a position of a queue has an outcome on one of these days. As a function it reads partitions, and locks
-- them, only where it is asked.
-- +goose StatementBegin
CREATE FUNCTION postern.has_ended(of_queue bigint, of_seq bigint, first date, last date) RETURNS boolean
    LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM postern.outcome o
        WHERE o.queue_id = of_queue AND o.seq = of_seq AND o.day BETWEEN first AND last);
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION postern.has_ended FROM PUBLIC;

-- The suffix of the partitions of a span.
CREATE FUNCTION postern.span_name(first date, last date) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT to_char(first, '_YYYYMMDD') || CASE WHEN last > first THEN to_char(last, '_YYYYMMDD') ELSE '' END
$$;

-- Makes a partition of each table for a span, where it is missing. Returns how many it made.
-- +goose StatementBegin
CREATE FUNCTION postern.make_span(first date, last date) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    t text;
    part text;
    n int := 0;
BEGIN
    FOREACH t IN ARRAY ARRAY['task', 'outcome', 'attempt', 'delivery'] LOOP
        part := t || postern.span_name(first, last);
        CONTINUE WHEN to_regclass(format('postern.%I', part)) IS NOT NULL;
        -- In two steps, since the second takes a weaker lock than PARTITION OF would: none waits for it.
        EXECUTE format('CREATE TABLE postern.%I (LIKE postern.%I INCLUDING ALL)', part, t);
        EXECUTE format('ALTER TABLE postern.%I ATTACH PARTITION postern.%I FOR VALUES
            FROM (%L) TO (%L)', t, part, first, last + 1);
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'postern_app') THEN -- which reads them by their names
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON postern.%I TO postern_app', part);
        END IF;
        n := n + 1;
    END LOOP;
    RETURN n;
END $$;

-- Makes the partitions of the days from first to last that have none; others stay. A span is a day, week, month,
-- quarter or year, as the width says (null: that of span_width), less what other spans hold of it. Returns how many
-- partitions are new. Days before retained.since lie in the partitions _old, once there are these.
DROP FUNCTION IF EXISTS postern.ensure_days(date, date);
CREATE OR REPLACE FUNCTION postern.ensure_days(first date, last date, width text DEFAULT NULL) RETURNS int
    LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY' AS $$
DECLARE
    d date := first;
    s record;
    unit text;
    locked boolean := false;
    n int := 0;
BEGIN
    IF to_regclass('postern.task_old') IS NOT NULL THEN
        d := greatest(d, (SELECT r.since FROM postern.retained r));
    END IF;
    WHILE d <= last LOOP
        SELECT count(*) AS tables, min(x.first) AS first, min(x.last) AS last INTO s FROM postern.spans x
            WHERE d BETWEEN x.first AND x.last;
        IF s.tables < 4 AND NOT locked THEN
            -- Two processes that start together both find a day missing: the second one waits here and looks again.
            PERFORM FROM postern.identity ORDER BY epoch LIMIT 1 FOR UPDATE;
            locked := true;
            CONTINUE;
        END IF;
        IF s.tables = 0 THEN
            unit := coalesce(width, (SELECT postern.span_width(r.keep, (SELECT count(*) FROM postern.spans x
                WHERE x.relation = 'task'))
                FROM postern.retained r));
            SELECT greatest(date_trunc(unit, d::timestamp)::date, max(x.last + 1) FILTER (WHERE x.last < d),
                max(r.since) FILTER (WHERE r.since <= d)) AS first,
                least((date_trunc(unit, d::timestamp) +
                    CASE unit WHEN 'quarter' THEN interval '3 months' ELSE ('1 ' || unit)::interval END)::date - 1,
                    min(x.first - 1) FILTER (WHERE x.first > d)) AS last
                INTO s FROM postern.retained r LEFT JOIN postern.spans x ON true;
            n := n + postern.make_span(s.first, s.last);
        ELSIF s.tables < 4 THEN
            n := n + postern.make_span(s.first, s.last);
        END IF;
        d := s.last + 1;
    END LOOP;
    RETURN n;
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION postern.ensure_days(date, date, text), postern.make_span FROM PUBLIC;

-- Makes one span of those that lie between two days, in one commit, while no process works on the database: the rows
-- are copied, which takes its time. Returns how many rows there are, or null if there is nothing left to merge.
--
-- One merge at a time, also where one was killed and its session has not noticed: the row that ensure_days locks, too,
-- is the lock (any role could hold an advisory lock). Behind it, all that is needed is locked before anything is done,
-- and given up after lock_wait: who reads a partition by its name has its lock before those of the tables, so that we
-- would wait for each other. Nothing is waited for afterwards.
-- +goose StatementBegin
CREATE FUNCTION postern.merge_spans(first date, last date, lock_wait interval) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY' AS $$
DECLARE
    owner CONSTANT name := (SELECT pg_get_userbyid(c.relowner) FROM pg_class c WHERE c.oid = 'postern.task'::regclass);
    t text;
    s record;
    part text;
    parts text;
    n bigint;
    rows bigint := 0;
BEGIN
    PERFORM FROM postern.identity ORDER BY epoch LIMIT 1 FOR UPDATE;
    SELECT count(*) FILTER (WHERE x.relation = 'task'), string_agg(format('postern.%I', x.partition), ', ')
        INTO n, parts
        FROM postern.spans x
        WHERE x.first >= merge_spans.first AND x.last <= merge_spans.last;
    IF n < 2 THEN
        RETURN NULL;
    END IF;
    PERFORM set_config('lock_timeout', (extract(epoch FROM lock_wait) * 1000)::int::text, true);
    EXECUTE 'LOCK TABLE ONLY postern.task, ONLY postern.outcome, ONLY postern.attempt, ONLY postern.delivery, '
        || parts || ' IN ACCESS EXCLUSIVE MODE';
    FOREACH t IN ARRAY ARRAY['task', 'outcome', 'attempt', 'delivery'] LOOP
        part := t || postern.span_name(first, last);
        EXECUTE format('CREATE TABLE postern.%I (LIKE postern.%I INCLUDING ALL EXCLUDING INDEXES)', part,
            t); -- ATTACH makes them, faster
        IF owner <> current_user THEN
            EXECUTE format('ALTER TABLE postern.%I OWNER TO %I', part, owner);
        END IF;
        FOR s IN SELECT x.partition FROM postern.spans x
                WHERE x.relation = t AND x.first >= merge_spans.first AND x.last <= merge_spans.last
                    ORDER BY x.first LOOP
            EXECUTE format('INSERT INTO postern.%I SELECT * FROM postern.%I', part, s.partition);
            GET DIAGNOSTICS n = ROW_COUNT;
            rows := rows + n;
            EXECUTE format('ALTER TABLE postern.%I DETACH PARTITION postern.%I', t, s.partition);
            EXECUTE format('DROP TABLE postern.%I', s.partition);
        END LOOP;
        EXECUTE format('ALTER TABLE postern.%I ATTACH PARTITION postern.%I FOR VALUES
            FROM (%L) TO (%L)', t, part, first, last + 1);
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'postern_app') THEN
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON postern.%I TO postern_app', part);
        END IF;
        EXECUTE format('ANALYZE postern.%I', part);
    END LOOP;
    RETURN rows;
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION postern.merge_spans FROM PUBLIC;

DROP FUNCTION IF EXISTS postern.day_held_by(date, timestamptz), postern.drop_day(date, timestamptz, bigint[], bigint[]);

-- What keeps the days of a span from being dropped, whose ends must all lie before a moment, apart from what has not
-- ended; null if nothing does. Each look is by an index.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION postern.day_held_by(first date, last date, before timestamptz) RETURNS text
    LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF EXISTS (SELECT FROM postern.outcome o WHERE o.day BETWEEN first AND last AND o.done_at >= before) THEN
        RETURN 'a transaction of these days ended later than retention allows to forget';
    ELSIF EXISTS (SELECT FROM postern.delivery d
        WHERE d.day BETWEEN first AND last AND d.state = 'pending') OR EXISTS (SELECT FROM postern.delivery d
            WHERE d.day BETWEEN first AND last AND d.state = 'queued') THEN
        RETURN 'deliveries of these days are still to be made';
    END IF;
    RETURN NULL;
END $$;

-- Drops a span, the oldest one: null, or what held it. What has not ended, or is awaited, which the caller has looked
-- for since its last day was over, moves to the partitions _old, which reach up to the last day that had any: its ids
-- stay, and so do the days in them. Everything that takes time comes before the parents are locked. Behind the lock
-- only an end of a survivor or a delivery asked for again can have come since, for which it looks again: a past day
-- gets no new rows, and what has ended ends once. Who waits behind our wait for the four locks waits for a tenth of a
-- second at most: each is given up after 25 ms, and all are tried again. Where everybody takes longer than that, we
-- wait longer too. The partitions of other spans stay unlocked, since everybody comes by the parents (an autovacuum
-- of them would be waited for).
CREATE OR REPLACE FUNCTION postern.drop_day(first date, last date, before timestamptz, queues bigint[], seqs bigint[])
    RETURNS text LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY'
    SET plan_cache_mode = force_custom_plan AS $$ -- plans of this span alone, made behind the locks
DECLARE
    parent text;
    part text;
    held text := postern.day_held_by(first, last, before);
BEGIN
    IF held IS NOT NULL THEN
        RETURN held;
    END IF;
    -- Who reads a subscription is told how far its events are dropped. Its row is locked before the tables, in the
    -- order of those who number and deliver.
    CREATE TEMP TABLE told ON COMMIT DROP AS SELECT s.subscription_id, d.cursor FROM postern.subscription s
        CROSS JOIN LATERAL (SELECT d.cursor FROM postern.delivery d
            WHERE d.day BETWEEN first AND last AND d.subscription_id = s.subscription_id AND d.subscription_id > 0
            ORDER BY d.cursor DESC LIMIT 1) d WHERE s.removed_at IS NULL AND d.cursor > s.dropped;
    PERFORM FROM postern.subscription s WHERE s.subscription_id IN (SELECT t.subscription_id FROM told t)
        ORDER BY s.subscription_id FOR NO KEY UPDATE;
    CREATE TEMP TABLE survivor ON COMMIT DROP AS SELECT s.queue_id, s.seq FROM ROWS
        FROM (unnest(queues), unnest(seqs)) s(queue_id, seq);
    FOR try IN REVERSE 19..0 LOOP
        BEGIN
            PERFORM set_config('lock_timeout',
                CASE WHEN try >= 10 THEN '25ms' WHEN try >= 5 THEN '50ms' ELSE '100ms' END, true);
            LOCK TABLE ONLY postern.task, ONLY postern.outcome, ONLY postern.attempt,
                ONLY postern.delivery IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF try = 0 THEN
                RETURN 'the tables are in use: it is tried again in an hour';
            END IF;
        END;
        PERFORM pg_sleep(0.1);
    END LOOP;
    PERFORM set_config('enable_seqscan', 'off', true); -- each look is for few rows of a large table
    IF to_regclass(format('postern.%I', 'task' || postern.span_name(first, last))) IS NULL THEN
        RETURN NULL; -- another process was here first
    END IF;
    held := postern.day_held_by(first, last, before);
    IF held IS NOT NULL THEN
        RETURN held;
    END IF;
    FOREACH parent IN ARRAY ARRAY['task', 'outcome', 'attempt', 'delivery'] LOOP
        part := parent || postern.span_name(first, last);
        IF cardinality(queues) = 0 THEN -- mostly, and then it is two milliseconds behind the lock instead of thirteen
            EXECUTE format('DROP TABLE postern.%I', part);
            CONTINUE;
        END IF;
        EXECUTE format('ALTER TABLE postern.%I DETACH PARTITION postern.%I', parent, part);
        IF to_regclass(format('postern.%I', parent || '_old')) IS NULL THEN
            EXECUTE format('CREATE TABLE postern.%I (LIKE postern.%I INCLUDING ALL)', parent || '_old', parent);
        ELSE
            EXECUTE format('ALTER TABLE postern.%I DETACH PARTITION postern.%I', parent, parent || '_old');
        END IF;
        EXECUTE format('INSERT INTO postern.%I SELECT p.* FROM survivor s CROSS JOIN LATERAL (SELECT *
            FROM postern.%I p WHERE (p.queue_id, p.seq) = (s.queue_id, s.seq) OFFSET 0) p',
            parent || '_old', part);
        EXECUTE format('ALTER TABLE postern.%I ATTACH PARTITION postern.%I FOR VALUES
            FROM (MINVALUE) TO (%L)', parent, parent || '_old', last + 1);
        EXECUTE format('DROP TABLE postern.%I', part);
    END LOOP;
    UPDATE postern.subscription s SET dropped = greatest(s.dropped, t.cursor) FROM told t
        WHERE t.subscription_id = s.subscription_id;
    UPDATE postern.retained SET since = last + 1, looked_at = clock_timestamp();
    RETURN NULL;
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION postern.drop_day FROM PUBLIC; -- it is the service's, which may make no tables itself

-- The spans that are stored. A span is dropped as a whole, the oldest first, once its last day is old enough. Its
-- first day is then kept for days_longer than retention asks for, which is less than the width of the span (null:
-- everything is kept).
DROP VIEW IF EXISTS report.retention;
CREATE VIEW report.retention WITH (security_barrier) AS
SELECT s.relation, s.first AS day, s.last AS last_day, greatest(k.reltuples, 0)::bigint AS rows_estimate,
    pg_total_relation_size(k.oid) AS bytes, coalesce(s.last < r.before, false) AS droppable,
    CASE WHEN r.before IS NOT NULL THEN greatest(r.before - s.first, 0) END AS days_longer, r.held_by, r.looked_at
FROM postern.retained r CROSS JOIN postern.spans s JOIN pg_class k ON k.oid = s.oid
WHERE cardinality((SELECT postern.contexts_of(current_user))::int[]) > 0;
SELECT postern.renew_roles();

-- +goose Down
DROP VIEW report.retention;
DROP VIEW postern.spans;
DROP FUNCTION postern.merge_spans;
DROP FUNCTION postern.make_span;
DROP FUNCTION postern.span_name;
DROP FUNCTION postern.span_width;
DROP FUNCTION postern.has_ended;
ALTER TABLE postern.retained DROP COLUMN keep;
ALTER TABLE postern.idempotency DROP COLUMN salt;
