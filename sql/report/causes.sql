-- What is there to look into, one line for each cause, and what would move it?
SELECT context, cause, type, n, age, detail, id, lever
FROM report.causes ORDER BY since;
