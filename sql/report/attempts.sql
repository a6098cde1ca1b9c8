-- What was tried of a transaction, and what came of it? :ref is its id or its uid.
SELECT attempt, sender, node, hash, started_at, answered_at, class, error
FROM postern.attempts(:'ref');
