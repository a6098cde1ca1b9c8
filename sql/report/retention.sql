-- What is stored, by partitions of a day or more, how large is it, what is old enough to go, how much longer than
-- asked for has it been kept, and what holds it?
SELECT day, last_day, sum(rows_estimate) FILTER (WHERE relation = 'task') AS transactions,
    pg_size_pretty(sum(bytes)) AS size, droppable,
    days_longer, held_by
FROM report.retention
GROUP BY day, last_day, droppable, days_longer, held_by
ORDER BY day;
