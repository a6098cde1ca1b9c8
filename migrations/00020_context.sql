-- Contexts (tenants) and who may do what in them, and the identity of this database.
-- +goose Up
-- Reports that a row breaks a rule, as PostgreSQL itself would. Rules that are functions call it.
-- +goose StatementBegin
CREATE FUNCTION postern.broken(relation text, rule text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE check_violation USING SCHEMA = 'postern', TABLE = relation, CONSTRAINT = rule,
        MESSAGE = format('new row for relation "%s" violates check constraint "%s"', relation, rule);
END $$;
-- +goose StatementEnd

CREATE TABLE postern.identity (
    epoch  int CONSTRAINT one_row_per_epoch PRIMARY KEY CONSTRAINT epoch_fits_into_an_id CHECK (epoch BETWEEN 1 AND 4095),
    since  timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason text NOT NULL
);
INSERT INTO postern.identity (epoch, reason) VALUES (1, 'created');

-- One row. life is drawn anew when quarantine is entered because something may be lost, so that others can compare it.
-- deployment is the name under which the first process that has one ran here. quarantine rises with each change of the
-- table below: postern.node.quarantine is the number that a process has to know before it may lease anything.
-- Postern-Line is made of lines and the id of a queue.
CREATE TABLE postern.store (
    one        boolean NOT NULL DEFAULT true CONSTRAINT one_store PRIMARY KEY CONSTRAINT one_store_only CHECK (one),
    life       bigint NOT NULL DEFAULT (random() * 9007199254740991)::bigint,
    deployment text NOT NULL DEFAULT '',
    quarantine bigint NOT NULL DEFAULT 0,
    lines      bigint NOT NULL DEFAULT (random() * 9007199254740991)::bigint
);
INSERT INTO postern.store DEFAULT VALUES;

-- A scope that is in quarantine. No context: all of them; no type: all of its types. The lost time is the one whose
-- commits may be missing, where something may be lost.
CREATE TABLE postern.quarantine (
    quarantine_id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT one_quarantine_per_id PRIMARY KEY,
    context_id    int,
    type          text,
    reason        text NOT NULL,
    actor         text NOT NULL,
    via           text NOT NULL,
    deployment    text NOT NULL DEFAULT '',  -- under which a process ran here that is not that of postern.store: a copy?
    entered_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    lost_from     timestamptz,
    lost_until    timestamptz,
    -- how far the workers were asked: behind which position of which queue it goes on, and what came of it so far
    reconcile_at  timestamptz,               -- when the present round, or the last one, began; null: none has
    reconciled_at timestamptz,               -- when it reached the end
    after_queue   bigint NOT NULL DEFAULT 0,
    after_seq     bigint NOT NULL DEFAULT 0,
    asked         bigint NOT NULL DEFAULT 0, -- transactions
    moved         bigint NOT NULL DEFAULT 0, -- that the worker knew, and that were moved on
    unknown       bigint NOT NULL DEFAULT 0, -- that it never saw: they go out at release
    CONSTRAINT one_quarantine_per_scope UNIQUE NULLS NOT DISTINCT (context_id, type)
);

-- What a round of questions left open: whose worker did not answer, cannot be asked, or knows what may not be moved on
-- yet.
CREATE TABLE postern.unreconciled (
    queue_id   bigint NOT NULL,
    seq        bigint NOT NULL,
    day        date NOT NULL,
    context_id int NOT NULL,
    type       text NOT NULL,
    why        text NOT NULL CONSTRAINT unreconciled_is_known CHECK (why IN ('unreachable', 'unsupported', 'ahead', 'busy')),
    detail     text NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_unreconciled_per_transaction PRIMARY KEY (queue_id, seq, day)
);

-- A deleted context keeps its row, as a deleted dispatcher does: what arrives meanwhile still has one.
CREATE TABLE postern.context (
    context_id      int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name            text NOT NULL CONSTRAINT one_context_per_name UNIQUE,
    max_depth       int NOT NULL DEFAULT 10000 CONSTRAINT context_depth_is_positive CHECK (max_depth > 0),
    require_key     boolean NOT NULL DEFAULT false,
    declared_queues boolean NOT NULL DEFAULT false,
    paused          boolean NOT NULL DEFAULT false,
    draining        boolean NOT NULL DEFAULT false,
    removed_at      timestamptz,
    version         bigint NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO postern.context (name) VALUES ('system'), ('default');

CREATE TABLE postern.actor (
    actor_id     text NOT NULL CONSTRAINT one_actor_per_id PRIMARY KEY,
    public_keys  text[] NOT NULL DEFAULT '{}' CONSTRAINT two_public_keys_at_most CHECK (cardinality(public_keys) <= 2),
    address      text[] NOT NULL DEFAULT '{}',
    issuer       text,
    subject      text,
    version      bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    request_key  text CONSTRAINT one_actor_per_request_key UNIQUE,
    request_hash bytea,
    CONSTRAINT issuer_comes_with_subject CHECK ((issuer IS NULL) = (subject IS NULL)),
    CONSTRAINT one_actor_per_subject UNIQUE (issuer, subject)
);

CREATE TABLE postern.member (
    context_id int NOT NULL,
    actor_id   text NOT NULL CONSTRAINT member_is_an_actor REFERENCES postern.actor,
    role       text NOT NULL CONSTRAINT role_of_a_member_is_known CHECK (role IN ('admin', 'executor', 'reader')),
    CONSTRAINT one_member_per_role PRIMARY KEY (context_id, actor_id, role)
);
CREATE INDEX member_by_actor ON postern.member (actor_id);

-- Of a secret only its SHA-256 is kept. After a rotation the one before holds until previous_until.
CREATE TABLE postern.api_key (
    key_id         uuid NOT NULL CONSTRAINT one_api_key_per_id PRIMARY KEY,
    context_id     int NOT NULL,
    prefix         text NOT NULL CONSTRAINT one_api_key_per_prefix UNIQUE,
    name           text NOT NULL,
    role           text NOT NULL CONSTRAINT role_of_a_key_is_known CHECK (role IN ('admin', 'executor', 'reader')),
    narrowed       text[] NOT NULL DEFAULT '{}',
    hash           bytea NOT NULL,
    previous_hash  bytea,
    previous_until timestamptz,
    expires_at     timestamptz,
    last_used_at   timestamptz,
    created_by     text NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    version        bigint NOT NULL DEFAULT 1,
    request_key    text,
    request_hash   bytea,
    CONSTRAINT one_api_key_per_request_key UNIQUE (context_id, request_key)
);

-- A session of the dashboard, by the SHA-256 of the cookie. It is of a key, and ends with it and with the secret
-- that was shown; or of an actor, and ends with it and with the subject that an identity provider has named. Each
-- ends by the time.
CREATE TABLE postern.ui_session (
    hash       bytea NOT NULL CONSTRAINT one_session_per_cookie PRIMARY KEY,
    key_id     uuid CONSTRAINT session_is_of_a_key REFERENCES postern.api_key ON DELETE CASCADE,
    key_hash   bytea,
    actor_id   text CONSTRAINT session_is_of_an_actor REFERENCES postern.actor ON DELETE CASCADE,
    issuer     text,
    subject    text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    CONSTRAINT session_is_of_one CHECK (
        num_nonnulls(key_id, key_hash) = 2 AND num_nonnulls(actor_id, issuer, subject) = 0
        OR num_nonnulls(key_id, key_hash) = 0 AND num_nonnulls(actor_id, issuer, subject) = 3)
);
CREATE INDEX ui_session_by_key ON postern.ui_session (key_id);
CREATE INDEX ui_session_by_actor ON postern.ui_session (actor_id);
CREATE INDEX ui_session_by_expiry ON postern.ui_session (expires_at);

-- Which contexts a database role sees; see 00039.
CREATE TABLE postern.sql_role (
    login      text NOT NULL,
    context_id int NOT NULL,
    role       text NOT NULL CONSTRAINT sql_role_is_known CHECK (role IN ('admin', 'executor', 'reader')),
    CONSTRAINT one_sql_role_per_context PRIMARY KEY (login, context_id)
);

-- The contexts of the database role that asks, those of its groups included, and whether it is an executor or an admin
-- in them. The owner of the tables, the service and postern_verify have all. A view reads with the rights of its owner
-- and sees its caller as current_user, so that everybody may read it.
CREATE VIEW postern.own_contexts WITH (security_barrier) AS
WITH groups AS MATERIALIZED (
    SELECT r.oid, r.rolname
    FROM pg_catalog.pg_roles r
    WHERE pg_catalog.pg_has_role(current_user, r.oid, 'USAGE')
), everything AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM groups g
        WHERE g.rolname IN ('postern_app', 'postern_verify')
            OR g.oid = (SELECT o.relowner FROM pg_catalog.pg_class o WHERE o.oid = 'postern.context'::regclass)) AS has
)
SELECT c.context_id, e.has OR mine.executes AS executes, e.has OR mine.administers AS administers
FROM postern.context c
CROSS JOIN everything e
CROSS JOIN LATERAL (SELECT coalesce(bool_or(s.role <> 'reader'), false) AS executes,
        coalesce(bool_or(s.role = 'admin'), false) AS administers, count(*) > 0 AS has
    FROM groups g
    JOIN postern.sql_role s ON s.login = g.rolname
    WHERE s.context_id = c.context_id AND c.removed_at IS NULL) mine
WHERE e.has OR mine.has;
GRANT SELECT ON postern.own_contexts TO PUBLIC;

-- The contexts of who asks: at least as a reader, executor or admin. It runs as its invoker, since a definer's function
-- sees its owner as current_user, and would have to believe who says that he asks: so each role would learn of the
-- contexts of all others. Who asks is given all the same, so that a statement says of what it depends.
-- In plpgsql, since it is asked for by nearly every statement of an SQL user, and a function in SQL is planned anew
-- each time: 0.5 ms and two dozen locks.
-- +goose StatementBegin
CREATE FUNCTION postern.contexts_of(who name, at_least text DEFAULT 'reader') RETURNS int[]
LANGUAGE plpgsql STABLE SET jit = off SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF who IS DISTINCT FROM current_user THEN
        RAISE insufficient_privilege USING MESSAGE = format('contexts_of: %s may ask for itself alone', current_user);
    END IF;
    RETURN (SELECT coalesce(array_agg(o.context_id), '{}') FROM postern.own_contexts o
        WHERE CASE at_least WHEN 'reader' THEN true WHEN 'admin' THEN o.administers ELSE o.executes END);
END $$;
-- +goose StatementEnd

-- What was applied under a label: context_id is where the label is kept, of_context where the thing lies. A thing that
-- several labels name has several rows. A row only says that the label named it: the thing may be gone by now.
CREATE TABLE postern.applied (
    context_id int  NOT NULL,
    label      text NOT NULL,
    of_context int  NOT NULL,
    kind       text NOT NULL,
    name       text NOT NULL,
    CONSTRAINT one_row_per_label_and_thing PRIMARY KEY (context_id, label, of_context, kind, name)
);
CREATE INDEX applied_by_thing ON postern.applied (of_context, kind, name);

CREATE TABLE postern.audit (
    audit_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id int NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text NOT NULL,
    via        text NOT NULL,
    action     text NOT NULL,
    object     text NOT NULL,
    reason     text NOT NULL DEFAULT '',
    request_id text NOT NULL DEFAULT '',
    before     jsonb,
    after      jsonb
);
CREATE INDEX audit_by_object ON postern.audit (context_id, object, at);
CREATE INDEX audit_by_time ON postern.audit (context_id, at, audit_id);

-- +goose Down
DROP TABLE postern.audit;
DROP TABLE postern.applied;
DROP FUNCTION postern.contexts_of;
DROP VIEW postern.own_contexts;
DROP TABLE postern.sql_role;
DROP TABLE postern.ui_session;
DROP TABLE postern.api_key;
DROP TABLE postern.member;
DROP TABLE postern.actor;
DROP TABLE postern.context;
DROP TABLE postern.unreconciled;
DROP TABLE postern.quarantine;
DROP TABLE postern.store;
DROP TABLE postern.identity;
DROP FUNCTION postern.broken;
