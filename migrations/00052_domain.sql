-- Domains: what several installations agree on, as this one has it (S3). The rows of a domain are changed behind the
-- lock of its row of coord_state alone, but for the leases of calls.
-- +goose Up
CREATE TABLE postern.domain (
    domain_id  int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    context_id int NOT NULL,
    name       text NOT NULL,
    settings   jsonb NOT NULL,
    paused     boolean NOT NULL DEFAULT false,
    removed_at timestamptz,
    version    bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_domain_per_name UNIQUE (context_id, name)
);

-- The seat of a domain. image is the seat and what is known of each node, as internal/coord has them. The lock.
CREATE TABLE postern.coord_state (
    domain_id   int NOT NULL CONSTRAINT one_seat_per_domain PRIMARY KEY,
    image       jsonb NOT NULL,
    originator  text NOT NULL,
    coordinator text NOT NULL,
    height      bigint NOT NULL DEFAULT 0 CONSTRAINT domain_height_is_not_negative CHECK (height >= 0), -- as last told
    step        bigint NOT NULL DEFAULT 0,     -- rises with each: whose image is of this one reads nothing
    life        bigint NOT NULL,               -- of the store, at the last step: with another one it has lost something
    lives       bigint[] NOT NULL DEFAULT '{}', -- processes that have taken a step since all were down
    due         timestamptz,                   -- when it is to be looked at; null: it rests
    still       boolean NOT NULL DEFAULT false, -- it waits for what others say: its service is not called
    changed     jsonb NOT NULL DEFAULT '[]'    -- which intents the last steps have changed
) WITH (fillfactor = 50);

-- The legal edges of coord.OriginatorTransaction; a function for the reason that queue_keeps_its_rules gives.
-- +goose StatementBegin
CREATE FUNCTION postern.intent_keeps_its_rules(was text, state text, receipt text, ended_at timestamptz)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE
        WHEN (state IN ('Confirmed', 'Reverted')) <> (receipt IS NOT NULL) OR (receipt IS NULL) <> (ended_at IS NULL)
            THEN postern.broken('coord_intent', 'receipt_comes_with_the_end')
        WHEN receipt NOT IN ('success', 'failure') OR (receipt = 'success') <> (state = 'Confirmed')
            THEN postern.broken('coord_intent', 'receipt_says_what_the_state_says')
        WHEN NOT
CASE was WHEN '' THEN state IN ('Reverted', 'Pending') WHEN 'Pending' THEN state IN ('Delegated', 'Reverted', 'Confirmed', 'Pending') WHEN 'Delegated' THEN state IN ('Assembling', 'Delegated', 'Dispatched', 'Confirmed', 'Reverted') WHEN 'Assembling' THEN state IN ('Signing', 'Assembling', 'EndorsementGathering', 'Reverted', 'Delegated', 'Parked', 'Confirmed') WHEN 'Signing' THEN state IN ('EndorsementGathering', 'Reverted', 'Delegated', 'Parked', 'Signing', 'Assembling', 'Confirmed') WHEN 'EndorsementGathering' THEN state IN ('EndorsementGathering', 'Assembling', 'Prepared', 'Confirmed', 'Reverted', 'Delegated') WHEN 'Prepared' THEN state IN ('Prepared', 'Assembling', 'Dispatched', 'Confirmed', 'Reverted', 'Delegated') WHEN 'Dispatched' THEN state IN ('Assembling', 'Dispatched', 'Sequenced', 'Submitted', 'Confirmed', 'Reverted', 'Delegated') WHEN 'Sequenced' THEN state IN ('Assembling', 'Sequenced', 'Submitted', 'Confirmed', 'Reverted', 'Delegated') WHEN 'Submitted' THEN state IN ('Assembling', 'Submitted', 'Confirmed', 'Reverted', 'Delegated') WHEN 'Parked' THEN state IN ('Confirmed', 'Reverted', 'Parked', 'Pending') ELSE false END
            THEN postern.broken('coord_intent', 'intent_follows_the_machine')
        ELSE true END;
END $$;
-- +goose StatementEnd

-- What a client of this installation wants done once. It ends with one receipt.
CREATE TABLE postern.coord_intent (
    domain_id  int NOT NULL,
    intent_id  uuid NOT NULL,
    seq        bigint NOT NULL,
    uid        text,
    hash       bytea NOT NULL,                 -- of the request, compared when the uid is known already
    actor      text NOT NULL,
    party      text NOT NULL,
    was        text NOT NULL DEFAULT '',
    state      text NOT NULL,
    since      timestamptz NOT NULL,
    held       boolean NOT NULL DEFAULT true,  -- it is a part of the image
    image      jsonb NOT NULL,
    receipt    text,
    text       text NOT NULL DEFAULT '',       -- of the receipt
    parked     text NOT NULL DEFAULT '',       -- why it is Parked
    created_at timestamptz NOT NULL,
    ended_at   timestamptz,
    CONSTRAINT one_row_per_intent PRIMARY KEY (domain_id, intent_id),
    CONSTRAINT one_intent_per_seq UNIQUE (domain_id, seq),
    CONSTRAINT an_intent_keeps_its_rules CHECK (postern.intent_keeps_its_rules(was, state, receipt, ended_at))
) WITH (fillfactor = 50);
CREATE INDEX intent_held ON postern.coord_intent (domain_id) WHERE held;
CREATE INDEX intent_by_end ON postern.coord_intent (ended_at) WHERE ended_at IS NOT NULL;

-- The yes of an intent's originator to one generation of one holder (S3.18).
CREATE TABLE postern.coord_permit (
    domain_id  int NOT NULL,
    intent_id  uuid NOT NULL,
    n          int NOT NULL,
    generation bigint NOT NULL,
    node       text NOT NULL,
    install    bigint NOT NULL,
    beat       bigint NOT NULL,
    given_at   timestamptz NOT NULL,
    asked_at   timestamptz,
    closed_at  timestamptz,
    closed_by  text NOT NULL DEFAULT '',
    ended      boolean NOT NULL DEFAULT false,
    CONSTRAINT one_row_per_permit PRIMARY KEY (domain_id, intent_id, n),
    CONSTRAINT what_has_ended_is_closed CHECK (NOT ended OR closed_at IS NOT NULL)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX one_open_permit_per_intent ON postern.coord_permit (domain_id, intent_id) WHERE closed_at IS NULL;

-- The legal edges of coord.CoordinatorTransaction.
-- +goose StatementBegin
CREATE FUNCTION postern.work_keeps_its_rules(was text, state text)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE
        WHEN NOT
CASE was WHEN '' THEN state IN ('PreAssembly_Blocked', 'Pooled') WHEN 'PreAssembly_Blocked' THEN state IN ('Pooled', 'Evicted') WHEN 'Pooled' THEN state IN ('Assembling', 'PreAssembly_Blocked', 'Evicted') WHEN 'Assembling' THEN state IN ('Assembling', 'Pooled', 'Endorsement_Gathering', 'Confirming_Dispatch', 'Blocked', 'Reverted', 'Final', 'Evicted') WHEN 'Endorsement_Gathering' THEN state IN ('Endorsement_Gathering', 'Confirming_Dispatch', 'Blocked', 'Pooled', 'Reverted', 'Evicted') WHEN 'Blocked' THEN state IN ('Confirming_Dispatch', 'Pooled', 'Evicted') WHEN 'Confirming_Dispatch' THEN state IN ('Ready_For_Dispatch', 'Confirming_Dispatch', 'Pooled', 'Evicted', 'Final') WHEN 'Ready_For_Dispatch' THEN state IN ('Dispatched', 'Pooled', 'Evicted') WHEN 'Dispatched' THEN state IN ('Dispatched', 'Pooled', 'Evicted', 'Submitted', 'Confirmed', 'Reverted') WHEN 'Submitted' THEN state IN ('Pooled', 'Evicted', 'Submitted', 'Confirmed', 'Reverted') WHEN 'Confirmed' THEN state IN ('Final', 'Confirmed') WHEN 'Reverted' THEN state IN ('Final', 'Reverted') ELSE false END
            THEN postern.broken('coord_work', 'work_follows_the_machine')
        ELSE true END;
END $$;
-- +goose StatementEnd

-- The coordinator's transaction for an intent.
CREATE TABLE postern.coord_work (
    domain_id  int NOT NULL,
    intent_id  uuid NOT NULL,
    place      bigint NOT NULL,
    was        text NOT NULL DEFAULT '',
    state      text NOT NULL,
    since      timestamptz NOT NULL,
    generation bigint NOT NULL,
    held       boolean NOT NULL DEFAULT true,
    image      jsonb NOT NULL,
    CONSTRAINT one_work_per_intent PRIMARY KEY (domain_id, intent_id),
    CONSTRAINT a_work_keeps_its_rules CHECK (postern.work_keeps_its_rules(was, state))
) WITH (fillfactor = 50);
CREATE INDEX work_held ON postern.coord_work (domain_id) WHERE held;
CREATE UNIQUE INDEX one_assembling_per_domain ON postern.coord_work (domain_id) WHERE state = 'Assembling';

-- Which work spends a state, from when it is assembled until it is over.
CREATE TABLE postern.coord_spend (
    domain_id int NOT NULL,
    state_id  text NOT NULL,
    intent_id uuid NOT NULL,
    CONSTRAINT one_spender_per_state PRIMARY KEY (domain_id, state_id)
);
CREATE INDEX spend_by_intent ON postern.coord_spend (domain_id, intent_id);

-- The public transactions of works: one for each generation that was dispatched. It is posted to the core after the
-- commit that inserts its row, under its uid.
CREATE TABLE postern.coord_activity (
    domain_id  int NOT NULL,
    intent_id  uuid NOT NULL,
    generation bigint NOT NULL,
    n          bigint GENERATED ALWAYS AS IDENTITY,
    work_uid   text NOT NULL,
    uid        text NOT NULL,
    depends_on text[] NOT NULL DEFAULT '{}',   -- uids of those that make its inputs
    at         timestamptz NOT NULL,
    posted_at  timestamptz,
    recalled   boolean NOT NULL DEFAULT false, -- it is to be cancelled unless it may have gone out
    held_back  boolean NOT NULL DEFAULT false, -- it is suspended until its domain goes on
    state      text NOT NULL DEFAULT '',       -- the last word of the core that was heard
    nonce      text NOT NULL DEFAULT '',
    hash       text NOT NULL DEFAULT '',
    error      text NOT NULL DEFAULT '',       -- why that word could not be taken
    ended_at   timestamptz,
    CONSTRAINT one_activity_per_generation PRIMARY KEY (domain_id, intent_id, generation)
) WITH (fillfactor = 50);
CREATE INDEX activity_open ON postern.coord_activity (domain_id, n) WHERE ended_at IS NULL;

-- What was sent, and what the services of domains made of it; written once.
CREATE TABLE postern.coord_payload (
    domain_id  int NOT NULL,
    intent_id  uuid NOT NULL,
    generation bigint NOT NULL,                -- 0: of the intent itself
    part       text NOT NULL CONSTRAINT part_is_known
        CHECK (part IN ('intent', 'pending', 'assembled', 'sign', 'endorse', 'prepared')),
    name       text NOT NULL DEFAULT '',       -- of the attestation
    party      text NOT NULL DEFAULT '',
    data       json NOT NULL,
    at         timestamptz NOT NULL,
    CONSTRAINT one_row_per_part PRIMARY KEY (domain_id, intent_id, generation, part, name, party)
);

-- Calls of the services of domains that have no answer yet. Any process takes one, for the time of its lease.
CREATE TABLE postern.coord_call (
    domain_id    int NOT NULL,
    key          text NOT NULL,
    kind         text NOT NULL CONSTRAINT kind_of_call_is_known
        CHECK (kind IN ('assemble', 'sign', 'endorse', 'prepare', 'look', 'settled', 'height')),
    intent_id    uuid,
    generation   bigint NOT NULL DEFAULT 0,
    call         jsonb NOT NULL,               -- as internal/coord has it
    makers       jsonb NOT NULL DEFAULT '{}',  -- by the id of each state that may be used: the work that makes it
    due          timestamptz NOT NULL,
    tries        int NOT NULL DEFAULT 0,
    fence        bigint NOT NULL DEFAULT 0,    -- rises with each lease
    leased_by    bigint,
    leased_until timestamptz,
    error        text NOT NULL DEFAULT '',     -- of the last try
    aside        boolean NOT NULL DEFAULT false, -- its answer could not be taken: it is not called again
    CONSTRAINT one_call_per_key PRIMARY KEY (domain_id, key)
) WITH (fillfactor = 50);

-- What happened to an intent, to a work, or to the seat.
CREATE TABLE postern.coord_step (
    domain_id  int NOT NULL,
    object     text NOT NULL,                  -- the id of an intent; '' is the seat
    n          bigint GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL,
    machine    text NOT NULL,
    was        text NOT NULL,
    event      text NOT NULL,
    state      text NOT NULL,
    generation bigint NOT NULL DEFAULT 0,
    node       text NOT NULL DEFAULT '',
    reason     text NOT NULL DEFAULT '',
    CONSTRAINT one_row_per_coord_step PRIMARY KEY (domain_id, object, n)
);

-- One row for each of the two parts that an installation has in a domain. heartbeat_age is that of the last word of
-- another node that coordinates.
CREATE VIEW report.domains WITH (security_barrier) AS
SELECT c.name AS context, d.name AS domain, r.role, d.settings->>'self' AS node, r.state,
    CASE WHEN s.coordinator = 'Active' THEN d.settings->>'self' ELSE a.node END AS active_node, r.in_flight, r.pooled,
    r.oldest, CASE WHEN s.coordinator <> 'Active' THEN clock_timestamp() - a.heard_at END AS heartbeat_age
FROM postern.domain d
JOIN postern.coord_state s ON s.domain_id = d.domain_id
JOIN postern.context c ON c.context_id = d.context_id
LEFT JOIN LATERAL (SELECT p.value->>'Node' AS node, (p.value->>'HeardAt')::timestamptz AS heard_at
    FROM jsonb_array_elements(s.image->'Peers') p
    WHERE p.value->>'State' = 'Active' AND p.value->>'Node' <> d.settings->>'self'
    ORDER BY (p.value->>'HeardAt')::timestamptz DESC
    LIMIT 1) a ON true
CROSS JOIN LATERAL (
    SELECT 'originator', s.originator, count(*), count(*) FILTER (WHERE i.state = 'Pending'), min(i.created_at)
    FROM postern.coord_intent i WHERE i.domain_id = d.domain_id AND i.held AND i.ended_at IS NULL
    UNION ALL
    SELECT 'coordinator', s.coordinator, count(*), count(*) FILTER (WHERE w.state = 'Pooled'), min(w.since)
    FROM postern.coord_work w
    WHERE w.domain_id = d.domain_id AND w.held AND w.state NOT IN ('Confirmed', 'Reverted', 'Final', 'Evicted')
    ) r(role, state, in_flight, pooled, oldest)
WHERE d.removed_at IS NULL AND d.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

-- seconds are those in each state, as GET /domains/{name}/intents/{id}/history has them.
CREATE VIEW report.intents WITH (security_barrier) AS
SELECT c.name AS context, d.name AS domain, i.intent_id AS id, i.uid, i.actor AS caller, i.party, i.state, i.since,
    nullif(i.image->>'Delegate', '') AS delegate, p.node AS permit, i.receipt, nullif(i.text, '') AS text,
    nullif(i.parked, '') AS parked, nullif(a.nonce, '') AS nonce, nullif(a.hash, '') AS hash, x.seconds, i.created_at,
    i.ended_at
FROM postern.coord_intent i
JOIN postern.domain d ON d.domain_id = i.domain_id
JOIN postern.context c ON c.context_id = d.context_id
LEFT JOIN postern.coord_permit p ON (p.domain_id, p.intent_id) = (i.domain_id, i.intent_id) AND p.closed_at IS NULL
LEFT JOIN LATERAL (SELECT y.nonce, y.hash FROM postern.coord_activity y
    WHERE (y.domain_id, y.intent_id) = (i.domain_id, i.intent_id) ORDER BY y.generation DESC LIMIT 1) a ON true
LEFT JOIN LATERAL (SELECT jsonb_object_agg(z.state, z.seconds) AS seconds FROM (
    SELECT y.state, round(sum(extract(epoch FROM y.until - y.at)), 6) AS seconds
    FROM (SELECT t.state, t.at, lead(t.at, 1, CASE WHEN i.ended_at IS NULL THEN clock_timestamp() ELSE t.at END)
            OVER (ORDER BY t.n) AS until
        FROM postern.coord_step t
        WHERE t.domain_id = i.domain_id AND t.object = i.intent_id::text AND t.machine = 'originator_transaction') y
    GROUP BY y.state) z) x ON true
WHERE d.context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]);

-- Coordination messages of other nodes that no step has taken. A newer one takes the slot of an older one.
CREATE TABLE postern.coord_in (
    domain_id int NOT NULL,
    node      text NOT NULL,
    slot      text NOT NULL,
    n         bigint GENERATED ALWAYS AS IDENTITY,
    beat      bigint NOT NULL,
    message   json NOT NULL,                   -- as it came
    error     text NOT NULL DEFAULT '',        -- why it could not be taken: then it is put aside
    CONSTRAINT one_message_per_slot PRIMARY KEY (domain_id, node, slot)
) WITH (fillfactor = 50);

-- Coordination messages to other nodes, until these have taken them, or a minute is over. Each process sends.
CREATE TABLE postern.coord_out (
    domain_id    int NOT NULL,
    node         text NOT NULL,
    slot         text NOT NULL,
    beat         bigint NOT NULL,              -- rises with each message of a domain: it names this one
    message      json NOT NULL,                -- as internal/coord has it
    makers       jsonb NOT NULL DEFAULT '{}',  -- by the id of each state that may be used: the work that makes it
    at           timestamptz NOT NULL,
    leased_until timestamptz,
    error        text NOT NULL DEFAULT '',     -- of the last try
    CONSTRAINT one_message_out_per_slot PRIMARY KEY (domain_id, node, slot)
) WITH (fillfactor = 50);

ALTER TABLE postern.domain ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postern.domain USING (context_id = ANY ((SELECT postern.contexts_of(current_user))::int[]));
-- +goose StatementBegin
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['coord_state', 'coord_intent', 'coord_permit', 'coord_work', 'coord_spend',
            'coord_activity', 'coord_payload', 'coord_call', 'coord_step', 'coord_in', 'coord_out'] LOOP
        EXECUTE format('ALTER TABLE postern.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant ON postern.%I USING (EXISTS (SELECT FROM postern.domain d
            WHERE d.domain_id = %I.domain_id))', t, t);
    END LOOP;
END $$;
-- +goose StatementEnd
SELECT postern.renew_roles();

-- +goose Down
DROP VIEW report.intents;
DROP VIEW report.domains;
DROP TABLE postern.coord_out;
DROP TABLE postern.coord_in;
DROP TABLE postern.coord_step;
DROP TABLE postern.coord_call;
DROP TABLE postern.coord_payload;
DROP TABLE postern.coord_activity;
DROP TABLE postern.coord_spend;
DROP TABLE postern.coord_work;
DROP FUNCTION postern.work_keeps_its_rules;
DROP TABLE postern.coord_permit;
DROP TABLE postern.coord_intent;
DROP FUNCTION postern.intent_keeps_its_rules;
DROP TABLE postern.coord_state;
DROP TABLE postern.domain;
