-- What is stored, by day, how large is it, what is old enough to go, and what holds it?
SELECT day, sum(rows_estimate) FILTER (WHERE relation = 'task') AS transactions, pg_size_pretty(sum(bytes)) AS size, droppable, held_by
FROM report.retention GROUP BY day, droppable, held_by ORDER BY day;
