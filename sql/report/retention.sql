-- What is stored, how large is it, and what is old enough to go?
-- A partition holds a day or more: it also says how much longer than asked for it is kept, and what holds it.
SELECT day, last_day, sum(rows_estimate) FILTER (WHERE relation = 'task') AS transactions,
    pg_size_pretty(sum(bytes)) AS size, droppable,
    days_longer, held_by
FROM report.retention
GROUP BY day, last_day, droppable, days_longer, held_by
ORDER BY day;
