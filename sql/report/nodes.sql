-- Which processes are alive?
SELECT node, version, epoch, live, heartbeat_age FROM report.nodes ORDER BY node;
