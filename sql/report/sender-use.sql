-- Which senders are busy?
SELECT pool, sender, state, busy_share_1h, transactions_24h, failures_24h, as_of
FROM report.sender_use ORDER BY busy_share_1h DESC NULLS LAST LIMIT 50;
