-- Which processes are alive?
SELECT node, version, epoch, live, heartbeat_age, queues, draining, as_of, types, concurrency, calls
FROM report.nodes ORDER BY node;
