-- How long did it take, by hour of the end?
SELECT hour, type, n, wait_p50, wait_p95, dispatch_p95, inclusion_p95, total_p50, total_p95, total_max, as_of
FROM report.latency_hourly WHERE hour > now() - interval '24 hours' ORDER BY hour DESC, type;
