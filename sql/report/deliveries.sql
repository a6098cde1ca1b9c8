-- Which webhooks lag behind? pending and failed are counted to 10,000.
SELECT subscription, endpoint, pending, failed, delivered_24h, oldest_pending, failing_since, last_error
FROM report.deliveries ORDER BY oldest_pending;
