-- What is stored, by day, how large is it, and what keeps it?
SELECT day, sum(rows_estimate) FILTER (WHERE relation = 'task') AS transactions, pg_size_pretty(sum(bytes)) AS size, held_by
FROM report.retention GROUP BY day, held_by ORDER BY day;
