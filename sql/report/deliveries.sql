-- Which webhooks lag behind? pending is counted to 10,000.
SELECT subscription, endpoint, pending, oldest_pending, failing_since, last_error
FROM report.deliveries ORDER BY oldest_pending;
