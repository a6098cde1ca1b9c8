-- In which state do transactions spend their time?
SELECT hour, state, n, p50, p95, max, as_of
FROM report.time_in_state WHERE hour > now() - interval '24 hours' ORDER BY hour DESC, state;
