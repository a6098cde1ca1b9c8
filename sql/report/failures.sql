-- What failed in the last 24 hours, and why? sample_id is one of them, for transaction.sql.
SELECT type, error_class, error_code, sum(n) AS n, min(first_at) AS first_at, max(last_at) AS last_at,
    (array_agg(sample_id ORDER BY last_at DESC))[1] AS sample_id
FROM report.failures WHERE hour > now() - interval '24 hours'
GROUP BY type, error_class, error_code ORDER BY n DESC;
