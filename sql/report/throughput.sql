-- How much came, and how much ended, by hour?
SELECT hour, type, accepted, done, failed, unresolved, cancelled, retries, as_of
FROM report.throughput_hourly WHERE hour > now() - interval '24 hours' ORDER BY hour DESC, type;
