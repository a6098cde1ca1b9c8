-- Who may do what in SQL. It is the last one, since it goes through all tables and views; what comes later
-- grants what it makes.
--
--   postern_migrator  owns the schemas and runs the migrations
--   postern_app       the service alone: all rows of all contexts, no DDL
--   postern_submit    applications: submit, feed, ack and the views, in the contexts that they were given
--   postern_reporter  people and dashboards: the views without bodies, in the contexts that they were given
--   postern_verify    reads everything: invariants, support
--
-- Row-level security keeps contexts apart for all but app, verify and the owner of the tables. The
-- policy's sub-select runs once a statement; the service has a policy of its own that is always true, and so a
-- plan without a filter.
-- +goose Up

-- Ties a login role, or a group that it is a member of, to a context: reader, executor (submits and
-- acknowledges too) or admin.
-- +goose StatementBegin
CREATE FUNCTION postern.grant_context(login text, context text, role text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    c int := (SELECT x.context_id FROM postern.context x WHERE x.name = grant_context.context AND x.removed_at IS NULL);
BEGIN
    IF c IS NULL THEN
        PERFORM postern.refuse(NULL, 'not_found', NULL, format('no context %s for you', postern.quoted(context)));
    ELSIF NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = login) THEN
        PERFORM postern.refuse(NULL, 'not_found', NULL, format('no database role %s: CREATE ROLE makes one', postern.quoted(login)));
    ELSIF role IS NULL OR role NOT IN ('reader', 'executor', 'admin') THEN
        PERFORM postern.refuse_form(NULL, '/role', 'one of reader, executor, admin', postern.quoted(role));
    END IF;
    INSERT INTO postern.sql_role AS s (login, context_id, role) VALUES (grant_context.login, c, grant_context.role)
    ON CONFLICT ON CONSTRAINT one_sql_role_per_context DO UPDATE SET role = excluded.role;
    INSERT INTO postern.audit (context_id, actor, via, action, object, after)
    VALUES (c, current_user, 'sql', 'grant', '/sql-roles/' || login, jsonb_build_object('role', role));
END $$;
-- +goose StatementEnd

-- Takes a context from a login role; true if it had it.
-- +goose StatementBegin
CREATE FUNCTION postern.revoke_context(login text, context text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c int := (SELECT x.context_id FROM postern.context x WHERE x.name = revoke_context.context);
BEGIN
    DELETE FROM postern.sql_role s WHERE s.login = revoke_context.login AND s.context_id = c;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO postern.audit (context_id, actor, via, action, object)
    VALUES (c, current_user, 'sql', 'revoke', '/sql-roles/' || login);
    RETURN true;
END $$;
-- +goose StatementEnd

-- What has a context is seen in it.
-- +goose StatementBegin
DO $$
DECLARE
    t regclass;
BEGIN
    FOR t IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'postern'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
            AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'context_id' AND NOT a.attisdropped) LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant ON %s USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]))', t);
    END LOOP;
END $$;
-- +goose StatementEnd

-- The data of a transaction that carries a job has the values of its environment, which may be secrets: where it lies
-- as it was posted, it is seen by executors alone. postern.bodies shows it to readers, without these values.
ALTER POLICY tenant ON postern.task USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[])
    AND (type NOT LIKE 'job.%' OR context_id = ANY ((SELECT postern.contexts_of(current_user, 'executor'))::int[])));
ALTER POLICY tenant ON postern.outbox USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[])
    AND (type NOT LIKE 'job.%' OR context_id = ANY ((SELECT postern.contexts_of(current_user, 'executor'))::int[])));

-- What has none belongs to something that has. (OFFSET 0 as in 00024: tasks are looked for by their key.)
ALTER TABLE postern.attempt ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.attempt USING (EXISTS (SELECT FROM postern.task t WHERE (t.queue_id, t.seq, t.day) = (attempt.queue_id, attempt.seq, attempt.day) OFFSET 0));
ALTER TABLE postern.dependency ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.dependency USING (EXISTS (SELECT FROM postern.task t WHERE (t.queue_id, t.seq, t.day) = (dependency.queue_id, dependency.seq, dependency.day) OFFSET 0));
ALTER TABLE postern.checkpoint ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.checkpoint USING (EXISTS (SELECT FROM postern.subscription s WHERE s.subscription_id = checkpoint.subscription_id));
CREATE POLICY tenant_writes ON postern.checkpoint AS RESTRICTIVE FOR UPDATE USING (EXISTS (SELECT FROM postern.subscription s
    WHERE s.subscription_id = checkpoint.subscription_id AND s.context_id = ANY ((SELECT postern.contexts_of(current_user, 'executor'))::int[])));

-- The service makes the partitions of the coming days, and may make nothing else.
ALTER FUNCTION postern.ensure_days SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION postern.ensure_days FROM PUBLIC;

-- Makes the roles that are missing, and grants each what it may. Roles belong to the whole server: an
-- operator who migrated without the right to make them calls this later, with it. Two databases of one server may
-- come here at once.
-- +goose StatementBegin
CREATE FUNCTION postern.make_roles() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    r text;
    v record;
BEGIN
    FOREACH r IN ARRAY ARRAY['postern_migrator', 'postern_app', 'postern_submit', 'postern_reporter', 'postern_verify'] LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = r);
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', r);
            IF r IN ('postern_reporter', 'postern_verify') THEN -- for who logs in as the role itself
                EXECUTE format('ALTER ROLE %I SET default_transaction_read_only = on', r);
                EXECUTE format('ALTER ROLE %I SET statement_timeout = %L', r, '30s');
                EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = %L', r, '10s');
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END LOOP;

    GRANT USAGE ON SCHEMA postern TO postern_app, postern_submit, postern_reporter, postern_verify;
    GRANT USAGE ON SCHEMA river TO postern_app, postern_verify;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA postern, river TO postern_app;
    GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA postern, river TO postern_app;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA postern, river TO postern_app;
    ALTER DEFAULT PRIVILEGES IN SCHEMA postern, river GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO postern_app;
    ALTER DEFAULT PRIVILEGES IN SCHEMA postern, river GRANT USAGE, SELECT, UPDATE ON SEQUENCES TO postern_app;
    GRANT SELECT ON ALL TABLES IN SCHEMA postern, river TO postern_verify;
    REVOKE SELECT ON postern.api_key, postern.ui_session, postern.subscription, postern.dispatcher_secret FROM postern_verify; -- hashes and secrets

    FOR v IN SELECT p.tablename FROM pg_policies p WHERE p.schemaname = 'postern' AND p.policyname = 'tenant' LOOP
        EXECUTE format('DROP POLICY IF EXISTS app ON postern.%I', v.tablename);
        EXECUTE format('CREATE POLICY app ON postern.%I TO postern_app USING (true) WITH CHECK (true)', v.tablename);
        EXECUTE format('DROP POLICY IF EXISTS verify ON postern.%I', v.tablename);
        EXECUTE format('CREATE POLICY verify ON postern.%I FOR SELECT TO postern_verify USING (true)', v.tablename);
    END LOOP;

    -- views that keep contexts apart by themselves; what they read is the owner's to read
    FOR v IN SELECT c.oid::regclass AS name, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname IN ('postern', 'report') AND c.relkind = 'v' AND pg_get_viewdef(c.oid) LIKE '%contexts_of(CURRENT_USER)%' LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO postern_submit, postern_reporter, postern_verify', v.nspname);
        EXECUTE format('GRANT SELECT ON %s TO postern_submit, postern_verify', v.name);
        IF v.name <> 'postern.bodies'::regclass THEN
            EXECUTE format('GRANT SELECT ON %s TO postern_reporter', v.name);
        END IF;
    END LOOP;

    -- what submit, feed and ack touch: they run as their caller
    GRANT SELECT (context_id, name, max_depth, require_key, declared_queues, draining, removed_at) ON postern.context TO postern_submit;
    GRANT SELECT (context_id, type, posted_by, draining, removed_at) ON postern.dispatcher TO postern_submit;
    GRANT SELECT ON postern.queue_name, postern.queue, postern.idempotency, postern.task, postern.outcome, postern.dependency, postern.delivery TO postern_submit;
    GRANT SELECT (sender_id, context_id, account) ON postern.sender TO postern_submit;
    GRANT SELECT (subscription_id, context_id, name, kind, include, newest, dropped, removed_at) ON postern.subscription TO postern_submit;
    GRANT SELECT, UPDATE (acked) ON postern.checkpoint TO postern_submit;
    -- not stage_id, actor, by_admin and staged_at: the trigger alone gives these
    GRANT SELECT, INSERT (context_id, uid, queue, type, data, not_before, max_retries, depends_on, tags, callback)
        ON postern.outbox TO postern_submit;
    IF to_regclass('postern.batch') IS NOT NULL THEN -- they come with a later migration, which asks for this again
        GRANT SELECT ON postern.batch, postern.batch_step, postern.processor TO postern_submit;
    END IF;
    IF to_regclass('postern.job') IS NOT NULL THEN -- not scripts and environments
        GRANT SELECT (job_id, context_id, actor, ref, uid, flow_id, script_type, queue, result, exit_code, error_code,
            error, cause, tx_id, created_at, started_at, ended_at) ON postern.job TO postern_submit;
        GRANT SELECT (flow_id, context_id, actor, ref, jobs, finished, result, error_code, error, cause, redrive_of,
            created_at, started_at, ended_at) ON postern.flow TO postern_submit;
        REVOKE SELECT ON postern.processor_peer FROM postern_verify; -- its secrets
    END IF;
    IF to_regclass('postern.message') IS NOT NULL THEN
        GRANT SELECT (message_id, context_id, target_id, actor, ref, peer, topic, to_actor, type, format, body, result,
            reply_to, created_at) ON postern.message TO postern_submit;
    END IF;
    IF to_regclass('postern.domain') IS NOT NULL THEN
        GRANT SELECT (domain_id, context_id, name, settings) ON postern.domain TO postern_submit;
        GRANT SELECT (domain_id, intent_id, seq, uid, actor, party, receipt, text, parked, created_at, ended_at)
            ON postern.coord_intent TO postern_submit;
        GRANT SELECT (domain_id, intent_id, generation, uid) ON postern.coord_activity TO postern_submit;
        GRANT SELECT (domain_id, intent_id, generation, part, data) ON postern.coord_payload TO postern_submit;
        GRANT SELECT (domain_id, object, n, at, event, node, reason) ON postern.coord_step TO postern_submit;
    END IF;
    IF to_regclass('postern.peer_secret') IS NOT NULL THEN
        REVOKE SELECT ON postern.peer_secret FROM postern_verify;
    END IF;
END $$;
-- +goose StatementEnd

-- Gives the roles what later migrations have made; false where whoever migrates may not, and where there are none.
-- +goose StatementBegin
CREATE FUNCTION postern.renew_roles() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolcreaterole))
            OR (SELECT count(*) FROM pg_roles WHERE rolname IN ('postern_migrator', 'postern_app', 'postern_submit', 'postern_reporter', 'postern_verify')) = 5 THEN
        PERFORM postern.make_roles();
        RETURN true;
    END IF;
    RETURN false;
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION postern.make_roles, postern.renew_roles, postern.grant_context, postern.revoke_context FROM PUBLIC;
-- +goose StatementBegin
DO $$
BEGIN
    IF NOT postern.renew_roles() THEN
        RAISE NOTICE 'the roles postern_* are not made, since % may not: SELECT postern.make_roles() as one who may', current_user;
    END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
-- The roles stay: other databases of the server may use them.
-- +goose StatementBegin
DO $$
DECLARE
    p record;
BEGIN
    FOR p IN SELECT tablename, policyname FROM pg_policies WHERE schemaname = 'postern' LOOP
        EXECUTE format('DROP POLICY %I ON postern.%I', p.policyname, p.tablename);
    END LOOP;
    FOR p IN SELECT rolname FROM pg_roles WHERE rolname = 'postern_app' LOOP
        ALTER DEFAULT PRIVILEGES IN SCHEMA postern, river REVOKE ALL ON TABLES FROM postern_app;
        ALTER DEFAULT PRIVILEGES IN SCHEMA postern, river REVOKE ALL ON SEQUENCES FROM postern_app;
    END LOOP;
END $$;
-- +goose StatementEnd
DROP FUNCTION postern.renew_roles;
DROP FUNCTION postern.make_roles;
DROP FUNCTION postern.revoke_context;
DROP FUNCTION postern.grant_context;
