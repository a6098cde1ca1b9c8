-- What follows from the ends of scripts commits with their acknowledgement, or comes again. See docs/sql-flows.md.
BEGIN;
WITH e AS MATERIALIZED (SELECT cursor, event, uid, body FROM postern.feed('scripts', 100)),
    effect AS (UPDATE orders SET total = (e.body->'result'->>'n')::int FROM e
        WHERE event = 'job.finished' AND uid = 'order-' || id || '-sum')
SELECT postern.ack('scripts', (array_agg(cursor))[count(*)]) FROM e HAVING count(*) > 0;
COMMIT;
