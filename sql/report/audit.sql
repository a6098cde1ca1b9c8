-- Who changed an object, and why? :object is a path of the API, such as /queues/claim-7f3.
SELECT at, actor, via, action, reason
FROM report.audit WHERE object = :'object' ORDER BY at DESC LIMIT 50;
