-- Lists narrowed by a state that few rows have, and what is open in a domain, without a read of all rows.
-- +goose Up

-- What has not ended, by state. A step has all of it before it, so that it counts it.
ALTER TABLE postern.coord_state
    ADD COLUMN intents jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN works jsonb NOT NULL DEFAULT '{}';
UPDATE postern.coord_state s
SET intents = coalesce((SELECT jsonb_object_agg(x.state, x.n)
        FROM (SELECT i.state, count(*) AS n
            FROM postern.coord_intent i
            WHERE i.domain_id = s.domain_id AND i.ended_at IS NULL
            GROUP BY i.state) x), '{}'),
    works = coalesce((SELECT jsonb_object_agg(x.state, x.n)
        FROM (SELECT w.state, count(*) AS n
            FROM postern.coord_work w
            WHERE w.domain_id = s.domain_id AND w.state NOT IN ('Final', 'Evicted')
            GROUP BY w.state) x), '{}');

-- What most rows come to is not in these: a list of it finds it along the times.
CREATE INDEX message_sent_by_status ON postern.message (context_id, status, created_at, message_id)
    WHERE context_id IS NOT NULL AND status <> 'processed';
CREATE INDEX message_received_by_status ON postern.message (target_id, status, created_at, message_id)
    WHERE target_id IS NOT NULL AND delivered_at IS NOT NULL AND status <> 'processed';
CREATE INDEX flow_by_status ON postern.flow (context_id, status, created_at, flow_id) WHERE status <> 'finished';
CREATE INDEX job_by_status ON postern.job (context_id, status, created_at, job_id) WHERE status <> 'finished';
CREATE INDEX event_by_status ON postern.event (context_id, status, created_at, event_id) WHERE status <> 'Successful';
CREATE INDEX delivery_failed_by_time ON postern.delivery (context_id, created_at, queue_id, seq) WHERE state = 'failed';

-- The state of an intent that is open is in no index: it changes with each step, and changes no index then.
CREATE INDEX intent_by_receipt ON postern.coord_intent (domain_id, receipt, seq) WHERE receipt IS NOT NULL;
DROP INDEX postern.intent_held;
CREATE INDEX intent_held ON postern.coord_intent (domain_id, seq) WHERE held;
SELECT postern.renew_roles();

-- +goose Down
DROP INDEX postern.intent_held;
CREATE INDEX intent_held ON postern.coord_intent (domain_id) WHERE held;
DROP INDEX postern.intent_by_receipt;
DROP INDEX postern.delivery_failed_by_time;
DROP INDEX postern.event_by_status;
DROP INDEX postern.job_by_status;
DROP INDEX postern.flow_by_status;
DROP INDEX postern.message_received_by_status;
DROP INDEX postern.message_sent_by_status;
ALTER TABLE postern.coord_state
    DROP COLUMN works,
    DROP COLUMN intents;
