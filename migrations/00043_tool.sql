-- The registry of tools (S1.7): what each takes, what it answers, and whether it is ready.
-- +goose Up
CREATE TABLE postern.tool (
    tool_id       int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id    int NOT NULL,                -- of system: every context may call it
    fqn           text NOT NULL,
    url           text NOT NULL,
    description   text NOT NULL,
    timeout       interval NOT NULL,
    max_answer    int NOT NULL,
    sign          text NOT NULL CONSTRAINT tool_signature_is_known CHECK (sign IN ('', 'ed25519')), -- how calls are signed
    ttl           interval NOT NULL,           -- for so long is believed what its /meta said
    check_every   interval NOT NULL,           -- 0: it is not asked whether it is ready
    discovered    boolean NOT NULL,            -- the schemas are those of its /meta
    input_schema  json NOT NULL,
    output_schema json NOT NULL,
    read_at       timestamptz,                 -- when its /meta was read last
    refresh_at    timestamptz,                 -- when it is read next; NULL: never
    refresh_error text NOT NULL DEFAULT '',
    health        text NOT NULL DEFAULT 'unknown' CONSTRAINT tool_health_is_known CHECK (health IN ('unknown', 'ready', 'failing')),
    health_since  timestamptz,
    health_error  text NOT NULL DEFAULT '',
    failures      int NOT NULL DEFAULT 0,      -- probes in a row
    checked_at    timestamptz,
    check_at      timestamptz,                 -- of the next probe; NULL: there is none
    removed_at    timestamptz,
    version       bigint NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL,
    CONSTRAINT one_tool_per_fqn UNIQUE (context_id, fqn)
) WITH (fillfactor = 50);

-- Contexts are kept apart here as everywhere; see the migration that makes the roles.
ALTER TABLE postern.tool ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.tool USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
SELECT postern.renew_roles();

-- +goose Down
DROP TABLE postern.tool;
