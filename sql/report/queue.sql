-- What waits in a queue, in which order? The first row is its head.
SELECT position, uid, type, state, received_at, next_at
FROM postern.transactions WHERE queue = :'queue' AND state NOT IN ('DONE', 'FAILED', 'UNRESOLVED', 'CANCELLED')
ORDER BY position LIMIT 50;
