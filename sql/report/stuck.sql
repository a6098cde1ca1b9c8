-- What stands still, why, and what would move it?
SELECT as_of, queue, uid, state, age, blocker, blocker_detail, next_at, next_action, lever
FROM report.stuck ORDER BY age DESC;
