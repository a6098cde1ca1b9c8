-- Which senders are bound, and which are blocked?
SELECT pool, sender, state, queue, bound_since, blocked_until, block_reason
FROM postern.senders ORDER BY blocked_until DESC NULLS LAST, pool, sender LIMIT 50;
